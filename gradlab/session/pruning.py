"""What of a graph a run computes: the calls behind its fetches, with variables cut off, in the order of definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gradlab.graph.ir.graph import Call, Value
from gradlab.ops.elementwise import clone
from gradlab.session.nodes import State, Update

if TYPE_CHECKING:
    from gradlab.session.defining import Defining


@dataclass
class Wanted:
    """Values to give, updates to make, states to initialise, and values that are fed."""

    outputs: list[Value]
    updates: list[Update]
    initialize: list[State]
    fed: set[int]
    everything: bool = False  # also what initialises variables


@dataclass
class Pruned:
    """What is left. `states`: those that the calls read or write. `missing`: placeholders that are not fed."""

    inputs: list[Value]
    states: list[State]
    random: list[tuple[Any, Value, Any]]
    hyper: list[tuple[dict[str, Any], tuple[Any, ...], Value]]
    calls: list[Call]
    outputs: list[Value]
    updates: list[tuple[Value, Value]]
    written: list[State]
    missing: list[int] = field(default_factory=list)


def prune(tracer: Defining, wanted: Wanted) -> Pruned:
    """The part of a graph that a run needs.

    A variable that is not being initialised is read from the session, so the calls that compute its initial value are left out. Calls that
    were written after an update of a variable, if that update is part of the run, read the new value.
    """
    calls = tracer.graph.calls
    made = {s.symbol.id for s in wanted.initialize}
    updates = list(wanted.updates)
    needed: set[int] = {v.id for v in wanted.outputs} | {u.new.id for u in updates} | made

    def cut(number: int) -> bool:
        return number in wanted.fed or (number not in made and not wanted.everything and tracer.of_value(number) is not None)

    drawn = {d.tensor._array.id for d in tracer.draws}
    kept: list[tuple[int, Call]] = []
    read: set[int] = set(needed)
    open_values = {n for n in needed if not cut(n)}
    # Initial values that were replaced are not computed, but their random numbers count, as they do in eager code.
    replaced = set(tracer.overwritten) if wanted.initialize else set()
    for i in range(len(calls) - 1, -1, -1):
        call = calls[i]
        if not any(v.id in open_values for v in call.outputs):
            if replaced and any(v.id in replaced for v in call.outputs):
                skipped = [x.id for x in call.inputs if isinstance(x, Value)]
                replaced.update(skipped)
                read.update(n for n in skipped if n in drawn)
            continue
        kept.append((i, call))
        for v in call.outputs:
            assignment = tracer.assigned.get(v.id)
            if assignment is not None and assignment not in updates:
                updates.append(assignment)
        for x in call.inputs:
            if isinstance(x, Value):
                read.add(x.id)
                if not cut(x.id):
                    open_values.add(x.id)
    kept.reverse()
    order = {id(u): i for i, u in enumerate(tracer.updates)}
    updates.sort(key=lambda u: (u.at, order[id(u)]))
    history: dict[int, list[Update]] = {}  # value of a state -> its updates in this run
    for u in updates:
        history.setdefault(u.state.symbol.id, []).append(u)

    def at(i: int, call: Call, x: Any) -> Any:
        """What an input holds when the run has come to call number i."""
        if not isinstance(x, Value) or x.id not in history or x.id in wanted.fed:
            return x
        place = tracer.read_at.get((call.outputs[0].id, x.id), i)
        return next((u.new for u in reversed(history[x.id]) if u.at <= place), x)

    found: list[Call] = []
    for i, call in kept:
        inputs_now = tuple(at(i, call, x) for x in call.inputs) if history else call.inputs
        found.append(call if inputs_now == call.inputs else Call(call.op, inputs_now, call.params, call.outputs, call.position))
    written = _distinct([u.state for u in updates])
    states = [s for s in tracer.states if (s.symbol.id in read and (cut(s.symbol.id) or s.shared)) or s in written]
    states = list(tracer.states) if wanted.everything else [s for s in states if s.symbol.id not in wanted.fed or s in written]
    fed = [Value(n, tracer._values[n].spec) for n in sorted(wanted.fed)]
    asked = [n for n in tracer.placeholders if n in read and n not in wanted.fed]
    if wanted.everything:
        asked = list(tracer.placeholders)
    inputs = [*fed, *(Value(n, tracer._values[n].spec) for n in asked)]
    random = [(d.generator, tracer.value(d.tensor._array), d.words) for d in tracer.draws if d.tensor._array.id in read]
    hyper = [(group, names, tracer.value(t._array)) for group, names, t in tracer.hyper.values() if t._array.id in read]
    outputs = list(wanted.outputs)
    for i, v in enumerate(outputs):
        if v.id in history and v.id not in wanted.fed:  # the old value, which an update is about to overwrite
            copy = tracer.value(tracer.symbol(v.spec))
            found.insert(0, Call(clone, (v,), {}, (copy,)))
            outputs[i] = copy
    return Pruned(
        inputs, states, random, hyper, found, outputs, [(s.value, history[s.symbol.id][-1].new) for s in written], written, asked
    )  # fmt: skip


def _distinct(states: Sequence[State]) -> list[State]:
    found: list[State] = []
    for s in states:
        if s not in found:
            found.append(s)
    return found
