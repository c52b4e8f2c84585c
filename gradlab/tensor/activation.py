"""Activations that PyTorch also has at its top level and as Tensor methods: softmax, log_softmax and piecewise functions.

relu, sigmoid and tanh are in `elementwise.py`; the rest is in `nn/functional/activation.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import lowered
from gradlab.autograd.one_row import one_row
from gradlab.autograd.record import bind
from gradlab.dtype import FLOAT32_MOST, FLOAT64, FLOAT64_MOST, FLOATING, as_numpy, held, needs_floating
from gradlab.named_errors import explain, named_functions
from gradlab.spec import ShapeError, as_number, normalize_dim
from gradlab.tensor.common_arguments import into, required
from gradlab.tensor.in_place_methods import update
from gradlab.tensor.rounding import rounds_once
from gradlab.tensor.where import filled, where

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["celu", "hardshrink", "log_softmax", "prelu", "selu", "softmax", "threshold"]

_softmax, _log_softmax, _elu = map(bind, (ops.softmax.softmax, ops.softmax.log_softmax, ops.activation.elu))

# Of the self-normalising network (Klambauer et al., 2017)
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _ready(name: str, input: Tensor, dim: int, dtype: Any) -> tuple[Tensor, int]:
    if type(dim) is int and dtype is None and isinstance(input, Differentiable) and input._array.dtype in FLOATING:
        rank = len(input._array.shape)
        if -rank <= dim < rank:
            return input, dim % rank
    if not isinstance(input, Differentiable):
        raise TypeError(f"{name}: input is a tensor, not {type(input).__name__}")
    if dtype is not None:
        input = input.to(dtype=as_numpy(dtype))
    if input._array.dtype not in FLOATING:
        raise RuntimeError(needs_floating(name, input.dtype, way="convert with .float() or pass dtype="))
    try:
        return input, normalize_dim(dim, len(input._array.shape))
    except IndexError as error:
        raise type(error)(f"{name}: {error}") from None


@one_row
def softmax(input: Tensor, dim: int | None = None, dtype: Any = None, *, axis: Any = None, out: Any = None) -> Tensor:
    """e^x over its sum along `dim`: positive numbers that add up to 1. Nothing overflows; a group of only -inf gives NaN, as in PyTorch.

    Shape of the input; `dtype` converts it first. Raises RuntimeError for integers, IndexError for a dim that is not there.

    >>> gl.softmax(gl.tensor([0.0, 0.0]), dim=0)
    tensor([0.5000, 0.5000])
    """
    try:
        dim = dim if dim is not None and axis is None else required("softmax", dim, axis)
        input, dim = _ready("softmax", input, dim, dtype)
        if dtype is not None and out is None:  # also under autocast, which computes it in float32
            return _softmax(input, dim=dim).to(dtype=dtype)
        return _softmax(input, dim=dim) if out is None else into("softmax", out, _softmax(input, dim=dim))
    except Exception as error:
        explain(error, "softmax", softmax, (input, dim, dtype), {"axis": axis, "out": out})


@one_row
def log_softmax(input: Tensor, dim: int | None = None, dtype: Any = None, *, axis: Any = None, out: Any = None) -> Tensor:
    """log(softmax(x)) along `dim`, computed without the rounding of the two steps. Arguments and errors of `softmax`.

    >>> gl.log_softmax(gl.tensor([0.0, 0.0]), dim=0)
    tensor([-0.6931, -0.6931])
    """
    try:
        dim = dim if dim is not None and axis is None else required("log_softmax", dim, axis)
        input, dim = _ready("log_softmax", input, dim, dtype)
        if dtype is not None and out is None:  # also under autocast, which computes it in float32
            return _log_softmax(input, dim=dim).to(dtype=dtype)
        return _log_softmax(input, dim=dim) if out is None else into("log_softmax", out, _log_softmax(input, dim=dim))
    except Exception as error:
        explain(error, "log_softmax", log_softmax, (input, dim, dtype), {"axis": axis, "out": out})


def selu(input: Tensor) -> Tensor:
    """scale·(x, or alpha·(e^x - 1) below 0), with the constants that keep mean 0 and variance 1.

    >>> gl.selu(gl.tensor([-1.0, 0.0, 2.0]))
    tensor([-1.1113,  0.0000,  2.1014])
    """
    return _elu(input, alpha=SELU_ALPHA, scale=SELU_SCALE, slope=1.0)


def celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """x, or alpha·(e^(x/alpha) - 1) below 0. Raises RuntimeError for alpha = 0.

    >>> gl.celu(gl.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.6321,  0.0000,  2.0000])
    """
    if (alpha := as_number(alpha)) == 0:
        raise RuntimeError("celu: alpha cannot be 0")
    dtype = input._array.dtype
    most = FLOAT32_MOST if dtype != FLOAT64 else FLOAT64_MOST  # at 0 an infinite slope would be NaN
    return _elu(input, alpha=held("celu", alpha, dtype), scale=1.0, slope=max(-most, min(1.0 / alpha, most)))


@rounds_once
def hardshrink(input: Tensor, lambd: float = 0.5, *, out: Any = None) -> Tensor:
    """x, but 0 where -lambd <= x <= lambd.

    >>> gl.hardshrink(gl.tensor([-1.0, 0.25]))
    tensor([-1.,  0.])
    """
    if out is not None:
        return into("hardshrink", out, hardshrink(input, lambd))
    return filled(input, (input >= -lambd) & (input <= lambd), 0)


@rounds_once
def threshold(input: Tensor, threshold: float, value: float, *, out: Any = None) -> Tensor:
    """x where it is above `threshold`, else `value`.

    >>> gl.threshold(gl.tensor([-1.0, 2.0]), 0.0, 9.0)
    tensor([9., 2.])
    """
    result = filled(input, input <= threshold, value)
    return result if out is None else into("threshold", out, result)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x, or weight·x below 0. `weight`: one number, or one for each channel (dimension 1).

    >>> gl.prelu(gl.tensor([-1.0, 2.0]), gl.tensor([0.25]))
    tensor([-0.2500,  2.0000])
    """
    if not isinstance(weight, Differentiable):
        raise TypeError(f"prelu: weight is a tensor, not {type(weight).__name__}")
    input, weight = lowered(input, weight)
    shape, own = input._array.shape, weight._array.shape
    if input._array.dtype != weight._array.dtype:
        raise RuntimeError(f"prelu: input and weight have one dtype, not {input.dtype} and {weight.dtype}")
    size = own[0] if own else 1
    if len(own) > 1 or (size != 1 and (not shape or size != (shape[1] if len(shape) > 1 else 1))):
        raise ShapeError(f"prelu: weight of shape {own} is neither one number nor one for each channel of the input of shape {shape}")
    if own:
        weight = weight.reshape((size, *(1 for _ in shape[2:])) if len(shape) > 1 else (size,) if shape else ())
    return input * where(input > 0, 1, weight)  # where the weight is not used it has no say, were it NaN


named_functions(__name__)


class ActivationMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    softmax, log_softmax, hardshrink, prelu = softmax, log_softmax, hardshrink, prelu


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`celu` in place.

    >>> gl.nn.functional.celu_(gl.tensor([-1.0, 1.0]))
    tensor([-0.6321,  1.0000])
    """
    try:
        return update("celu_", input, celu, alpha)
    except Exception as error:
        explain(error, "celu_", celu_, (input, alpha))


def selu_(input: Tensor) -> Tensor:
    """`selu` in place.

    >>> gl.nn.functional.selu_(gl.tensor([-1.0, 1.0]))
    tensor([-1.1113,  1.0507])
    """
    return update("selu_", input, selu)


_above = threshold


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """`threshold` in place.

    >>> gl.nn.functional.threshold_(gl.tensor([-1.0, 1.0]), 0.0, 9.0)
    tensor([9., 1.])
    """
    try:
        return update("threshold_", input, _above, threshold, value)
    except Exception as error:
        explain(error, "threshold_", threshold_, (input, threshold, value))
