"""Lowering of convolutions with one or two spatial dimensions, and of their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from gradlab.dtype import FLOAT32, INT64
from gradlab.graph.ir import Call, Value
from gradlab.graph.native import pooled, winograd
from gradlab.graph.native.geometry import Geometry, Pair, geometry, images, kernel_places
from gradlab.graph.native.lower import Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.graph.native.place import ARENA, Place, place_of
from gradlab.graph.native.records import Made
from gradlab.ops.conv import output_shape
from gradlab.spec import Spec

SPREAD = 1 << 16  # floats of an image, or of a band of it, that stay in the second-level cache beside the rest
UNITS = 8  # pieces of work worth making of a batch
SUMS = 1 << 21  # floats of partial sums of a weight's gradient
LENGTH = 1024  # pixels worth summing up in registers


class Phase(NamedTuple):
    """Pixels that meet the same taps: where the first is, their number, the taps met (relative, and as numbers of the kernel's places)."""

    start: Pair
    sizes: Pair
    taps: list[Pair]
    places: list[int]


def _source(x: Place, stride: Pair, first: Pair, reach: Pair, columns: int) -> tuple[list[int], Pair]:
    """The numbers that describe how images are spread, and the planes of each dimension. first: the tap nearest to the origin;
    reach: how far the last one is from it."""
    planes = (min(stride[0], reach[0] + 1), min(stride[1], reach[1] + 1))
    return [*x.shape, *x.strides, *stride, *first, *planes, columns + reach[1] // stride[1]], planes


def _bands(rows: int, images: int, channels: int, width: int, extra: int) -> Pair:
    """Rows of a band and the number of bands: enough pieces of work, small enough for the cache, worth the rows read twice."""
    most = max(SPREAD // (channels * width) - extra, 2 * extra, 1)
    bands = max(-(-rows // most), min(-(-UNITS // images), -(-rows // 4)))
    band = -(-rows // bands)
    return band, -(-rows // band)


def correlate(
    y: Place, x: Place, weights: Place, bias: Place | None, groups: int, stride: Pair, step: Pair, phases: Sequence[Phase],
    relu: bool = False,
) -> TaskSpec:
    """The task that computes `y` from spread images `x`: phase after phase, each with its own part of `weights`."""
    met = [tap for phase in phases for tap in phase.taps]
    first = min(t[0] for t in met), min(t[1] for t in met)
    reach = max(t[0] for t in met) - first[0], max(t[1] for t in met) - first[1]
    rows, columns = (max(phase.sizes[d] for phase in phases) for d in (0, 1))
    source, planes = _source(x, stride, first, reach, columns)
    extra = reach[0] // stride[0]
    band, bands = _bands(rows, x.shape[0], x.shape[1] * math.prod(planes), source[-1], extra)
    parameters = [*source, y.shape[1], groups, *y.shape[2:], *step, band, bands, band + extra, bias is not None, relu, len(phases)]
    at = 0
    for phase in phases:
        parameters += [*phase.start, *phase.sizes, at, len(phase.taps)]
        for tap in phase.taps:
            parameters += [tap[0] - first[0], tap[1] - first[1]]
        at += y.shape[1] * x.shape[1] // groups * len(phase.taps)
    work = y.shape[0] * x.shape[1] // groups * sum(y.shape[1] * math.prod(p.sizes) * len(p.taps) for p in phases)
    places = (y, x, weights, y if bias is None else bias)
    return TaskSpec("gradlab_correlate", tuple(map(int, parameters)), places, min(x.shape[0] * bands, widest(work / 8)))


def _forward_phase(y: Place, kernel: Sequence[int], g: Geometry) -> Phase:
    places = kernel_places(kernel)
    taps = [(a * g.dilation[0] - g.padding[0], b * g.dilation[1] - g.padding[1]) for a, b in places]
    return Phase((0, 0), (y.shape[2], y.shape[3]), taps, list(range(len(places))))


def forward(
    inputs: Sequence[Any], result: Value, params: dict[str, Any], ctx: Lowering, relu: bool = False, recording: bool = False
) -> Made:  # fmt: skip
    """The tasks that convolve inputs (x, weights, bias or None): one phase, whose weights are the weights. recording: whether records of
    the results are wanted; there may be none all the same."""
    x, w, b = inputs
    g = geometry(params)
    source, weights, y = images(ctx.place(x)), images(ctx.dense(w)), images(ctx.images(result))
    bias = None if b is None else ctx.dense(b)
    if winograd.fits(source, y, weights.shape[2:], g.stride, g.dilation, g.groups):
        return winograd.correlate(y, source, weights, bias, (-g.padding[0], -g.padding[1]), ctx, relu=relu, recording=recording)
    ctx.dense(result)
    return Made([correlate(y, source, weights, bias, g.groups, g.stride, (1, 1), [_forward_phase(y, weights.shape[2:], g)], relu)])


@lowers("convolution", "convolution_relu")
def convolution(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The forward."""
    return forward(call.inputs, call.outputs[0], call.params, ctx, relu=call.op.name == "convolution_relu").tasks


@lowers("convolution_relu_pool")
def convolution_relu_pool(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The same with a pooling behind it, which only Winograd's algorithm has (`fuse_pooling.py`)."""
    x, w, b = call.inputs
    g = geometry(call.params)
    source, weights = images(ctx.place(x)), images(ctx.dense(w))
    kept = pooled.Pooled(ctx.images(call.outputs[0]), ctx.images(call.outputs[1], INT64))
    y = place_of(ARENA, Spec(output_shape(source.shape, weights.shape, *g), FLOAT32))  # of which there is no more than a part at a time
    bias = None if b is None else ctx.dense(b)
    return winograd.correlate(y, source, weights, bias, (-g.padding[0], -g.padding[1]), ctx, relu=True, pooled=kept).tasks


def gradient_phases(sizes: Sequence[int], kernel: Sequence[int], g: Geometry) -> list[Phase]:
    """The input's pixels by their place within a stride. A pixel at fy + stride·j meets, through the kernel's place k, the output at
    j + (fy + padding - k·dilation) / stride, where that is a whole number."""
    phases = []
    for fy in range(min(g.stride[0], sizes[0])):
        for fx in range(min(g.stride[1], sizes[1])):
            taps, places = [], []
            for number, place in enumerate(kernel_places(kernel)):
                shift = [f + p - k * d for f, p, k, d in zip((fy, fx), g.padding, place, g.dilation)]
                if all(s % step == 0 for s, step in zip(shift, g.stride)):
                    taps.append((shift[0] // g.stride[0], shift[1] // g.stride[1]))
                    places.append(number)
            phases.append(Phase((fy, fx), (-(-(sizes[0] - fy) // g.stride[0]), -(-(sizes[1] - fx) // g.stride[1])), taps, places))
    return phases


@lowers("convolution_dx")
def convolution_dx(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The input's gradient: a correlation of the outputs' with turned weights, in as many phases as strides."""
    g = geometry(call.params)
    dy, w, dx = images(ctx.place(call.inputs[0])), images(ctx.dense(call.inputs[1])), images(ctx.images(call.outputs[0]))
    if winograd.fits(dy, dx, w.shape[2:], g.stride, g.dilation, g.groups):
        return winograd.correlate(dx, dy, w, None, (g.padding[0] - 2, g.padding[1] - 2), ctx, back=True).tasks
    ctx.dense(call.outputs[0])
    phases = gradient_phases(dx.shape[2:], w.shape[2:], g)
    if not any(phase.taps for phase in phases):
        raise Unsupported
    turned = ctx.scratch(4 * w.size)
    outputs, channels = w.shape[0] // g.groups, w.shape[1]
    numbers = [g.groups, outputs, channels, math.prod(w.shape[2:]), len(phases)]
    at = 0
    for phase in phases:
        numbers += [at, len(phase.places), *phase.places]
        at += g.groups * channels * outputs * len(phase.places)
    turn = TaskSpec("gradlab_conv_turn", tuple(map(int, numbers)), (turned, w), widest(w.size))
    return [turn, correlate(dx, dy, turned, None, g.groups, (1, 1), g.stride, phases)]


def _pooled(call: Call, first: int, ctx: Lowering) -> pooled.Pooled:
    """The gradient of a convolution's result, given as that of the pooling's behind it and its indices, inputs `first` and the next."""
    return pooled.Pooled(ctx.images(call.inputs[first]), ctx.images(call.inputs[first + 1], INT64))


@lowers("convolution_dx_pooled")
def convolution_dx_pooled(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The input's gradient behind a pooling's."""
    w, dx = images(ctx.dense(call.inputs[2])), images(ctx.images(call.outputs[0]))
    return pooled.gradient(dx, _pooled(call, 0, ctx), call.params["result"][3], w, geometry(call.params).padding, ctx)


@lowers("convolution_dw_pooled")
def convolution_dw_pooled(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The weight's gradient behind a pooling's."""
    x, dw = images(ctx.place(call.inputs[0])), images(ctx.dense(call.outputs[0]))
    return pooled.slope(dw, x, _pooled(call, 1, ctx), call.params["result"][3], geometry(call.params).padding, ctx)


@lowers("convolution_dw")
def convolution_dw(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The weight's gradient: partial sums of blocks of images, the same for any number of threads, then their sum."""
    g = geometry(call.params)
    x, dy, dw = images(ctx.place(call.inputs[0])), images(ctx.place(call.inputs[1])), images(ctx.dense(call.outputs[0]))
    if winograd.fits_slope(x, dy, dw.shape[2:], g.stride, g.dilation, g.groups):
        return winograd.slope(dw, x, dy, (-g.padding[0], -g.padding[1]), ctx)
    kernel, (many, outputs, height, width) = dw.shape[2:], dy.shape
    taps = [(a * g.dilation[0], b * g.dilation[1]) for a, b in kernel_places(kernel)]
    reach = (kernel[0] - 1) * g.dilation[0], (kernel[1] - 1) * g.dilation[1]
    source, planes = _source(x, g.stride, (-g.padding[0], -g.padding[1]), reach, width)
    extra = reach[0] // g.stride[0]
    blocks = max(1, min(many, 2 * UNITS, SUMS // dw.size))
    split = max(1, min(-(-UNITS // blocks), outputs // 16))
    row = x.shape[1] * math.prod(planes) * source[-1]
    band = min(height, max(SPREAD // row - extra, 4 * extra, 1))
    bands = -(-height // band)
    together = 1
    if bands == 1:
        together = max(1, min(many // blocks, LENGTH // (height * source[-1]), SPREAD // (row * (height + extra))))
    numbers = [*source, outputs, g.groups, height, width, *dy.strides, blocks, split, together, band, bands, band + extra, len(taps)]
    for tap in taps:
        numbers += tap
    partial = dw if blocks == 1 else ctx.scratch(4 * blocks * dw.size)
    work = widest(many * height * width * dw.size / 8)
    tasks = [TaskSpec("gradlab_conv_dw", tuple(map(int, numbers)), (partial, x, dy), min(blocks * split, work))]
    if blocks > 1:
        tasks.append(TaskSpec("gradlab_conv_dw_sum", (dw.size, blocks), (dw, partial), widest(dw.size * blocks / 4)))
    return tasks
