"""The number of threads of NumPy's matrix products, and of everything on the CPU.

OpenBLAS's threads wait by spinning. For the small products of a small model a second thread gains nothing, and on a busy machine it costs a
multiple: the digits run took 143 s of wall time with two threads beside other work and 14 to 23 s with one.
"""

from __future__ import annotations

import ctypes
import functools
import os

from gradlab.backends.openblas import thread_count

__all__ = ["get_num_threads", "set_blas_threads", "set_num_threads", "threads"]

NUMBER = "GRADLAB_NUM_THREADS"
MOST = (1 << 31) - 1
COUNT = ctypes.c_int64(1)  # what `threads` has given: machine code reads it here


@functools.cache
def threads() -> int:
    """How many threads a program or a kernel may use: GRADLAB_NUM_THREADS, else the processors that this process may use."""
    wanted, affinity = os.environ.get(NUMBER), getattr(os, "sched_getaffinity", None)
    COUNT.value = max(1, int(wanted)) if wanted else len(affinity(0)) if affinity else os.cpu_count() or 1
    return COUNT.value


def set_blas_threads(count: int) -> bool:
    """Let the OpenBLAS of NumPy's wheels use `count` threads from now on. False, and nothing done, where NumPy has another library."""
    if (library := thread_count()) is None:
        return False
    library[1](count)
    return True


def set_num_threads(num_threads: int) -> None:
    """Use at most that many threads on the CPU from now on: in kernels, in NumPy's matrix products (where NumPy has OpenBLAS; beside
    kernels in long ones alone, see `dispatch.product`), and in programs of `gl.compile` that are compiled later.

    TypeError for what is no integer, RuntimeError for less than 1, ValueError for more than an int of C's holds.

    >>> import gradlab as gl
    >>> before = gl.get_num_threads()
    >>> gl.set_num_threads(1)
    >>> gl.get_num_threads()
    1
    >>> gl.set_num_threads(before)
    """
    if isinstance(num_threads, bool) or not hasattr(num_threads, "__index__"):
        raise TypeError(f"set_num_threads: an integer, not {type(num_threads).__name__}")
    try:
        count = num_threads.__index__()
    except TypeError as error:  # of a tensor
        raise TypeError(f"set_num_threads: {error}") from None
    if count < 1:
        raise RuntimeError(f"set_num_threads: at least 1 thread, not {count}")
    if count > MOST:
        raise ValueError(f"set_num_threads: at most {MOST} threads, not {count}")
    set_blas_threads(count)
    os.environ[NUMBER] = str(count)
    threads.cache_clear()
    threads()


def get_num_threads() -> int:
    """How many threads are used on the CPU, as `set_num_threads` says; by default one for each processor of this process."""
    library = None if os.environ.get(NUMBER) else thread_count()
    return threads() if library is None else library[0]()
