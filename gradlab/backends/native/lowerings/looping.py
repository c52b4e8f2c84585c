"""The walk of a fused loop through its operands, however it is run."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradlab.backends.native.lowering import Along
from gradlab.backends.native.place import Place


def broadcast(place: Place, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a place seen in a broadcast shape."""
    lead = len(shape) - len(place.shape)
    return (0,) * lead + tuple(0 if n == 1 else s for n, s in zip(place.shape, place.strides))


def along_first(shape: tuple[int, ...], places: Sequence[Place], order: Sequence[int]) -> Along | None:
    """How a loop goes along its first dimension, if that has the longest steps. Its parameter is how many of these it does."""
    if len(shape) < 2 or shape[0] < 2 or math.prod(shape) == 0 or next(d for d in order if shape[d] != 1) != 0:
        return None
    steps = [broadcast(p, shape)[0] * p.dtype.itemsize for p in places]
    return Along(shape[0], 1, (0,), tuple(steps)) if min(steps) >= 0 else None
