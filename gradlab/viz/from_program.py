"""The Diagram of a traced program, or of anything with its attributes: inputs, state, random, calls, outputs, updates, gradients."""

from __future__ import annotations

import math
from typing import Any

from gradlab.autograd import position
from gradlab.viz.diagram import ROOT, Chip, Diagram, Vertex, counted, extent

WORDS = {"w": "weight", "b": "bias"}


def is_program(value: Any) -> bool:
    """Whether this is a traced graph."""
    return all(hasattr(value, name) for name in ("calls", "inputs", "state", "outputs", "updates"))


def diagram(graph: Any, names: dict[int, str] | None = None) -> Diagram:
    """The program's calls. `names` gives names of state by the id of its array."""
    found = Diagram("traced program")
    names = names or {}
    made: dict[int, Vertex] = {}  # value number -> vertex
    uses: dict[int, list[tuple[int, Any]]] = {}
    calls = []
    for order, call in enumerate(graph.calls):
        code, lasti, scope = call.position or (None, 0, None)
        place = position.locate(code, lasti, scope)
        spec = call.outputs[0].spec
        where = "" if place is None else f"{place.file}:{place.line} in {place.function}"
        facts = [("values", ", ".join(map(repr, call.outputs)))]
        facts += [(name, repr(value)) for name, value in call.params.items() if len(repr(value)) < 60]
        vertex = found.vertex("operation", call.op.name, extent(*spec), found.box_of(scope, order), order, place=where, facts=facts)
        if place is not None and place.text:
            vertex.facts.append(("line", place.text))
        calls.append((call, vertex))
        for value in call.outputs:
            made[value.id] = vertex
        for at, value in enumerate(call.inputs):
            if hasattr(value, "spec"):
                uses.setdefault(value.id, []).append((at, call))
    by_call = {id(call): vertex for call, vertex in calls}
    for number, value in enumerate(graph.inputs):
        made[value.id] = found.vertex("input", f"input {number}", extent(*value.spec), ROOT, -2 + number * 1e-3)
    for value, array in graph.state.items():
        users = uses.get(value.id, [])
        if not users:
            continue
        at, call = users[0]
        word = call.op.inputs[min(at, len(call.op.inputs) - 1)]
        name = names.get(id(array), WORDS.get(word, "state"))
        if len(users) == 1:
            by_call[id(call)].chips.append(Chip("state", name, extent(*value.spec), math.prod(value.spec.shape)))
        else:
            box = found.common(by_call[id(c)].box for _, c in users)
            first = found.boxes[box].order if box else 0.0
            made[value.id] = found.vertex("state", name, extent(*value.spec), box, first - 1 + 1e-6 * len(found.vertices))
    for _, value, _ in getattr(graph, "random", ()):
        made[value.id] = found.vertex("state", "random state", extent(*value.spec), ROOT, -1)
    for call, vertex in calls:
        for value in call.inputs:
            if hasattr(value, "spec") and value.id in made:
                found.flow(made[value.id], vertex)
    ends = [(f"output {i}", value) for i, value in enumerate(graph.outputs)]
    ends += [("update", new) for _, new in graph.updates]
    ends += [("gradient", value) for _, value in getattr(graph, "gradients", ()) if value is not None]
    for order, (name, value) in enumerate(ends):
        if value.id in made:
            end = found.vertex("output", name, extent(*value.spec), ROOT, 1e12 + order)
            found.flow(made[value.id], end)
    found.note = f"{counted(len(graph.calls), 'operation')} · {counted(len(graph.state), 'state tensor')}"
    return found.melt()
