"""Activations, as in `torch.nn.functional`. Each takes a floating point tensor of any shape and gives one of that shape and dtype, unless
said otherwise; `inplace=True` writes the result into the input."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.one_row import one_row
from gradlab.autograd.record import bind
from gradlab.dtype import COMPLEX, FLOATING, finfo, held, needs_floating
from gradlab.named_errors import explain, named_functions
from gradlab.spec import as_number, normalize_dim
from gradlab.tensor import activation as top, elementwise
from gradlab.tensor.activation import celu_ as celu_, hardshrink as hardshrink, prelu as prelu, selu_ as selu_, threshold_ as threshold_
from gradlab.tensor.elementwise import sigmoid as sigmoid, tanh as tanh
from gradlab.tensor.in_place_methods import update
from gradlab.tensor.random import rand_like
from gradlab.tensor.rounding import rounds_once

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "celu", "celu_", "elu", "elu_", "gelu", "glu", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hardtanh_",
    "leaky_relu", "leaky_relu_", "log_softmax", "logsigmoid", "mish", "prelu", "relu", "relu6", "relu_", "rrelu", "rrelu_", "selu", "selu_",
    "sigmoid", "silu", "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold", "threshold_",
]  # fmt: skip

_rows = ops.activation
_gelu, _gelu_tanh, _silu, _mish, _logsigmoid, _hardswish = map(
    bind, (_rows.gelu, _rows.gelu_tanh, _rows.silu, _rows.mish, _rows.logsigmoid, _rows.hardswish)
)
_softplus, _elu, _leaky_relu, _hardtanh = map(bind, (_rows.softplus, _rows.elu, _rows.leaky_relu, _rows.hardtanh))


# ---------------------------------------------------------------- over a dimension


def _chosen(name: str, input: Tensor, dim: int | None, stacklevel: int) -> int:
    """PyTorch's old default: dimension 0 for 0, 1 or 3 dimensions, else 1; deprecated there."""
    if dim is not None:
        return dim
    warnings.warn(f"{name}: give dim=; the implicit choice is deprecated, as in PyTorch", UserWarning, stacklevel=stacklevel + 1)
    return 0 if len(input._array.shape) in (0, 1, 3) else 1


