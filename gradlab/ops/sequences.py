"""Rows of whole sequences through recurrent units, one layer and direction at a time, and their way back. NumPy's side is the steps' own.

`gates` is the input's share of the gates' sums, (rows, k·size) in the order of time: of each step the sequences that are still there, the
longest first; `counts` (steps,) says how many. `weight` is (k·size, size), `h` and `c` are the states (batch, size) at the beginning.
`hidden` are all states, `last` and `cell` those that each sequence ends with. reverse: from the last step on.

These rows have no gradient of their own: `nn/modules/sequences.py` joins the two ways, and takes steps where backward is differentiated.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from gradlab.op import Op
from gradlab.ops.recurrent import gru_cell_backward_cpu, gru_cell_cpu, lstm_cell_backward_cpu, lstm_cell_cpu
from gradlab.spec import ShapeError, Spec, expect_shape


def expect_sequence(gates: Spec, weight: Spec, counts: Spec, count: int, *states: Spec) -> None:
    """Raises ShapeError unless the shapes are those of a layer whose units have so many gates."""
    if len(states[0].shape) != 2 or len(gates.shape) != 2 or len(counts.shape) != 1:
        found = [tuple(s.shape) for s in (gates, states[0], counts)]
        raise ShapeError(f"gates, states and counts have two, two and one dimensions, not shapes {found}")
    batch, size = states[0].shape
    if gates.shape[1] != count * size or weight.shape != (count * size, size) or any(s.shape != (batch, size) for s in states):
        raise ShapeError(f"gates {gates.shape} and a weight {weight.shape} do not fit states {[s.shape for s in states]}")


def expect_states(rows: int, state: Spec, *found: Spec) -> None:
    """Raises ShapeError unless all steps' states, or their gradients, have a row for each of the gates'."""
    for one in found:
        expect_shape("what is known of all states", one, (rows, *state.shape[1:]))


def steps_of(counts: Any, rows: int, batch: int, on: bool) -> Iterator[tuple[int, int, int | None, int]]:
    """Of each step, from the first one on or from the last: its first row, how many sequences it has, the first row of the step whose
    states it begins with (None: those that are given), and how many of its sequences were in that. ValueError for counts that cannot be."""
    found = [int(n) for n in counts]
    if not found or found[0] != batch or sum(found) != rows or found[-1] < 0 or any(a < b for a, b in pairwise(found)):
        raise ValueError(f"counts of {rows} rows and {batch} sequences cannot be {found}: they begin with all sequences and never grow")
    starts = np.cumsum([0, *found]).tolist()
    for t in range(len(found)) if on else reversed(range(len(found))):
        before = t - 1 if on else t + 1
        there = 0 <= before < len(found)
        yield starts[t], found[t], starts[before] if there else None, min(found[t], found[before]) if there else 0


def begun(values: Any, first: Any, count: int, source: int | None, old: int) -> Any:
    """The states that `count` sequences of a step begin with."""
    return first[:count] if source is None else np.concatenate([values[source : source + old], first[old:count]])


# ---------------------------------------------------------------- LSTM


def lstm_sequence_rule(gates: Spec, weight: Spec, h: Spec, c: Spec, counts: Spec, *, reverse: bool) -> tuple[Spec, ...]:
    """Rule: all hidden states, the last hidden and cell states, all cell states, and the gates."""
    expect_sequence(gates, weight, counts, 4, h, c)
    states = Spec((gates.shape[0], h.shape[1]), gates.dtype)
    return states, h, c, states, gates


def lstm_sequence_cpu(
    gates: Any, weight: Any, h: Any, c: Any, counts: Any, hidden: Any, last: Any, cell: Any, cells: Any, acts: Any, reverse: bool
) -> None:
    last[...], cell[...] = h, c
    for at, count, *_ in steps_of(counts, len(gates), len(h), not reverse):
        rows = slice(at, at + count)
        lstm_cell_cpu(gates[rows], last[:count] @ weight.T, cell[:count], hidden[rows], cells[rows], acts[rows])
        last[:count], cell[:count] = hidden[rows], cells[rows]


def lstm_sequence_backward_rule(
    acts: Spec, dhidden: Spec, dlast: Spec, dcell: Spec, weight: Spec, h: Spec, c: Spec, hidden: Spec, cells: Spec, counts: Spec,
    *, reverse: bool,
) -> tuple[Spec, ...]:  # fmt: skip
    """Rule: the gradients of the gates' sums, the states that each step begins with, and the gradients of the first states."""
    expect_sequence(acts, weight, counts, 4, h, c, dlast, dcell)
    expect_states(acts.shape[0], h, dhidden, hidden, cells)
    return acts, dhidden, h, c


