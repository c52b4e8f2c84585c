"""The order of a device's line: state that changes by itself (counters, running statistics) and updates of parameters last and beside one
another, so that one launch does all of a kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradlab.graph.executables.numpy.executable import Line
from gradlab.graph.ir.graph import Call, Value
from gradlab.kernel import Elementwise
from gradlab.spec import count

SMALL = 4096  # elements: what may wait costs little memory


def states_last(line: Line) -> list[Call]:
    """The calls with small elementwise ones at the end that only make what state becomes."""
    read = {x.id for c in line.calls for x in c.inputs if isinstance(x, Value)} | {v.id for v in line.outputs}
    new = {v.id for _, v in line.updates}
    last = [c for c in line.calls if isinstance(c.op.cuda, Elementwise) and all(_waits(v, read, new) for v in c.outputs)]
    waiting = set(map(id, last))
    return [*(c for c in line.calls if id(c) not in waiting), *last]


def _waits(value: Value, read: set[int], new: set[int]) -> bool:
    return value.id in new and value.id not in read and count(value.spec.shape) <= SMALL


def updates_last(calls: Sequence[Call], names: frozenset[str] | set[str]) -> list[Call]:
    """The calls with those rows at the end whose results no other call reads, together by row, parameters and hyper-parameters."""
    read = {x.id for c in calls for x in c.inputs if isinstance(x, Value)}
    groups: dict[Any, list[Call]] = {}
    rest = []
    for call in calls:
        if call.op.name in names and not any(v.id in read for v in call.outputs):
            groups.setdefault(group_of(call), []).append(call)
        else:
            rest.append(call)
    return [*rest, *(call for group in groups.values() for call in group)]


def group_of(call: Call) -> tuple[Any, ...]:
    """What updates of one launch have in common."""
    return (call.op.name, *sorted(call.params.items()), call.inputs[-1].id if isinstance(call.inputs[-1], Value) else None)
