"""Recurrent units for a single time step: RNNCell, LSTMCell, GRUCell."""

from __future__ import annotations

import math
from typing import Any

from gradlab.nn import functional as F, init
from gradlab.nn.module import Module
from gradlab.nn.modules.steps import Step, gru_step, lstm_step, rnn_step
from gradlab.nn.parameter import Parameter
from gradlab.tensor import Tensor
from gradlab.tensor.creation import empty


class RNNCellBase(Module):
    """weight_ih: (gates hidden_size, input_size), weight_hh: (gates hidden_size, hidden_size), bias_ih, bias_hh; all uniform at first."""

    states = 1
    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows, kind = num_chunks * hidden_size, {"device": device, "dtype": dtype}
        self.weight_ih = Parameter(empty(rows, input_size, **kind))
        self.weight_hh = Parameter(empty(rows, hidden_size, **kind))
        self.register_parameter("bias_ih", Parameter(empty(rows, **kind)) if bias else None)
        self.register_parameter("bias_hh", Parameter(empty(rows, **kind)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _step(self) -> Step:
        raise NotImplementedError

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """The next state, from (B, input_size) or (input_size) and the state; zeros if no state is given."""
        name = type(self).__name__
        if input.ndim not in (1, 2):
            raise ValueError(f"{name}: expected input of 1 or 2 dimensions, got shape {tuple(input.shape)}")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"{name}: input_size is {self.input_size}, but the input has {input.shape[-1]} features")
        single = input.ndim == 1
        batch = input.unsqueeze(0) if single else input
        if hx is None:
            state = (batch.new_zeros(batch.shape[0], self.hidden_size),) * self.states
        else:
            given = tuple(hx) if isinstance(hx, (tuple, list)) else (hx,)
            if len(given) != self.states:
                raise RuntimeError(f"{name}: the state has {self.states} tensor(s), not {len(given)}")
            for s in given:
                if s.ndim not in (1, 2):
                    raise ValueError(f"{name}: expected a state of 1 or 2 dimensions, got shape {tuple(s.shape)}")
                if tuple(s.shape) != (*input.shape[:-1], self.hidden_size):
                    raise RuntimeError(f"{name}: the state has shape {(*input.shape[:-1], self.hidden_size)}, not {tuple(s.shape)}")
            state = tuple(s.unsqueeze(0) for s in given) if single else given
        found = self._step()(F.linear(batch, self.weight_ih, self.bias_ih), state)
        if single:
            found = tuple(s.squeeze(0) for s in found)
        return found[0] if self.states == 1 else found

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(RNNCellBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Any = None, dtype: Any = None
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f'RNNCell: nonlinearity is "tanh" or "relu", not {nonlinearity!r}')
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def _step(self) -> Step:
        return rnn_step(self.weight_hh.t(), self.bias_hh, self.nonlinearity)

    def extra_repr(self) -> str:
        return super().extra_repr() + (f", nonlinearity={self.nonlinearity}" if self.nonlinearity != "tanh" else "")


class LSTMCell(RNNCellBase):
    """Long short-term memory, gates in the order i, f, g, o; state and result are (h, c)."""

    states = 2

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def _step(self) -> Step:
        return lstm_step(self.weight_hh.t(), self.bias_hh, None)


class GRUCell(RNNCellBase):
    """Gated recurrent unit, gates in the order r, z, n."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def _step(self) -> Step:
        return gru_step(self.weight_hh.t(), self.bias_hh)
