"""The order in which loops walk over dimensions: that in which the elements lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from gradlab.backends.native.place import Place

T = TypeVar("T")


def walk(place: Place) -> list[int]:
    """The dimensions, those with the longest steps first. Dimensions of one element stand anywhere."""
    return sorted(range(len(place.shape)), key=lambda d: -abs(place.strides[d]))


def in_order(values: Sequence[T], order: Sequence[int]) -> tuple[T, ...]:
    """What belongs to the dimensions, in another order of them."""
    return tuple(values[d] for d in order)


def dense(place: Place) -> bool:
    """Whether the elements lie without gaps, in any order of the dimensions."""
    expected = 1
    for step, n in sorted((s, n) for n, s in zip(place.shape, place.strides) if n != 1):
        if step != expected:
            return False
        expected *= n
    return True


def same_way(a: Place, b: Place) -> bool:
    """Whether a loop over two arrays of one shape walks through both in the order of memory."""
    ways = [[d for d in walk(p) if p.shape[d] != 1] for p in (a, b)]
    return ways[0] == ways[1]


def alike(a: Place, b: Place) -> bool:
    """Whether the elements of two arrays of one shape lie in the same order."""
    return a.shape == b.shape and all(n == 1 or s == t for n, s, t in zip(a.shape, a.strides, b.strides))
