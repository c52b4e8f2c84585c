"""The gradient of a ReLU under a max pooling masks what arrives at the pooling, a fraction of what the pooling spreads it over.

An element that a window has chosen is not above zero exactly where the window's maximum is not; all others get zero anyway. So the
ReLU's result, often the largest of a network, is not needed by the backward.
"""

from __future__ import annotations

from gradlab import ops
from gradlab.graph.ir.graph import Call, Graph
from gradlab.graph.passes.graph_tools import Rewriting


def mask_pooled(graph: Graph) -> Graph:
    """relu_backward(max_pool_backward(g, at), x) → max_pool_backward(relu_backward(g, y), at) for y, at = max_pool(x)."""
    work = Rewriting(graph)
    for call in graph.calls:
        if call.op is ops.elementwise.relu_backward and (new := _masked(work, call)):
            work.replace(call, new)
            work.maker[call.outputs[0].id] = new[-1]
    return work.finish()


def _masked(work: Rewriting, call: Call) -> list[Call]:
    slope, x = call.inputs
    back = work.maker.get(slope.id)
    if back is None or back.op is not ops.pool.max_pool_backward or work.uses[slope.id] != 1:
        return []
    g, at = back.inputs
    forward = work.maker.get(at.id)
    if forward is None or forward.op is not ops.pool.max_pool or forward.inputs[0] is not x or forward.outputs[0].spec != g.spec:
        return []
    masked = work.call(ops.elementwise.relu_backward, (g, forward.outputs[0]), {}, call.position)
    return [masked, work.call(ops.pool.max_pool_backward, (masked.outputs[0], at), back.params, back.position, call.outputs[0])]