def lstm_sequence_backward_cpu(
    acts: Any, dhidden: Any, dlast: Any, dcell: Any, weight: Any, h: Any, c: Any, hidden: Any, cells: Any, counts: Any,
    dgates: Any, before: Any, dh: Any, dc: Any, reverse: bool,
) -> None:  # fmt: skip
    dh[...], dc[...] = dlast, dcell
    for at, count, source, old in list(steps_of(counts, len(acts), len(h), not reverse))[::-1]:
        rows = slice(at, at + count)
        before[rows] = begun(hidden, h, count, source, old)
        arrived, former = dhidden[rows] + dh[:count], np.array(dc[:count])
        lstm_cell_backward_cpu(arrived, former, acts[rows], begun(cells, c, count, source, old), cells[rows], dgates[rows], dc[:count])
        np.matmul(dgates[rows], weight, dh[:count])


# ---------------------------------------------------------------- GRU


def gru_sequence_rule(gates: Spec, weight: Spec, bias: Spec | None, h: Spec, counts: Spec, *, reverse: bool) -> tuple[Spec, ...]:
    """Rule: all states, the last ones, and the gates with the state's share of the third behind them."""
    expect_sequence(gates, weight, counts, 3, h)
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(f"a bias {bias.shape} does not fit a weight {weight.shape}")
    rows, size = gates.shape[0], h.shape[1]
    return Spec((rows, size), gates.dtype), h, Spec((rows, 4 * size), gates.dtype)


def gru_sequence_cpu(gates: Any, weight: Any, bias: Any, h: Any, counts: Any, hidden: Any, last: Any, acts: Any, reverse: bool) -> None:
    last[...] = h
    size = h.shape[1]
    for at, count, *_ in steps_of(counts, len(gates), len(h), not reverse):
        rows = slice(at, at + count)
        own = last[:count] @ weight.T
        if bias is not None:
            own += bias
        gru_cell_cpu(gates[rows], own, last[:count], hidden[rows], acts[rows, : 3 * size])
        acts[rows, 3 * size :] = own[:, 2 * size :]
        last[:count] = hidden[rows]


def gru_sequence_backward_rule(
    acts: Spec, dhidden: Spec, dlast: Spec, weight: Spec, h: Spec, hidden: Spec, counts: Spec, *, reverse: bool
) -> tuple[Spec, ...]:
    """Rule: the gradients of both shares of the gates' sums, the states that each step begins with, and the gradient of the first ones."""
    slopes = Spec((acts.shape[0], 3 * h.shape[1]), acts.dtype)
    expect_sequence(slopes, weight, counts, 3, h, dlast)
    expect_states(acts.shape[0], h, dhidden, hidden)
    expect_shape("the gates", acts, (acts.shape[0], 4 * h.shape[1]))
    return slopes, slopes, dhidden, h


