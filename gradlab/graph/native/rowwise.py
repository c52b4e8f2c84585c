"""Lowering of rows that work along the last dimension: softmax, cross-entropy, norms, embeddings, recurrent cells."""

from __future__ import annotations

import math

from gradlab.dtype import FLOAT32, INT64
from gradlab.graph.ir import Call
from gradlab.graph.native.lower import Lowering, TaskSpec, Unsupported, bits, lowers, widest
from gradlab.graph.native.movements import packed
from gradlab.graph.native.place import STATUS, Place

NORM_BLOCK = 64  # rows of which one thread makes one sum: the same for any number of threads
FAULT = Place(STATUS, 0, (), (), INT64)  # where a kernel says that an index lies outside


@lowers("softmax", "log_softmax", "softmax_backward", "log_softmax_backward")
def softmax(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Along the last dimension."""
    shape = call.outputs[0].spec.shape
    if not shape or call.params["dim"] != len(shape) - 1 or math.prod(shape) == 0:
        raise Unsupported
    places = (ctx.dense(call.outputs[0]), *(ctx.dense(x) for x in call.inputs))
    rows = math.prod(shape[:-1])
    return [TaskSpec(f"gradlab_{call.op.name}", (rows, shape[-1]), places, min(rows, widest(rows * shape[-1] * 12)))]


@lowers("cross_entropy")
def cross_entropy(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Of logits [n, classes]: the probabilities and each row's loss, then the total. Without a reduction the losses are the result."""
    x, target = ctx.dense(call.inputs[0]), ctx.dense(call.inputs[1], INT64)
    y, p = ctx.dense(call.outputs[0]), ctx.dense(call.outputs[1])
    if len(x.shape) != 2 or x.size == 0:
        raise Unsupported
    n, classes = x.shape
    ignore, reduction = call.params["ignore_index"], call.params["reduction"]
    losses = y if reduction == "none" else ctx.scratch(n * 4)
    tasks = [TaskSpec("gradlab_cross_entropy_rows", (n, classes, ignore), (p, losses, x, target, FAULT), min(n, widest(n * classes * 12)))]
    if reduction != "none":
        tasks.append(TaskSpec("gradlab_cross_entropy_total", (n, ignore, reduction == "mean"), (y, losses, target)))
    return tasks


@lowers("cross_entropy_backward")
def cross_entropy_backward(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The logits' gradient."""
    dy, p, target = ctx.dense(call.inputs[0]), ctx.dense(call.inputs[1]), ctx.dense(call.inputs[2], INT64)
    if len(p.shape) != 2 or p.size == 0:
        raise Unsupported
    n, classes = p.shape
    reduction = call.params["reduction"]
    parameters = (n, classes, call.params["ignore_index"], reduction == "mean", reduction == "none")
    return [TaskSpec("gradlab_cross_entropy_backward", parameters, (ctx.dense(call.outputs[0]), dy, p, target), widest(n * classes * 2))]


@lowers("layer_norm")
def layer_norm(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Over the last k dimensions."""
    x, weight, bias = call.inputs
    outputs = [ctx.dense(v) for v in call.outputs]
    k, shape = call.params["k"], x.spec.shape
    n, rows = math.prod(shape[len(shape) - k :]), math.prod(shape[: len(shape) - k])
    if n * rows == 0:
        raise Unsupported
    own = [outputs[0] if v is None else ctx.dense(v) for v in (weight, bias)]
    parameters = (rows, n, bits(call.params["eps"]), weight is not None, bias is not None)
    return [TaskSpec("gradlab_layer_norm", parameters, (*outputs, ctx.dense(x), *own), min(rows, widest(rows * n * 4)))]


@lowers("rms_norm")
def rms_norm(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Over the last k dimensions."""
    x, weight = call.inputs
    outputs = [ctx.dense(v) for v in call.outputs]
    k, shape = call.params["k"], x.spec.shape
    n, rows = math.prod(shape[len(shape) - k :]), math.prod(shape[: len(shape) - k])
    if n * rows == 0:
        raise Unsupported
    own = outputs[0] if weight is None else ctx.dense(weight)
    parameters = (rows, n, bits(call.params["eps"]), weight is not None)
    return [TaskSpec("gradlab_rms_norm", parameters, (*outputs, ctx.dense(x), own), min(rows, widest(rows * n * 4)))]


@lowers("layer_norm_backward")
def layer_norm_backward(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The input's gradient row by row; those of weight and bias are added up over blocks of rows, then over the blocks."""
    dy, x, weight, mean, rstd = call.inputs
    dx, dweight, dbias = (ctx.dense(v) for v in call.outputs)
    k, shape = call.params["k"], x.spec.shape
    n, rows = math.prod(shape[len(shape) - k :]), math.prod(shape[: len(shape) - k])
    if n * rows == 0:
        raise Unsupported
    g, inside, m, r = ctx.dense(dy), ctx.dense(x), ctx.dense(mean), ctx.dense(rstd)
    scale = dx if weight is None else ctx.dense(weight)
    blocks = -(-rows // NORM_BLOCK)
    sums = ctx.scratch(blocks * 2 * n * 4)
    own = (rows, n, weight is not None, NORM_BLOCK)
    most = min(max(n // 16, 1), widest(blocks * n * 2))
    return [
        TaskSpec("gradlab_layer_norm_backward", own, (dx, sums, g, inside, scale, m, r), min(blocks, widest(rows * n * 6))),
        TaskSpec("gradlab_layer_norm_parameters", (blocks, n), (dweight, dbias, sums), most),
    ]


@lowers("mse")
def mse(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The mean square of a difference."""
    a, b = ctx.dense(call.inputs[0]), ctx.dense(call.inputs[1])
    if a.size == 0:
        raise Unsupported
    return [TaskSpec("gradlab_mse", (a.size, call.params["mean"]), (ctx.dense(call.outputs[0]), a, b))]


@lowers("embedding")
def embedding(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Rows of a table."""
    weight, at = ctx.dense(call.inputs[0]), ctx.dense(call.inputs[1], INT64)
    parameters = (at.size, *weight.shape)
    return [TaskSpec("gradlab_embedding", parameters, (ctx.dense(call.outputs[0]), weight, at, FAULT), widest(at.size * weight.shape[1]))]


@lowers("embedding_backward")
def embedding_backward(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The table's gradient."""
    dy, first = packed(ctx.place(call.inputs[0]), ctx)
    at, dw = ctx.dense(call.inputs[1], INT64), ctx.dense(call.outputs[0])
    if dy.dtype != FLOAT32:
        raise Unsupported
    padding = call.params["padding_idx"]
    parameters = (at.size, *dw.shape, -1 if padding is None else padding)
    most = max(dw.shape[1] // 16, 1)
    return [*first, TaskSpec("gradlab_embedding_backward", parameters, (dw, dy, at), min(most, widest(dy.size)))]


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


