"""Lowering of the gradients of 3×3 convolutions of stride 1 behind a pooling (conv_behind_pool.cpp)."""

from __future__ import annotations

import math
from typing import NamedTuple

from gradlab.backends.native.lowering import Along, Lowering, TaskSpec, widest
from gradlab.backends.native.place import Place
from gradlab.spec import Spec

LANES = 16  # of the widest vectors: sizes of memory are made for them
LEAST = 8  # channels that fill vectors well enough
UNITS = 8  # pieces of work worth making of a batch; sums of the weight's gradient that are kept apart, whatever the number of threads
BAND = 1 << 16  # floats of a band of the input's gradient
TOGETHER = 48  # windows between which sums stay in registers
SUMS = 1 << 22  # floats of such sums
HALF = 1 << 13  # floats of a band: half the first-level cache

Pair = tuple[int, int]


class Pooled(NamedTuple):
    """Images that are zero but for the largest elements of windows of two by two, or of which those alone are wanted: where the elements
    and their indices lie."""

    elements: Place
    indices: Place


def fits(x: Place | Spec, kernel: tuple[int, ...], stride: Pair, dilation: Pair, groups: int) -> bool:
    """Whether there is a kernel for a convolution of images `x`, and it is worth it."""
    return tuple(kernel) == (3, 3) and stride == (1, 1) and dilation == (1, 1) and groups == 1 and x.shape[1] >= LEAST


def _windows(dy: Pooled, width: int) -> tuple[int, ...]:
    return (*dy.elements.shape, *dy.elements.strides, *dy.indices.strides, width)


def gradient(dx: Place, dy: Pooled, width: int, weights: Place, padding: Pair, ctx: Lowering) -> list[TaskSpec]:
    """The tasks that compute the input's gradient. width: columns of the plane that was pooled."""
    outputs, channels = weights.shape[:2]
    space = ctx.scratch(4 * outputs * 9 * (-(-channels // LANES) * LANES))
    images, _, height, _ = dx.shape
    bands = max(-(-height // max(4, BAND // ((width + 2) * LANES))), min(-(-UNITS // images), -(-height // 4)))
    band = -(-height // bands)
    bands = -(-height // band)
    parameters = (*dx.shape, *dx.strides, *_windows(dy, width), -padding[0], -padding[1], band, bands)
    places = (dx, *dy, space)
    along = Along(images, 1, (0, 8), (*(p.strides[0] * p.dtype.itemsize for p in places[:3]), 0))
    work = math.prod(dy.elements.shape) * channels * 9 / 8
    return [
        TaskSpec("gradlab_pooled_weights", (outputs, channels), (space, weights), widest(weights.size * 2)),
        TaskSpec("gradlab_pooled_dx", parameters, places, min(images * bands, widest(work)), along),
    ]


def slope(dw: Place, x: Place, dy: Pooled, width: int, padding: Pair, ctx: Lowering) -> list[TaskSpec]:
    """The tasks that compute the weight's gradient."""
    (outputs, channels), (images, _, high, wide) = dw.shape[:2], dy.elements.shape
    blocks = max(1, min(images, UNITS, SUMS // dw.size))
    row = (width + 2) * min(channels, 2 * LANES)
    band = max(1, min(high, TOGETHER // wide, (HALF // row - 2) // 2))
    most = band * wide if band > 1 else -(-wide // -(-wide // TOGETHER))
    space = ctx.scratch(4 * blocks * outputs * 9 * (-(-channels // LANES) * LANES))
    parameters = (*x.shape, *x.strides, *_windows(dy, width), -padding[0], -padding[1], band, most, blocks)
    work = math.prod(dy.elements.shape) * channels * 9 / 8
    return [
        TaskSpec("gradlab_pooled_dw", parameters, (space, x, *dy), min(blocks, widest(work))),
        TaskSpec("gradlab_pooled_dw_sum", (outputs, channels, blocks), (dw, space), widest(dw.size * blocks / 2)),
    ]
