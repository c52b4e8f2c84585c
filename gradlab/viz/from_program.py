"""The Diagram of a traced program, or of anything with its attributes: inputs, state, random, calls, outputs, updates, gradients."""

from __future__ import annotations

import math
from typing import Any

from gradlab import call_site
from gradlab.viz.diagram import ROOT, Box, Chip, Diagram, Vertex, counted, extent, source_line

WORDS = {"w": "weight", "b": "bias"}
MANY, LONGEST = 8, 40  # calls of one line that get a box; letters of its title


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
        where, line = source_line(call_site.locate(code, lasti, scope))
        spec = call.outputs[0].spec
        facts = [("values", ", ".join(map(repr, call.outputs)))]
        facts += [(name, repr(value)) for name, value in call.params.items() if len(repr(value)) < 60]
        vertex = found.vertex("operation", call.op.name, extent(*spec), found.box_of(scope, order), order, place=where, facts=facts + line)
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
                if vertex.box != ROOT:  # its module is around it
                    name = name.rpartition(".")[2]
                vertex.chips.append(Chip("state", name, extent(*value.spec), math.prod(value.spec.shape)))
    lines = _boxes_of_lines(found, calls)
    for call, vertex in calls:
        for value in call.inputs:
            source = made.get(getattr(value, "id", -1))
            if source is None:
                continue
            if vertex.box in lines and source.box != ROOT and source.box not in lines:  # what the forward keeps for the backward
                vertex.chips.append(Chip("constant", f"{source.title} {source.name}".strip(), source.shape, 0))
            else:
                found.flow(source, vertex)
    ends = [(f"output {i}", value) for i, value in enumerate(graph.outputs)]
    ends += [("update", new) for _, new in graph.updates]
    ends += [("gradient", value) for _, value in getattr(graph, "gradients", ()) if value is not None]
    groups: dict[tuple[int, str], list[Any]] = {}  # what one call gives: one vertex, however many of its results are written
    for name, value in ends:
        if value.id in made:
            groups.setdefault((made[value.id].id, name), []).append(value)
    for order, ((number, name), values) in enumerate(groups.items()):
        shape = extent(*max(values, key=lambda v: math.prod(v.spec.shape)).spec)
        origin = found.vertices[number]
        box = ROOT if name.startswith("output") else origin.box
        end = found.vertex("output", name if len(values) == 1 else f"{len(values)} {name}s", shape, box, 1e12 + order)
        found.flow(origin, end)
    found.note = f"{counted(len(graph.calls), 'operation')} · {counted(len(graph.state), 'state tensor')}"
    return found.melt()


def _boxes_of_lines(found: Diagram, calls: list[tuple[Any, Vertex]]) -> set[int]:
    """Put calls that one line outside all modules made, such as `loss.backward()`, into a box with that line as its title."""
    boxes: set[int] = set()
    run: list[tuple[Any, Vertex]] = []

    def place_of(call: Any) -> Any:
        code, lasti, scope = call.position or (None, 0, None)
        return (code, lasti) if scope is None and code is not None else None

    def close() -> None:
        """Give what has been collected a box, if it is much."""
        place = place_of(run[0][0]) if run else None
        if place is not None and len(run) >= MANY:
            text = call_site.line_of(*place).text or "one line"
            title = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
            box = Box(len(found.boxes), title, "", ROOT, run[0][1].order, run[0][1].place, line=True)
            found.boxes.append(box)
            boxes.add(box.id)
            for _, vertex in run:
                vertex.box = box.id
        run.clear()

    for call, vertex in calls:
        if run and place_of(call) != place_of(run[0][0]):
            close()
        run.append((call, vertex))
    close()
    return boxes
