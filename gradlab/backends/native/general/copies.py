"""Copies between strided places and constants, as tasks of `copies.cpp`."""

from __future__ import annotations

from collections.abc import Sequence

from gradlab.backends.native.lowering import TaskSpec, Unsupported, widest
from gradlab.backends.native.place import Place

DEPTH = 6  # dimensions at most


def strided(target: Place, source: Place, sizes: Sequence[int], to: Sequence[int], from_: Sequence[int]) -> TaskSpec:
    """target = source, walked along merged dimensions, the innermost first."""
    if len(sizes) > DEPTH:
        raise Unsupported
    outer = range(len(sizes) - 1, 0, -1)
    across = next((d for d in outer if to[0] == from_[d] == 1 != from_[0] and min(sizes[0], sizes[d]) >= 4), 0)
    numbers = [n for three in zip(sizes, to, from_) for n in three]
    most = max(sizes[0] // 64, *sizes) if len(sizes) < 3 else sizes[-1]
    return TaskSpec(
        f"gradlab_copy_{target.dtype.itemsize}", (len(sizes), across, *numbers), (target, source), min(most, widest(target.size))
    )


def constant(target: Place, word: int) -> TaskSpec:
    """A value, given as its bits, in all elements of a place without gaps."""
    signed = word - (1 << 64) if word >> 63 else word
    return TaskSpec(f"gradlab_fill_{target.dtype.itemsize}", (signed, target.size), (target,), widest(target.size / 2))
