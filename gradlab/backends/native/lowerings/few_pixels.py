"""Lowering of convolutions whose results have few pixels (few_pixels.cpp): weights that are needed a few times alone are not laid anew."""

from __future__ import annotations

import math

from gradlab.backends.native.lowering import Lowering, TaskSpec, widest
from gradlab.backends.native.lowerings.conv_statistics import Made
from gradlab.backends.native.lowerings.geometry import Geometry
from gradlab.backends.native.place import Place

MOST, MOST_OF_ONE = 32, 8  # pixels of all images; where kernels have one place, whose weights are soon laid
DEPTH, LEAST = 64, 1 << 13  # products of a sum, and weights, that are worth it


def gains(y: Place, weights: Place, groups: int) -> bool:
    """Whether there are few pixels for so many weights."""
    pixels = y.shape[0] * math.prod(y.shape[2:])
    most = MOST_OF_ONE if math.prod(weights.shape[2:]) == 1 else MOST
    return groups == 1 and pixels <= most and math.prod(weights.shape[1:]) >= DEPTH and weights.size >= LEAST


def correlate(y: Place, x: Place, weights: Place, bias: Place | None, g: Geometry, ctx: Lowering, relu: bool = False) -> Made:
    """The tasks that convolve images `x` with `weights`."""
    kernel, depth, pixels = weights.shape[2:], math.prod(weights.shape[1:]), y.shape[0] * math.prod(y.shape[2:])
    space = ctx.scratch(4 * pixels * depth)
    numbers = (*x.shape, *x.strides, *y.shape[2:], *kernel, *g.stride, *g.padding, *g.dilation)
    laid = TaskSpec("gradlab_few_pixels_laid", tuple(map(int, numbers)), (space, x), min(pixels, widest(pixels * depth)))
    rest = (*y.shape, *y.strides, depth, bias is not None, relu)
    operands = (y, space, weights, y if bias is None else bias)
    return Made([laid, TaskSpec("gradlab_few_pixels", tuple(map(int, rest)), operands, widest(pixels * weights.size / 8))], None, 0)
