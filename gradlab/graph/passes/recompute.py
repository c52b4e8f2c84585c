"""Cheap elementwise results that the backward needs are computed again there instead of being kept, where that saves memory.

Only where everything that they are computed from is alive anyway. (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016, do
so with whole segments of a network: `gradlab.utils.checkpoint`.)
"""

from __future__ import annotations

from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes.recomputation import FAR, Later
from gradlab.graph.passes.replacing import is_ours
from gradlab.kernel import Elementwise

# Rows with an exponential in them whose gradient's row computes it from the same input too: in one loop, it is computed once.
SHARED = {"gelu": "gelu_backward", "gelu_tanh": "gelu_tanh_backward", "silu": "silu_backward", "mish": "mish_backward"}
NEAR = 6  # calls between two uses of such a result
# What costs a few cycles an element; anything with exp or a division in it is kept.
CHEAP = (
    "add", "sub", "mul", "neg", "abs", "square", "relu", "relu_backward", "maximum", "minimum", "clamp", "where", "cast", "clone",
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "leaky_relu",
)  # fmt: skip


def recompute(graph: Graph) -> Graph:
    """Compute cheap values again before their late uses; the graph as it is where the plan of memory does not become smaller."""
    later = Later(graph)
    last = {n: places[-1] for n, places in later.uses.items()}
    last.update((n, len(graph.calls)) for n in later.leaving)
    for i, call in enumerate(graph.calls):
        shared = _shares(call, graph, later)
        if not shared and not _is_cheap(call):
            continue
        late = later.late(call.outputs[0], i, NEAR if shared else FAR)
        if late and all(not isinstance(x, Value) or last.get(x.id, -1) >= late[-1] for x in call.inputs):
            later.again(call.outputs[0], later.work.call(call.op, call.inputs, call.params, call.position), late[0])
    return later.finish()


def _shares(call: Call, graph: Graph, later: Later) -> bool:
    """Whether the result can come out of the loop that computes its row's gradient from the same input."""
    x = call.inputs[0] if call.inputs else None
    if call.op.name not in SHARED or not is_ours(call.op) or not isinstance(x, Value):
        return False
    return any(graph.calls[at].op.name == SHARED[call.op.name] for at in later.uses[x.id])


def _is_cheap(call: Call) -> bool:
    if call.op.name not in CHEAP or not is_ours(call.op) or not isinstance(call.op.cuda, Elementwise):
        return False
    return all(x is None or isinstance(x, Value) for x in call.inputs)
