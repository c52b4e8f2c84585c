"""Lowering of 3×3 convolutions of stride 1, and of their gradients, to Winograd's algorithm (winograd.h), where it gains."""

from __future__ import annotations

import math
import os
from typing import NamedTuple

from gradlab.backends.cuda.gemm.settings import SETTINGS
from gradlab.backends.native import compiler
from gradlab.backends.native.lowering import Along, Lowering, TaskSpec, widest
from gradlab.backends.native.lowerings.conv_behind_pool import Pooled
from gradlab.backends.native.lowerings.conv_statistics import Made, length
from gradlab.backends.native.place import Place
from gradlab.spec import Spec

LANES = 16  # of the widest vectors: sizes of memory are made for them
STRIP = 12  # rows of a product that are computed together, or a multiple of them
LEAST = 8  # channels and outputs that make a product of matrices worth while
MOST, LONGEST = 48, 36  # tiles of a block; for the weight's gradient
WEIGHING = 1200  # multiplications that take as long as the transformation of a weight
BLOCK = 1 << 17  # floats of the transformed tiles of a block: a part of the second-level cache
LIGHT, FEW = 2048, 24  # channels times outputs of weights that stay in the first-level cache; tiles of a block that do so beside them
BAND = 1 << 14  # floats of a band of an image
WIDE = 2  # results of a tile across
PART = 64  # channels and outputs whose sums of the weight's gradient stay in the second-level cache
GROUPS = 8  # pieces of a batch worth making; those whose sums are kept apart, so that the result does not depend on the number of threads
TOGETHER = 8  # images that are worth a block of their own

Pair = tuple[int, int]


class Tiles(NamedTuple):
    """How the work is cut: tile rows of a band, bands of an image, images together, tiles of a block."""

    band: int
    bands: int
    group: int
    most: int


def fits(x: Place | Spec, y: Place | Spec, kernel: tuple[int, ...], stride: Pair, dilation: Pair, groups: int) -> bool:
    """Whether the algorithm can be used for images `x` and results `y`. GRADLAB_WINOGRAD=0 says no."""
    if os.environ.get("GRADLAB_WINOGRAD") == "0":
        return False
    plain = tuple(kernel) == (3, 3) and stride == (1, 1) and dilation == (1, 1) and groups == 1
    return plain and min(x.shape[1], y.shape[1]) >= LEAST and min(y.shape[2:]) >= 2


def gains(x: Place | Spec, y: Place | Spec, kernel: tuple[int, ...], stride: Pair, dilation: Pair, groups: int) -> bool:
    """Whether it also takes less time than the sum itself: vectors are full, 4 multiplications for a pixel of whole tiles instead of 9
    count as 5 because of all else, and the weights have to be transformed."""
    images, _, height, width = y.shape
    whole = (height + height % 2) * (width + width % 2)
    if min(x.shape[1], y.shape[1]) < compiler.lanes() or images * (9 * height * width - 5 * whole) <= WEIGHING:
        return False
    return fits(x, y, kernel, stride, dilation, groups)


def by_pairs(x: Place | Spec, y: Place | Spec, kernel: tuple[int, ...], stride: Pair, dilation: Pair, groups: int) -> bool:
    """Whether a convolution of bfloat16 images is one of products of pairs of such numbers (pairs.h), with results that are rounded."""
    return compiler.bfloat16() and gains(x, y, kernel, stride, dilation, groups)


def _tall(bfloat16: bool) -> tuple[int, str]:
    """Results of a tile down: 2, as accurate as the sum itself; 4 where less is enough. And the ending of kernels' names that says so."""
    return (2, "_bfloat16") if bfloat16 else (2, "") if SETTINGS.precision == "highest" else (4, "_tall")


def _places(tall: int) -> int:
    return (tall + 2) * (WIDE + 2)


