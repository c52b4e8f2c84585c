"""One layer and direction of a recurrent layer over whole sequences: one node of the graph where that is possible, otherwise step by step.

The one node has a row for each way (`ops/sequences.py`), products with the weight's gradient in one piece, and keeps what PyTorch's keeps.
A trace, vmap, autocast, half types and GPUs take steps; so does a backward that is differentiated itself, from the inputs on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab import ops
from gradlab.autograd.engine import grad
from gradlab.autograd.function import Function
from gradlab.autograd.mode import current
from gradlab.autograd.record import bind
from gradlab.dtype import FLOAT32, FLOAT64, INT64
from gradlab.nn.modules.steps import Step, gru_step, lstm_step, rnn_step
from gradlab.nn.multi_output_node import parts
from gradlab.tensor import Tensor
from gradlab.tensor.creation import from_numpy
from gradlab.tensor.shape import cat

State = tuple[Tensor, ...]
ROWS = {
    kind: (bind(getattr(ops.sequences, f"{kind}_sequence")), bind(getattr(ops.sequences, f"{kind}_sequence_backward")))
    for kind in ("lstm", "gru", "rnn")
}


def step_of(kind: str, weight: Tensor, bias: Tensor | None, projection: Tensor | None = None) -> Step:
    """What one step does. kind: "lstm", "gru", "tanh" or "relu"; weight as in the layer, (gates hidden, hidden or projected size)."""
    if kind == "lstm":
        return lstm_step(weight.t(), bias, None if projection is None else projection.t())
    return gru_step(weight.t(), bias) if kind == "gru" else rnn_step(weight.t(), bias, kind)


def run(
    kind: str, gates: Tensor, weight: Tensor, bias: Tensor | None, projection: Tensor | None, states: State, counts: list[int],
    reverse: bool,
) -> tuple[Tensor, State]:  # fmt: skip
    """All states, (rows, size), and the last ones. gates: the input's share, rows in the order of time, `counts` of them for each step."""
    if projection is None and _is_plain(gates, weight, *states, *(() if bias is None else (bias,))):
        hidden, *final = Whole.apply(kind, counts, reverse, gates, weight, bias, *states)
        return hidden, tuple(final)
    return by_steps(step_of(kind, weight, bias, projection), gates, states, counts, reverse)


def by_steps(step: Step, gates: Tensor, states: State, counts: list[int], reverse: bool) -> tuple[Tensor, State]:
    """`run`, one step after the other."""
    rows, final = (_backward if reverse else _forward)(step, parts(gates, counts), counts, states)
    return cat(rows), final


def _is_plain(*tensors: Tensor) -> bool:
    """Whether rows of whole sequences take them: all in NumPy arrays of one type, and nobody wants to see the steps."""
    mode, dtype = current(), tensors[0]._array.dtype
    if mode.tracer is not None or mode.vmap is not None or mode.autocast is not None or dtype not in (FLOAT32, FLOAT64):
        return False
    return all(type(t._array) is np.ndarray and t._array.dtype == dtype and t._array.size for t in tensors)


class Whole(Function):
    """A layer's way through its steps, one direction."""

    @staticmethod
    def forward(
        ctx: Any, kind: str, counts: list[int], reverse: bool, gates: Tensor, weight: Tensor, bias: Tensor | None, *states: Tensor
    ) -> Any:
        row, _, params = _rows(kind, reverse)
        places = from_numpy(np.array(counts, INT64))
        operands = (gates, weight, bias, *states) if kind == "gru" else (gates, weight, *states)
        found = row(*_lying(*operands), places, **params)
        ctx.call = kind, counts, reverse, len(states)
        ctx.save_for_backward(gates, weight, bias, *states, places, *found)
        return found[: 1 + len(states)]

    @staticmethod
    def backward(ctx: Any, *arrived: Tensor) -> Any:
        kind, counts, reverse, number = ctx.call
        gates, weight, bias, *others = ctx.saved_tensors
        states, places, (hidden, *found) = others[:number], others[number], others[number + 1 :]
        if current().recording:
            return None, None, None, *_differentiable(kind, counts, reverse, [gates, weight, bias, *states], arrived)
        _, row, params = _rows(kind, reverse)
        needs, down, dc = ctx.needs_input_grad, None, ()
        weight, *operands = _lying(weight, *states)
        g = _lying(*arrived)
        if kind == "lstm":
            dgates, before, dh, *dc = row(found[3], *g, weight, *operands, hidden, found[2], places, **params)
        elif kind == "gru":
            dgates, down, before, dh = row(found[1], *g, weight, *operands, hidden, places, **params)
        else:
            dgates, before, dh = row(*g, weight, *operands, hidden, places, **params)
        own = dgates if down is None else down
        return None, None, None, dgates, own.mT @ before if needs[4] else None, own.sum(0) if needs[5] else None, dh, *dc


def _lying(*tensors: Tensor | None) -> list[Any]:
    """Row by row, as the kernels take them."""
    return [None if x is None else x.contiguous() for x in tensors]


def _rows(kind: str, reverse: bool) -> tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]:
    """The two rows, and their parameters."""
    if kind in ROWS:
        return *ROWS[kind], {"reverse": reverse}
    return *ROWS["rnn"], {"reverse": reverse, "nonlinearity": kind}


def _differentiable(kind: str, counts: list[int], reverse: bool, inputs: list[Any], arrived: Sequence[Tensor]) -> list[Any]:
    """The gradients, by steps that are recorded: from other names of the inputs, behind which the graphs of those are not followed."""
    own: list[Any] = [None if x is None else x.view(x.shape) if x._edge is not None else x for x in inputs]
    gates, weight, bias, *states = own
    hidden, final = by_steps(step_of(kind, weight, bias), gates, tuple(states), counts, reverse)
    wanted = [x for x in own if x is not None and x._edge is not None]
    found = iter(grad([hidden, *final], wanted, arrived, None, True))
    return [next(found) if x is not None and x._edge is not None else None for x in own]


def _forward(step: Step, gates: list[Tensor], counts: list[int], state: State) -> tuple[list[Tensor], State]:
    """From the first step on; sequences that end leave the batch at its end."""
    rows, ended = [], []
    for x, count in zip(gates, counts):
        if count < state[0].shape[0]:
            ended.append(tuple(s[count:] for s in state))
            state = tuple(s[:count] for s in state)
        state = step(x, state)
        rows.append(state[0])
    if ended:
        state = tuple(cat(pieces) for pieces in zip(state, *reversed(ended)))
    return rows, state


def _backward(step: Step, gates: list[Tensor], counts: list[int], initial: State) -> tuple[list[Tensor], State]:
    """From the last step on; sequences enter the batch at its end when their own last step comes."""
    rows = []
    state = initial if counts[-1] == counts[0] else tuple(s[: counts[-1]] for s in initial)
    for x, count in zip(reversed(gates), reversed(counts)):
        present = state[0].shape[0]
        if count > present:
            state = tuple(cat([s, first[present:count]]) for s, first in zip(state, initial))
        state = step(x, state)
        rows.append(state[0])
    return rows[::-1], state
