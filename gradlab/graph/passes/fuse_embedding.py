"""Rows of a table plus those of their places in the sequence are one kernel of a GPU: the rows are added to where they are looked up."""

from __future__ import annotations

from typing import Any

from gradlab import ops
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes.fuse_residual_norm import is_at_hand
from gradlab.graph.passes.graph_tools import Rewriting
from gradlab.ops.fused import embedding_add

IN_FRONT = (("unsqueeze", {"dim": 0}), ("slice", {"index": (None,)}))  # x.unsqueeze(0), x[None]


def fuse_embedding(graph: Graph) -> Graph:
    """Replace embedding(table, at) + positions, where positions are a matrix for each sequence."""
    if graph.device.type == "cpu" or not any(c.op is ops.indexing.embedding for c in graph.calls):
        return graph
    work = Rewriting(graph)
    for call in graph.calls:
        if call.op is ops.elementwise.add and all(isinstance(x, Value) for x in call.inputs):
            for looked_up, added in (call.inputs, call.inputs[::-1]):
                new = _joined(work, call, looked_up, added)
                if new is not None:
                    work.replace(call, [new])
                    work.maker[call.outputs[0].id] = new
                    break
    return work.finish()


def _joined(work: Rewriting, call: Call, looked_up: Value, added: Value) -> Call | None:
    maker, result = work.maker.get(looked_up.id), call.outputs[0]
    if maker is None or maker.op is not ops.indexing.embedding or work.uses[looked_up.id] != 1 or looked_up.spec != result.spec:
        return None
    table, at = maker.inputs
    positions = _matrix(work, added, at.spec.shape[-1:])
    if positions is None or positions.spec.dtype != table.spec.dtype or not is_at_hand(work, positions):
        return None
    return work.call(embedding_add, (table, positions, at), maker.params, call.position, result)


def _matrix(work: Rewriting, added: Value, length: tuple[int, ...]) -> Value | None:
    """The matrix of positions: without sizes of 1 in front, and all of it where the first rows were taken."""
    found: Any = added
    maker = work.maker.get(found.id)
    while maker is not None and (maker.op.name, maker.params) in IN_FRONT:
        found = maker.inputs[0]
        maker = work.maker.get(found.id)
    if len(found.spec.shape) != 2 or found.spec.shape[:1] != length:
        return None
    if maker is not None and maker.op is ops.movement.slice_ and maker.params["index"] == ((0, length[0], 1),):
        found = maker.inputs[0]
    return found if len(found.spec.shape) == 2 else None
