"""One time step of each recurrent unit, from the input's share of the gates and the state."""

from __future__ import annotations

from collections.abc import Callable

from gradlab.nn.joint import parts
from gradlab.tensor import Tensor

State = tuple[Tensor, ...]
Step = Callable[[Tensor, State], State]


def rnn_step(weight: Tensor, bias: Tensor | None, nonlinearity: str) -> Step:
    """weight: (hidden, hidden), transposed."""

    def step(gates: Tensor, state: State) -> State:
        total = gates + state[0] @ weight
        total = total if bias is None else total + bias
        return (total.tanh() if nonlinearity == "tanh" else total.relu(),)

    return step


def lstm_step(weight: Tensor, bias: Tensor | None, size: int, projection: Tensor | None) -> Step:
    """weight: (hidden or projected size, 4 hidden), projection: (hidden, projected size), both transposed."""
    sizes = (size,) * 4

    def step(gates: Tensor, state: State) -> State:
        h, c = state
        total = gates + h @ weight
        i, f, g, o = parts(total if bias is None else total + bias, sizes, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return (h if projection is None else h @ projection), c

    return step


def gru_step(weight: Tensor, bias: Tensor | None, size: int) -> Step:
    """weight: (hidden, 3 hidden), transposed. The reset gate acts after the product, as in PyTorch."""
    sizes = (2 * size, size)

    def step(gates: Tensor, state: State) -> State:
        (h,) = state
        own = h @ weight
        x_rz, x_n = parts(gates, sizes, -1)
        h_rz, h_n = parts(own if bias is None else own + bias, sizes, -1)
        r, z = parts((x_rz + h_rz).sigmoid(), (size, size), -1)
        n = (x_n + r * h_n).tanh()
        return (n + z * (h - n),)

    return step
