"""The emulated GPU's processor: CUDA C++ kernels, ours or a user's, compiled unmodified as C++ and run thread by thread.

`compile_kernels` turns a source into `EmulatedFunction`s; `EmulatedFunction.launch` runs one over memory of this process. What the
hardware would punish, or silently get wrong, raises `KernelFault` naming the kernel, the thread, the block and the line.
The driver of `gradlab.backends.cuda` uses this room; tests of kernels may too. It needs a C++ compiler and no GPU.

Copies in the background (`__pipeline_memcpy_async`) land when they are awaited, and not before; what touches them earlier is a fault.

Blocks of a cluster (`__cluster_dims__`, kernels/cuda/cluster.cuh) run together, and write into each other's shared memory.

Not emulated: inline PTX, cooperative groups, wmma. Give a kernel a path for `#ifdef __CUDAEMU__` there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gradlab.backends.cuda.emulator.build import program_library, runtime_library
from gradlab.backends.cuda.emulator.guarded_memory import GuardedMemory
from gradlab.backends.cuda.emulator.launching import ORDERS, EmulatedFunction, KernelFault, Parameter, load_runtime
from gradlab.backends.cuda.emulator.sanitizer import SANITIZERS, require
from gradlab.backends.native.seals import opened
from gradlab.backends.native.toolchain import CompileError, CompilerMissing
from gradlab.kernel import source_folders

__all__ = [
    "ORDERS",
    "CompileError",
    "CompilerMissing",
    "EmulatedFunction",
    "GuardedMemory",
    "KernelFault",
    "Parameter",
    "compile_kernels",
]


def compile_kernels(
    source: str,
    names: Sequence[str],
    *,
    label: str,
    include: Sequence[Path] | None = None,
    sanitize: str | None = None,
    races: bool | None = None,
) -> dict[str, EmulatedFunction]:
    """Compile CUDA C++ text; the kernels of those names.

    source    the text as NVRTC would get it.
    names     of `extern "C"` kernels, or name expressions such as `gradlab::softmax<float>`.
    label     the file's name in messages and debuggers.
    include   directories for `#include`; gradlab's own kernels by default.
    sanitize  "address", "undefined", "address,undefined" or "thread": the process must have been started by `run_sanitized`. By default
              the variable GRADLAB_SANITIZE, which `run_sanitized` sets.
    races     whether accesses of two threads that nothing orders are a KernelFault (in place of accesses beside arrays: a compiler checks
              one of the two). By default the variable GRADLAB_EMULATOR_RACES, on or off; off under a sanitizer.

    Programs are kept in the user's cache directory. Raises CompilerMissing without a C++ compiler, CompileError for a faulty source.
    """
    chosen = os.environ.get("GRADLAB_SANITIZE", "") if sanitize is None else sanitize
    if chosen not in SANITIZERS:
        raise ValueError(f"sanitize is {chosen!r}; it may be {', '.join(map(repr, SANITIZERS))}")
    require(chosen)
    folders = list(source_folders("cuda")) if include is None else list(include)
    path = program_library(source, names, label, folders, chosen, not chosen and (_races() if races is None else races))
    runtime = load_runtime(runtime_library(chosen))
    library = opened(path)
    misplaced = runtime.misplaced()
    if misplaced:
        raise CompileError(f"{label}: shared memory `{misplaced.decode()}` is declared outside a function; declare it in the kernel")
    return {name: EmulatedFunction(name, index, library, runtime) for index, name in enumerate(names)}


def _races() -> bool:
    wanted = os.environ.get("GRADLAB_EMULATOR_RACES", "off")
    if wanted not in {"on", "off"}:
        raise ValueError(f"GRADLAB_EMULATOR_RACES is {wanted!r}; it may be on or off")
    return wanted == "on"
