"""All steps of a layer of recurrent units as one call, forward and backward: rows that only programs of a GPU hold (`join_steps.py`).

Their kind, `unit`, is "lstm", "gru", "tanh" or "relu". Forward takes the gates of the first two steps as they lie in memory, the weight
(units, gates), the first states, and of LSTM the first cells, of GRU perhaps a bias. What backward takes, `arranged` names.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab import ops
from gradlab.op import Op
from gradlab.ops.recurrent import gru_cell_backward_cpu, gru_cell_cpu, lstm_cell_backward_cpu, lstm_cell_cpu
from gradlab.spec import Spec

# What backward takes, with how many arrays of it there are, of each kind of units; the gradients that arrive at the states follow.
TAKEN = {
    "lstm": {"first": 1, "arrived": 1, "acts": 2, "values": 2, "begun": 1, "weight": 1},
    "gru": {"first": 1, "acts": 2, "values": 2, "begun": 1, "weight": 1, "states": 2},
    "tanh": {"first": 1, "acts": 2, "weight": 1},
    "relu": {"first": 1, "acts": 2, "weight": 1},
}
_SLOPES = {"tanh": ops.elementwise.tanh_backward, "relu": ops.elementwise.relu_backward}


def arranged(unit: str, inputs: Any) -> dict[str, list[Any]]:
    """The inputs of backward by their names: what arrives at the last states (`first`) and cells (`arrived`), gates, cells or GRU's sums of
    the state (`values`), what the way began with, the weight (gates, units), the states that the first two steps in memory begin with, but
    for the way's first; `slopes`: what arrives at the other states, two arrays, one or none."""
    found, at = {}, 0
    for name, number in TAKEN[unit].items():
        found[name], at = list(inputs[at : at + number]), at + number
    return {**found, "slopes": list(inputs[at:])}


def _forward_rule(
    x: Spec, following: Spec, weight: Spec, first: Spec, *begun: Spec, unit: str, steps: int, backwards: bool
) -> tuple[Spec, ...]:
    """Rule: all hidden states with the first ones; all cells of LSTM, all sums of the state of GRU; all gates."""
    kept, gates = first.dtype, Spec((steps, *x.shape), first.dtype)
    values = {"lstm": (Spec((steps, *first.shape), kept),), "gru": (gates,)}.get(unit, ())
    return Spec((steps + 1, *first.shape), weight.dtype), *values, gates


def _all(first: Any, then: Any, steps: int) -> Any:
    """What lies as far from each other as two arrays do."""
    apart = then.__array_interface__["data"][0] - first.__array_interface__["data"][0]
    return np.lib.stride_tricks.as_strided(first, (steps, *first.shape), (apart, *first.strides))


def _forward_cpu(x: Any, following: Any, weight: Any, first: Any, *arrays: Any, unit: str, steps: int, backwards: bool) -> None:
    rest = list(arrays)
    begun = rest.pop(0) if unit == "lstm" or (unit == "gru" and len(rest) == 4) else None
    hidden, *values, acts = rest
    dtype = first.dtype
    gates, wide = _all(x, following, steps), weight.astype(dtype)
    hidden[-1 if backwards else 0], state, cell = first, first, begun
    for t in reversed(range(steps)) if backwards else range(steps):
        made, own, in_ = np.empty_like(first), state @ wide, gates[t].astype(dtype)
        if unit == "lstm":
            lstm_cell_cpu(in_, own, cell, made, values[0][t], acts[t])
            cell = values[0][t].astype(hidden.dtype).astype(dtype)
        elif unit == "gru":
            values[0][t] = own if begun is None else own + begun
            gru_cell_cpu(in_, values[0][t], state, made, acts[t])
        else:
            getattr(ops.elementwise, unit).cpu(in_ + own, made)
            acts[t] = made
        hidden[t if backwards else t + 1] = made
        state = made.astype(hidden.dtype).astype(dtype)


def _backward_rule(*inputs: Spec, unit: str, steps: int, backwards: bool, slope: float) -> tuple[Spec, ...]:
    """Rule: the gradients of all gates' sums, and of GRU's sums of the state; of the first cells, or GRU's first states past its gates."""
    given = arranged(unit, inputs)
    dgates, state = Spec((steps, *given["acts"][0].shape), inputs[0].dtype), inputs[0]
    return {"lstm": (dgates, state), "gru": (dgates, dgates, state)}.get(unit, (dgates,))


def _backward_cpu(*arrays: Any, unit: str, steps: int, backwards: bool, slope: float) -> None:
    number = {"lstm": 2, "gru": 3}.get(unit, 1)
    given, (dgates, *others) = arranged(unit, arrays[:-number]), arrays[-number:]
    (dh,), (weight,), slopes = given["first"], given["weight"], given["slopes"]
    dtype, half, wide, dc = dh.dtype, weight.dtype, weight.astype(dh.dtype), given.get("arrived", [None])[0]
    both: dict[str, Any] = {name: _all(given[name][0], given[name][1], steps) for name in ("acts", "values") if name in given}
    acts, values = both["acts"], both.get("values", ())
    states: Any = _all(given["states"][0], given["states"][1], steps - 1) if "states" in given else None

    def rounded(x: Any) -> Any:
        return x.astype(half).astype(dtype)

    came = _all(slopes[0], slopes[1], steps - 1) if len(slopes) == 2 else slopes
    order = list(range(steps) if backwards else reversed(range(steps)))
    for n, t in enumerate(order):
        before, down = None if "begun" not in given else given["begun"][0], dgates[t]
        if unit == "lstm":
            before = before if n == steps - 1 else rounded(values[order[n + 1]])
            lstm_cell_backward_cpu(dh, dc, acts[t], before, values[t], dgates[t], others[0])
            dc = rounded(others[0])
        elif unit == "gru":
            before, down = before if n == steps - 1 else states[t - 1 + backwards].astype(dtype), others[0][t]
            gru_cell_backward_cpu(dh, acts[t], values[t], before, dgates[t], down, others[1])
        else:
            _SLOPES[unit].cpu(dh, acts[t], dgates[t])
        if n < steps - 1:
            sum_ = down @ wide + others[1] if unit == "gru" else down @ wide
            dh = rounded(rounded(sum_) + (came[order[n + 1] - backwards].astype(dtype) if slopes else slope))


def _both_ways(kind: str, outputs: tuple[str, ...], ways_back: tuple[str, ...]) -> tuple[Op, Op]:
    params = ("unit", "steps", "backwards")
    return (Op(f"{kind}_steps", _forward_rule, cpu=_forward_cpu, params=params, outputs=outputs),
            Op(f"{kind}_steps_backward", _backward_rule, cpu=_backward_cpu, params=(*params, "slope"), outputs=ways_back))  # fmt: skip


ROWS = {
    "lstm": _both_ways("lstm", ("hidden", "cells", "acts"), ("dgates", "dcell")),
    "gru": _both_ways("gru", ("hidden", "sums", "acts"), ("dgates", "down", "dold")),
    "tanh": (rnn := _both_ways("rnn", ("hidden", "acts"), ("dgates",))),
    "relu": rnn,
}
OWN = frozenset(op for both in ROWS.values() for op in both)
