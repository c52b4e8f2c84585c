"""The number of threads of NumPy's matrix products, and of everything on the CPU.

OpenBLAS's threads wait by spinning. For the small products of a small model a second thread gains nothing, and on a busy machine it costs a
multiple: the digits run took 143 s of wall time with two threads beside other work and 14 to 23 s with one.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["get_num_threads", "set_blas_threads", "set_num_threads"]

NUMBER = "GRADLAB_NUM_THREADS"  # what compiled programs read (gradlab/graph/shares.py)


def _libraries() -> Iterator[Any]:
    folder = Path(np.__file__).parent.parent / "numpy.libs"
    for path in sorted(folder.glob("*openblas*")):
        try:
            library = ctypes.CDLL(str(path))
            library.scipy_openblas_set_num_threads64_.argtypes, library.scipy_openblas_set_num_threads64_.restype = [ctypes.c_int], None
            library.scipy_openblas_get_num_threads64_.argtypes, library.scipy_openblas_get_num_threads64_.restype = [], ctypes.c_int
        except (OSError, AttributeError):
            continue
        yield library


def set_blas_threads(count: int) -> bool:
    """Let the OpenBLAS of NumPy's wheels use `count` threads from now on. False, and nothing done, where NumPy has another library."""
    for library in _libraries():
        library.scipy_openblas_set_num_threads64_(count)
        return True
    return False


def set_num_threads(num_threads: int) -> None:
    """Use at most that many threads on the CPU from now on: in NumPy's matrix products (where NumPy has OpenBLAS), and in programs of
    `gl.compile` that are compiled later.

    TypeError for what is no integer, RuntimeError for less than 1.

    >>> import gradlab as gl
    >>> before = gl.get_num_threads()
    >>> gl.set_num_threads(1)
    >>> gl.get_num_threads()
    1
    >>> gl.set_num_threads(before)
    """
    if isinstance(num_threads, bool) or not hasattr(num_threads, "__index__"):
        raise TypeError(f"set_num_threads: an integer, not {type(num_threads).__name__}")
    count = num_threads.__index__()
    if count < 1:
        raise RuntimeError(f"set_num_threads: at least 1 thread, not {count}")
    set_blas_threads(count)
    os.environ[NUMBER] = str(count)
    compiled: Any = sys.modules.get("gradlab.graph.shares")  # a room above this one; until it is loaded it has read nothing
    if compiled is not None:
        compiled.threads.cache_clear()


def get_num_threads() -> int:
    """How many threads are used on the CPU, as `set_num_threads` says; by default one for each processor of this process."""
    if wanted := os.environ.get(NUMBER):
        return max(1, int(wanted))
    for library in _libraries():
        return int(library.scipy_openblas_get_num_threads64_())
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
