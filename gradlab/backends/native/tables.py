"""Tasks as the runtime reads them (`Task` of runtime.h), and where it finds an array's memory."""

from __future__ import annotations

import ctypes
import functools

import numpy as np


class Task(ctypes.Structure):
    """A kernel with its operands."""

    _fields_ = (
        ("kernel", ctypes.c_void_p), ("parameters", ctypes.c_void_p), ("places", ctypes.c_void_p),
        ("count", ctypes.c_int64), ("widest", ctypes.c_int64),
    )  # fmt: skip


@functools.cache
def pointer_word() -> int:
    """Where a NumPy array object keeps its data pointer, in words."""
    array = np.empty(3)
    return list((ctypes.c_size_t * 8).from_address(id(array))).index(array.__array_interface__["data"][0])
