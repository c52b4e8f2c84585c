"""Memory of an emulated device: blocks with guarded borders, and pools that give freed blocks out again as CuPy's pool does.

A block freed on the stream that it was allocated on goes back to that stream, at once: work of that stream comes after, by order. Whether
work of another stream still needs it is the program's business on a real GPU; here `hazards.py` sees it. Blocks are reused for the same
size only, so that the first byte beside an array is the first byte beside its block.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab.backends.cuda.driver import MemoryUse, out_of_memory
from gradlab.backends.cuda.emulator.guarded_memory import POISON, GuardedMemory

MOST_CACHED = 256 << 20  # bytes that a pool keeps: the host's memory is smaller than a GPU's


class Block:
    """Memory of a device. `life` counts how often it was given out, `alive` whether it is now; `fresh` until its first use. `dtype` is what
    it was given out for, `seen` what views take its bits for."""

    __slots__ = ("__weakref__", "alive", "device", "dtype", "fresh", "life", "memory", "pool", "seen", "size", "stream")

    def __init__(self, pool: Pool, size: int, stream: int) -> None:
        self.memory = GuardedMemory(size)
        self.pool, self.size, self.stream, self.device = pool, size, stream, pool.device.index
        self.life, self.alive, self.fresh = 0, False, False
        self.dtype: np.dtype[Any] = np.dtype(np.uint8)
        self.seen: tuple[np.dtype[Any], ...] = ()

    @property
    def address(self) -> int:
        return self.memory.address

    def poison(self) -> None:
        """NaN patterns, as fresh memory has: what a reused block held must not be seen."""
        ctypes.memset(self.memory.address, POISON, self.size)


class Life:
    """One life of a block: whoever holds this holds the memory."""

    __slots__ = ("_block", "_returned")

    def __init__(self, block: Block) -> None:
        self._block, self._returned = block, block.pool.returned

    def __del__(self) -> None:
        self._block.alive = False
        self._returned.append(self._block)  # the pool looks there; a finalizer may run anywhere, so it takes no lock

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """The memory as an array, which keeps this life."""
        return np.asarray(_Interface(self, self._block.address, shape, dtype)).view(dtype)


class _Interface:
    """What NumPy keeps as the base of an array."""

    def __init__(self, life: Life, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._life = life
        stored = dtype.str if dtype.kind != "V" else f"<u{dtype.itemsize}"  # bfloat16 has no name in the protocol
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": stored, "data": (address, False)}


def see(array: np.ndarray[Any, Any]) -> None:
    """Note that the block an array lies in is read and written as elements of the array's dtype, too."""
    base: Any = array
    while not isinstance(base, _Interface):
        base = getattr(base, "base", None)  # NumPy's as_strided puts an object between
        if base is None:
            return
    block, dtype = base._life._block, array.dtype
    if dtype != block.dtype and dtype not in block.seen:
        block.seen = (*block.seen, dtype)


class DeviceMemory:
    """All memory of one device: counts, the limit, and the blocks by address."""

    def __init__(self, index: int, limit: int) -> None:
        self.index, self.limit = index, limit
        self.allocated = self.peak = self.reserved = 0
        self.blocks: weakref.WeakValueDictionary[int, Block] = weakref.WeakValueDictionary()
        self.pools: list[Pool] = []

    def collect(self) -> None:
        """Take back what arrays have let go."""
        for pool in list(self.pools):
            pool.collect()
            if pool.closed and not pool.given:
                self.pools.remove(pool)

    def use(self) -> MemoryUse:
        self.collect()
        return MemoryUse(self.allocated, self.peak, self.reserved, self.limit)


class Pool:
    """Blocks of one device: the device's own pool, or the arena of a captured graph."""

    def __init__(self, device: DeviceMemory, lasting: bool = False) -> None:
        """lasting: freed blocks are kept, however many, because a graph works with them."""
        self.device, self.lasting = device, lasting
        self.returned: deque[Block] = deque()
        self.cached = self.given = 0  # bytes, blocks
        self.closed = False
        self._free: dict[tuple[int, int], list[Block]] = {}  # by the stream's handle (memory keeps no stream alive) and size
        self._oldest: deque[tuple[int, int]] = deque()  # where freed blocks went, in that order; some are out again
        device.pools.append(self)

    def malloc(self, size: int, stream: int, dtype: np.dtype[Any], free_cached: Callable[[], None] | None) -> Life:
        """A block's next life. free_cached: called once when memory is short; None where nothing may be freed."""
        self.device.collect()
        free = self._free.get((stream, size))
        if free:
            block = free.pop()
            self.cached -= size
            block.fresh = True
        else:
            block = self._new(size, stream, free_cached)
        device = self.device
        block.life += 1
        self.given += 1
        block.alive, block.dtype, block.seen = True, dtype, ()
        device.allocated += size
        device.peak = max(device.peak, device.allocated)
        return Life(block)

    def _new(self, size: int, stream: int, free_cached: Callable[[], None] | None) -> Block:
        device = self.device
        if size + device.reserved > device.limit and free_cached is not None:
            free_cached()
        if size + device.reserved > device.limit:
            held = device.reserved - device.allocated
            raise out_of_memory(device.index, size, device.allocated, held, device.limit - device.reserved, device.limit)
        block = Block(self, size, stream)
        device.reserved += size
        device.blocks[block.address] = block
        return block

    def collect(self) -> None:
        """Take back what arrays have let go."""
        while self.returned:
            block = self.returned.popleft()
            self.given -= 1
            self.device.allocated -= block.size
            place = (block.stream, block.size)
            self._free.setdefault(place, []).append(block)
            self._oldest.append(place)
            self.cached += block.size
            while not self.lasting and self.cached > MOST_CACHED and self._release_oldest():
                pass
        if self.closed:
            self._release_all()

    def _release_oldest(self) -> bool:
        """Queued work keeps a block that it needs."""
        while self._oldest:
            place = self._oldest.popleft()
            free = self._free.get(place)
            if free:
                block = free.pop(0)
                self.cached -= block.size
                self.device.reserved -= block.size
                return True
        return False

    def release(self) -> None:
        """Give back every block that no array holds."""
        self.collect()
        self._release_all()

    def _release_all(self) -> None:
        while self._release_oldest():
            pass
        self._free.clear()

    def close(self) -> None:
        """For an arena whose graphs are gone: the next `collect` gives back what nobody holds, later ones the rest. Takes no lock."""
        self.closed = True
