"""A row's machine code as a builtin function of Python: made at run time, without Python's headers (row_call.h).

A softmax of 16 numbers takes 0.3 µs so; by ctypes a call alone is 2 µs, as much as small operations take altogether.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab.backends.native import compiler, ready
from gradlab.backends.native.lowering import Unsupported
from gradlab.backends.native.tables import pointer_word
from gradlab.backends.threads import COUNT, threads

DONE, NO_ROOM, OTHER, NO_MEMORY = -1, -2, -3, -4  # what a call gives, as in row_call.h; other numbers are of the task that found a fault
FASTCALL = 0x80  # METH_FASTCALL
_API = ("PyLong_FromLong", "PyLong_AsVoidPtr", "PyTuple_GetItem", "PyEval_SaveThread", "PyEval_RestoreThread")


class Row(ctypes.Structure):
    """`Row` of row_call.h."""

    _fields_ = (
        ("tasks", ctypes.c_void_p), ("count", ctypes.c_int64), ("arrays", ctypes.c_int64), ("scratch", ctypes.c_int64),
        ("word", ctypes.c_int64), ("aligned", ctypes.c_int64), ("dense", ctypes.c_int64), ("single", ctypes.c_int64),
        ("each", ctypes.c_int64), ("parameters", ctypes.c_int64), ("large", ctypes.c_int64),
        ("inputs", ctypes.c_int64), ("strides", ctypes.c_void_p),
    )  # fmt: skip


class _Python(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("from_long", "address", "item", "release", "restore", "threads")),
        *((name, ctypes.c_int64) for name in ("dimensions", "sizes", "flags")),
    )  # fmt: skip


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


def array_words() -> tuple[int, int, int]:
    """Where an array object keeps the number of its dimensions, its sizes (then its strides) and its flags, in words: behind the address of
    its elements, as `PyArrayObject` says. Unsupported for a NumPy whose arrays are other: there NumPy computes."""
    word = pointer_word()
    for array in (np.empty((3, 5), np.int8), np.empty((4, 6, 2), np.float64)[:, ::2], np.empty(7)[::-1]):
        words = (ctypes.c_size_t * (word + 8)).from_address(id(array))
        sizes, strides = (ctypes.cast(words[word + i], ctypes.POINTER(ctypes.c_int64))[: array.ndim] for i in (2, 3))
        found = words[word + 1] & 0xFFFFFFFF, tuple(sizes), tuple(strides), words[word + 6] & 0xFFFFFFFF
        flags = array.flags
        if found != (array.ndim, array.shape, array.strides, flags.num & 0xFFFFFFFF) or (flags.num & 1) != flags.c_contiguous:
            raise Unsupported("arrays of this NumPy are laid out otherwise than was known when this was written")
    return word + 1, word + 2, word + 6


@functools.cache
def _library() -> ctypes.CDLL:
    """The pool's library, which knows this Python."""
    found = ready.library("gradlab_row")
    assert found is not None  # a plan is made where there is one
    library = compiler.typed(found)
    threads()  # is what COUNT holds
    places = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in _API]
    library.gradlab_python(ctypes.byref(_Python(*places, ctypes.addressof(COUNT), *array_words())))
    return library


@functools.cache
def _method() -> _Method:
    function = ctypes.cast(_library().gradlab_row_call, ctypes.c_void_p).value
    return _Method(b"row", function, FASTCALL, b"A row's machine code: -1 where it is done.")


def callable_of(row: Row, *kept: Any) -> Callable[..., int]:
    """The function that runs a row on its arrays, inputs and results, in a call. It keeps what the row leads to."""
    if sys.implementation.name == "cpython":
        new = ctypes.pythonapi.PyCFunction_NewEx
        new.argtypes, new.restype = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p], ctypes.py_object
        made: Callable[..., int] = new(ctypes.addressof(_method()), (ctypes.addressof(row), row, kept), None)
        return made
    run, slots = _library().gradlab_row, ctypes.c_void_p * row.arrays

    def call(*arrays: Any) -> int:
        if len(arrays) != row.arrays:
            return OTHER
        found: int = run(ctypes.addressof(row), slots(*map(id, arrays)), threads())
        return found

    return call
