"""Cheap elementwise results that the backward needs are computed again there instead of being kept, where that saves memory.

Only where everything that they are computed from is alive anyway. (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016, do
so with whole segments of a network: `gradlab.utils.checkpoint`.)
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from gradlab.graph.ir import Call, Graph, Value
from gradlab.graph.memory import Moment, plan_buffers
from gradlab.graph.passes.replacing import is_ours
from gradlab.graph.passes.rewriting import Rewriting, ends
from gradlab.kernel import Elementwise
from gradlab.spec import count

LEAST = 1 << 16  # bytes that are worth computing again
FAR = 16  # calls between two uses
# What costs a few cycles an element; anything with exp or a division in it is kept.
CHEAP = (
    "add", "sub", "mul", "neg", "abs", "square", "relu", "relu_backward", "maximum", "minimum", "clamp", "where", "cast", "clone",
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "leaky_relu",
)  # fmt: skip


def recompute(graph: Graph) -> Graph:
    """Compute cheap values again before their late uses; the graph as it is where the plan of memory does not become smaller."""
    work = Rewriting(graph)
    at = {id(c): i for i, c in enumerate(graph.calls)}
    uses: dict[int, list[int]] = {}
    for i, c in enumerate(graph.calls):
        for x in c.inputs:
            if isinstance(x, Value):
                uses.setdefault(x.id, []).append(i)
    last = {n: places[-1] for n, places in uses.items()}
    last.update((v.id, len(graph.calls)) for v in ends(graph))
    leaving = {v.id for v in ends(graph)}
    before: dict[int, list[Call]] = {}  # position -> calls to put there
    renamed: dict[int, list[tuple[int, Value, Value]]] = {}  # old value -> from where on, the old and the new one
    for call in graph.calls:
        late = _late_uses(call, at[id(call)], uses, leaving)
        if late and all(not isinstance(x, Value) or last.get(x.id, -1) >= late[-1] for x in call.inputs):
            again = work.call(call.op, call.inputs, call.params, call.position)
            before.setdefault(late[0], []).append(again)
            renamed.setdefault(call.outputs[0].id, []).append((late[0], call.outputs[0], again.outputs[0]))
    if not before:
        return graph
    calls: list[Call] = []
    for i, c in enumerate(graph.calls):
        calls += before.get(i, [])
        calls.append(replace(c, inputs=tuple(_renamed(x, i, renamed) for x in c.inputs)))
    work.calls = calls
    found = work.finish()
    return found if peak(found) < peak(graph) else graph


def _late_uses(call: Call, made: int, uses: dict[int, list[int]], leaving: set[int]) -> list[int]:
    """The uses behind the largest gap, if it is long and the value is worth it."""
    out = call.outputs[0]
    if call.op.name not in CHEAP or not is_ours(call.op) or not isinstance(call.op.cuda, Elementwise) or out.id in leaving:
        return []
    if count(out.spec.shape) * out.spec.dtype.itemsize < LEAST or any(x is not None and not isinstance(x, Value) for x in call.inputs):
        return []
    places = [made, *uses.get(out.id, [])]
    gap, where = max(((b - a, i) for i, (a, b) in enumerate(itertools.pairwise(places))), default=(0, 0))
    return places[where + 1 :] if gap >= FAR and where > 0 else []


def _renamed(x: object, at: int, renamed: dict[int, list[tuple[int, Value, Value]]]) -> object:
    if isinstance(x, Value):
        for start, _, new in renamed.get(x.id, ()):
            if at >= start:
                return new
    return x


def peak(graph: Graph) -> int:
    """Bytes of the arena in which the graph's intermediate values would lie, each call by itself."""
    root: dict[int, int] = {}
    for c in graph.calls:
        for v in c.outputs:
            root[v.id] = root.get(c.inputs[0].id, c.inputs[0].id) if c.op.view else v.id
    moments = [
        Moment([root.get(x.id, x.id) for x in c.inputs if isinstance(x, Value)], [v.id for v in c.outputs if root[v.id] == v.id])
        for c in graph.calls
    ]
    specs = {v.id: v.spec for c in graph.calls for v in c.outputs if root[v.id] == v.id}
    return plan_buffers(moments, specs, [root.get(v.id, v.id) for v in ends(graph)]).size
