"""Tensors put together from the same parts, but for the first or the last, are slices of one: the states of a recurrent network before and
after each step, for example."""

from __future__ import annotations

import itertools
from typing import Any

from gradlab import ops
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes.graph_tools import Rewriting, ends

FEWEST = 2  # parts in common


def overlap_cats(graph: Graph) -> Graph:
    """Replace cat(a, b, c) and cat(b, c, d) by slices of cat(a, b, c, d)."""
    leaving = {v.id for v in ends(graph)}
    work = Rewriting(graph)
    cats = [c for c in graph.calls if _rows(c) and c.outputs[0].id not in leaving]
    if len(cats) < 2:
        return graph
    made = {v.id: i for i, c in enumerate(graph.calls) for v in c.outputs}
    at = {id(c): i for i, c in enumerate(graph.calls)}
    instead: dict[int, list[Call]] = {}
    taken: set[int] = set()
    for first, second in itertools.combinations(cats, 2):
        if id(first) in taken or id(second) in taken:
            continue
        parts = _together(first.inputs, second.inputs)
        if parts is None or any(made.get(x.id, -1) > at[id(first)] for x in parts):
            continue
        taken |= {id(first), id(second)}
        whole = work.call(ops.movement.cat, parts, dict(first.params), first.position)
        for c in (first, second):
            start = sum(x.spec.shape[0] for x in parts[: _where(parts, c.inputs)])
            index = ((start, start + c.outputs[0].spec.shape[0], 1),)
            instead[id(c)] = [work.call(ops.movement.slice_, whole.outputs, {"index": index}, c.position, c.outputs[0])]
        instead[id(first)].insert(0, whole)
    work.calls = [new for c in work.calls for new in instead.get(id(c), [c])]
    return work.finish() if instead else graph


def _rows(call: Call) -> bool:
    return call.op is ops.movement.cat and call.params["dim"] == 0 and all(isinstance(x, Value) for x in call.inputs)


def _together(a: tuple[Any, ...], b: tuple[Any, ...]) -> list[Value] | None:
    """The shortest list that both are a run of; None where they have too few parts in common."""
    for one, other in ((a, b), (b, a)):
        for start, x in enumerate(one):
            if x is other[0] or x.id == other[0].id:
                common = min(len(one) - start, len(other))
                if common >= FEWEST and _ids(one[start : start + common]) == _ids(other[:common]):
                    return [*one, *other[common:]]
    return None


def _where(whole: list[Value], part: tuple[Any, ...]) -> int:
    """Where a run begins."""
    wanted = _ids(part)
    return next(i for i in range(len(whole)) if _ids(whole[i : i + len(part)]) == wanted)


def _ids(values: Any) -> list[int]:
    return [v.id for v in values]
