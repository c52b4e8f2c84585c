"""The order of a device's line: updates of parameters last and beside one another, so that one launch does all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradlab.graph.ir.graph import Call, Value


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
