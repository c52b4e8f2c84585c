"""All steps of a layer of LSTM units as one call, forward and backward: rows that only programs of a GPU hold (`join_steps.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.op import Op
from gradlab.ops.recurrent import lstm_cell_backward_cpu, lstm_cell_cpu
from gradlab.spec import Spec


def _forward_rule(x: Spec, following: Spec, weight: Spec, first: Spec, begun: Spec, *, steps: int, backwards: bool) -> tuple[Spec, ...]:
    """Rule: all hidden states with the first ones, all cells, all gates."""
    kept = begun.dtype
    return Spec((steps + 1, *first.shape), weight.dtype), Spec((steps, *first.shape), kept), Spec((steps, *x.shape), kept)


def _all(first: Any, then: Any, steps: int) -> Any:
    """What lies as far from each other as two arrays do."""
    apart = then.__array_interface__["data"][0] - first.__array_interface__["data"][0]
    return np.lib.stride_tricks.as_strided(first, (steps, *first.shape), (apart, *first.strides))


def _forward_cpu(
    x: Any, following: Any, weight: Any, first: Any, begun: Any, hidden: Any, cells: Any, acts: Any, *, steps: int, backwards: bool
) -> None:
    gates, wide = _all(x, following, steps), weight.astype(begun.dtype)
    hidden[-1 if backwards else 0], state, cell = first, first, begun
    for t in reversed(range(steps)) if backwards else range(steps):
        made = np.empty_like(begun)
        lstm_cell_cpu(gates[t].astype(begun.dtype), state @ wide, cell, made, cells[t], acts[t])
        hidden[t if backwards else t + 1] = made
        state, cell = made.astype(hidden.dtype).astype(begun.dtype), cells[t].astype(hidden.dtype).astype(begun.dtype)


def _backward_rule(*inputs: Spec, steps: int, backwards: bool, slope: float) -> tuple[Spec, Spec]:
    """Rule: the gradients of all gates' sums, and of the first cells."""
    return Spec((steps, *inputs[2].shape), inputs[0].dtype), inputs[0]


def _backward_cpu(*arrays: Any, steps: int, backwards: bool, slope: float) -> None:
    first, arrived, acts, acts_then, cells, cells_then, begun, weight, *slopes, dgates, dcell = arrays
    kept, values, wide, half = _all(acts, acts_then, steps), _all(cells, cells_then, steps), weight.astype(first.dtype), weight.dtype

    def rounded(x: Any) -> Any:
        return x.astype(half).astype(first.dtype)

    others = _all(slopes[0], slopes[1], steps - 1) if len(slopes) == 2 else slopes
    dh, dc, order = first, arrived, list(range(steps) if backwards else reversed(range(steps)))
    for n, t in enumerate(order):
        before = begun if n == steps - 1 else rounded(values[order[n + 1]])
        lstm_cell_backward_cpu(dh, dc, kept[t], before, values[t], dgates[t], dcell)
        if n < steps - 1:
            came = others[order[n + 1] - backwards].astype(first.dtype) if slopes else slope
            dh, dc = rounded(rounded(dgates[t] @ wide) + came), rounded(dcell)


lstm_steps = Op("lstm_steps", _forward_rule, cpu=_forward_cpu, params=("steps", "backwards"), outputs=("hidden", "cells", "acts"))
lstm_steps_backward = Op("lstm_steps_backward", _backward_rule, cpu=_backward_cpu, params=("steps", "backwards", "slope"),
                         outputs=("dgates", "dcell"))  # fmt: skip
OWN = frozenset((lstm_steps, lstm_steps_backward))
