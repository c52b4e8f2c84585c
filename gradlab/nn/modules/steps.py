"""One time step of each recurrent unit, from the input's share of the gates and the state."""

from __future__ import annotations

from collections.abc import Callable

from gradlab import ops
from gradlab.autograd.record import bind
from gradlab.tensor import Tensor

_lstm_cell, _gru_cell = bind(ops.recurrent.lstm_cell), bind(ops.recurrent.gru_cell)
State = tuple[Tensor, ...]
Step = Callable[[Tensor, State], State]


def rnn_step(weight: Tensor, bias: Tensor | None, nonlinearity: str) -> Step:
    """weight: (hidden, hidden), transposed."""

    def step(gates: Tensor, state: State) -> State:
        total = gates + state[0] @ weight
        if bias is not None:
            total = total + (bias if bias._array.dtype == total._array.dtype else bias.to(total._array.dtype))
        return (total.tanh() if nonlinearity == "tanh" else total.relu(),)

    return step


def lstm_step(weight: Tensor, bias: Tensor | None, projection: Tensor | None) -> Step:
    """weight: (hidden or projected size, 4 hidden), projection: (hidden, projected size), both transposed."""

    def step(gates: Tensor, state: State) -> State:
        h, c = state
        own = h @ weight
        h, c, _ = _lstm_cell(gates, own if bias is None else own + bias, c)
        return (h if projection is None else h @ projection), c

    return step


def gru_step(weight: Tensor, bias: Tensor | None) -> Step:
    """weight: (hidden, 3 hidden), transposed. The reset gate acts after the product, as in PyTorch."""

    def step(gates: Tensor, state: State) -> State:
        (h,) = state
        own = h @ weight
        return (_gru_cell(gates, own if bias is None else own + bias, h)[0],)

    return step
