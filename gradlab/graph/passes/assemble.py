"""The gradient of slices: a sum of mostly zeros becomes one tensor put together from its parts.

`x[:, 0], x[:, 1], …` have gradients that are each of x's size; adding n of them up costs n² of what the parts hold. Where the parts do
not overlap, `cat` gives the same.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from gradlab import ops
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes.graph_tools import Rewriting, ends, sum_of


def assemble(graph: Graph) -> Graph:
    """Replace sums over `slice_backward` of disjoint parts."""
    work = Rewriting(graph)
    for call in work.sums():
        found = _parts_of(work, call)
        if found is not None:
            work.replace(call, found)
            if found[-1].op is ops.elementwise.cast:
                _read_narrow(work, found[-1])
    return work.finish()


def _read_narrow(work: Rewriting, wide: Call) -> None:
    """Whoever casts what was put together back to the parts' own type reads it as it was put together."""
    (narrow,) = wide.inputs
    leaving = {v.id for v in ends(work.graph)}
    back = {
        c.outputs[0].id: narrow
        for c in work.calls
        if c.op is wide.op and c.inputs[0] is wide.outputs[0] and c.outputs[0].spec == narrow.spec and c.outputs[0].id not in leaving
    }
    for i, c in enumerate(work.calls):
        if any(isinstance(x, Value) and x.id in back for x in c.inputs):
            work.calls[i] = replace(c, inputs=tuple(back.get(x.id, x) if isinstance(x, Value) else x for x in c.inputs))


def _parts_of(work: Rewriting, call: Call) -> list[Call] | None:
    """The calls that make the sum's result without adding zeros; None where it has no two parts of one dimension."""
    parts: dict[int, list[tuple[int, int, Value, bool]]] = {}  # dimension -> start, stop, gradient, whether it lacks the dimension
    others: list[Value] = []
    for value in work.terms(call.outputs[0]):
        maker = work.maker_of_term(value)
        part = _part(maker) if maker is not None else None
        if part is None:
            others.append(value)
        else:
            parts.setdefault(part[0], []).append(part[1:])
    if len(parts) != 1:
        return None
    ((dim, pieces),) = parts.items()
    pieces.sort(key=lambda p: p[0])
    if len(pieces) < 2 or any(a[1] > b[0] for a, b in itertools.pairwise(pieces)):
        return None
    spec, position = call.outputs[0].spec, call.position
    narrow = {gradient.spec.dtype for *_, gradient, _ in pieces}  # parts of one half type whose sum is wide are put together as they are
    dtype = narrow.pop() if len(narrow) == 1 and not others else spec.dtype
    calls: list[Call] = []
    row: list[Value] = []
    at = 0
    for start, stop, gradient, lacking in [*pieces, (spec.shape[dim], spec.shape[dim], None, False)]:
        if start > at:
            shape = (*spec.shape[:dim], start - at, *spec.shape[dim + 1 :])
            zeros = {"shape": shape, "value": 0, "dtype": dtype, "device": work.graph.device}
            calls.append(work.call(ops.creation.full, (), zeros, position))
            row.append(calls[-1].outputs[0])
        if gradient is not None:
            if gradient.spec.dtype != dtype:
                calls.append(work.call(ops.elementwise.cast, (gradient,), {"dtype": dtype}, position))
                gradient = calls[-1].outputs[0]
            if lacking:
                calls.append(work.call(ops.movement.unsqueeze, (gradient,), {"dim": dim}, position))
                gradient = calls[-1].outputs[0]
            row.append(gradient)
        at = stop
    if dtype != spec.dtype:
        calls.append(work.call(ops.movement.cat, row, {"dim": dim}, position))
        return [*calls, work.call(ops.elementwise.cast, calls[-1].outputs, {"dtype": spec.dtype}, position, call.outputs[0])]
    calls.append(work.call(ops.movement.cat, row, {"dim": dim}, position, call.outputs[0] if not others else None))
    return [*calls, *sum_of(work, [calls[-1].outputs[0], *others], call.outputs[0], position)]


def _part(call: Call) -> tuple[int, int, int, Any, bool] | None:
    """Dimension, start, stop, gradient and whether the dimension is missing in it, for a slice that cuts one dimension only."""
    if call.op is not ops.movement.slice_backward:
        return None
    shape, index = call.params["shape"], call.params["index"]
    cut: tuple[int, int, int, bool] | None = None
    for dim, part in enumerate(index):
        if part is None or dim >= len(shape):
            return None
        if isinstance(part, tuple):
            start, stop, step = slice(*part).indices(shape[dim])
            if (start, stop, step) == (0, shape[dim], 1):
                continue
            lacking = False
            if step != 1:
                return None
        else:
            start, stop, lacking = part % shape[dim], part % shape[dim] + 1, True
        if cut is not None or stop <= start:
            return None
        cut = (dim, start, stop, lacking)
    return None if cut is None else (cut[0], cut[1], cut[2], call.inputs[0], cut[3])
