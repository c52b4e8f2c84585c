"""Lowering of 3×3 convolutions of stride 1, and of their gradients, to Winograd's algorithm (winograd.h), where it gains."""

from __future__ import annotations

import math
import os
from typing import NamedTuple

from gradlab.graph.native.lower import Lowering, TaskSpec, widest
from gradlab.graph.native.place import Place
from gradlab.spec import Spec

LANES, PANEL = 16, 32  # of the widest vectors: sizes of memory are made for them
STRIP = 6  # rows of a product that are computed together, or half of them
LEAST = 8  # channels and outputs that make a product of matrices worth while
BLOCK = 1 << 16  # floats of the transformed tiles of a block: a part of the second-level cache
BAND = 1 << 14  # floats of a band of an image
TALL, WIDE = 4, 2  # results of a tile
PLACES = (TALL + 2) * (WIDE + 2)
GROUPS = 8  # groups of images whose sums are kept apart, so that several threads can work and the result does not depend on their number

SUMS = 1 << 22  # floats of such sums; weights that are so large that few groups fit are left to the general way, which splits outputs
FEWEST = 4

Pair = tuple[int, int]


class Tiles(NamedTuple):
    """How the work is cut: tile rows of a band, bands of an image, images together, tiles of a block."""

    band: int
    bands: int
    group: int
    most: int


def fits(x: Place | Spec, y: Place | Spec, kernel: tuple[int, ...], stride: Pair, dilation: Pair, groups: int) -> bool:
    """Whether the algorithm can be used for images `x` and results `y`, and is worth it. GRADLAB_WINOGRAD=0 says no."""
    if os.environ.get("GRADLAB_WINOGRAD") == "0":
        return False
    plain = tuple(kernel) == (3, 3) and stride == (1, 1) and dilation == (1, 1) and groups == 1
    return plain and min(x.shape[1], y.shape[1]) >= LEAST and min(y.shape[2:]) >= 2


def _groups(images: int, outputs: int, channels: int) -> int:
    return min(images, GROUPS, max(1, SUMS // (9 * outputs * channels)))


def fits_slope(x: Place | Spec, dy: Place | Spec, kernel: tuple[int, ...], stride: Pair, dilation: Pair, groups: int) -> bool:
    """The same for the weight's gradient, from images and the gradient of results."""
    images = x.shape[0]
    return fits(x, dy, kernel, stride, dilation, groups) and _groups(images, dy.shape[1], x.shape[1]) >= min(images, FEWEST)


def _tiles(images: int, height: int, width: int, channels: int, outputs: int, block: int = BLOCK, most: int = 60) -> Tiles:
    """Bands that stay in the cache, as even as possible; several images together where they are small."""
    rows, columns = -(-height // TALL), -(-width // WIDE)
    most = min(max(12, block // (PLACES * (channels + outputs))), most)
    tall = max(1, BAND // (TALL * WIDE * columns * max(channels, outputs)))
    bands = -(-rows // tall)
    if images < GROUPS:
        bands = max(bands, min(rows, -(-GROUPS // images)))
    band = -(-rows // bands)
    group = 1
    if bands == 1:
        group = max(1, min(most // (rows * columns), images // GROUPS))
    return Tiles(band, -(-rows // band), group, _evenly(group * band * columns, most))


def _evenly(tiles: int, most: int) -> int:
    """Tiles of a block: as many in each, in whole strips of a product's rows."""
    each = -(-tiles // -(-tiles // most))
    return min(tiles, -(-each // STRIP) * STRIP)


class Pooled(NamedTuple):
    """Images that are zero but for the largest elements of windows of two by two, or of which those alone are wanted: where the elements
    and their indices lie."""

    elements: Place
    indices: Place


def _numbers(p: Place, pooled: Pooled | None = None) -> list[int]:
    return [*p.shape, *(p if pooled is None else pooled.elements).strides]


def correlate(
    y: Place, x: Place, weights: Place, bias: Place | None, first: Pair, ctx: Lowering, back: bool = False, relu: bool = False,
    pooled: Pooled | None = None,
) -> list[TaskSpec]:  # fmt: skip
    """The tasks that convolve images `x` with `weights`; back: turned ones. first: row and column of the first tap. pooled: how `y` is
    wanted; how `x` is given, if back."""
    channels, outputs = x.shape[1], y.shape[1]
    space = ctx.scratch(4 * PLACES * channels * (-(-outputs // PANEL) * PANEL))
    turn = TaskSpec("gradlab_winograd_weights", (*weights.shape[:2], int(back)), (space, weights), widest(weights.size * 4))
    t = _tiles(x.shape[0], y.shape[2], y.shape[3], channels, outputs)
    inside, outside = (pooled, None) if back else (None, pooled)
    kind = 0 if pooled is None else 2 if back else 1
    parameters = (*_numbers(x, inside), *_numbers(y, outside), *first, *t, int(bias is not None), int(relu), kind)
    result, source = outside.elements if outside else y, inside.elements if inside else x
    places = (result, source, space, result if bias is None else bias, pooled.indices if pooled else result)
    units = -(-x.shape[0] // t.group) * t.bands
    work = math.prod(y.shape) * channels / 3
    return [turn, TaskSpec("gradlab_winograd", parameters, places, min(units, widest(work)))]


def slope(dw: Place, x: Place, dy: Place, first: Pair, ctx: Lowering, pooled: Pooled | None = None) -> list[TaskSpec]:
    """The tasks that compute the weight's gradient. pooled: how `dy` is given."""
    images, channels, outputs = x.shape[0], x.shape[1], dy.shape[1]
    # Longer blocks: the sums that each of them is added to are as large as they are.
    t = _tiles(images, dy.shape[2], dy.shape[3], channels, outputs, 2 * BLOCK, 72)
    blocks = _groups(images, outputs, channels)
    group = max(1, min(t.group, images // blocks))
    space = ctx.scratch(4 * blocks * outputs * 9 * (-(-channels // LANES) * LANES))
    parameters = (*_numbers(x), *_numbers(dy, pooled), *first, t.band, t.bands, group, t.most, blocks, int(pooled is not None))
    given = (dy, dy) if pooled is None else pooled
    work = math.prod(dy.shape) * channels / 3
    return [
        TaskSpec("gradlab_winograd_dw", parameters, (space, x, *given), min(blocks, widest(work))),
        TaskSpec("gradlab_winograd_dw_sum", (outputs, channels, blocks), (dw, space), widest(dw.size * blocks / 2)),
    ]
