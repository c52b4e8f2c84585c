"""Which elementwise calls run as one loop."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradlab.backends.native.lowerings.loops import is_elementwise
from gradlab.graph.ir.graph import Call, Value

MOST_CALLS = 48
MOST_OPERANDS = 24


@dataclass
class Unit:
    """Calls that run together: a fused loop, one call of another kind, (joined) a loop and the reduction of its one result, or `parts`:
    units that one kernel runs one after the other. ending: (joined) what a product's kernel does at its end (`epilogues.py`). outside: what
    these two kinds read that they do not make, not even a view of it. over: of results what they may be written over. last: whether a
    loop's results are images whose channels come last in memory."""

    calls: list[Call]
    loop: bool = False
    values: set[int] = field(default_factory=set)  # read or made
    joined: bool = False
    parts: list[Unit] = field(default_factory=list)
    outside: list[int] = field(default_factory=list)
    over: dict[int, list[int]] = field(default_factory=dict)
    ending: Any = None
    last: bool = False

    def fits(self, call: Call, last: bool) -> bool:
        """Whether one more call may join the loop: same shape, in the same order in memory, something in common, not too much in all."""
        if not self.loop or len(self.calls) >= MOST_CALLS or call.outputs[0].spec.shape != self.calls[0].outputs[0].spec.shape:
            return False
        if last != self.last:
            return False
        wanted = {x.id for x in call.inputs if isinstance(x, Value)} | {call.outputs[0].id}
        return len(self.values | wanted) <= MOST_OPERANDS and not wanted.isdisjoint(self.values)

    def reads(self) -> list[int]:
        """The values that come from outside."""
        if self.parts or self.ending is not None:
            return self.outside
        own = {v.id for c in self.calls for v in c.outputs}
        return list(dict.fromkeys(x.id for c in self.calls for x in c.inputs if isinstance(x, Value) and x.id not in own))


def fuse(
    calls: Sequence[Call], views: set[int], halves: bool = False, last: Collection[int] = (), apart: Collection[int] = ()
) -> list[Unit]:  # fmt: skip
    """Units in an order that computes everything before it is used. A call joins the latest loop that stands behind all that it needs.

    views: the results of view calls, which cost nothing and make no unit; a loop cannot read a view of what it makes itself.
    halves: whether loops compute with half types. last: numbers of images whose channels come last in memory.
    apart: results of calls that are better off without a loop.
    """
    units: list[Unit] = []
    made: dict[int, int] = {}  # value -> the first unit that can read it from registers, or from memory if it is a view
    for call in calls:
        inputs = [x.id for x in call.inputs if isinstance(x, Value)]
        if call.outputs[0].id in views:
            made[call.outputs[0].id] = made.get(inputs[0], -1) + (inputs[0] not in views)
            continue
        loop = call.outputs[0].id not in apart and is_elementwise(call, halves)
        needed = len(units) - 1 if call.again else max((made.get(n, -1) for n in inputs), default=-1)
        at = -1
        if loop:
            at = next((i for i in range(len(units) - 1, max(needed, 0) - 1, -1) if units[i].fits(call, call.outputs[0].id in last)), -1)
        if at < 0:
            units.append(Unit([call], loop, last=call.outputs[0].id in last))
            at = len(units) - 1
        else:
            units[at].calls.append(call)
        units[at].values.update(inputs, (v.id for v in call.outputs))
        made.update((v.id, at) for v in call.outputs)
    return units
