"""Reductions: sums, means, extremes, truth. `dim` is None (all), one dimension or a tuple; negative counts from the end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import logical_and

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.autograd.record import bind, wrap
from gradlab.dtype import COMPLEX, FLOATING, HALF, INEXACT, INT64, UINT8, get_default_dtype, needs_floating
from gradlab.named_errors import explain, flag, named_functions
from gradlab.spec import as_number, count, none, normalize_dim, normalize_dims
from gradlab.tensor.common_arguments import either, into, required
from gradlab.tensor.comparison import tensors_only
from gradlab.tensor.creation import tensor
from gradlab.tensor.rounding import rounds_once
from gradlab.tensor.where import maximum, minimum

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["all", "amax", "amin", "any", "argmax", "argmin", "count_nonzero", "logsumexp", "max", "mean", "min", "sum", "var"]

_rows = ops.reduction
_sum, _mean, _amax, _amin, _all, _any = map(bind, (_rows.sum_, _rows.mean, _rows.amax, _rows.amin, _rows.all_, _rows.any_))
_add, _sub, _exp, _log = map(bind, (ops.elementwise.add, ops.elementwise.sub, ops.elementwise.exp, ops.elementwise.log))
_about_mean, _var = bind(_rows.about_mean), bind(_rows.var)
_max, _min, _argmax, _argmin = map(bind, (_rows.max_, _rows.min_, _rows.argmax, _rows.argmin))
Dims = Any  # None, int or tuple of int


_ALL = tuple(tuple(range(rank)) for rank in range(9))  # every dimension, for the commonest ranks


def _dims(name: str, input: Tensor, dim: Dims) -> tuple[int, ...]:
    rank = len(input._array.shape)
    if dim is None and rank < 9:
        return _ALL[rank]
    if type(dim) is int and -rank <= dim < rank:
        return (dim % rank,)
    try:
        return normalize_dims(dim, rank)
    except (IndexError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


def sum(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None, axis: Any = None, keepdims: bool | None = None, out: Any
    = None,
) -> Tensor:  # fmt: skip
    """Sum over `dim`; integers and truth values add up as int64. The sum of nothing is 0.

    >>> gl.sum(gl.tensor([[1, 2], [3, 4]]), dim=0)
    tensor([4, 6])
    """
    try:
        dim = dim if axis is None else either("sum", dim, None, axis)
        keepdim = keepdim if keepdims is None else keepdims
        if keepdim is not False and keepdim is not True:
            keepdim = flag("sum", "keepdim", keepdim)
        dims = _dims("sum", input, dim)
        if dtype is not None:
            input = input.to(dtype=dtype)
            if input._array.dtype in HALF and out is None:  # also under autocast, which computes it in float32
                return _sum(input, dim=dims, keepdim=keepdim).to(dtype=dtype)
        elif input._array.dtype not in INEXACT:
            input = input.to(INT64)
        return _sum(input, dim=dims, keepdim=keepdim) if out is None else into("sum", out, _sum(input, dim=dims, keepdim=keepdim))
    except Exception as error:
        explain(error, "sum", sum, (input, dim, keepdim), {"dtype": dtype, "axis": axis, "keepdims": keepdims, "out": out})


def mean(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None, axis: Any = None, keepdims: bool | None = None, out: Any
    = None,
) -> Tensor:  # fmt: skip
    """Mean over `dim`, of floating point (RuntimeError for integers: convert first). The mean of nothing is NaN.

    >>> gl.mean(gl.tensor([1.0, 2.0, 6.0]))
    tensor(3.)
    """
    try:
        dim = dim if axis is None else either("mean", dim, None, axis)
        keepdim = keepdim if keepdims is None else keepdims
        if keepdim is not False and keepdim is not True:
            keepdim = flag("mean", "keepdim", keepdim)
        if dtype is not None:
            input = input.to(dtype=dtype)
        if input._array.dtype not in INEXACT:
            raise RuntimeError(needs_floating("mean", input.dtype, way="convert with .float() or pass dtype="))
        result = _mean(input, dim=_dims("mean", input, dim), keepdim=keepdim)
        return result if out is None else into("mean", out, result)
    except Exception as error:
        explain(error, "mean", mean, (input, dim, keepdim), {"dtype": dtype, "axis": axis, "keepdims": keepdims, "out": out})


def amax(
    input: Tensor, dim: Dims = (), keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None, out: Any = None
) -> Tensor:  # fmt: skip
    """Largest element over `dim`; equal ones share the gradient.

    >>> gl.amax(gl.tensor([[1, 2], [3, 4]]), dim=1)
    tensor([2, 4])
    """
    try:
        dim = dim if axis is None else either("amax", dim, (), axis)
        keepdim = keepdim if keepdims is None else keepdims
        if keepdim is not False and keepdim is not True:
            keepdim = flag("amax", "keepdim", keepdim)
        result = _amax(input, dim=_dims("amax", input, dim), keepdim=keepdim)
        return result if out is None else into("amax", out, result)
    except Exception as error:
        explain(error, "amax", amax, (input, dim, keepdim), {"axis": axis, "keepdims": keepdims, "out": out})


def amin(
    input: Tensor, dim: Dims = (), keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None, out: Any = None
) -> Tensor:  # fmt: skip
    """Smallest element over `dim`; equal ones share the gradient.

    >>> gl.amin(gl.tensor([[1, 2], [3, 4]]), dim=1)
    tensor([1, 3])
    """
    dim = dim if axis is None else either("amin", dim, (), axis)
    keepdim = keepdim if keepdims is None else keepdims
    result = _amin(input, dim=_dims("amin", input, dim), keepdim=keepdim)
    return result if out is None else into("amin", out, result)


def max(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None, axis: Any = None, keepdims: bool | None = None,
    out: Any = None,
) -> Any:  # fmt: skip
    """Without `dim` the largest element; with `dim` a pair (values, indices); with a second tensor `maximum`.

    >>> gl.max(gl.tensor([1, 9, 2]), dim=0)
    max(values=tensor(9), indices=tensor(1))
    """
    try:
        dim = dim if axis is None else either("max", dim, None, axis)
        dim = dim if other is None else other
        keepdim = keepdim if keepdims is None else keepdims
        if keepdim is not False and keepdim is not True:
            keepdim = flag("max", "keepdim", keepdim)
        if out is not None:
            return into("max" if isinstance(dim, int) else "max.into", out, max(input, dim, keepdim))
        tensors_only("max", input)
        if dim is None:
            return _amax(input, dim=_dims("max", input, None), keepdim=False)
        if isinstance(dim, Differentiable):
            return maximum(input, dim)  # type: ignore[arg-type]
        return _max(input, dim=normalize_dim(dim, len(input._array.shape)), keepdim=keepdim)
    except Exception as error:
        explain(error, "max", max, (input, dim, keepdim), {"other": other, "axis": axis, "keepdims": keepdims, "out": out})


def min(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None, axis: Any = None, keepdims: bool | None = None,
    out: Any = None,
) -> Any:  # fmt: skip
    """Without `dim` the smallest element; with `dim` a pair (values, indices); with a second tensor `minimum`.

    >>> gl.min(gl.tensor([3, 1, 2]), dim=0)
    min(values=tensor(1), indices=tensor(1))
    """
    try:
        dim = dim if axis is None else either("min", dim, None, axis)
        dim = dim if other is None else other
        keepdim = keepdim if keepdims is None else keepdims
        if keepdim is not False and keepdim is not True:
            keepdim = flag("min", "keepdim", keepdim)
        if out is not None:
            return into("min" if isinstance(dim, int) else "min.into", out, min(input, dim, keepdim))
        tensors_only("min", input)
        if dim is None:
            return _amin(input, dim=_dims("min", input, None), keepdim=False)
        if isinstance(dim, Differentiable):
            return minimum(input, dim)  # type: ignore[arg-type]
        return _min(input, dim=normalize_dim(dim, len(input._array.shape)), keepdim=keepdim)
    except Exception as error:
        explain(error, "min", min, (input, dim, keepdim), {"other": other, "axis": axis, "keepdims": keepdims, "out": out})


def argmax(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None, out: Any = None
) -> Tensor:  # fmt: skip
    """Index (int64) of the first largest element, along `dim` or in the flattened tensor.

    >>> gl.argmax(gl.tensor([1, 9, 2]))
    tensor(1)
    """
    try:
        dim = dim if axis is None else either("argmax", dim, None, axis)
        keepdim = keepdim if keepdims is None else keepdims
        if keepdim is not False and keepdim is not True:
            keepdim = flag("argmax", "keepdim", keepdim)
        return _position(_argmax, input, dim, keepdim) if out is None else into("argmax", out, _position(_argmax, input, dim, keepdim))
    except Exception as error:
        explain(error, "argmax", argmax, (input, dim, keepdim), {"axis": axis, "keepdims": keepdims, "out": out})


def argmin(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None, out: Any = None
) -> Tensor:  # fmt: skip
    """Index (int64) of the first smallest element, along `dim` or in the flattened tensor.

    >>> gl.argmin(gl.tensor([3, 1, 2]))
    tensor(1)
    """
    try:
        dim = dim if axis is None else either("argmin", dim, None, axis)
        keepdim = keepdim if keepdims is None else keepdims
        if keepdim is not False and keepdim is not True:
            keepdim = flag("argmin", "keepdim", keepdim)
        return _position(_argmin, input, dim, keepdim) if out is None else into("argmin", out, _position(_argmin, input, dim, keepdim))
    except Exception as error:
        explain(error, "argmin", argmin, (input, dim, keepdim), {"axis": axis, "keepdims": keepdims, "out": out})


def _position(row: Any, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    rank = len(input._array.shape)
    if dim is None:
        found = row(input.reshape(-1), dim=0, keepdim=False)
        return found.reshape((1,) * rank) if keepdim else found
    return row(input, dim=normalize_dim(dim, rank), keepdim=keepdim)


def all(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None, out: Any = None
) -> Tensor:  # fmt: skip
    """Whether every element is nonzero; true of nothing. `dim=()` asks each by itself. Of uint8 the result is uint8, as in PyTorch.

    >>> gl.all(gl.tensor([1, 0]))
    tensor(False)
    """
    dim = dim if axis is None else either("all", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    input = input if isinstance(input, Differentiable) else tensor(input)
    result = input.ne(0) if none(dim) else _all(input, dim=_dims("all", input, dim), keepdim=keepdim)
    if input._array.dtype == UINT8:
        result = result.to(UINT8)
    return result if out is None else into("all", out, result)


def any(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None, out: Any = None
) -> Tensor:  # fmt: skip
    """Whether some element is nonzero; false of nothing. `dim=()` asks each by itself. Of uint8 the result is uint8, as in PyTorch.

    >>> gl.any(gl.tensor([1, 0]))
    tensor(True)
    """
    try:
        dim = dim if axis is None else either("any", dim, None, axis)
        keepdim = keepdim if keepdims is None else keepdims
        if keepdim is not False and keepdim is not True:
            keepdim = flag("any", "keepdim", keepdim)
        input = input if isinstance(input, Differentiable) else tensor(input)
        result = input.ne(0) if none(dim) else _any(input, dim=_dims("any", input, dim), keepdim=keepdim)
        if input._array.dtype == UINT8:
            result = result.to(UINT8)
        return result if out is None else into("any", out, result)
    except Exception as error:
        explain(error, "any", any, (input, dim, keepdim), {"axis": axis, "keepdims": keepdims, "out": out})


@rounds_once(autocast="float32")
def var(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = 1, axis: Any =
    None, keepdims: bool | None = None, out: Any = None,
) -> Tensor:  # fmt: skip
    """Variance over `dim`: squared distance from the mean, divided by n - correction (NaN or inf where that is not positive).

    >>> gl.var(gl.tensor([1.0, 2.0, 3.0]))
    tensor(1.)
    """
    dim = dim if axis is None else either("var", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None:
        if correction not in (1, None):
            raise TypeError(f"var: takes unbiased or correction, not both: unbiased={unbiased}, correction={correction}")
        correction = 1 if unbiased else 0
    if correction is None:
        correction = 1
    if input._array.dtype in COMPLEX:  # of the distances from a complex mean
        parts = (var(x, dim, keepdim=keepdim, correction=correction) for x in (input.real, input.imag))
        result = next(parts) + next(parts)
        return result if out is None else into("var", out, result)
    dims = _dims("var", input, dim)
    n = count([input._array.shape[d] for d in dims])
    correction = as_number(correction)
    divisor = (n - correction) * 1.0 if n > correction else 0.0
    if dims and type(input._array) is np.ndarray and input._array.dtype in FLOATING and not current().special:
        result = _var(input, dim=dims, keepdim=keepdim, divisor=divisor)
        return result if out is None else into("var", out, result)
    centred = input - mean(input, dims, keepdim=True) if dims else input - input
    squares, rest = _sum(centred * centred, dim=dims, keepdim=keepdim), _sum(centred.detach(), dim=dims, keepdim=keepdim)
    result = _about_mean(squares, rest, n=n, divisor=divisor)
    return result if out is None else into("var", out, result)


@rounds_once(autocast="float32")
def logsumexp(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None, out: Any = None
) -> Tensor:  # fmt: skip
    """log(sum(exp(x))) over `dim`, computed from the maximum so that nothing overflows; -inf of only -inf.

    >>> gl.logsumexp(gl.tensor([1000.0, 1000.0]), dim=0)
    tensor(1000.6932)
    """
    dim = dim if dim is not None and axis is None else required("logsumexp", dim, axis)
    keepdim = keepdim if keepdims is None else keepdims
    if out is not None:
        return into("logsumexp", out, logsumexp(input, dim, keepdim))
    dims = _dims("logsumexp", input, dim)
    if input._array.dtype not in INEXACT:
        input = input.to(get_default_dtype())
    if 0 in input._array.shape and any_empty(input, dims):
        return sum(input.exp(), dims, keepdim).log()
    top = _amax((input if input._edge is None else input.detach()).real, dim=dims, keepdim=True)
    if type(top._array) is np.ndarray and not current().special and logical_and.reduce(np.isfinite(top._array), None):
        found: Any = _log(_sum(_exp(_sub(input, top)), dim=dims, keepdim=keepdim))
        made: Tensor = _add(found, top if keepdim else wrap(top._array.reshape(found._array.shape)))
        return made
    # A total below 1 is that of nothing but -inf: it has no gradient.
    total: Any = sum((input - top.masked_fill(top.isinf(), 0)).exp(), dims, True)
    found = (total.masked_fill(top == -math.inf, 1) if total.is_complex() else total.clamp(min=1)).log() + top
    return found if keepdim or not dims else found.squeeze(dims)


def count_nonzero(input: Tensor, dim: Any = None, *more: int, axis: Any = None) -> Tensor:
    """Number (int64) of nonzero elements over `dim`: a number, a tuple, or several numbers.

    >>> gl.count_nonzero(gl.tensor([1, 0, 2]))
    tensor(2)
    """
    dim = (dim, *more) if more else dim if axis is None else either("count_nonzero", dim, None, axis)
    return input.ne(0).sum(dim)


def any_empty(input: Tensor, dims: tuple[int, ...]) -> bool:
    """Whether a reduction over `dims` has no elements."""
    return 0 in [input._array.shape[d] for d in dims]


named_functions(__name__)


class ReductionMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    sum, mean, amax, amin, max, min, argmax, argmin = sum, mean, amax, amin, max, min, argmax, argmin
    all, any, var, logsumexp, count_nonzero = all, any, var, logsumexp, count_nonzero


