"""The OpenBLAS of NumPy's wheels, beyond what NumPy calls: its threads, and sums of two scaled vectors in one pass over memory."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gradlab.dtype import FLOAT32, FLOAT64

Scaled = Callable[[float, Any, float, Any], None]


@functools.cache
def _path() -> Path | None:
    return next(iter(sorted((Path(np.__file__).parent.parent / "numpy.libs").glob("*openblas*"))), None)


@functools.cache
def thread_count() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """How many threads it uses, and how to set it; None where NumPy has another library."""
    if (path := _path()) is None:
        return None
    try:
        library = ctypes.PyDLL(str(path))
        get, put = library.scipy_openblas_get_num_threads64_, library.scipy_openblas_set_num_threads64_
    except (OSError, AttributeError):
        return None
    get.argtypes, get.restype = [], ctypes.c_int
    put.argtypes, put.restype = [ctypes.c_int], None
    return get, put


def product_by_one_thread(x: Any, y: Any, out: Any = None) -> Any:
    """x @ y by the calling thread alone. The others would spin for 25 ms after it, on the processors that threads of kernels need then."""
    library = thread_count()
    if library is None or (threads := library[0]()) == 1:  # or another thread has set it for a moment
        return x.dot(y, out)
    library[1](1)
    try:
        return x.dot(y, out)
    finally:
        library[1](threads)


@functools.cache
def scaled_sum(dtype: np.dtype[Any]) -> Scaled | None:
    """The function y = a·x + b·y of (a, x, b, y) for contiguous arrays of that dtype; None where there is none."""
    kind = {FLOAT32: ("s", ctypes.c_float), FLOAT64: ("d", ctypes.c_double)}.get(dtype)
    if (path := _path()) is None or kind is None:
        return None
    letter, number = kind
    integer, pointer = ctypes.c_int64, ctypes.c_void_p
    try:
        function = getattr(ctypes.CDLL(str(path)), f"scipy_cblas_{letter}axpby64_")
    except (OSError, AttributeError):
        return None
    function.argtypes, function.restype = [integer, number, pointer, integer, number, pointer, integer], None

    def run(a: float, x: Any, b: float, y: Any) -> None:
        function(y.size, a, x.__array_interface__["data"][0], 1, b, y.__array_interface__["data"][0], 1)

    return run
