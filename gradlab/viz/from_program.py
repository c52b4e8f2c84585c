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
    for number, value in enumerate(graph.inputs):
        made[value.id] = found.vertex("input", f"input {number}", extent(*value.spec), ROOT, -2 + number * 1e-3)
    # State stands at each operation that uses it: a parameter is used in the forward, the backward and the update, lines would cross all.
    state = {value.id: names.get(id(array), "") for value, array in graph.state.items()}
    state.update({value.id: "random state" for _, value, _ in getattr(graph, "random", ())})
    for call, vertex in calls:
        for at, value in enumerate(call.inputs):
            if getattr(value, "id", None) in state:
                word = call.op.inputs[min(at, len(call.op.inputs) - 1)]
                name = state[value.id] or WORDS.get(word, word)
                vertex.chips.append(Chip("state", name, extent(*value.spec), math.prod(value.spec.shape)))
    for call, vertex in calls:
        for value in call.inputs:
            if hasattr(value, "spec") and value.id in made:
                found.flow(made[value.id], vertex)
    ends = [(f"output {i}", value) for i, value in enumerate(graph.outputs)]
    ends += [("update", new) for _, new in graph.updates]
    ends += [("gradient", value) for _, value in getattr(graph, "gradients", ()) if value is not None]
    groups: dict[tuple[int, str], list[Any]] = {}  # what one call gives: one vertex, however many of its results are written
    for name, value in ends:
        if value.id in made:
            groups.setdefault((made[value.id].id, name), []).append(value)
    for order, ((source, name), values) in enumerate(groups.items()):
        shape = extent(*max(values, key=lambda v: math.prod(v.spec.shape)).spec)
        end = found.vertex("output", name if len(values) == 1 else f"{len(values)} {name}s", shape, ROOT, 1e12 + order)
        found.flow(found.vertices[source], end)
    found.note = f"{counted(len(graph.calls), 'operation')} · {counted(len(graph.state), 'state tensor')}"
    return found.melt()
