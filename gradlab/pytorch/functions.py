"""Functions of PyTorch's top that only programs for PyTorch call: one step of a recurrent layer, norms by their older names."""

from __future__ import annotations

from typing import Any

import gradlab
from gradlab.nn import functional as F
from gradlab.tensor import Tensor


def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`dropout` in place."""
    return F.dropout(input, p, train, True)


def max_pool1d_with_indices(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> tuple[Tensor, Tensor]:
    """The maxima and their places."""
    found: tuple[Tensor, Tensor] = F.max_pool1d(input, kernel_size, stride or None, padding, dilation, ceil_mode, True)
    return found


def lstm_cell(input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> tuple[Tensor, Tensor]:
    """The next hidden and cell state (Hochreiter and Schmidhuber, "Long short-term memory", 1997)."""
    h, c = hx
    i, f, g, o = (F.linear(input, w_ih, b_ih) + F.linear(h, w_hh, b_hh)).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Tensor:
    """The next hidden state (Cho and others, "Learning phrase representations using RNN encoder-decoder", 2014)."""
    reset, update, new = F.linear(input, w_ih, b_ih).chunk(3, -1)
    reset_h, update_h, new_h = F.linear(hx, w_hh, b_hh).chunk(3, -1)
    candidate = (new + (reset + reset_h).sigmoid() * new_h).tanh()
    kept = (update + update_h).sigmoid()
    return candidate + kept * (hx - candidate)


def rnn_tanh_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Tensor:
    """The next hidden state."""
    return (F.linear(input, w_ih, b_ih) + F.linear(hx, w_hh, b_hh)).tanh()


def rnn_relu_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Tensor:
    """The next hidden state."""
    return (F.linear(input, w_ih, b_ih) + F.linear(hx, w_hh, b_hh)).relu()


def frobenius_norm(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The square root of the sum of squares over `dim` (all, where it is empty)."""
    return gradlab.linalg.vector_norm(input, 2, tuple(dim) or None, keepdim)


def nuclear_norm(input: Tensor, dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of singular values."""
    return gradlab.linalg.matrix_norm(input, "nuc", tuple(dim), keepdim)
