"""Comparison of whole tensors, and within a tolerance; infinities by sign."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.autograd.base import Differentiable
from gradlab.dtype import HALF, INEXACT, get_default_dtype
from gradlab.named_errors import named_functions
from gradlab.tensor.common_arguments import into

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["allclose", "equal", "isclose", "isneginf", "isposinf"]


def isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Whether |a - b| <= atol + rtol · |b|, element by element; equal infinities are close, NaNs only with `equal_nan`.

    Raises RuntimeError for different dtypes and negative tolerances.

    >>> gl.isclose(gl.tensor([1.0, 2.0]), gl.tensor([1.000001, 2.1]))
    tensor([ True, False])
    """
    for value in (input, other):
        if not isinstance(value, Differentiable):
            raise TypeError(f"isclose: two tensors, not {type(value).__name__}; use gradlab.tensor(...)")
    if input._array.dtype != other._array.dtype:
        raise RuntimeError(f"isclose: both tensors have one dtype, got {input.dtype} and {other.dtype}; convert one first")
    if rtol < 0 or atol < 0:
        raise RuntimeError(f"isclose: tolerances are not negative, got rtol={rtol}, atol={atol}")
    a: Any = input
    b: Any = other
    close = a == b
    if a._array.dtype in INEXACT:
        if equal_nan:
            close = close | (a.isnan() & b.isnan())
        if a._array.dtype in HALF:
            a, b = a.float(), b.float()
    elif rtol or atol:
        a, b = a.to(get_default_dtype()), b.to(get_default_dtype())
    if not rtol and not atol:
        return close
    gap = (a - b).abs()
    return close | (gap.isfinite() & (gap <= (b * rtol).abs() + atol))


def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether all elements are close, as a Python bool.

    >>> gl.allclose(gl.tensor([1.0]), gl.tensor([1.000001]))
    True
    """
    return bool(isclose(input, other, rtol, atol, equal_nan).all().item())


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape and elements, as a Python bool.

    >>> gl.equal(gl.ones(2), gl.ones(2))
    True
    """
    if not isinstance(other, Differentiable):
        raise TypeError(f"equal: two tensors, not a tensor and a {type(other).__name__}")
    return input._array.shape == other._array.shape and bool((input == other).all().item())


def isposinf(input: Tensor, *, out: Any = None) -> Tensor:
    """Whether positive infinity.

    >>> gl.isposinf(gl.tensor([1.0, float("inf")]))
    tensor([False,  True])
    """
    return input.isinf() & (input > 0) if out is None else into("isposinf", out, input.isinf() & (input > 0))


def isneginf(input: Tensor, *, out: Any = None) -> Tensor:
    """Whether negative infinity.

    >>> gl.isneginf(gl.tensor([1.0, -float("inf")]))
    tensor([False,  True])
    """
    return input.isinf() & (input < 0) if out is None else into("isneginf", out, input.isinf() & (input < 0))


named_functions(__name__)


class ClosenessMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    allclose, equal, isclose, isneginf, isposinf = allclose, equal, isclose, isneginf, isposinf
