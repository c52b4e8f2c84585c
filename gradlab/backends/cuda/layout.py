"""Strided operands: dimensions merged where all operands allow it, and the struct that kernels read (`Layout` in `elementwise.cuh`)."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

MAX_RANK = 8


class TooManyDimensions(ValueError):
    """More dimensions than a kernel takes."""


def element_strides(array: Any) -> tuple[int, ...]:
    """Strides in elements."""
    size = array.dtype.itemsize
    return tuple(s // size for s in array.strides)


def broadcast_strides(array: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of an array seen in the broadcast `shape`: 0 where it is repeated."""
    lead = len(shape) - len(array.shape)
    own = element_strides(array)
    return (0,) * lead + tuple(0 if size == 1 else stride for size, stride in zip(array.shape, own, strict=True))


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of an array without gaps."""
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))


def is_contiguous(array: Any, shape: tuple[int, ...]) -> bool:
    """Whether the array has that very shape and lies in row-major order without gaps."""
    return array.shape == shape and bool(array.flags.c_contiguous)


def merged(shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> tuple[list[int], list[list[int]]]:
    """Sizes and each operand's strides, innermost first, without sizes of 1 and with neighbours merged that are one walk for all
    operands."""
    sizes: list[int] = []
    found: list[list[int]] = [[] for _ in strides]
    for d in reversed(range(len(shape))):
        size = shape[d]
        if size == 1:
            continue
        steps = [s[d] for s in strides]
        if sizes and all(step == mine[-1] * sizes[-1] for step, mine in zip(steps, found, strict=True)):
            sizes[-1] *= size
            continue
        sizes.append(size)
        for mine, step in zip(found, steps, strict=True):
            mine.append(step)
    return sizes, found


def pack_layout_of(shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> tuple[bytes, int]:
    """The bytes of `Layout<len(strides)>`, and how far (in elements) the farthest operand reaches. TooManyDimensions for more than eight
    dimensions that do not merge."""
    sizes, steps = merged(shape, strides)
    if len(sizes) > MAX_RANK:
        raise TooManyDimensions(f"more than {MAX_RANK} dimensions that cannot be merged: shape {shape}")
    pad = [0] * (MAX_RANK - len(sizes))
    rows = steps or [[0] * len(sizes)]
    numbers = [*sizes, *([1] * len(pad))]
    widest = 0
    for row in rows:
        numbers += [*row, *pad]
        widest = max(widest, 1 + sum(abs(s) * (n - 1) for s, n in zip(row, sizes, strict=True)))
    return struct.pack(f"ii{len(numbers)}q", len(sizes), 0, *numbers), widest


def pack_layout(shape: tuple[int, ...], arrays: Sequence[Any]) -> tuple[bytes, int]:
    """The same for arrays that are broadcast to `shape`."""
    return pack_layout_of(shape, [broadcast_strides(a, shape) for a in arrays])
