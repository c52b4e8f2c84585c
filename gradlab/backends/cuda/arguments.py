"""Kernel arguments in the form in which the CUDA driver takes them: a table of addresses of values."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np


class Arguments:
    """The packed arguments of one launch. Values lie one after the other, each at a multiple of 16 bytes; the table points at them."""

    __slots__ = ("_table", "_values", "address")

    def __init__(self, values: list[Any]) -> None:
        buffers: list[Any] = []
        for value in values:
            if type(value) is int:
                buffers.append(ctypes.c_uint64(value))
            elif isinstance(value, bytes):
                buffers.append(ctypes.create_string_buffer(value, len(value)))
            else:  # a NumPy scalar: its own bytes
                buffers.append(ctypes.create_string_buffer(np.asarray(value).tobytes(), value.dtype.itemsize))
        self._values = buffers
        self._table = (ctypes.c_void_p * max(len(buffers), 1))(*(ctypes.addressof(b) for b in buffers))
        self.address = ctypes.addressof(self._table)
