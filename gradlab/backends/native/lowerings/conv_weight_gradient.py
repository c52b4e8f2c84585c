"""Lowering of the gradient of a convolution's weight: by Winograd's algorithm where it fits, else directly (direct_weight_gradient.cpp)."""

from __future__ import annotations

import math
from typing import NamedTuple

from gradlab.backends.native.lowering import Lowering, TaskSpec, lowers, widest
from gradlab.backends.native.lowerings import winograd
from gradlab.backends.native.lowerings.geometry import Geometry, geometry, images, sampled
from gradlab.backends.native.place import Place
from gradlab.call import Call

PIECES = 16  # of work, so that several threads can work; the result does not depend on their number
ROOM = 1 << 16  # floats of the sums of a part: a quarter of the second-level cache
OUTPUTS = 128  # of a part
LEAST = 64  # pixels worth a block
SUMS = 1 << 21  # floats of partial sums


class Parts(NamedTuple):
    """How the work is divided: blocks of images, of which each gives partial sums; parts of the groups, or of one group's channels and
    outputs (in steps of 16)."""

    blocks: int
    groups: int
    channels: int
    outputs: int


def divided(dy: Place, dw: Place, groups: int) -> Parts:
    """The division for gradients `dy` of results and `dw` of the weight."""
    outputs, channels, kernel = dw.shape[0] // groups, dw.shape[1], math.prod(dw.shape[2:])
    if groups > 1 and kernel * channels * outputs <= ROOM // 4 and max(channels, outputs) <= 32:
        many = max(1, min(64 // max(channels, outputs), ROOM // (kernel * channels * outputs)))
        parts = -(-groups // many), 1, 1
    else:
        split = -(-outputs // max(16, min(OUTPUTS, ROOM // (16 * kernel) // 16 * 16)))
        cut = max(16, ROOM // (kernel * -(-outputs // split)) // 16 * 16)
        parts = groups, -(-channels // cut), split
    pixels = dy.shape[0] * math.prod(dy.shape[2:])
    return Parts(max(1, min(-(-PIECES // math.prod(parts)), pixels // LEAST, SUMS // dw.size)), *parts)


def slope(dw: Place, x: Place, dy: Place, g: Geometry, ctx: Lowering) -> list[TaskSpec]:
    """The tasks: partial sums of blocks of images, then their sum."""
    kernel = dw.shape[2:]
    x, g = sampled(x, kernel, g)
    parts = divided(dy, dw, g.groups)
    first = -g.padding[0], -g.padding[1]
    numbers = [*x.shape, *x.strides, *dy.shape, *dy.strides, *kernel, *g.stride, *first, *g.dilation, g.groups, *parts]
    partial = dw if parts.blocks == 1 else ctx.scratch(4 * parts.blocks * dw.size)
    work = widest(dy.size * dw.size // dy.shape[1] / 8)
    tasks = [TaskSpec("gradlab_direct_dw", tuple(map(int, numbers)), (partial, x, dy), min(math.prod(parts), work))]
    if parts.blocks > 1:
        tasks.append(TaskSpec("gradlab_direct_dw_sum", (dw.size, parts.blocks), (dw, partial), widest(dw.size * parts.blocks / 4)))
    return tasks


@lowers("convolution_dw")
def convolution_dw(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The weight's gradient, from images and the gradient of results, either of them in any order of dimensions."""
    g = geometry(call.params)
    x, dy, dw = images(ctx.place(call.inputs[0])), images(ctx.place(call.inputs[1])), images(ctx.dense(call.outputs[0]))
    if winograd.gains(x, dy, dw.shape[2:], g.stride, g.dilation, g.groups):
        return winograd.slope(dw, x, dy, (-g.padding[0], -g.padding[1]), ctx)
    return slope(dw, x, dy, g, ctx)
