"""Layers with their activation in one operation. PyTorch has no such functions; `gl.compile` finds these pairs by itself.

On a GPU eager code saves a launch and a pass over the result. On the CPU NumPy makes that pass anyway: only ReLU behind a linear layer is
measurably faster in one operation (up to twice, forward), so only that is one there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import dispatch, ops
from gradlab.autograd.mode import is_grad_enabled
from gradlab.autograd.record import bind
from gradlab.named_errors import named_functions
from gradlab.nn.functional.conv import convolve
from gradlab.nn.functional.linear import linear

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["conv_activation", "linear_activation"]

_linear_relu, _linear_gelu, _convolution = map(bind, (ops.fused.linear_relu, ops.fused.linear_gelu_tanh, ops.fused.convolution_act))
_convolution_sums = bind(ops.fused.convolution_act_sums)
_ACTIVATIONS = {name: bind(op) for name, op in ops.fused.ACTIVATIONS.items()}


def _activation(name: str, activation: str) -> Any:
    found = _ACTIVATIONS.get(activation)
    if found is None:
        raise ValueError(f"{name}: activation is one of {', '.join(map(repr, _ACTIVATIONS))}, not {activation!r}")
    return found


def _in_one(input: Tensor, *parameters: Tensor | None, cpu: bool) -> bool:
    """Whether the fused row is the better choice: an array on a GPU, or, where that was measured to pay (`cpu`), in memory; not a trace,
    which fuses by itself; not an input that needs no gradient below parameters that do, where the fused gradient computes one too many."""
    kind = type(input._array)
    if not (cpu if kind is np.ndarray else kind in dispatch.recalling):
        return False
    return input.requires_grad or not is_grad_enabled() or not any(p is not None and p.requires_grad for p in parameters)


def _first_of_sums(*inputs: Any, **params: Any) -> Any:
    return _convolution_sums(*inputs, **params)[0]


def linear_activation(input: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "relu") -> Tensor:
    """activation(linear(input, weight, bias)): (*, in) with weight (out, in) and bias (out) gives (*, out).

    activation is "relu", "gelu", "gelu_tanh" or "silu". ReLU and GELU by tanh are one operation, on a GPU one launch of cuBLASLt with its
    epilogue; the others are two. ValueError for another activation; other errors as `linear`'s. Gradients of any order.

    >>> F.linear_activation(gl.tensor([[1.0, 2.0]]), gl.tensor([[1.0, 1.0], [1.0, -1.0]]), gl.tensor([0.5, 0.5]))
    tensor([[3.5000, 0.0000]])
    """
    plain = _activation("linear_activation", activation)
    fits = activation in {"relu", "gelu_tanh"} and len(getattr(weight, "shape", ())) == 2
    if fits and _in_one(input, weight, bias, cpu=activation == "relu"):
        return _linear_relu(input, weight, bias) if activation == "relu" else _linear_gelu(input, weight, bias)[0]
    return plain(linear(input, weight, bias))


def conv_activation(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    activation: str = "relu",
) -> Tensor:
    """activation(conv(input, weight, bias, …)) for one, two or three spatial dimensions: the weight (O, C/groups, *kernel) says which.

    The other arguments are those of `conv1d`, `conv2d` and `conv3d`; activation is "relu", "gelu", "gelu_tanh" or "silu". On a GPU it is
    part of the convolution's kernel, whatever that is. Where gradients are recorded, the kernel keeps the sums, too, which all derivatives
    but ReLU's need. ValueError for another activation; other errors as the convolutions'.

    >>> F.conv_activation(gl.ones(1, 1, 3), gl.tensor([[[1.0, -2.0]]]), gl.tensor([0.5]))
    tensor([[[0., 0.]]])
    """
    plain = _activation("conv_activation", activation)
    rank = len(getattr(weight, "shape", ())) - 2
    if not 1 <= rank <= 3:
        raise RuntimeError(f"conv_activation: the weight has 3, 4 or 5 dimensions (O, C/groups, *kernel), not {rank + 2}")
    record = is_grad_enabled() and any(x is not None and x.requires_grad for x in (input, weight, bias))
    if _in_one(input, weight, bias, cpu=False):
        row = _convolution if activation == "relu" or not record else _first_of_sums
        return convolve(rank, input, weight, bias, stride, padding, dilation, groups, row, activation=activation)
    return plain(convolve(rank, input, weight, bias, stride, padding, dilation, groups))


named_functions(__name__)
