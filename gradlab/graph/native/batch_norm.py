"""Lowering of batch norm, alone and with a ReLU behind it."""

from __future__ import annotations

import math

from gradlab.graph.ir import Call
from gradlab.graph.native.lower import Lowering, TaskSpec, Unsupported, bits, lowers, widest
from gradlab.graph.native.place import Place


def _sizes(x: Place) -> tuple[int, int, int]:
    """Images, channels, places."""
    if len(x.shape) < 2 or x.size == 0:
        raise Unsupported
    return x.shape[0], x.shape[1], math.prod(x.shape[2:])


@lowers("batch_norm", "batch_norm_relu")
def batch_norm(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """With the statistics of the batch, which are results too."""
    x, outputs = ctx.dense(call.inputs[0]), [ctx.dense(v) for v in call.outputs]
    weight, bias, *others = call.inputs[1:]
    other = others[0] if others else None
    sizes = _sizes(x)
    places = (*outputs, x, *(x if v is None else ctx.dense(v) for v in (weight, bias, other)))
    relu = call.op.name == "batch_norm_relu"
    parameters = (*sizes, bits(call.params["eps"]), int(weight is not None), int(bias is not None), int(relu), int(other is not None))
    return [TaskSpec("gradlab_batch_norm", parameters, places, min(sizes[1], widest(x.size * 4)))]


@lowers("batch_norm_relu_again")
def again(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """From what was normalised and its statistics."""
    *given, other = call.inputs
    y, inputs = ctx.dense(call.outputs[0]), [ctx.dense(v) for v in given]
    sizes = _sizes(y)
    places = (y, *inputs, y if other is None else ctx.dense(other))
    return [TaskSpec("gradlab_batch_norm_relu_again", (*sizes, int(other is not None)), places, widest(y.size))]


@lowers("batch_norm_backward", "batch_norm_relu_backward")
def batch_norm_backward(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The gradients of input, weight and bias."""
    relu = call.op.name == "batch_norm_relu_backward"
    dy, x, weight, *rest = call.inputs
    bias, mean, rstd = rest if relu else (None, *rest)
    inside = ctx.dense(x)
    sizes = _sizes(inside)
    places = (
        *(ctx.dense(v) for v in call.outputs), ctx.dense(dy), inside, inside if weight is None else ctx.dense(weight), ctx.dense(mean),
        ctx.dense(rstd), inside if bias is None else ctx.dense(bias),
    )  # fmt: skip
    parameters = (*sizes, int(weight is not None), int(relu))
    return [TaskSpec("gradlab_batch_norm_backward", parameters, places, min(sizes[1], widest(inside.size * 6)))]
