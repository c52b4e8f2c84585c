"""One model through every door: what is made, its bytes, milliseconds of a call, and the error against eager. The table of docs/deploy.md.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python bench/doors.py [--rounds 3] [--epochs 1]

The digits' CNN as `gradlab train digits` leaves it, one picture, one thread, processor time; each door in turn, the least of many calls.
Errors are relative to the largest score of eager. A door whose tools are not installed (ziglang, Node) is left out by name.
"""

import argparse
import importlib.util
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
from c_runner import compiled, runner, session

import gradlab as gl
from gradlab import runs
from gradlab.ao import quantization
from gradlab.cli.entry import main as gradlab

CALLS = 3000


def called(function, seconds=0.3):
    """Milliseconds of processor time, the least of many calls."""
    least, end = 1e9, time.process_time() + seconds
    while time.process_time() < end:
        start = time.process_time()
        function()
        least = min(least, time.process_time() - start)
    return least * 1e3


def in_node(built, source):
    """The WebAssembly module's own clock, and what it computed."""
    out = built.source.with_name("node.npy")
    command = ["node", built.program.with_suffix(".mjs"), built.weights, source, out, "--time", str(CALLS)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[0]), np.load(out)


def in_c(program, folder, name, source):
    """A program of C: what it is, its bytes, its own clock, and what it computed."""
    built = gl.deploy.build(program, folder, name=name)
    binary = compiled(built, f"{name}_one", "-DGL_PROCESSOR_TIME")
    subprocess.run(["strip", binary], check=True)
    sizes = f"{binary.stat().st_size:,} + {built.weights.stat().st_size:,}"
    return "program and weights", sizes, lambda: runner(binary, built, source, CALLS)[0], runner(binary, built, source, 1)[1]


def doors(folder, epochs):
    """(door, what is made, bytes, a function that gives milliseconds or None, what it computed or None); and what eager computes."""
    run, source = folder / "run", folder / "x.npy"
    if gradlab(["train", "digits", "--model", "cnn", "--epochs", str(epochs), "--out", str(run)]):
        raise SystemExit("the training failed")
    model = runs.load_run(run).model.eval()
    x = gl.tensor(np.random.default_rng(0).random((1, 1, 8, 8), np.float32))
    np.save(source, x.numpy())
    found = []
    with gl.no_grad():
        expected, fast, program = model(x).numpy(), gl.compile(model), gl.jit.trace(model, (x,))
        found.append(("Python, eager", "", "", lambda: called(lambda: model(x)), None))
        for _ in range(3):
            last = fast(x).numpy()
        found.append(("Python, `gl.compile`", "", "", lambda: called(lambda: fast(x)), last))
        path = folder / "model.onnx"
        gl.onnx.export(model, (x,), path)
        theirs = onnxruntime.InferenceSession(path)
        result = theirs.run(None, {theirs.get_inputs()[0].name: x.numpy()})[0]
        found.append(("ONNX, in ONNX Runtime", "one file", f"{path.stat().st_size:,}", lambda: session(path, 1, 0.3, source), result))
        found.append(("C", *in_c(program, folder, "cnn", source)))
        seen = quantization.prepare(model)
        seen(gl.tensor(np.random.default_rng(1).random((64, 1, 8, 8), np.float32)))
        found.append(("C, int8", *in_c(gl.jit.trace(quantization.convert(seen).eval(), (x,)), folder, "few", source)))
        if importlib.util.find_spec("ziglang"):
            web = gl.deploy.build(program, folder, name="web", target="wasm32")
            sizes = f"{web.program.stat().st_size:,} + {web.weights.stat().st_size:,}"
            node = shutil.which("node") is not None
            timed = (lambda: in_node(web, source)[0]) if node else None
            found.append(("WebAssembly, in Node", "module and weights", sizes, timed, in_node(web, source)[1] if node else None))
            if gradlab(["export", str(run), "--web", str(folder / "page.html")]) == 0:
                found.append(("a page", "one file", f"{(folder / 'page.html').stat().st_size:,}", None, None))
            bare = gl.deploy.build(program, folder, name="bare", static=True, target="cortex-m3")
            found.append(("Cortex-M3", "flash / RAM", f"{bare.flash:,} / {bare.ram:,}", None, None))
        else:
            print("(no ziglang: neither WebAssembly, nor a page, nor Cortex-M3)")
    return found, expected


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found, expected = doors(Path(name), options.epochs)
        times = [1e9] * len(found)
        for _ in range(options.rounds):
            for i, (_, _, _, timed, _) in enumerate(found):
                times[i] = min(times[i], timed() if timed is not None else 1e9)
    print("| door | what is made | bytes | milliseconds | error |\n|---|---|---:|---:|---:|")
    for (door, what, size, _, result), least in zip(found, times, strict=True):
        error = "" if result is None else f"{np.abs(result - expected).max() / np.abs(expected).max():.0e}".replace("e-0", "e-")
        print(f"| {door} | {what} | {size} | {'' if least == 1e9 else f'{least:.3f}'} | {error} |")


if __name__ == "__main__":
    main()
