"""Lowering of a GRU's steps."""

from __future__ import annotations

from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.backends.native.place import Place
from gradlab.call import Call
from gradlab.dtype import FLOAT32


def _distance(place: Place) -> int:
    """Of the rows of a matrix whose rows are contiguous."""
    if len(place.shape) != 2 or (place.strides[1] != 1 and place.shape[1] != 1) or place.dtype != FLOAT32:
        raise Unsupported
    return place.strides[0]


@lowers("gru_cell")
def gru_cell(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """One step."""
    inputs, outputs = [ctx.place(v) for v in call.inputs], [ctx.dense(v) for v in call.outputs]
    steps = [_distance(p) for p in inputs]
    rows, n = outputs[0].shape
    return [TaskSpec("gradlab_gru_cell", (rows, n, *steps), (*outputs, *inputs), min(rows, widest(rows * n * 45)))]


@lowers("gru_cell_backward")
def gru_cell_backward(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """One step back."""
    inputs, outputs = [ctx.place(v) for v in call.inputs], [ctx.dense(v) for v in call.outputs]
    if not inputs[1].contiguous:
        raise Unsupported
    steps = [_distance(p) for i, p in enumerate(inputs) if i != 1]
    rows, n = outputs[2].shape
    return [TaskSpec("gradlab_gru_cell_backward", (rows, n, *steps), (*outputs, *inputs), min(rows, widest(rows * n * 20)))]
