"""Memory of the emulated GPU: allocations with known bytes around them, so that a kernel's write beside one is seen.

`EmulatedFunction.launch` looks after every launch at the allocations that its pointers led to. Where the compiler checks accesses
(`bounds.py`) and under the address sanitizer nothing around an allocation may be touched at all, so that reads beside it are seen too, with
the line.
"""

from __future__ import annotations

import bisect
import ctypes
import threading
from typing import Any

import numpy as np

from gradlab.backends.cuda.emulator import bounds

ZONE = 256  # bytes on each side, and the alignment: that of the driver's own allocations, so that vector accesses are aligned here too
_UNTOUCHED = b"\xa5" * ZONE
MOST_ZONE = 16 << 20  # forbidden bytes on each side, as many as the allocation has: what is far beside it is seen too
POISON = 0xFF  # fresh memory reads as NaN in every floating point format, as -1 in integers


def _zone(size: int) -> int:
    """Forbidden bytes on each side of an allocation."""
    return ZONE if not bounds.mapped() else min(max(-(-size // ZONE) * ZONE, ZONE), MOST_ZONE)


class GuardedMemory:
    """`size` bytes that begin at `address`, a multiple of 256, filled with NaN patterns.

    Keep the object for as long as the memory is used: arrays from `array` do.
    """

    __slots__ = ("__weakref__", "_raw", "_zone", "address", "size")

    def __init__(self, size: int) -> None:
        self.size, self.address = size, 0
        self._zone = _zone(size)
        self._raw = np.empty(size + 2 * self._zone + ZONE, np.uint8)
        start = int(self._raw.__array_interface__["data"][0])
        self.address = (start + ZONE - 1) // ZONE * ZONE + self._zone
        first = self.address - start
        self._raw[first - ZONE : first] = self._raw[first + size : first + size + ZONE] = _UNTOUCHED[0]
        self._raw[first : first + size] = POISON
        _live.add(self)
        if bounds.mapped():
            bounds.enclose(self.address, size, self._zone)
        elif _poison:
            _poison(self.address - ZONE, ZONE)
            _poison(self.address + size, ZONE)

    def array(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        """The first bytes as an array, which keeps the memory alive."""
        kind = np.dtype(dtype)
        return np.asarray(_Interface(self, shape, kind)).view(kind)

    def __del__(self) -> None:
        _live.discard(self.address)
        if self.address and bounds.mapped():
            bounds.release(self.address, self.size, self._zone)
        elif self.address and _unpoison:
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

    def beside(self, address: int) -> tuple[int, int] | None:
        """Start and size of the allocation that an address outside of all is beside: the one in whose zone it lies, or the nearest."""
        with self._lock:
            position = bisect.bisect_right(self._starts, address)
            starts = self._starts[max(position - 1, 0) : position + 1]
            found = [(start, self._sizes[start]) for start in starts]

        def distance(one: tuple[int, int]) -> tuple[bool, int]:
            start, size = one
            away = start - address if address < start else address - start - size
            return away > _zone(size), away

        return min(found, key=distance, default=None)

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


def nearest(address: int) -> tuple[int, int] | None:
    """Start and size of the guarded allocation that an address is beside."""
    return _live.beside(address)
