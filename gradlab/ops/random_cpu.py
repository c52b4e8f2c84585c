"""Normal numbers of uniform ones, in NumPy: Box and Muller's pairs, with cosines and sines of a circle's parts from a table."""

from __future__ import annotations

import functools
import math
import threading
from typing import Any

import numpy as np

from gradlab.dtype import FLOAT64

PAIRS = 1 << 12  # of numbers at a time
ARCS = 1 << 12  # into which the circle is cut
_local = threading.local()


@functools.cache
def circle() -> tuple[Any, Any]:
    """Cosines and sines of the middles of ARCS arcs."""
    angle = (np.arange(ARCS) + np.longdouble(0.5)) * (np.longdouble("6.28318530717958647692528676655900577") / ARCS)
    return np.cos(angle).astype(FLOAT64), np.sin(angle).astype(FLOAT64)


def turned(u: Any, cosine: Any, sine: Any, scratch: Any) -> None:
    """cos 2πu and sin 2πu of 0 <= u < 1, to 1.1e-16: those of an arc's middle, turned by the rest, for which three terms do.

    NumPy's own take three times as long. scratch: (4, size).
    """
    rest, square, far, part = scratch
    np.multiply(u, ARCS, rest)
    arc = rest.astype(np.intp)
    rest -= arc
    rest -= 0.5
    rest *= 2 * math.pi / ARCS
    np.multiply(rest, rest, square)
    np.multiply(square, 1 / 120, far)  # sin: rest · (1 - square/6 + square²/120)
    far -= 1 / 6
    far *= square
    far += 1
    far *= rest
    np.multiply(square, 1 / 24, rest)  # cos - 1: square · (-1/2 + square/24)
    rest -= 0.5
    rest *= square
    for table, out in zip(circle(), (cosine, sine)):
        np.take(table, arc, out=out, mode="clip")
    np.multiply(cosine, rest, square)
    np.multiply(sine, far, part)
    square -= part
    np.multiply(cosine, far, part)
    cosine += square
    np.multiply(sine, rest, square)
    square += part
    sine += square


def box_muller(generator: np.random.Generator, size: int) -> Any:
    """`size` (or one more) standard normal float64 numbers."""
    made = np.empty(((size + 1) // 2, 2))
    scratch = getattr(_local, "scratch", None)
    if scratch is None:
        scratch = _local.scratch = np.empty((7, PAIRS))
    for start in range(0, len(made), PAIRS):
        pairs = made[start : start + PAIRS]
        n = len(pairs)
        generator.random(out=pairs)
        radius, cosine, sine = scratch[:3, :n]
        np.subtract(1.0, pairs[:, 0], radius)
        np.log(radius, radius)
        radius *= -2.0
        np.sqrt(radius, radius)
        turned(pairs[:, 1], cosine, sine, scratch[3:, :n])
        np.multiply(cosine, radius, pairs[:, 0])
        np.multiply(sine, radius, pairs[:, 1])
    return made.reshape(-1)
