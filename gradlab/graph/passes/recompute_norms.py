"""What a batch norm and its ReLU made is computed again for the weight's gradient instead of being kept, where that saves memory.

The norm's input and its statistics are kept anyway, for the norm's own gradient.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from gradlab.graph.ir import Call, Graph, Value
from gradlab.graph.passes.fused_rows import batch_norm_relu, batch_norm_relu_again
from gradlab.graph.passes.recompute import FAR, LEAST, peak
from gradlab.graph.passes.rewriting import Rewriting, ends
from gradlab.spec import count


def recompute_norms(graph: Graph) -> Graph:
    """Compute results of `batch_norm_relu` again before their late uses; the graph as it is where the plan of memory gets no smaller."""
    if not any(c.op is batch_norm_relu for c in graph.calls):
        return graph
    work = Rewriting(graph)
    uses: dict[int, list[int]] = {}
    for i, c in enumerate(graph.calls):
        for x in c.inputs:
            if isinstance(x, Value):
                uses.setdefault(x.id, []).append(i)
    leaving = {v.id for v in ends(graph)}
    always = {v.id for v in (*graph.inputs, *graph.state)} | leaving
    short: dict[int, int] = {}  # values computed again -> the last use of the first ones
    again: dict[int, tuple[int, Value]] = {}  # old value -> from where on, the new one
    before: dict[int, list[Call]] = {}  # position -> calls to put there
    for i, c in enumerate(graph.calls):
        if c.op is not batch_norm_relu or c.outputs[0].id in leaving:
            continue
        y = c.outputs[0]
        late = _late(i, uses.get(y.id, []))
        if not late or count(y.spec.shape) * y.spec.dtype.itemsize < LEAST:
            continue
        x, weight, bias, other = c.inputs
        large = [x] if other is None else [x, other]
        if all(v.id in always or (v.id not in short and uses[v.id][-1] >= late[0]) for v in large):
            new = work.call(batch_norm_relu_again, (x, weight, bias, *c.outputs[1:3], other), {}, c.position)
            before.setdefault(late[0], []).append(new)
            short[y.id] = late[0]
            again[y.id] = late[0], new.outputs[0]
    if not before:
        return graph
    calls: list[Call] = []
    for i, c in enumerate(graph.calls):
        calls += before.get(i, [])
        calls.append(replace(c, inputs=tuple(_renamed(v, i, again) for v in c.inputs)))
    work.calls = calls
    found = work.finish()
    return found if peak(found) < peak(graph) else graph


def _late(made: int, uses: list[int]) -> list[int]:
    """The uses behind the largest gap, if it is long."""
    places = [made, *uses]
    gap, where = max(((b - a, i) for i, (a, b) in enumerate(itertools.pairwise(places))), default=(0, 0))
    return places[where + 1 :] if gap >= FAR and where > 0 else []


def _renamed(x: object, at: int, again: dict[int, tuple[int, Value]]) -> object:
    if isinstance(x, Value) and x.id in again and at >= again[x.id][0]:
        return again[x.id][1]
    return x
