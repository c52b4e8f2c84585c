"""What is written into memory may be, or be a view of, what other memory held: it is copied before anything is written."""

from __future__ import annotations

from dataclasses import replace

from gradlab import ops
from gradlab.graph.ir.graph import Call, Graph, Value


def keep_apart(graph: Graph) -> Graph:
    """Let no update read memory that an update writes. Executables count on it."""
    if not graph.updates:
        return graph
    written = {old.id for old, _ in graph.updates}
    looks = {c.outputs[0].id: c.inputs[0].id for c in graph.calls if c.op.view and isinstance(c.inputs[0], Value)}
    known = {v.id for v in (*graph.inputs, *graph.state, *graph.outputs)} | {v.id for _, v, _ in graph.random}
    known |= {v.id for c in graph.calls for v in (*c.inputs, *c.outputs) if isinstance(v, Value)}
    number = max(known)
    calls, updates = list(graph.calls), []
    for old, new in graph.updates:
        root = new.id
        while root in looks:
            root = looks[root]
        if root in written and new.id != old.id:
            number += 1
            copy = Value(number, new.spec)
            calls.append(Call(ops.elementwise.clone, (new,), {}, (copy,)))
            new = copy
        updates.append((old, new))
    return replace(graph, calls=calls, updates=updates) if len(calls) > len(graph.calls) else graph
