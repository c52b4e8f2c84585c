"""Copies of values: in a graph no value is ever overwritten, so a copy of one is the value itself."""

from __future__ import annotations

from dataclasses import replace

from gradlab import ops
from gradlab.graph.ir.graph import Graph, Value


def drop_clones(graph: Graph) -> Graph:
    """Let everything that reads a `clone` read what was cloned. State that becomes a copy of other state keeps its copy: that state may be
    written in the same moment. So does a result that is a copy of what the program writes."""
    known: dict[int, Value] = {}
    made = {v.id for call in graph.calls for v in call.outputs}
    stored = {new.id for _, new in graph.updates}
    written = {old.id for old, _ in graph.updates}
    results = {v.id for v in graph.outputs} | {v.id for _, v in graph.gradients if v is not None}

    def seen(x: object) -> object:
        return known.get(x.id, x) if isinstance(x, Value) else x

    calls = []
    for call in graph.calls:
        inputs = tuple(map(seen, call.inputs))
        source = inputs[0] if call.op is ops.elementwise.clone else None
        copy = call.outputs[0].id
        kept = copy in stored or (copy in results and isinstance(source, Value) and source.id in written)
        if isinstance(source, Value) and (source.id in made or not kept):
            known[call.outputs[0].id] = source
        else:
            calls.append(call if inputs == call.inputs else replace(call, inputs=inputs))
    return replace(
        graph,
        calls=calls,
        outputs=[known.get(v.id, v) for v in graph.outputs],
        updates=[(old, known.get(new.id, new)) for old, new in graph.updates],
        gradients=[(leaf, None if v is None else known.get(v.id, v)) for leaf, v in graph.gradients],
    )
