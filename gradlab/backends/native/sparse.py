"""Products of sparse matrices for eager rows: `sparse.cpp`, compiled in the background when a large one is first asked for."""

from __future__ import annotations

import ctypes
import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gradlab.backends.native import compiler
from gradlab.backends.threads import threads
from gradlab.dtype import FLOAT32, FLOAT64

KINDS = {FLOAT32: "float", FLOAT64: "double"}
FOR_ONE = 1 << 18  # multiplications that are too few for two threads


@functools.cache
def _pool(number: int, process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, "gradlab sparse")


def product(name: str, arrays: list[Any], numbers: tuple[int, int], work: int) -> bool:
    """Run `gradlab_<name>` on these arrays, the result first. False where it is not compiled (yet), or does not take them."""
    kind = KINDS.get(arrays[0].dtype)
    if kind is None or not compiler.available() or not arrays[0].flags.c_contiguous:
        return False
    library = compiler.if_built("sparse.cpp")
    if library is None:
        return False
    arrays = [a if a is None else np.ascontiguousarray(a) for a in arrays]
    function = getattr(library, f"gradlab_{name}_{kind}")
    places = (ctypes.c_void_p * len(arrays))(*[None if a is None else a.ctypes.data for a in arrays])
    sizes = (ctypes.c_int64 * 2)(*numbers)
    parts = 1 if work < FOR_ONE else threads()
    if parts == 1:
        function(places, sizes, 0, 1)
    else:
        list(_pool(parts, os.getpid()).map(lambda part: function(places, sizes, part, parts), range(parts)))
    return True
