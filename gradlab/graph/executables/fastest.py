"""The fastest executable that this machine can make of a line."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gradlab.backends.native import compiler
from gradlab.backends.native.toolchain import CompileError
from gradlab.graph.executables.native.executable import NativeExecutable
from gradlab.graph.executables.numpy.executable import Line, NumpyExecutable


def executable(line: Line) -> Any:
    """By a GPU where the line is for one, else as machine code where there is a compiler, else by NumPy."""
    if line.device.type == "cuda":
        return import_module("gradlab.graph.executables.cuda.executable").CudaExecutable(line)  # imported where there is a GPU
    if compiler.available():
        try:
            return NativeExecutable(line)
        except (CompileError, OSError) as error:
            compiler.give_up(error)
    return NumpyExecutable(line)