def gru_sequence_backward_cpu(
    acts: Any, dhidden: Any, dlast: Any, weight: Any, h: Any, hidden: Any, counts: Any, dgates: Any, down: Any, before: Any, dh: Any,
    reverse: bool,
) -> None:  # fmt: skip
    dh[...] = dlast
    size = h.shape[1]
    for at, count, source, old in list(steps_of(counts, len(acts), len(h), not reverse))[::-1]:
        rows = slice(at, at + count)
        former = before[rows] = begun(hidden, h, count, source, old)
        arrived = dhidden[rows] + dh[:count]
        # Of the state's share the third part alone is read.
        gru_cell_backward_cpu(arrived, acts[rows, : 3 * size], acts[rows, size:], former, dgates[rows], down[rows], dh[:count])
        dh[:count] += down[rows] @ weight


# ---------------------------------------------------------------- plain units: h' = tanh(sum) or relu(sum)


def rnn_sequence_rule(gates: Spec, weight: Spec, h: Spec, counts: Spec, *, reverse: bool, nonlinearity: str) -> tuple[Spec, Spec]:
    """Rule: all states, and the last ones."""
    expect_sequence(gates, weight, counts, 1, h)
    return gates, h


def rnn_sequence_cpu(
    gates: Any, weight: Any, h: Any, counts: Any, hidden: Any, last: Any, reverse: bool, nonlinearity: str
) -> None:
    last[...] = h
    for at, count, *_ in steps_of(counts, len(gates), len(h), not reverse):
        rows = hidden[at : at + count]
        np.add(gates[at : at + count], last[:count] @ weight.T, rows)
        np.tanh(rows, out=rows) if nonlinearity == "tanh" else np.maximum(rows, 0, out=rows)
        last[:count] = rows


def rnn_sequence_backward_rule(
    dhidden: Spec, dlast: Spec, weight: Spec, h: Spec, hidden: Spec, counts: Spec, *, reverse: bool, nonlinearity: str
) -> tuple[Spec, ...]:
    """Rule: the gradient of the sums, the states that each step begins with, and the gradient of the first ones."""
    expect_sequence(dhidden, weight, counts, 1, h, dlast)
    expect_states(dhidden.shape[0], h, hidden)
    return dhidden, dhidden, h


def rnn_sequence_backward_cpu(
    dhidden: Any, dlast: Any, weight: Any, h: Any, hidden: Any, counts: Any, dgates: Any, before: Any, dh: Any,
    reverse: bool, nonlinearity: str,
) -> None:  # fmt: skip
    dh[...] = dlast
    for at, count, source, old in list(steps_of(counts, len(hidden), len(h), not reverse))[::-1]:
        rows = slice(at, at + count)
        before[rows] = begun(hidden, h, count, source, old)
        slope = 1 - hidden[rows] * hidden[rows] if nonlinearity == "tanh" else hidden[rows] > 0
        np.multiply(dhidden[rows] + dh[:count], slope, dgates[rows])
        np.matmul(dgates[rows], weight, dh[:count])


lstm_sequence = Op("lstm_sequence", lstm_sequence_rule, cpu=lstm_sequence_cpu, params=("reverse",),
                   outputs=("hidden", "last", "cell", "cells", "acts"))  # fmt: skip
lstm_sequence_backward = Op("lstm_sequence_backward", lstm_sequence_backward_rule, cpu=lstm_sequence_backward_cpu, params=("reverse",),
                            outputs=("dgates", "before", "dh", "dc"))  # fmt: skip
gru_sequence = Op("gru_sequence", gru_sequence_rule, cpu=gru_sequence_cpu, params=("reverse",), outputs=("hidden", "last", "acts"))
gru_sequence_backward = Op("gru_sequence_backward", gru_sequence_backward_rule, cpu=gru_sequence_backward_cpu, params=("reverse",),
                           outputs=("dgates", "down", "before", "dh"))  # fmt: skip
rnn_sequence = Op("rnn_sequence", rnn_sequence_rule, cpu=rnn_sequence_cpu, params=("reverse", "nonlinearity"), outputs=("hidden", "last"))
rnn_sequence_backward = Op("rnn_sequence_backward", rnn_sequence_backward_rule, cpu=rnn_sequence_backward_cpu,
                           params=("reverse", "nonlinearity"), outputs=("dgates", "before", "dh"))  # fmt: skip
