"""Lowering of convolutions with one or two spatial dimensions, and of their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradlab.backends.native.lowering import Lowering, TaskSpec, lowers
from gradlab.backends.native.lowerings import conv_behind_pool, direct, few_pixels, winograd
from gradlab.backends.native.lowerings.conv_statistics import Made
from gradlab.backends.native.lowerings.geometry import geometry, images, results
from gradlab.backends.native.place import ARENA, place_of
from gradlab.call import Call, Value
from gradlab.dtype import FLOAT32, INT64
from gradlab.spec import Spec


def forward(
    inputs: Sequence[Any], result: Value, params: dict[str, Any], ctx: Lowering, relu: bool = False, recording: bool = False,
    bfloat16: bool = False,
) -> Made:  # fmt: skip
    """The tasks that convolve inputs (x, weights, bias or None). recording: whether records of the results are wanted. bfloat16: where
    operands are rounded to it."""
    x, w, b = inputs
    g = geometry(params)
    source, weights, y = images(ctx.place(x)), images(ctx.dense(w)), images(ctx.images(result))
    bias = None if b is None else ctx.dense(b)
    if not recording and few_pixels.gains(y, weights, g.groups):
        return few_pixels.correlate(y, source, weights, bias, g, ctx, relu=relu)
    if winograd.gains(source, y, weights.shape[2:], g.stride, g.dilation, g.groups):
        first = -g.padding[0], -g.padding[1]
        return winograd.correlate(y, source, weights, bias, first, ctx, relu=relu, recording=recording, bfloat16=bfloat16)
    return direct.correlate(y, source, weights, bias, g, ctx, relu=relu, recording=recording)


@lowers("convolution", "convolution_relu", "convolution_bfloat16", "convolution_relu_bfloat16")
def convolution(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The forward."""
    relu, bfloat16 = ("_" + word in call.op.name for word in ("relu", "bfloat16"))
    return forward(call.inputs, call.outputs[0], call.params, ctx, relu=relu, bfloat16=bfloat16).tasks


@lowers("convolution_relu_pool", "convolution_relu_pool_bfloat16")
def convolution_relu_pool(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The same with a pooling behind it, which only Winograd's algorithm has (`fuse_pooling.py`)."""
    x, w, b = call.inputs
    g = geometry(call.params)
    source, weights = images(ctx.place(x)), images(ctx.dense(w))
    kept = conv_behind_pool.Pooled(ctx.images(call.outputs[0]), ctx.images(call.outputs[1], INT64))
    y = place_of(ARENA, Spec(results(source.shape, weights.shape, g), FLOAT32))  # of which there is no more than a part at a time
    bias = None if b is None else ctx.dense(b)
    first, bfloat16 = (-g.padding[0], -g.padding[1]), call.op.name.endswith("_bfloat16")
    return winograd.correlate(y, source, weights, bias, first, ctx, relu=True, pooled=kept, bfloat16=bfloat16).tasks


@lowers("convolution_dx", "convolution_dx_bfloat16")
def convolution_dx(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The input's gradient: a convolution of the results' with turned weights."""
    g = geometry(call.params)
    dy, w, dx = images(ctx.place(call.inputs[0])), images(ctx.dense(call.inputs[1])), images(ctx.images(call.outputs[0]))
    if winograd.gains(dy, dx, w.shape[2:], g.stride, g.dilation, g.groups):
        first, bfloat16 = (g.padding[0] - 2, g.padding[1] - 2), call.op.name != "convolution_dx"
        return winograd.correlate(dx, dy, w, None, first, ctx, back=True, bfloat16=bfloat16).tasks
    return direct.correlate(dx, dy, w, None, g, ctx, back=True).tasks


def _pooled(call: Call, first: int, ctx: Lowering) -> conv_behind_pool.Pooled:
    """The gradient of a convolution's result, given as that of the pooling's behind it and its indices, inputs `first` and the next."""
    return conv_behind_pool.Pooled(ctx.images(call.inputs[first]), ctx.images(call.inputs[first + 1], INT64))


@lowers("convolution_dx_pooled")
def convolution_dx_pooled(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The input's gradient behind a pooling's."""
    w, dx = images(ctx.dense(call.inputs[2])), images(ctx.images(call.outputs[0]))
    return conv_behind_pool.gradient(dx, _pooled(call, 0, ctx), call.params["result"][3], w, geometry(call.params).padding, ctx)


@lowers("convolution_dw_pooled")
def convolution_dw_pooled(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The weight's gradient behind a pooling's."""
    x, dw = images(ctx.place(call.inputs[0])), images(ctx.dense(call.outputs[0]))
    return conv_behind_pool.slope(dw, x, _pooled(call, 1, ctx), call.params["result"][3], geometry(call.params).padding, ctx)
