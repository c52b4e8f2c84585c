"""Lowering of rows that work along a dimension, nearly all along the last: softmax, cross-entropy, norms, embeddings, recurrent cells."""

from __future__ import annotations

import math

from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, bits, lowers, widest
from gradlab.backends.native.lowerings.movements import Space, copy, packed
from gradlab.backends.native.place import STATUS, Place
from gradlab.call import Call
from gradlab.dtype import FLOAT32, FLOAT64, INT64
from gradlab.spec import Spec

NORM_BLOCK = 64  # rows of which one thread makes one sum: the same for any number of threads
FAULT = Place(STATUS, 0, (), (), INT64)  # where a kernel says that an index lies outside


def _along(shape: tuple[int, ...], dim: int) -> tuple[int, int, int]:
    """outer, n, inner"""
    return math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])


def _kind(spec: Spec) -> str:
    """How the names of kernels for doubles end."""
    return "_double" if spec.dtype == FLOAT64 else ""


@lowers("softmax", "log_softmax", "softmax_backward", "log_softmax_backward")
def softmax(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Rows of floats, or along any dimension."""
    spec = call.outputs[0].spec
    shape, dim = spec.shape, call.params["dim"]
    if not shape or math.prod(shape) == 0 or spec.dtype not in (FLOAT32, FLOAT64):
        raise Unsupported
    x, first = packed(ctx.place(call.inputs[0]), ctx)
    places = (ctx.dense(call.outputs[0], spec.dtype), x, *(ctx.dense(v, spec.dtype) for v in call.inputs[1:]))
    if x.dtype != spec.dtype:
        raise Unsupported
    outer, n, inner = _along(shape, dim)
    most = widest(math.prod(shape) * 12)
    if dim == len(shape) - 1 and spec.dtype == FLOAT32:
        return [*first, TaskSpec(f"gradlab_{call.op.name}", (outer, n), places, min(outer, most))]
    return [*first, TaskSpec(f"gradlab_{call.op.name}_along{_kind(spec)}", (outer, n, inner), places, most)]


@lowers("cross_entropy")
def cross_entropy(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The probabilities and each target's loss, then the total. Without a reduction the losses are the result."""
    spec = call.inputs[0].spec
    x, target = ctx.place(call.inputs[0]), ctx.dense(call.inputs[1], INT64)
    y, p = (ctx.dense(v, spec.dtype) for v in call.outputs)
    first: list[TaskSpec] = []
    if not x.contiguous:
        x, first = p, copy(p, x, ctx)
    if x.size == 0 or spec.dtype not in (FLOAT32, FLOAT64):
        raise Unsupported
    outer, classes, inner = _along(x.shape, 1)
    ignore, reduction = call.params["ignore_index"], call.params["reduction"]
    losses = y if reduction == "none" else ctx.scratch(target.size * spec.dtype.itemsize)
    most, operands = widest(x.size * 12), (p, losses, x, target, FAULT)
    if inner == 1 and spec.dtype == FLOAT32:
        tasks = [*first, TaskSpec("gradlab_cross_entropy_rows", (outer, classes, ignore), operands, min(outer, most))]
    else:
        tasks = [*first, TaskSpec(f"gradlab_cross_entropy_along{_kind(spec)}", (outer, classes, inner, ignore), operands, most)]
    if reduction != "none":
        parameters = (target.size, ignore, reduction == "mean")
        tasks.append(TaskSpec(f"gradlab_cross_entropy_total{_kind(spec)}", parameters, (y, losses, target)))
    return tasks


@lowers("cross_entropy_backward")
def cross_entropy_backward(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The logits' gradient."""
    spec = call.inputs[1].spec
    dy, first = packed(ctx.place(call.inputs[0]), ctx)
    p, target = ctx.dense(call.inputs[1], spec.dtype), ctx.dense(call.inputs[2], INT64)
    if p.size == 0 or spec.dtype not in (FLOAT32, FLOAT64) or dy.dtype != spec.dtype:
        raise Unsupported
    outer, classes, inner = _along(p.shape, 1)
    reduction = call.params["reduction"]
    if target.size != outer * inner or dy.size != (target.size if reduction == "none" else 1):  # the rule looks at neither
        raise Unsupported
    more = (call.params["ignore_index"], reduction == "mean", reduction == "none")
    places, most = (ctx.dense(call.outputs[0], spec.dtype), dy, p, target), widest(p.size * 2)
    if inner == 1 and spec.dtype == FLOAT32:
        return [*first, TaskSpec("gradlab_cross_entropy_backward", (outer, classes, *more), places, most)]
    return [*first, TaskSpec(f"gradlab_cross_entropy_backward_along{_kind(spec)}", (outer, classes, inner, *more), places, most)]


@lowers("layer_norm")
def layer_norm(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Over the last k dimensions."""
    x, weight, bias = call.inputs
    outputs = [ctx.dense(v) for v in call.outputs]
    k, shape = call.params["k"], x.spec.shape
    n, rows = math.prod(shape[len(shape) - k :]), math.prod(shape[: len(shape) - k])
    if n * rows == 0:
        raise Unsupported
    space = Space(ctx)
    inside, *own = (outputs[0] if v is None else space.dense(v, FLOAT32) for v in call.inputs)
    parameters = (rows, n, bits(call.params["eps"]), weight is not None, bias is not None)
    return [*space.tasks, TaskSpec("gradlab_layer_norm", parameters, (*outputs, inside, *own), min(rows, widest(rows * n * 4)))]


@lowers("rms_norm")
def rms_norm(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Over the last k dimensions."""
    x, weight = call.inputs
    outputs = [ctx.dense(v) for v in call.outputs]
    k, shape = call.params["k"], x.spec.shape
    n, rows = math.prod(shape[len(shape) - k :]), math.prod(shape[: len(shape) - k])
    if n * rows == 0:
        raise Unsupported
    space = Space(ctx)
    inside, own = (outputs[0] if v is None else space.dense(v, FLOAT32) for v in call.inputs)
    parameters = (rows, n, bits(call.params["eps"]), weight is not None)
    return [*space.tasks, TaskSpec("gradlab_rms_norm", parameters, (*outputs, inside, own), min(rows, widest(rows * n * 4)))]


@lowers("layer_norm_backward")
def layer_norm_backward(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The input's gradient row by row; those of weight and bias are added up over blocks of rows, then over the blocks."""
    _, x, weight, *_ = call.inputs
    dx, dweight, dbias = (ctx.dense(v) for v in call.outputs)
    k, shape = call.params["k"], x.spec.shape
    n, rows = math.prod(shape[len(shape) - k :]), math.prod(shape[: len(shape) - k])
    if n * rows == 0:
        raise Unsupported
    space = Space(ctx)
    g, inside, scale, m, r = (dx if v is None else space.dense(v, FLOAT32) for v in call.inputs)
    blocks = -(-rows // NORM_BLOCK)
    sums = space.floats(blocks * 2 * n)
    own = (rows, n, weight is not None, NORM_BLOCK)
    most = min(max(n // 16, 1), widest(blocks * n * 2))
    return [
        *space.tasks,
        TaskSpec("gradlab_layer_norm_backward", own, (dx, sums, g, inside, scale, m, r), min(blocks, widest(rows * n * 6))),
        TaskSpec("gradlab_layer_norm_parameters", (blocks, n), (dweight, dbias, sums), most),
    ]


@lowers("mse")
def mse(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The mean square of a difference."""
    space = Space(ctx)
    a, b = (space.dense(v, FLOAT32) for v in call.inputs)
    if a.size == 0:
        raise Unsupported
    return [*space.tasks, TaskSpec("gradlab_mse", (a.size, call.params["mean"]), (ctx.dense(call.outputs[0]), a, b))]


@lowers("embedding")
def embedding(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Rows of a table."""
    space, y = Space(ctx), ctx.dense(call.outputs[0])
    weight, at = space.dense(call.inputs[0], FLOAT32), space.dense(call.inputs[1], INT64)
    parameters = (at.size, *weight.shape)
    return [*space.tasks, TaskSpec("gradlab_embedding", parameters, (y, weight, at, FAULT), widest(at.size * weight.shape[1]))]


@lowers("embedding_backward")
def embedding_backward(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The table's gradient."""
    space, dw = Space(ctx), ctx.dense(call.outputs[0])
    dy, at = space.dense(call.inputs[0], FLOAT32), space.dense(call.inputs[1], INT64)
    padding = call.params["padding_idx"]
    parameters = (at.size, *dw.shape, -1 if padding is None else padding)
    most = max(dw.shape[1] // 16, 1)
    return [*space.tasks, TaskSpec("gradlab_embedding_backward", parameters, (dw, dy, at), min(most, widest(dy.size)))]


def _rows(place: Place) -> int:
    """The distance of the rows of a matrix whose rows are contiguous."""
    if len(place.shape) != 2 or (place.strides[1] != 1 and place.shape[1] != 1) or place.dtype != FLOAT32:
        raise Unsupported
    return place.strides[0]


@lowers("lstm_cell")
def lstm_cell(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """One step of an LSTM."""
    inputs = [ctx.place(v) for v in call.inputs]
    outputs = [ctx.dense(v) for v in call.outputs]
    steps = [_rows(p) for p in inputs]
    rows, n = outputs[0].shape
    return [TaskSpec("gradlab_lstm_cell", (rows, n, *steps), (*outputs, *inputs), min(rows, widest(rows * n * 60)))]


@lowers("lstm_cell_backward")
def lstm_cell_backward(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """One step back."""
    inputs = [ctx.place(v) for v in call.inputs]
    outputs = [ctx.dense(v) for v in call.outputs]
    steps = [_rows(p) for i, p in enumerate(inputs) if i != 2]
    if not inputs[2].contiguous:
        raise Unsupported
    rows, n = outputs[1].shape
    return [TaskSpec("gradlab_lstm_cell_backward", (rows, n, *steps), (*outputs, *inputs), min(rows, widest(rows * n * 30)))]


