"""Splits a body that was traced with its gradients into a forward part and a backward part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gradlab import ops
from gradlab.graph.ir.graph import Call, Value, leading_to

TURNS = (ops.movement.t, ops.movement.transpose)


@dataclass
class Halves:
    """saved: what the backward needs of the forward. used: the body's inputs (arguments, captured) that the backward reads itself."""

    forward: list[Call]
    backward: list[Call]
    saved: list[Value]
    used: set[int]


def split(
    calls: Sequence[Call], results: Iterable[Value], gradients: Iterable[Value], fixed: Iterable[Value], keep: Iterable[Value],
    recompute: bool,
) -> Halves:  # fmt: skip
    """The halves.

    fixed      inputs that are the same in each run of the body: what depends on them alone is computed again rather than kept for each run
    keep       inputs that the backward gets only if they are saved
    recompute  compute everything again that the backward needs, and save inputs only
    """
    gradients = list(gradients)
    needed = leading_to(calls, results)
    wanted = leading_to(calls, gradients)
    maker = {v.id: c for c in calls for v in c.outputs}
    same = _same(calls, fixed)
    repeated: set[int] = set()
    saved: list[Value] = []
    used: set[int] = set()
    kept = {v.id for v in keep}
    pending = [*gradients, *(x for c in calls if id(c) in wanted and id(c) not in needed for x in c.inputs if isinstance(x, Value))]
    seen: set[int] = set()
    while pending:
        value = pending.pop(0)
        if value.id in seen:
            continue
        seen.add(value.id)
        call = maker.get(value.id)
        if call is None:
            if value.id in kept:
                saved.append(value)
            else:
                used.add(value.id)
        elif id(call) in needed:
            if recompute or call.op.view or value.id in same:
                repeated.add(id(call))
                pending += [x for x in call.inputs if isinstance(x, Value)]
            else:
                saved.append(value)
    forward = [c for c in calls if id(c) in needed]
    backward = [c for c in calls if (id(c) in wanted and id(c) not in needed) or id(c) in repeated]
    return Halves(forward, backward, saved, used)


def products(calls: Sequence[Call], value: Value, fixed: Iterable[Value]) -> list[tuple[Value, Value]]:
    """The pairs (a, b) of matrices whose products aᵀ·b add up to a value; none where it is something else, or one does not change."""
    maker = {v.id: c for c in calls for v in c.outputs}
    same = _same(calls, fixed)
    found = []
    pending = [(value, False)]  # and whether its transpose is meant
    while pending:
        v, flipped = pending.pop()
        call = maker.get(v.id)
        if call is None or any(not isinstance(x, Value) for x in call.inputs):
            return []
        if call.op is ops.elementwise.add and all(x.spec == v.spec for x in call.inputs):
            pending += [(x, flipped) for x in call.inputs]
        elif call.op in TURNS and len(v.spec.shape) == 2:
            pending.append((call.inputs[0], not flipped))
        elif call.op is ops.linalg.matmul and all(len(x.spec.shape) == 2 for x in call.inputs):
            left, right = call.inputs
            turned = maker.get(left.id)
            if turned is None or turned.op not in TURNS:
                return []
            a, b = turned.inputs[0], right
            if any(x.id in same or x.spec.dtype != v.spec.dtype for x in (a, b)):
                return []
            found.append((b, a) if flipped else (a, b))
        else:
            return []
    return found


def _same(calls: Sequence[Call], fixed: Iterable[Value]) -> set[int]:
    """The values that are the same in each run: what depends on `fixed` alone."""
    same = {v.id for v in fixed}
    for c in calls:
        if all(x.id in same for x in c.inputs if isinstance(x, Value)):
            same.update(v.id for v in c.outputs)
    return same
