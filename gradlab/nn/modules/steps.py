"""One time step of each recurrent unit, from the input's share of the gates and the state.

On half types a step is one unit: the weights are widened once for all steps, and the state is what each step rounds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from gradlab import ops
from gradlab.autograd.function import Function
from gradlab.autograd.mode import current
from gradlab.autograd.record import bind
from gradlab.autograd.walk import walk_now
from gradlab.dtype import FLOAT32, HALF
from gradlab.tensor import Tensor
from gradlab.tensor.rounding import once
from gradlab.tensor.shape import cat

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


class _Shared(Function):
    """h @ weight, one of many products with one weight. Its gradient by the weight is left to the first of them, whose turn comes last in
    the walk backward: one long product in place of many short ones and their sum."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, shared: list[Any]) -> Tensor:
        ctx.save_for_backward(h, weight)
        ctx.shared, ctx.first = shared, not shared
        shared.append(None)
        return h @ weight

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        h, weight = ctx.saved_tensors
        dh = g @ weight.mT if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return dh, None, None
        shared, walk = ctx.shared, walk_now.get()
        if shared[0] is None or shared[0][0] is not walk:
            shared[0] = (walk, [], [])
        _, states, gradients = shared[0]
        states.append(h)
        gradients.append(g)
        if not ctx.first:
            return dh, None, None
        shared[0] = None
        return dh, (states[0].mT @ gradients[0] if len(states) == 1 else cat(states).mT @ cat(gradients)), None


def times(weight: Tensor) -> Callable[[Tensor], Tensor]:
    """Products of states with one weight, for the steps of a sequence."""
    mode = current()
    plain = type(weight._array) is np.ndarray and weight._array.dtype not in HALF and not mode.special
    if plain and mode.recording and weight._edge is not None:
        shared: list[Any] = []
        return lambda h: _Shared.apply(h, weight, shared)
    return lambda h: h @ weight


@_rounds_once
def rnn_step(weight: Tensor, bias: Tensor | None, nonlinearity: str) -> Step:
    """weight: (hidden, hidden), transposed."""
    product = times(weight)

    def step(gates: Tensor, state: State) -> State:
        total = gates + product(state[0])
        if bias is not None:
            total = total + (bias if bias._array.dtype == total._array.dtype else bias.to(total._array.dtype))
        return (total.tanh() if nonlinearity == "tanh" else total.relu(),)

    return step


@_rounds_once
def lstm_step(weight: Tensor, bias: Tensor | None, projection: Tensor | None) -> Step:
    """weight: (hidden or projected size, 4 hidden), projection: (hidden, projected size), both transposed."""
    product = times(weight)

    def step(gates: Tensor, state: State) -> State:
        h, c = state
        own = product(h)
        h, c, _ = _lstm_cell(gates, own if bias is None else own + bias, c)
        return (h if projection is None else h @ projection), c

    return step


@_rounds_once
def gru_step(weight: Tensor, bias: Tensor | None) -> Step:
    """weight: (hidden, 3 hidden), transposed. The reset gate acts after the product, as in PyTorch."""
    product = times(weight)

    def step(gates: Tensor, state: State) -> State:
        (h,) = state
        own = product(h)
        return (_gru_cell(gates, own if bias is None else own + bias, h)[0],)

    return step
