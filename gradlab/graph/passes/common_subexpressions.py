"""Calls that compute the same from the same are computed once, unless their result would have to be kept a long time for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.device import Device
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes.replacing import Replacing, is_ours
from gradlab.spec import count

SMALL = 1 << 16  # bytes that may be kept to the second use; larger values are merged where they are alive anyway (see checkpoint)


def common_subexpressions(graph: Graph) -> Graph:
    """Replace a call by an earlier equal one."""
    last = {x.id: i for i, c in enumerate(graph.calls) for x in c.inputs if isinstance(x, Value)}
    work = Replacing(graph)
    seen: dict[Any, Call] = {}
    for i, call in enumerate(work.walk()):
        key = _key(call)
        before = seen.get(key) if key is not None else None
        if before is not None and all(_near(a, i, last, call) and work.may_be(b, a) for a, b in zip(before.outputs, call.outputs)):
            for a, b in zip(before.outputs, call.outputs):
                work.same(b, a)
                last[a.id] = max(last.get(a.id, i), last.get(b.id, i))
            continue
        if key is not None:
            seen[key] = call  # the latest, which is alive longest
        work.keep(call)
    return work.finish()


def _near(value: Value, now: int, last: dict[int, int], call: Call) -> bool:
    """Whether the value may be kept until now. A `cat` costs nothing: its inputs, which are alive anyway, take as much memory."""
    return call.op.name == "cat" or last.get(value.id, -1) >= now or count(value.spec.shape) * value.spec.dtype.itemsize <= SMALL


def _key(call: Call) -> Any:
    """Equal for calls that give equal results; None where that is not known."""
    if not is_ours(call.op) or call.op.dynamic:
        return None
    inputs = tuple(x.id if isinstance(x, Value) else ("number", _plain(x)) for x in call.inputs)
    params = tuple((k, _plain(v)) for k, v in sorted(call.params.items()))
    return None if any(v is _UNKNOWN for _, v in params) else (call.op.name, inputs, params)


_UNKNOWN = object()


def _plain(value: Any) -> Any:
    """A parameter, to be compared by type and value."""
    if value is None or isinstance(value, (bool, int, float, str, np.dtype, Device)):
        return (type(value).__name__, repr(value))
    if isinstance(value, (tuple, list)):
        parts = tuple(_plain(v) for v in value)
        return _UNKNOWN if any(p is _UNKNOWN for p in parts) else (type(value).__name__, parts)
    return _UNKNOWN