def _tiles(tall: int, images: int, height: int, width: int, channels: int, most: int, depth: int) -> Tiles:
    """Bands that stay in the cache, as even as possible; several images together where they are small. channels: the more of both sides;
    depth: those of the transformed tiles of a block."""
    rows, columns = -(-height // tall), -(-width // WIDE)
    most = max(STRIP, min(most, BLOCK // (_places(tall) * depth)))
    high = max(1, BAND // (tall * WIDE * columns * channels), most // columns)
    bands = -(-rows // high)
    if images < GROUPS:
        bands = max(bands, min(rows, -(-GROUPS // images)))
    band = -(-rows // bands)
    group = 1
    if bands == 1:
        group = max(1, min(most // (rows * columns), images // GROUPS, TOGETHER))
        group = 1 << (group.bit_length() - 1)  # as bytes of a record are to be a multiple of it
    return Tiles(band, -(-rows // band), group, _evenly(group * band * columns, most))


def _evenly(tiles: int, most: int) -> int:
    """Tiles of a block: as many in each, in whole strips of a product's rows."""
    each = -(-tiles // -(-tiles // most))
    return min(tiles, -(-each // STRIP) * STRIP)


def _numbers(p: Place) -> list[int]:
    return [*p.shape, *p.strides]


def correlate(
    y: Place, x: Place, weights: Place, bias: Place | None, first: Pair, ctx: Lowering, back: bool = False, relu: bool = False,
    pooled: Pooled | None = None, recording: bool = False, bfloat16: bool = False,
) -> Made:  # fmt: skip
    """The tasks that convolve images `x` with `weights`; back: turned ones. bfloat16: what is multiplied is rounded to it.
    first: row and column of the first tap. pooled: how `y` is wanted. recording: whether records of the results are
    wanted (conv_statistics.py)."""
    tall, kind = _tall(bfloat16)
    channels, outputs = x.shape[1], y.shape[1]
    most = FEW if channels * outputs <= LIGHT else MOST
    t = _tiles(tall, x.shape[0], y.shape[2], y.shape[3], max(channels, outputs), most, channels)
    units, size = -(-x.shape[0] // t.group) * t.bands, _places(tall) * channels * (-(-outputs // LANES) * LANES)
    space = ctx.scratch(4 * (size + recording * units * length(outputs)))
    records = space._replace(offset=space.offset + 4 * size, shape=(4 * units * length(outputs),)) if recording else None
    turn = TaskSpec("gradlab_winograd_weights" + kind, (*weights.shape[:2], int(back)), (space, weights), widest(weights.size * 4))
    result = pooled.elements if pooled else y
    flags = int(bias is not None), int(relu), int(recording), int(pooled is not None), int(back)
    parameters = (*_numbers(x), *y.shape, *result.strides, *first, *t, *flags, *(pooled.indices.strides if pooled else ()))
    places = (result, x, space, bias or result, pooled.indices if pooled else result, records or result, weights)
    work = math.prod(y.shape) * channels / 3
    main = TaskSpec("gradlab_winograd" + kind, parameters, places, min(units, widest(work)), _along(parameters, places, bias, records, t))
    return Made([turn, main], records, units)


def _along(parameters: tuple[int, ...], places: tuple[Place, ...], bias: Place | None, records: Place | None, t: Tiles) -> Along | None:
    """The images of a unit of work stay together, so that a record is of the same images. None where an image has no whole part of one."""
    images = parameters[0]
    steps = [p.strides[0] * p.dtype.itemsize for p in places]
    steps[2] = steps[6] = 0
    if bias is not None:
        steps[3] = 0
    if records is not None:
        steps[5], rest = divmod(records.size // -(-images // t.group), t.group)
        if rest:
            return None
    return Along(images, t.group, (0, 8), tuple(steps))


def slope(dw: Place, x: Place, dy: Place, first: Pair, ctx: Lowering, bfloat16: bool = False) -> list[TaskSpec]:
    """The tasks that compute the weight's gradient."""
    tall, kind = _tall(bfloat16)
    images, channels, outputs = x.shape[0], x.shape[1], dy.shape[1]
    # Longer blocks: the sums that each of them is added to are as large as they are.
    t = _tiles(tall, images, dy.shape[2], dy.shape[3], min(PART, max(channels, outputs)), LONGEST, PART)
    parts = -(-channels // PART) * -(-outputs // PART)
    blocks = max(1, min(images * t.bands, GROUPS // parts))
    group = max(1, min(t.group, images // blocks))
    space = ctx.scratch(4 * blocks * outputs * 9 * (-(-channels // LANES) * LANES))
    parameters = (*_numbers(x), *_numbers(dy), *first, t.band, t.bands, group, t.most, blocks, PART, PART)
    work = math.prod(dy.shape) * channels / 3
    return [
        TaskSpec("gradlab_winograd_dw" + kind, parameters, (space, x, dy), min(blocks * parts, widest(work))),
        TaskSpec("gradlab_winograd_dw_sum" + kind, (outputs, channels, blocks), (dw, space), widest(dw.size * blocks / 2)),
    ]
