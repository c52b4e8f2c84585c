"""Functions of PyTorch's top that only programs for PyTorch call: copies of views (`torch.permute_copy(x, dims)`), one step of a recurrent
layer, norms by their older names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradlab
from gradlab.nn import functional as F
from gradlab.strides import contiguous_format
from gradlab.tensor import Tensor

# Copies of views: the method without _copy, then a clone of each.
COPIES = [
    "detach", "diagonal", "expand", "permute", "select", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unfold",
    "unsqueeze", "view",
]  # fmt: skip


def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`dropout` in place."""
    return F.dropout(input, p, train, True)


def max_pool1d_with_indices(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> tuple[Tensor, Tensor]:
    """The maxima and their places."""
    found: tuple[Tensor, Tensor] = F.max_pool1d(input, kernel_size, stride or None, padding, dilation, ceil_mode, True)
    return found


def native_layer_norm(input: Tensor, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """The result, and the mean and 1/√(variance + eps) of each group."""
    dims = tuple(range(-len(normalized_shape), 0))
    mean, rstd = input.mean(dims, keepdim=True), (input.var(dims, correction=0, keepdim=True) + eps).rsqrt()
    return F.layer_norm(input, normalized_shape, weight, bias, eps), mean, rstd


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


def _rows(view: Tensor) -> Tensor:
    """The elements row by row in memory of their own."""
    return view.clone(memory_format=contiguous_format)


def slice_copy(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """`input[start:end:step]` along `dim`, in memory of its own."""
    found: Tensor = input[(slice(None),) * (dim % input.ndim) + (slice(start, end, step),)]
    return _rows(found)


def alias_copy(input: Tensor) -> Tensor:
    """A copy."""
    return _rows(input)


def _copy(name: str) -> Callable[..., Any]:
    method = getattr(Tensor, name)

    def copied(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        found = method(input, *args, **kwargs)
        return tuple(map(_rows, found)) if isinstance(found, (tuple, list)) else _rows(found)

    copied.__name__ = copied.__qualname__ = f"{name}_copy"
    copied.__doc__ = f"`Tensor.{name}`, in memory of its own."
    return copied


def __getattr__(name: str) -> Any:
    """Made when they are asked for."""
    if name.endswith("_copy") and name.removesuffix("_copy") in COPIES:
        return _copy(name.removesuffix("_copy"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
