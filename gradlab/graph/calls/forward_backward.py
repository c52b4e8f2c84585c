"""Splits a graph that holds a forward and its backward into two programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gradlab.graph.ir.graph import Call, Value, leading_to
from gradlab.graph.staging.stage import Staged


@dataclass
class First:
    """The forward: its calls, and the values that the backward needs of it."""

    calls: list[Call]
    saved: list[Value] = field(default_factory=list)


@dataclass
class Second:
    """The backward.

    inputs     the results' gradients, then arguments, then values that the forward saved
    arguments  positions of those arguments
    tensors    state that the backward reads: it must not change in between
    """

    calls: list[Call]
    inputs: list[Value]
    outputs: list[Value]
    arguments: list[int]
    state: list[Value]
    tensors: list[Any]

    def fixed(self, known: dict[Value, Any]) -> dict[Value, Any]:
        """The arrays of state that the backward reads."""
        return {v: known[v] for v in self.state if v in known}


def split(staged: Staged) -> tuple[First, Second | None]:
    """The two halves; no second where the function is not differentiated from outside."""
    graph, backward = staged.graph, staged.backward
    if backward is None:
        return First(graph.calls), None
    results = [v for v in backward.results if v is not None]
    forward_ends = list(graph.outputs[: staged.values])
    forward_ends += [new for _, new in graph.updates] + [v for _, v in graph.gradients if v is not None]
    needed = leading_to(graph.calls, forward_ends)
    forward = [c for c in graph.calls if id(c) in needed]
    wanted = leading_to(graph.calls, results)
    rest = [c for c in graph.calls if id(c) in wanted and id(c) not in needed]
    made = {v.id for c in rest for v in c.outputs} | {v.id for v in backward.gradients}
    used = {x.id: x for c in rest for x in c.inputs if isinstance(x, Value)} | {v.id: v for v in results}
    arguments = {v.id: i for i, v in enumerate(graph.inputs)}
    written = {old.id for old, _ in graph.updates}
    states = {v.id: v for v in graph.state}
    found_arguments, found_state, saved = [], [], []
    for number, value in used.items():
        if number in made:
            continue
        if number in arguments and number not in written:
            found_arguments.append(value)
        elif number in states and number not in written:
            found_state.append(value)
        else:
            saved.append(value)
    arrays = {id(graph.state[v]) for v in found_state}
    tensors = [t for t, a in staged.tensors if id(a) in arrays]
    inputs = [*backward.gradients, *found_arguments, *saved]
    second = Second(rest, inputs, results, [arguments[v.id] for v in found_arguments], found_state, tensors)
    return First(forward, saved), second
