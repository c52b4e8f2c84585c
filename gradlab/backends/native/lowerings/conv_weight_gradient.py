"""Lowering of the gradient of a convolution's weight: by Winograd's algorithm where it fits, else directly (direct_weight_gradient.cpp)."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

from gradlab.backends.native import compiler
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


# Which elements vectors hold, as in direct_weight_gradient.cpp: outputs, channels, pixels; or one channel, and one output, of each group.
BY_OUTPUTS, BY_CHANNELS, BY_PIXELS, APART = range(4)
TURN = 4  # cycles for a vector, from row-major order or to it
FEW_SUMS = 1 << 10  # sums of which each can be a vector


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


def share(count: int, parts: int, grain: int = 1) -> list[int]:
    """The sizes of parts (runtime.h)."""
    units = -(-count // grain)
    ends = [min(count, units * i // parts * grain) for i in range(parts + 1)]
    return [b - a for a, b in pairwise(ends)]


def _way(dw: Place, x: Place, dy: Place, g: Geometry, parts: Parts) -> int:
    """The way that takes the least time for the largest part, by a rough count of cycles for each pixel: half for a product of vectors."""
    lanes = compiler.lanes()

    def up(count: int) -> int:
        return -(-count // lanes)

    kernel, sizes = dw.shape[2:], dy.shape[2:]
    places, of_groups = math.prod(kernel), max(share(g.groups, parts.groups))
    channels, outputs = max(share(dw.shape[1], parts.channels, 16)), max(share(dw.shape[0] // g.groups, parts.outputs, 16))
    sums = places * channels * outputs
    x_last, y_last = (p.strides[1] == 1 and p.shape[1] > 1 for p in (x, dy))
    met = math.prod(g.stride) * channels  # elements that are laid, for each group
    put = sums * parts.blocks / (dy.shape[0] * math.prod(sizes))
    reach = [(sizes[d] - 1) * g.stride[d] + (kernel[d] - 1) * g.dilation[d] + 1 - g.padding[d] for d in (0, 1)]
    bare = max(g.padding) <= 0 and reach[0] <= x.shape[2] and reach[1] <= x.shape[3]  # no border is needed
    to_outputs = TURN * up(outputs) if not y_last else 0 if outputs % lanes == 0 else outputs / lanes
    found = {BY_OUTPUTS: 0.5 * places * channels * up(outputs) + (0 if bare else met / lanes) + to_outputs + 0.3 * put}
    of_x = kernel[0] * up(kernel[1] * channels) if g.dilation[1] == 1 else places * up(channels)
    loads = -(-of_x // 2) * outputs + (1 if channels % lanes == 0 else 2) * of_x  # two at a time
    to_channels = met / lanes if x_last else met if channels < lanes else TURN * met / lanes
    found[BY_CHANNELS] = 0.6 * max(of_x * outputs, loads) + to_channels + 1.5 * put
    if g.stride[1] == 1 and sizes[1] >= lanes and of_groups * sums <= FEW_SUMS:
        to_x = TURN * g.stride[0] * up(of_groups * channels) / of_groups if x_last else 0 if bare else 25 / sizes[1] * met
        to_y = TURN * up(of_groups * outputs) / of_groups if y_last else 0
        found[BY_PIXELS] = (1.3 if outputs == 1 else 0.7) * up(sizes[1]) * sums / sizes[1] + to_x + to_y
    if of_groups > 1:
        vectors = up(of_groups) / of_groups
        to_x = TURN * vectors * met if not x_last else met / lanes if channels == 1 else met
        to_y = TURN * vectors * outputs if not y_last else 0 if outputs == 1 else outputs
        found[APART] = 0.5 * sums * vectors + to_x + to_y + put
    return min(found, key=lambda way: found[way])


def slope(dw: Place, x: Place, dy: Place, g: Geometry, ctx: Lowering) -> list[TaskSpec]:
    """The tasks: partial sums of blocks of images, then their sum."""
    kernel = dw.shape[2:]
    x, g = sampled(x, kernel, g)
    parts = divided(dy, dw, g.groups)
    first = -g.padding[0], -g.padding[1]
    numbers = [*x.shape, *x.strides, *dy.shape, *dy.strides, *kernel, *g.stride, *first, *g.dilation, g.groups, *parts]
    numbers.append(_way(dw, x, dy, g, parts))
    partial = dw if parts.blocks == 1 else ctx.scratch(4 * parts.blocks * dw.size)
    work = widest(dy.size * dw.size // dy.shape[1] / 8)
    tasks = [TaskSpec("gradlab_direct_dw", tuple(map(int, numbers)), (partial, x, dy), min(math.prod(parts), work))]
    if parts.blocks > 1:
        tasks.append(TaskSpec("gradlab_direct_dw_sum", (dw.size, parts.blocks), (dw, partial), widest(dw.size * parts.blocks / 4)))
    return tasks


@lowers("convolution_dw", "convolution_dw_bfloat16")
def convolution_dw(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The weight's gradient, from images and the gradient of results, either of them in any order of dimensions."""
    g = geometry(call.params)
    x, dy, dw = images(ctx.place(call.inputs[0])), images(ctx.place(call.inputs[1])), images(ctx.dense(call.outputs[0]))
    if winograd.gains(x, dy, dw.shape[2:], g.stride, g.dilation, g.groups):
        return winograd.slope(dw, x, dy, (-g.padding[0], -g.padding[1]), ctx, call.op.name != "convolution_dw")
    return slope(dw, x, dy, g, ctx)
