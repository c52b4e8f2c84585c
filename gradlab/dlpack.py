"""DLPack's structures: what a capsule says of the memory that it carries, and the few words of it that are changed.

NumPy and CuPy make and take the capsules; what they do not know are bfloat16, which travels as two bytes of another name, and memory of
the emulated GPU, which is the host's. Layouts: dlpack.h of DLPack 1.0 (`DLManagedTensor`, `DLManagedTensorVersioned`).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from gradlab.dtype import bfloat16

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # DLPack's kinds of devices
_UNSIGNED, _BFLOAT = 1, 4  # and of numbers
_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"
VERSION = (1, 0)  # the newest that is understood here


class _Described(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Managed(ctypes.Structure):
    _fields_ = [("described", _Described), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64), ("described", _Described),
    ]  # fmt: skip


_name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


def is_capsule(value: Any) -> bool:
    """Whether this is a capsule, which older programs pass by themselves."""
    return type(value).__name__ == "PyCapsule"


def described(capsule: Any) -> _Described:
    """What a capsule that nobody has taken yet says. BufferError for another one."""
    name = _name_of(capsule)
    if name not in (_PLAIN, _VERSIONED):
        raise BufferError(f"from_dlpack: a capsule {name!r} is not one of DLPack's, or it was taken before: each is taken once")
    kind = _Managed if name == _PLAIN else _ManagedVersioned
    found: Any = ctypes.cast(_pointer_of(capsule, name), ctypes.POINTER(kind)).contents
    if name == _VERSIONED and found.major > VERSION[0]:
        raise BufferError(f"from_dlpack: a capsule of DLPack {found.major}.{found.minor}; the newest understood is {VERSION}")
    answer: _Described = found.described
    return answer


def as_bfloat16(capsule: Any) -> Any:
    """The capsule of an array of uint16 that holds bfloat16."""
    described(capsule).code = _BFLOAT
    return capsule


def device_of(source: Any) -> tuple[int, int]:
    """Where an object's memory, or a capsule's, lies: DLPack's kind of device, and its number."""
    if is_capsule(source):
        found = described(source)
        return found.device_type, found.device_id
    kind, index = source.__dlpack_device__()
    return int(kind), int(index)


class Carrier:
    """What NumPy or CuPy takes in place of another library's object: it asks that object in every version of the protocol, and notes of
    bfloat16 that it is that. `on_host` says of the emulated GPU's memory where it really lies.
    """

    def __init__(self, source: Any, stream: int | None = None, on_host: bool = False) -> None:
        self._source, self._stream, self._on_host = source, stream, on_host
        self._bfloat = False
        self.address = 0

    def __dlpack_device__(self) -> tuple[int, int]:
        if self._on_host:
            return CPU, 0
        return device_of(self._source)

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._source if is_capsule(self._source) else self._asked(options)
        found = described(capsule)
        self._bfloat = (found.code, found.bits) == (_BFLOAT, 16)
        self.address = (found.data or 0) + found.byte_offset
        if self._bfloat:
            found.code = _UNSIGNED
        elif found.code not in (0, 1, 2, 5, 6) or found.lanes != 1:
            raise BufferError(f"from_dlpack: numbers of DLPack's kind {found.code} ({found.bits} bits) have no gradlab dtype; convert them")
        if self._on_host:
            found.device_type, found.device_id = CPU, 0
        return capsule

    def _asked(self, options: dict[str, Any]) -> Any:
        """As the newest protocol that the object knows has it."""
        if self._stream is not None:
            options = {**options, "stream": self._stream}
        asked = {name: value for name, value in options.items() if value is not None}
        if self._on_host:
            asked.pop("dl_device", None)
        try:
            return self._source.__dlpack__(**asked)
        except TypeError:
            if asked.get("copy") is False:
                raise BufferError("from_dlpack: copy=False, but the producer's __dlpack__ does not say whether it copies") from None
            return self._source.__dlpack__(**{name: asked[name] for name in ("stream",) if name in asked})

    def taken(self, array: Any) -> Any:
        """What the other library made of the capsule, in its own dtype. A capsule older than DLPack 1.0, which cannot say that memory is
        read-only, is memory to write to, as PyTorch has it; NumPy takes it for read-only."""
        if is_capsule(self._source) and type(array) is np.ndarray and _name_of(self._source) != _VERSIONED and not array.flags.writeable:
            array = np.asarray(_Writable(array))
        return array.view(bfloat16.dtype) if self._bfloat else array


class _Writable:
    """An array's memory without its being read-only; what NumPy makes of it keeps the array."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def place_of(device: tuple[int, int]) -> str:
    """DLPack's device by gradlab's name. BufferError for one that gradlab does not have."""
    kind, index = map(int, device)
    if kind in (CPU, CUDA_HOST):
        return "cpu"
    if kind in (CUDA, CUDA_MANAGED):
        return f"cuda:{index}"
    raise BufferError(f"DLPack's device {kind}:{index} is none of gradlab's, which are the CPU (1) and CUDA (2)")
