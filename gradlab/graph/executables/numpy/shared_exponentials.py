"""Activations whose derivative needs the same exponential: a program that computes both keeps it. In NumPy it is most of what they cost.

x·s with a gate s of x, and dy·(s + x·s'): the gate is kept from the one for the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.dtype import HALF
from gradlab.graph.ir.graph import Call, Value
from gradlab.graph.ir.linear import Line
from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.ops import activation as acts
from gradlab.ops.elementwise import sigmoid_cpu
from gradlab.ops.special import normal_cpu
from gradlab.spec import Spec, broadcast, same


def _slope_rule(dy: Spec, x: Spec, s: Spec) -> Spec:
    """Rule: everything has one shape."""
    return dy


def _slope_tanh(dy: Any, x: Any, s: Any, y: Any) -> None:
    """dy·s·(1 + x·(1 - s)·(2u)')"""
    acts.through_gate(dy, s, acts.gelu_tanh_slope(x), y)


def _slope_silu(dy: Any, x: Any, s: Any, y: Any) -> None:
    """dy·s·(1 + x·(1 - s))"""
    acts.through_gate(dy, s, acts.bounded(x), y)


def _slope_erf(dy: Any, x: Any, s: Any, y: Any) -> None:
    """dy·(Φ(x) + x·φ(x))"""
    slope = acts.weighted_density(x)
    slope += s
    np.multiply(slope, dy, y)


# The description says that they are elementwise; nothing but NumPy runs them.
_EACH = Elementwise("x")
GATED = Op("times_gate", broadcast, cpu=acts.times_gate, cuda=_EACH)
GATES = {
    "gelu_tanh": (
        Op("gelu_tanh_gate", same, cpu=acts.gelu_tanh_gate, cuda=_EACH), Op("gelu_tanh_slope", _slope_rule, cpu=_slope_tanh, cuda=_EACH)
    ),
    "silu": (Op("silu_gate", same, cpu=sigmoid_cpu, cuda=_EACH), Op("silu_slope", _slope_rule, cpu=_slope_silu, cuda=_EACH)),
    "gelu": (Op("gelu_gate", same, cpu=normal_cpu, cuda=_EACH), Op("gelu_slope", _slope_rule, cpu=_slope_erf, cuda=_EACH)),
}


def keeping(line: Line) -> Line:
    """The same line, with the gates kept of activations that it differentiates."""
    origin = {c.outputs[0].id: c.inputs[0].id for c in line.calls if c.op.name == "cast" and c.inputs[0].spec.dtype in HALF}
    keys = [_key(c, origin) for c in line.calls]
    made = {key for c, key in zip(line.calls, keys) if c.op.name in GATES}
    wanted = made & {key for c, key in zip(line.calls, keys) if c.op.name not in GATES} - {None}
    if not wanted:
        return line
    following = 1 + max(v.id for v in (*line.inputs, *line.fixed, *(v for c in line.calls for v in c.outputs)))
    gates: dict[Any, Value] = {}
    calls: list[Call] = []
    for c, key in zip(line.calls, keys):
        if key not in wanted or (c.op.name not in GATES and key not in gates):
            calls.append(c)
            continue
        gate, slope = GATES[c.op.name.removesuffix("_backward")]
        if c.op.name in GATES:
            if key not in gates:
                gates[key] = Value(following, c.inputs[0].spec)
                following += 1
                calls.append(Call(gate, c.inputs, {}, (gates[key],), c.position))
            calls.append(Call(GATED, (*c.inputs, gates[key]), {}, c.outputs, c.position))
        else:
            calls.append(Call(slope, (*c.inputs, gates[key]), {}, c.outputs, c.position))
    return line._replace(calls=calls)


def _key(call: Call, origin: dict[int, int]) -> tuple[str, int, Any] | None:
    """The activation that a call computes or differentiates, of what, and in which dtype; None if it is none, or repeats operands.

    origin: of values that are others of a half type, cast, those.
    """
    name = call.op.name.removesuffix("_backward")
    if name not in GATES or any(not isinstance(v, Value) or v.spec != call.outputs[0].spec for v in call.inputs):
        return None
    x = call.inputs[-1]
    return name, origin.get(x.id, x.id), x.spec.dtype
