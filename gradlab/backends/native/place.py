"""Where values lie: a base (the arena, an argument, a state array, a result) and a strided part of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

ARENA = 0
STATUS = 1  # the base of the word in which a kernel reports a fault
# What stands for parts of the arena until the program is complete:
RESERVED = -1  # behind everything else
SCRATCH = -2  # work space, in front of that
OWN = -3  # and less, see `own_base`: intermediate values


class Place(NamedTuple):
    """Part of a base's memory. offset in bytes, strides in elements."""

    base: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for n in self.shape:
            size *= n
        return size

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        expected = 1
        for n, s in zip(reversed(self.shape), reversed(self.strides)):
            if n != 1:
                if s != expected:
                    return False
                expected *= n
        return True

    @property
    def channels_last(self) -> bool:
        """Whether these are images whose elements lie without gaps, those of a pixel beside each other. Images of one channel or of one
        pixel are so in row-major order too."""
        if len(self.shape) != 4:
            return False
        _, c, h, w = self.shape
        return all(size == 1 or step == s for size, step, s in zip(self.shape, self.strides, (c * h * w, 1, w * c, c)))

    def array(self, base: Any) -> Any:
        """The place as a NumPy array over the base's array."""
        strides = tuple(s * self.dtype.itemsize for s in self.strides)
        if not base.flags.c_contiguous:  # no array of bytes looks at it without a copy
            return np.asarray(_Memory(base, self.offset, self.shape, strides, self.dtype.itemsize)).view(self.dtype)
        if base.dtype == np.uint8 and base.ndim == 1:
            return np.ndarray(self.shape, self.dtype, base, self.offset, strides)
        return np.ndarray(self.shape, self.dtype, base.reshape(-1).view(np.uint8), self.offset, strides)


class _Memory:
    """Part of an array's memory, for NumPy to look at, as elements of so many bytes; keeps the array alive."""

    def __init__(self, base: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> None:
        self.base = base
        found = base.__array_interface__
        self.__array_interface__ = {
            "data": (found["data"][0] + offset, found["data"][1]), "shape": shape, "strides": strides,
            "typestr": f"|V{size}", "version": 3,
        }  # fmt: skip


def own_base(number: int) -> int:
    """The base of an intermediate value that has memory of its own, wherever that will be; and the other way round."""
    return OWN - number


def place_of(base: int, spec: Any, offset: int = 0) -> Place:
    """A contiguous place."""
    strides: list[int] = []
    step = 1
    for n in reversed(spec.shape):
        strides.append(step)
        step *= max(n, 1)
    return Place(base, offset, tuple(spec.shape), tuple(reversed(strides)), spec.dtype)


def last_place(base: int, spec: Any, offset: int = 0) -> Place:
    """A place of images whose channels come last in memory."""
    _, c, h, w = spec.shape
    return Place(base, offset, tuple(spec.shape), (c * h * w, 1, w * c, c), spec.dtype)


def viewed(place: Place, op: Any, params: dict[str, Any]) -> Place | None:
    """The place of a view row's result, found by letting the row view an array of that layout; None where it would copy."""
    if place.size == 0:
        return None
    # The memory of `stand_in` is never touched: views only compute with strides.
    low = sum(min(s * (n - 1), 0) for n, s in zip(place.shape, place.strides))
    span = 1 + sum(abs(s) * (n - 1) for n, s in zip(place.shape, place.strides))
    memory = np.empty(span, place.dtype)
    step = place.dtype.itemsize
    stand_in = np.ndarray(place.shape, place.dtype, memory, -low * step, tuple(s * step for s in place.strides))
    try:
        found = op.cpu(stand_in, **params)
    except (ValueError, AttributeError):
        return None
    if found.size == 0 or not np.may_share_memory(found, memory):
        return None
    shift = found.__array_interface__["data"][0] - stand_in.__array_interface__["data"][0]
    return Place(place.base, place.offset + shift, found.shape, tuple(s // found.dtype.itemsize for s in found.strides), found.dtype)
