"""What the tests of `gl.deploy` share: a C compiler, and programs built, compiled and run as processes without Python."""

import functools
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys

import numpy as np

import gradlab as gl

WARNINGS = ("-Wall", "-Wextra", "-Werror")
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


@functools.cache
def compiler():
    """The C compiler's command, or None."""
    if os.environ.get("GRADLAB_COMPILER") == "none":
        return None
    if os.environ.get("CC"):
        return tuple(shlex.split(os.environ["CC"]))
    for name in ("gcc", "clang", "cc"):
        if shutil.which(name):
            return (name,)
    return (sys.executable, "-m", "ziglang", "cc", "-fno-sanitize=all") if importlib.util.find_spec("ziglang") else None


def compiled(built, *flags, output=None):
    """The program of a build; any warning fails."""
    program = built.source.with_name(output or built.name)
    command = [*compiler(), "-std=c11", *WARNINGS, *flags, f"-D{built.name.upper()}_MAIN", str(built.source), "-lm", "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


@functools.cache
def sanitizers():
    """Whether programs with the address sanitizer can be made here."""
    command = [*compiler(), "-x", "c", "-", *SANITIZE, "-o", os.devnull]
    return subprocess.run(command, input="int main(void) { return 0; }", text=True, capture_output=True, check=False).returncode == 0


def process(program, built, *arguments, weights=None):
    """Run with an empty environment: no Python, no paths."""
    command = [str(program), str(weights or built.weights), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={}, cwd=built.source.parent)


def arrays_of(built, tensors):
    """The inputs as .npy files beside the program."""
    found = []
    for i, tensor in enumerate(tensors):
        path = built.source.with_name(f"{built.name}_in{i}.npy")
        np.save(path, tensor.numpy().copy(order="C"))
        found.append(path)
    return found


def ran(program, built, tensors):
    """The outputs of one run."""
    outs = [built.source.with_name(f"{built.name}_out{i}.npy") for i in range(len(built.outputs))]
    done = process(program, built, *arrays_of(built, tensors), *outs)
    assert done.returncode == 0, done.stderr
    return [np.load(path) for path in outs]


def traced(model, *example):
    """The program of a model in evaluation mode, and what eager gives."""
    model.eval()
    with gl.no_grad():
        return gl.jit.trace(model, example), model(*example)
