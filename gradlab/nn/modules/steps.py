"""One time step of each recurrent unit, from the input's share of the gates and the state.

On half types a step is one unit: the weights are widened once for all steps, and the state is what each step rounds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from gradlab import ops
from gradlab.autograd.mode import current
from gradlab.autograd.record import bind
from gradlab.dtype import FLOAT32, HALF
from gradlab.tensor import Tensor
from gradlab.tensor.rounding import once

_lstm_cell, _gru_cell = bind(ops.recurrent.lstm_cell), bind(ops.recurrent.gru_cell)
State = tuple[Tensor, ...]
# What writes a traced recurrent layer as one call, keep(module's class name, x, weights of each direction, states, nonlinearity), in place
# of its steps; or None. Set by `gradlab.onnx` while it exports.
keep: ContextVar[Callable[..., Any] | None] = ContextVar("keep", default=None)
Step = Callable[[Tensor, State], State]


def _rounds_once(make: Callable[..., Step]) -> Callable[..., Step]:
    @functools.wraps(make)
    def made(weight: Tensor, *others: Any) -> Step:
        if weight._array.dtype not in HALF or current().autocast is not None:
            return make(weight, *others)
        step = make(*[x.to(FLOAT32) if isinstance(x, Tensor) and x._array.dtype in HALF else x for x in (weight, *others)])
        return lambda gates, state: once(step, (gates, state))

    return made


@_rounds_once
def rnn_step(weight: Tensor, bias: Tensor | None, nonlinearity: str) -> Step:
    """weight: (hidden, hidden), transposed."""

    def step(gates: Tensor, state: State) -> State:
        total = gates + state[0] @ weight
        if bias is not None:
            total = total + (bias if bias._array.dtype == total._array.dtype else bias.to(total._array.dtype))
        return (total.tanh() if nonlinearity == "tanh" else total.relu(),)

    return step


@_rounds_once
def lstm_step(weight: Tensor, bias: Tensor | None, projection: Tensor | None) -> Step:
    """weight: (hidden or projected size, 4 hidden), projection: (hidden, projected size), both transposed."""

    def step(gates: Tensor, state: State) -> State:
        h, c = state
        own = h @ weight
        h, c, _ = _lstm_cell(gates, own if bias is None else own + bias, c)
        return (h if projection is None else h @ projection), c

    return step


@_rounds_once
def gru_step(weight: Tensor, bias: Tensor | None) -> Step:
    """weight: (hidden, 3 hidden), transposed. The reset gate acts after the product, as in PyTorch."""

    def step(gates: Tensor, state: State) -> State:
        (h,) = state
        own = h @ weight
        return (_gru_cell(gates, own if bias is None else own + bias, h)[0],)

    return step
