"""Memory between canaries: what a kernel writes beside an array is found, and what it reads beside one is NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

ZONE = 256  # bytes on either side: more than a vector, a multiple of every alignment
CANARY = 0xFF  # of any floating point type a NaN


class Zones:
    """Makes arrays that lie between canaries, and looks at all of them."""

    def __init__(self) -> None:
        self.made: list[tuple[np.ndarray, int]] = []

    def bytes(self, size: int) -> Any:
        """Bytes between canaries, at a multiple of 64."""
        whole = np.full(size + 2 * ZONE + 64, CANARY, np.uint8)
        first = ZONE + -(whole.ctypes.data + ZONE) % 64
        self.made.append((whole[first - ZONE : first + size + ZONE], size))
        return whole[first : first + size]

    def empty(self, shape: Any, dtype: Any) -> Any:
        """An array of rubbish: NaN where it is floating point."""
        return self.bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize).view(dtype).reshape(shape)

    def around(self, array: Any) -> Any:
        """A copy of an array."""
        made = self.empty(array.shape, array.dtype)
        made[...] = array
        return made

    def check(self) -> None:
        """AssertionError where a canary is dead."""
        for whole, size in self.made:
            dead = np.flatnonzero(np.concatenate([whole[:ZONE], whole[ZONE + size :]]) != CANARY)
            where = [int(i - ZONE if i < ZONE else i - ZONE + size) for i in dead[:8]]
            assert not dead.size, f"{dead.size} bytes beside an array of {size} bytes were written, at {where} from its beginning"