@one_row(given="dim")
def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """e^x over its sum along `dim`; see `gradlab.softmax`.

    >>> F.softmax(gl.tensor([0.0, 0.0]), dim=0)
    tensor([0.5000, 0.5000])
    """
    return top.softmax(input, _chosen("softmax", input, dim, 2) if dim is None else dim, dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax(-x).

    >>> F.softmin(gl.tensor([0.0, 0.0]), dim=0)
    tensor([0.5000, 0.5000])
    """
    return top.softmax(-input, _chosen("softmin", input, dim, 2), dtype)


@one_row(given="dim")
def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """log(softmax(x)); see `gradlab.log_softmax`.

    >>> F.log_softmax(gl.tensor([0.0, 0.0]), dim=0)
    tensor([-0.6931, -0.6931])
    """
    return top.log_softmax(input, _chosen("log_softmax", input, dim, 2) if dim is None else dim, dtype)


@rounds_once
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """a·sigmoid(b), where a and b are the halves of the input along `dim`. Raises RuntimeError where that size is odd.

    >>> F.glu(gl.tensor([1.0, 0.0]))
    tensor([0.5000])
    """
    shape = input._array.shape
    if not shape:
        raise RuntimeError("glu: needs at least one dimension to halve, got a 0-d tensor")
    dim = normalize_dim(dim, len(shape))
    if shape[dim] % 2:
        raise RuntimeError(f"glu: dimension {dim} of shape {shape} has odd size {shape[dim]}, which cannot be halved")
    half = shape[dim] // 2
    return input.narrow(dim, 0, half) * input.narrow(dim, half, half).sigmoid()


@rounds_once(autocast="float32")
def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A random sample of the relaxed category distribution (Jang, Gu and Poole, 2017): softmax((logits + Gumbel noise) / tau).

    hard: one-hot vectors, with the gradient of the soft ones. eps has no effect, as in PyTorch.

    >>> F.gumbel_softmax(gl.zeros(2, 3), hard=True).sum(1)
    tensor([1., 1.])
    """
    noise = -((-rand_like(logits)).log1p().neg()).log()  # 1 - u lies in (0, 1], so its logarithm is finite
    soft = top.softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    one = logits.new_zeros(logits._array.shape).scatter(dim, soft.argmax(dim, keepdim=True), 1.0)
    return one - soft.detach() + soft


# ---------------------------------------------------------------- smooth


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x·Φ(x), Φ the normal distribution; approximate="tanh": 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))).

    >>> F.gelu(gl.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.1587,  0.0000,  1.9545])
    """
    try:
        if approximate == "none":
            return _gelu(input)
        if approximate == "tanh":
            return _gelu_tanh(input)
        raise RuntimeError(f"gelu: approximate is 'none' or 'tanh', not {approximate!r}")
    except Exception as error:
        explain(error, "gelu", gelu, (input, approximate))


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x·sigmoid(x).

    >>> F.silu(gl.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.2689,  0.0000,  1.7616])
    """
    try:
        return update("silu_", input, _silu) if inplace else _silu(input)
    except Exception as error:
        explain(error, "silu", silu, (input, inplace))


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x·tanh(softplus(x)).

    >>> F.mish(gl.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.3034,  0.0000,  1.9440])
    """
    try:
        return update("mish_", input, _mish) if inplace else _mish(input)
    except Exception as error:
        explain(error, "mish", mish, (input, inplace))


@one_row
def softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """log(1 + e^(beta·x)) / beta; x itself where beta·x > threshold. Raises RuntimeError for beta = 0.

    >>> F.softplus(gl.tensor([-1.0, 0.0, 2.0]))
    tensor([0.3133, 0.6931, 2.1269])
    """
    if beta == 0:
        raise RuntimeError("softplus: beta cannot be 0")
    dtype = input._array.dtype
    return _softplus(input, beta=held("softplus", beta, dtype), threshold=held("softplus", threshold, dtype))


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)), finite far below 0.

    >>> F.logsigmoid(gl.tensor([-1.0, 0.0, 2.0]))
    tensor([-1.3133, -0.6931, -0.1269])
    """
    return _logsigmoid(input)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x, or alpha·(e^x - 1) below 0.

    >>> F.elu(gl.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.6321,  0.0000,  2.0000])
    """
    return update("elu_", input, elu, alpha) if inplace else _elu(input, alpha=held("elu", alpha, input._array.dtype), scale=1.0, slope=1.0)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """See `gradlab.selu`.

    >>> F.selu(gl.tensor([-1.0, 0.0, 2.0]))
    tensor([-1.1113,  0.0000,  2.1014])
    """
    return selu_(input) if inplace else top.selu(input)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """See `gradlab.celu`.

    >>> F.celu(gl.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.6321,  0.0000,  2.0000])
    """
    return celu_(input, alpha) if inplace else top.celu(input, alpha)


@rounds_once
def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|).

    >>> F.softsign(gl.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.5000,  0.0000,  0.6667])
    """
    if input._array.dtype in COMPLEX:
        return input / (input.abs() + 1)
    most = finfo(input.dtype).max if input._array.dtype in FLOATING else math.inf
    bounded = input.clamp(-most, most)  # at infinity the limit, not ∞/∞
    return bounded / (bounded.abs() + 1)


