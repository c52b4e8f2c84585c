"""Computing a result again before its late uses instead of keeping it until then: what the passes that do so have in common."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.ir.memory_plan import Moment, plan_buffers
from gradlab.graph.passes.graph_tools import Rewriting, ends
from gradlab.kernel import Elementwise
from gradlab.spec import count

LEAST = 1 << 16  # bytes that are worth computing again
FAR = 16  # calls between two uses


class Later:
    """A graph some of whose results are made twice.

    uses: of each value the calls that read it, in order. leaving: what leaves the graph, and is kept anyway.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.work = Rewriting(graph)
        self.leaving = {v.id for v in ends(graph)}
        self.uses: dict[int, list[int]] = {}
        for i, c in enumerate(graph.calls):
            for x in c.inputs:
                if isinstance(x, Value):
                    self.uses.setdefault(x.id, []).append(i)
        self._before: dict[int, list[Call]] = {}  # position -> calls to put there
        self._again: dict[int, tuple[int, Value]] = {}  # value -> from where on another one stands for it, and which

    def late(self, value: Value, made: int, far: int = FAR) -> list[int]:
        """The uses behind the largest gap, if it is `far` calls long and the value worth it; made: the call that it comes from."""
        if value.id in self.leaving or count(value.spec.shape) * value.spec.dtype.itemsize < LEAST:
            return []
        places = [made, *self.uses.get(value.id, [])]
        gap, where = max(((b - a, i) for i, (a, b) in enumerate(itertools.pairwise(places))), default=(0, 0))
        return places[where + 1 :] if gap >= far and where > 0 else []

    def again(self, value: Value, call: Call, at: int) -> None:
        """From the call `at` on the first result of `call`, which is put before it, stands for a value."""
        call.again = True
        self._before.setdefault(at, []).append(call)
        self._again[value.id] = at, call.outputs[0]

    def finish(self) -> Graph:
        """The new graph, or the old one where the plan of memory does not become smaller."""
        if not self._before:
            return self.graph
        calls: list[Call] = []
        for i, c in enumerate(self.graph.calls):
            calls += self._before.get(i, [])
            calls.append(replace(c, inputs=tuple(self._now(x, i) for x in c.inputs)))
        self.work.calls = calls
        found = self.work.finish()
        return found if _smaller(found, self.graph) else self.graph

    def _now(self, x: Any, at: int) -> Any:
        if isinstance(x, Value) and x.id in self._again:
            start, new = self._again[x.id]
            return new if at >= start else x
        return x


def _smaller(new: Graph, old: Graph) -> bool:
    """Whether a graph's plan of memory needs less than another's. Mostly the plans that are made soon already tell."""
    (new_least, new_most), (old_least, old_most) = peak(new, False), peak(old, False)
    if new_most < old_least or new_least >= old_most:
        return new_most < old_least
    return peak(new)[1] < peak(old)[1]


def peak(graph: Graph, thorough: bool = True) -> tuple[int, int]:
    """The most bytes of the intermediate values that are alive at once, each call by itself, elementwise ones in place; and the bytes of an
    arena for them all."""
    root: dict[int, int] = {}
    for c in graph.calls:
        for v in c.outputs:
            root[v.id] = root.get(c.inputs[0].id, c.inputs[0].id) if c.op.view else v.id
    moments = []
    for c in graph.calls:
        reads = [x for x in c.inputs if isinstance(x, Value)]
        over = [x.id for x in reads if x.spec == c.outputs[0].spec] if isinstance(c.op.cuda, Elementwise) else []
        made = [v.id for v in c.outputs if root[v.id] == v.id]
        moments.append(Moment([root.get(x.id, x.id) for x in reads], made, {c.outputs[0].id: over}))
    specs = {v.id: v.spec for c in graph.calls for v in c.outputs if root[v.id] == v.id}
    plan = plan_buffers(moments, specs, [root.get(v.id, v.id) for v in ends(graph)], thorough=thorough)
    return plan.least, plan.size
