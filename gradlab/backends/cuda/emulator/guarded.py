"""Memory of the emulated GPU: allocations with known bytes around them, so that a kernel's write beside one is seen.

`EmulatedFunction.launch` looks after every launch at the allocations that its pointers led to. Under the address sanitizer the bytes
around an allocation may not be touched at all, so that reads beside it are seen too, with the line.
"""

from __future__ import annotations

import bisect
import ctypes
import threading
from typing import Any

import numpy as np

ZONE = 256  # bytes on each side, and the alignment: that of the driver's own allocations, so that vector accesses are aligned here too
_UNTOUCHED = b"\xa5" * ZONE
POISON = 0xFF  # fresh memory reads as NaN in every floating point format, as -1 in integers


class GuardedMemory:
    """`size` bytes that begin at `address`, a multiple of 256, filled with NaN patterns.

    Keep the object for as long as the memory is used: arrays from `array` do.
    """

    __slots__ = ("__weakref__", "_raw", "address", "size")

    def __init__(self, size: int) -> None:
        self.size, self.address = size, 0
        self._raw = np.full(size + 3 * ZONE, _UNTOUCHED[0], np.uint8)
        start = int(self._raw.__array_interface__["data"][0])
        self.address = (start + ZONE - 1) // ZONE * ZONE + ZONE
        self._raw[self.address - start : self.address - start + size] = POISON
        _live.add(self)
        if _poison:
            _poison(self.address - ZONE, ZONE)
            _poison(self.address + size, ZONE)

    def array(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        """The first bytes as an array, which keeps the memory alive."""
        kind = np.dtype(dtype)
        return np.asarray(_Interface(self, shape, kind)).view(kind)

    def __del__(self) -> None:
        _live.discard(self.address)
        if _unpoison and self.address:
            _unpoison(self.address - ZONE, self.size + 2 * ZONE)


class _Interface:
    """What NumPy keeps as the base of an array over guarded memory."""

    def __init__(self, memory: GuardedMemory, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._memory = memory
        stored = dtype.str if dtype.kind != "V" else f"<u{dtype.itemsize}"  # bfloat16 has no name in the protocol
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": stored, "data": (memory.address, False)}


class _Live:
    """The allocations that exist, by address, without keeping them alive."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}
        self._lock = threading.RLock()  # a collection inside `add` may run `__del__`

    def add(self, memory: GuardedMemory) -> None:
        with self._lock:
            bisect.insort(self._starts, memory.address)
            self._sizes[memory.address] = memory.size

    def discard(self, address: int) -> None:
        with self._lock:
            if self._sizes.pop(address, None) is not None:
                del self._starts[bisect.bisect_left(self._starts, address)]

    def around(self, address: int) -> tuple[int, int] | None:
        """Start and size of the allocation that holds an address, or ends there."""
        with self._lock:
            position = bisect.bisect_right(self._starts, address) - 1
            if position < 0:
                return None
            start = self._starts[position]
            return (start, self._sizes[start]) if address <= start + self._sizes[start] else None


def _sanitizer_function(name: str) -> Any:
    try:
        function = ctypes.CDLL(None)[name]
    except AttributeError:
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    function.restype = None
    return function


_poison = _sanitizer_function("__asan_poison_memory_region")
_unpoison = _sanitizer_function("__asan_unpoison_memory_region")
_live = _Live()


def damage_around(address: int) -> str | None:
    """What was written beside the allocation that holds an address, in words; None where all is well or the memory is not guarded."""
    found = _live.around(address) if not _poison else None
    if found is None:
        return None
    start, size = found
    sides = []
    for side, zone in (("before", start - ZONE), ("after", start + size)):
        if ctypes.string_at(zone, ZONE) != _UNTOUCHED:
            sides.append(side)
            ctypes.memmove(zone, _UNTOUCHED, ZONE)  # mended, so that it is reported once
    return f"a write {' and '.join(sides)} an array of {size} bytes" if sides else None


def allocation(address: int) -> tuple[int, int] | None:
    """Start and size of the allocation that holds an address; None where the memory is not guarded."""
    return _live.around(address)
