"""Recurrent layers over whole sequences: RNN, LSTM, GRU; several layers, both directions, padded or packed.

The inputs' share of the gates is one matrix product for all time steps; the steps add the hidden state's.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from gradlab.autograd.mode import current
from gradlab.nn import functional as F, init
from gradlab.nn.module import Module
from gradlab.nn.modules import sequences
from gradlab.nn.modules.steps import keep
from gradlab.nn.parameter import Parameter
from gradlab.nn.utils.rnn import PackedSequence
from gradlab.tensor import Tensor
from gradlab.tensor.common_arguments import few_enough
from gradlab.tensor.creation import empty
from gradlab.tensor.shape import cat, stack

State = tuple[Tensor, ...]


class RNNBase(Module):
    """What the three share. input_size: features of the input, hidden_size: of the state.

    Parameters of layer k: weight_ih_l{k} (gates hidden_size, input), weight_hh_l{k} (gates hidden_size, hidden_size), bias_ih_l{k}
    and bias_hh_l{k} (gates hidden_size), of the backward direction with `_reverse`; all uniform in ±1 / sqrt(hidden_size) at first.
    """

    gates = 1
    proj_size = 0
    _kind = "RNN"

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        name = type(self).__name__
        if isinstance(dropout, bool) or not isinstance(dropout, (int, float, np.floating)) or not 0 <= dropout <= 1:
            raise ValueError(f"{name}: dropout is a probability, not {dropout!r}")
        for what, flag in (("bias", bias), ("batch_first", batch_first)):
            if not isinstance(flag, bool):
                raise TypeError(f"{name}: {what} is True or False, not {flag!r}")
        for what, number in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
            if not isinstance(number, (int, np.integer)):
                raise TypeError(f"{name}: {what} is an integer, not {type(number).__name__}")
            if number <= 0:
                raise ValueError(f"{name}: {what} must be positive, got {number}")
        few_enough(name, "layers", num_layers)
        if proj_size < 0 or proj_size >= hidden_size:
            raise ValueError(f"{name}: proj_size lies between 0 and hidden_size {hidden_size}, got {proj_size}")
        if dropout > 0 and num_layers == 1:
            warnings.warn(f"{name}: dropout acts between layers, and there is only one", stacklevel=3)
        self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
        self.batch_first, self.dropout, self.bidirectional, self.proj_size = batch_first, float(dropout), bidirectional, proj_size
        state = proj_size or hidden_size
        for layer in range(num_layers):
            inputs = input_size if layer == 0 else state * self._directions
            for suffix in self._suffixes(layer):
                rows = self.gates * hidden_size
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, inputs), "weight_hh": (rows, state)}
                if bias:
                    shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for kind, shape in shapes.items():
                    self.register_parameter(kind + suffix, Parameter(empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self._directions]

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """For each layer and direction its parameters."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _all_weights(self) -> list[list[str]]:
        """The names of `all_weights`."""
        kinds = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if self.bias else []), *(["weight_hr"] if self.proj_size else [])]
        return [[kind + s for kind in kinds] for layer in range(self.num_layers) for s in self._suffixes(layer)]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Parameter]:
        return [getattr(self, name) for name in self._flat_weights_names]

    def flatten_parameters(self) -> None:
        """Does nothing: the parameters need no common memory here. Kept for programs that call it."""

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    # ------------------------------------------------------------ what the subclasses say

    def _walk(self, suffix: str, gates: Tensor, start: State, counts: list[int], reverse: bool) -> tuple[Tensor, State]:
        """One layer and direction: its states, rows in the order of time, and the last ones."""
        kind = self._nonlinearity() if self._kind == "RNN" else self._kind.lower()
        bias = getattr(self, "bias_hh" + suffix) if self.bias and kind == "gru" else None  # of others it is part of the input's share
        projection = getattr(self, "weight_hr" + suffix) if self.proj_size else None
        return sequences.run(kind, gates, getattr(self, "weight_hh" + suffix), bias, projection, start, counts, reverse)

    def _projection_bias(self, suffix: str) -> Tensor | None:
        """What the input's projection adds: both biases, since they are only ever added together."""
        return getattr(self, "bias_ih" + suffix) + getattr(self, "bias_hh" + suffix) if self.bias else None

    def _state_sizes(self) -> tuple[int, ...]:
        return (self.proj_size or self.hidden_size,)

    # ------------------------------------------------------------ running

    def _run(self, data: Tensor, counts: list[int], initial: State) -> tuple[Tensor, State]:
        """All layers over rows in time order; `counts` says how many rows, of `counts[0]` sequences, each time step has."""
        finals: list[State] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction, suffix in enumerate(self._suffixes(layer)):
                start = tuple(s[layer * self._directions + direction] for s in initial)
                gates = F.linear(data, getattr(self, "weight_ih" + suffix), self._projection_bias(suffix))
                rows, final = self._walk(suffix, gates, start, counts, bool(direction))
                outputs.append(rows)
                finals.append(final)
            data = outputs[0] if len(outputs) == 1 else cat(outputs, -1)
            if self.dropout and layer + 1 < self.num_layers:
                data = F.dropout(data, self.dropout, self.training)
        return data, tuple(stack([f[i] for f in finals]) for i in range(len(finals[0])))

    def _kept(self, writer: Any, data: Tensor, initial: State) -> tuple[Tensor, State]:
        """All layers over data (T, B, features), each as one call that `writer` makes."""
        finals = []
        for layer in range(self.num_layers):
            kinds = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if self.bias else [])]
            weights = [[getattr(self, kind + suffix) for kind in kinds] for suffix in self._suffixes(layer)]
            first = layer * self._directions
            y, *ends = writer(self._kind, data, weights, [s[first : first + self._directions] for s in initial], self._nonlinearity())
            steps, directions, batch, size = y.shape
            data = y.transpose(1, 2).reshape(steps, batch, directions * size)
            if self.dropout and layer + 1 < self.num_layers:
                data = F.dropout(data, self.dropout, self.training)
            finals.append(ends)
        return data, tuple(cat([f[i] for f in finals]) for i in range(len(finals[0])))

    def _nonlinearity(self) -> str:
        return "tanh"

    def _checked_state(self, hx: Any, batch: int, single: bool, like: Tensor) -> State:
        """The initial state as (layers directions, batch, size), zeros if not given. RuntimeError for wrong shapes."""
        layers = self.num_layers * self._directions
        if hx is None:
            return tuple(like.new_zeros(layers, batch, size) for size in self._state_sizes())
        name, given = type(self).__name__, (hx if isinstance(hx, (tuple, list)) else (hx,))
        if len(given) != len(self._state_sizes()):
            raise RuntimeError(f"{name}: the initial state has {len(self._state_sizes())} tensor(s), not {len(given)}")
        found = []
        for state, size in zip(given, self._state_sizes()):
            if state.ndim != (2 if single else 3):
                kind, rank = ("unbatched 2-D", 2) if single else ("batched 3-D", 3)
                raise RuntimeError(f"{name}: for {kind} input the state has {rank} dimensions, not shape {tuple(state.shape)}")
            state = state.unsqueeze(1) if single else state
            if tuple(state.shape) != (layers, batch, size):
                raise RuntimeError(f"{name}: the initial state has shape {(layers, batch, size)}, not {tuple(state.shape)}")
            found.append(state)
        return tuple(found)

    def _check_input(self, input: Tensor, ranks: tuple[int, ...]) -> None:
        name = type(self).__name__
        if not isinstance(input, Tensor):
            raise TypeError(f"{name}: input is a tensor, or a PackedSequence, not {type(input).__name__}")
        if input.ndim not in ranks:
            raise ValueError(f"{name}: expected input of {' or '.join(map(str, ranks))} dimensions, got shape {tuple(input.shape)}")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"{name}: input_size is {self.input_size}, but the input has shape {tuple(input.shape)}")
        weight: Any = self._parameters["weight_ih_l0"]
        if input.dtype != weight.dtype and current().autocast is None:
            raise ValueError(f"{name}: the input is {input.dtype}, the weights are {weight.dtype}; convert one of them")

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """Outputs of the last layer for all time steps, and the final state of every layer and direction."""
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        self._check_input(input, (2, 3))
        single = input.ndim == 2
        if single:
            input = input.unsqueeze(1)
        elif self.batch_first:
            input = input.transpose(0, 1)
        steps, batch, _ = input.shape
        writer = keep.get() if current().tracer is not None and not self.proj_size else None
        if writer is not None and steps:
            out, final = self._kept(writer, input, self._checked_state(hx, batch, single, input))
            if single:
                return out.squeeze(1), self._public(tuple(s.squeeze(1) for s in final))
            return (out.transpose(0, 1) if self.batch_first else out), self._public(final)
        if steps == 0:
            raise RuntimeError(f"{type(self).__name__}: expected at least one time step")
        if hasattr(steps, "expr"):  # gradlab.graph.ir.dims
            raise RuntimeError(
                f"{type(self).__name__}: the number of time steps ({steps}) is not known while the graph is made, and each step is a "
                f"part of it; keep that size fixed, or write the loop with gl.scan"
            )
        state = self._checked_state(hx, batch, single, input)
        data, final = self._run(input.reshape(steps * batch, self.input_size), [batch] * steps, state)
        out = data.reshape(steps, batch, -1) if batch else data.reshape(steps, batch, self._state_sizes()[0] * self._directions)
        if single:
            return out.squeeze(1), self._public(tuple(s.squeeze(1) for s in final))
        return (out.transpose(0, 1) if self.batch_first else out), self._public(final)

    def _public(self, state: State) -> Any:
        return state[0] if len(state) == 1 else state

    def _forward_packed(self, input: PackedSequence, hx: Any) -> tuple[Any, Any]:
        self._check_input(input.data, (2,))
        counts = np.asarray(input.batch_sizes.cpu().numpy()).tolist()
        state = self._checked_state(hx, counts[0], False, input.data)
        if hx is not None and input.sorted_indices is not None:
            state = tuple(s.index_select(1, input.sorted_indices) for s in state)
        data, final = self._run(input.data, counts, state)
        if input.unsorted_indices is not None:
            final = tuple(s.index_select(1, input.unsorted_indices) for s in final)
        return input._replace(data=data), self._public(final)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (
            ("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0), ("bidirectional", False),
        ):  # fmt: skip
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text

    @property
    def mode(self) -> str:
        """PyTorch's name of the kind: "LSTM", "GRU", "RNN_TANH" or "RNN_RELU"."""
        return f"RNN_{self._nonlinearity().upper()}" if self._kind == "RNN" else self._kind


class RNN(RNNBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu. Input (T, B, input_size), (B, T, …) if batch_first, (T, …) or packed.

    Returns the outputs (T, B, directions hidden_size) and h_n (layers directions, B, hidden_size).
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f'RNN: nonlinearity is "tanh" or "relu", not {nonlinearity!r}')
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype)
        self.nonlinearity = nonlinearity

    def _nonlinearity(self) -> str:
        return self.nonlinearity


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), gates in the order i, f, g, o. Inputs as for RNN.

    Returns the outputs and (h_n, c_n). proj_size: the outputs and h are projected to that size (Sak et al., 2014).
    """

    gates = 4
    _kind = "LSTM"

    def _state_sizes(self) -> tuple[int, ...]:
        return (self.proj_size or self.hidden_size, self.hidden_size)


class GRU(RNNBase):
    """Gated recurrent unit (Cho et al., 2014), gates in the order r, z, n. Inputs and results as for RNN."""

    gates = 3
    _kind = "GRU"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("GRU: only LSTM has proj_size")
        super().__init__(*args, **kwargs)

    def _projection_bias(self, suffix: str) -> Tensor | None:
        return getattr(self, "bias_ih" + suffix) if self.bias else None
