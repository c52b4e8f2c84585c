"""Rewrites that keep every bit of the result: x·1, −(−x), casts to the own dtype, views that undo one another.

x + 0 is none of them (−0 + 0 is +0); x − 0 and x + (−0) are.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes.replacing import Replacing, is_ours
from gradlab.ops.movement import permute, t


def rewrite(graph: Graph) -> Graph:
    """Leave out calls whose result is there already; join two permutations."""
    work = Replacing(graph)
    for call in work.walk():
        if not is_ours(call.op):
            work.keep(call)
            continue
        found = _known(call, work.maker)
        if found is not None and work.may_be(call.outputs[0], found):
            work.same(call.outputs[0], found)
            continue
        work.keep(_joined(call, work.maker))
    return work.finish()


def _known(call: Call, maker: dict[int, Call]) -> Any:
    """The value that the call's result is equal to; None if there is none."""
    name = call.op.name
    if name in UNITS:
        return _without_unit(call)
    x = call.inputs[0] if call.inputs else None
    if not isinstance(x, Value):
        return None
    before = maker.get(x.id)
    if name == "cast" and call.params["dtype"] == x.spec.dtype:
        return x
    if name == "neg":
        return before.inputs[0] if before is not None and before.op is call.op else None
    if name == "cast" and before is not None and before.op is call.op:  # there and back again, through a wider dtype
        first = before.inputs[0].spec.dtype
        return before.inputs[0] if first == call.params["dtype"] and np.can_cast(first, x.spec.dtype, "safe") else None
    if not call.op.view:
        return None
    if name in ("view", "expand", "squeeze") and call.outputs[0].spec == x.spec:
        return x
    if name == "view" and before is not None and before.op.name in ("view", "squeeze", "unsqueeze"):
        return before.inputs[0] if before.inputs[0].spec == call.outputs[0].spec else None
    if name == "slice":
        return x if len(call.outputs[0].spec.shape) == len(x.spec.shape) and _is_whole(call.params["index"], x.spec.shape) else None
    order = _order(call)
    if order is None:
        return None
    if order == (*range(len(order)),):
        return x
    earlier = _order(before) if before is not None else None
    if before is not None and earlier is not None and tuple(earlier[d] for d in order) == (*range(len(order)),):
        return before.inputs[0]
    return None


UNITS = {"mul": (1, True), "div": (1, False), "sub": (0.0, False), "add": (-0.0, True)}  # the number that changes nothing; also on the left


def _without_unit(call: Call) -> Any:
    a, b = call.inputs
    unit, both = UNITS[call.op.name]

    def is_unit(number: Any, dtype: Any) -> bool:
        if not isinstance(number, (int, float)) or number != unit:
            return False
        return unit == 1 or dtype.kind in "iu" or math.copysign(1, number) == math.copysign(1, unit)

    if isinstance(a, Value) and is_unit(b, a.spec.dtype):
        return a
    return b if both and isinstance(b, Value) and is_unit(a, b.spec.dtype) else None


def _is_whole(index: tuple[Any, ...], shape: tuple[int, ...]) -> bool:
    return len(index) <= len(shape) and all(
        isinstance(part, tuple) and slice(*part).indices(n) == (0, n, 1) for part, n in zip(index, shape)
    )  # fmt: skip


def _order(call: Call) -> tuple[int, ...] | None:
    """The dimensions' order after a call that does nothing but change it."""
    name, n = call.op.name, len(call.outputs[0].spec.shape)
    if name == "t":
        return tuple(reversed(range(n)))
    if name == "permute":
        return tuple(d % n for d in call.params["dims"])
    if name == "transpose" and n:
        order = list(range(n))
        a, b = call.params["dim0"], call.params["dim1"]
        order[a], order[b] = order[b], order[a]
        return tuple(order)
    return None


def _joined(call: Call, maker: dict[int, Call]) -> Call:
    """One permutation for two."""
    order = _order(call) if call.op.view else None
    before = maker.get(call.inputs[0].id) if order is not None else None
    earlier = _order(before) if before is not None else None
    if before is None or order is None or earlier is None:
        return call
    dims = tuple(earlier[d] for d in order)
    if dims == (1, 0):
        return replace(call, op=t, inputs=before.inputs, params={})
    return replace(call, op=permute, inputs=before.inputs, params={"dims": dims})