@rounds_once
def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x).

    >>> F.tanhshrink(gl.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.2384,  0.0000,  1.0360])
    """
    return input - input.tanh()


# ---------------------------------------------------------------- piecewise linear


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0).

    >>> F.relu(gl.tensor([-1.0, 0.0, 2.0]))
    tensor([0., 0., 2.])
    """
    return input.relu_() if inplace else elementwise.relu(input)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """x limited to [0, 6].

    >>> F.relu6(gl.tensor([-1.0, 0.0, 2.0]))
    tensor([0., 0., 2.])
    """
    return hardtanh(input, 0.0, 6.0, inplace)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """x limited to [min_val, max_val]; no gradient on and beyond the limits. Raises ValueError where min_val > max_val.

    >>> F.hardtanh(gl.tensor([-1.0, 0.0, 2.0]))
    tensor([-1.,  0.,  1.])
    """
    min_val, max_val = as_number(min_val), as_number(max_val)
    if min_val > max_val:
        raise ValueError(f"hardtanh: min_val {min_val} is above max_val {max_val}")
    return update("hardtanh_", input, hardtanh, min_val, max_val) if inplace else _hardtanh(input, lo=min_val, hi=max_val)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x, or negative_slope·x below 0.

    >>> F.leaky_relu(gl.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.0100,  0.0000,  2.0000])
    """
    slope = held("leaky_relu", negative_slope, input._array.dtype)
    return update("leaky_relu_", input, leaky_relu, slope) if inplace else _leaky_relu(input, slope=slope)


def rrelu(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False) -> Tensor:
    """x, or a·x below 0, with a random in [lower, upper) for each element in training, else their mean (Xu and others, 2015).

    >>> F.rrelu(gl.tensor([-1.0, 2.0]))
    tensor([-0.2292,  2.0000])
    """
    if lower > upper:
        raise RuntimeError(f"rrelu: lower {lower} is above upper {upper}")
    if inplace:
        return update("rrelu_", input, rrelu, lower, upper, training)
    if not training:
        return leaky_relu(input, (lower + upper) / 2)
    return _leaky_at_random(input, lower, upper)


@rounds_once
def _leaky_at_random(input: Tensor, lower: float, upper: float) -> Tensor:
    return input.where(input >= 0, input * (rand_like(input) * (upper - lower) + lower))


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where it is above `threshold`, else `value`.

    >>> F.threshold(gl.tensor([-1.0, 2.0]), 0.0, 9.0)
    tensor([9., 2.])
    """
    return threshold_(input, threshold, value) if inplace else top.threshold(input, threshold, value)


@rounds_once
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd, 0 where |x| <= lambd. Raises RuntimeError for a negative lambd.

    >>> F.softshrink(gl.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.5000,  0.0000,  1.5000])
    """
    if lambd < 0:
        raise RuntimeError(f"softshrink: lambd cannot be negative, got {lambd}")
    return input - _hardtanh_through(input, lambd)


def _hardtanh_through(input: Tensor, lambd: float) -> Tensor:
    """x limited to [-lambd, lambd], with the gradient also on the limits, where the shrunk result is 0."""
    return input.clamp(-lambd, lambd)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """x/6 + 1/2 limited to [0, 1].

    >>> F.hardsigmoid(gl.tensor([-1.0, 0.0, 2.0]))
    tensor([0.3333, 0.5000, 0.8333])
    """
    return update("hardsigmoid_", input, _hardsigmoid) if inplace else _hardsigmoid(input)


@rounds_once
def _hardsigmoid(input: Tensor) -> Tensor:
    return _hardtanh(input + 3, lo=0.0, hi=6.0) / 6


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x·hardsigmoid(x).

    >>> F.hardswish(gl.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.3333,  0.0000,  1.6667])
    """
    try:
        _floating("hardswish", input)
        return update("hardswish_", input, _hardswish) if inplace else _hardswish(input)
    except Exception as error:
        explain(error, "hardswish", hardswish, (input, inplace))


def _floating(name: str, input: Tensor) -> None:
    if not isinstance(input, Differentiable) or input._array.dtype not in FLOATING:
        raise RuntimeError(needs_floating(name, getattr(input, "dtype", type(input).__name__)))


# ---------------------------------------------------------------- in place


def relu_(input: Tensor) -> Tensor:
    """`relu` in place.

    >>> F.relu_(gl.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    return relu(input, True)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`elu` in place.

    >>> F.elu_(gl.tensor([0.0, 2.0]))
    tensor([0., 2.])
    """
    return elu(input, alpha, True)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`hardtanh` in place.

    >>> F.hardtanh_(gl.tensor([-3.0, 0.5]))
    tensor([-1.0000,  0.5000])
    """
    return hardtanh(input, min_val, max_val, True)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`leaky_relu` in place.

    >>> F.leaky_relu_(gl.tensor([-1.0, 2.0]))
    tensor([-0.0100,  2.0000])
    """
    return leaky_relu(input, negative_slope, True)


def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    """`rrelu` in place.

    >>> F.rrelu_(gl.tensor([-1.0, 2.0]))
    tensor([-0.2292,  2.0000])
    """
    return rrelu(input, lower, upper, training, True)


named_functions(__name__)
