"""Reductions and normalisations of the elements that a mask keeps, by PyTorch's names: `gradlab.masked.sum(x, 1, mask=m)`.

A mask is a bool tensor that broadcasts to the input, of no more dimensions than it; True keeps an element. What it leaves out stands for
the reduction's identity: 0 in a sum, -inf in a maximum. Every function is made of rows: the identity is filled in, the rest is the
function of that name without a mask. dtype: that of the result; integers are added up and multiplied in int64. """

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gradlab.autograd.base import Differentiable
from gradlab.dtype import BOOL, COMPLEX, FLOAT32, FLOATING, INEXACT, INT64, as_numpy, from_numpy, iinfo, needs_floating as _needs_floating
from gradlab.named_errors import named_functions
from gradlab.spec import ShapeError, normalize_dim, normalize_dims
from gradlab.tensor.matrix_norms import vector_norm as _vector_norm
from gradlab.tensor.missing_names import absent as _absent
from gradlab.tensor.rounding import rounds_once

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp", "logsumexp", "mean", "median", "norm", "normalize",
    "prod", "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip


def _mask(name: str, input: Any, mask: Any) -> Any:
    """The mask, as of the input's shape."""
    if not isinstance(input, Differentiable):
        raise TypeError(f"masked.{name}: takes a tensor, not {type(input).__name__}")
    if not isinstance(mask, Differentiable):
        raise TypeError(f"masked.{name}: a mask is a tensor of bool, not {type(mask).__name__}")
    if len(mask._array.shape) > len(input._array.shape):
        raise ShapeError(f"masked.{name}: a mask of shape {mask._array.shape} has more dimensions than the input, {input._array.shape}")
    kept: Any = mask if mask._array.dtype == BOOL else mask.to(BOOL)  # type: ignore[attr-defined]
    return kept.expand(input._array.shape) if kept._array.shape != input._array.shape else kept


def _filled(name: str, input: Any, mask: Any, identity: float) -> Any:
    """The input with the identity in place of what the mask leaves out; of integers infinity is the end of their range."""
    if mask is None:
        if not isinstance(input, Differentiable):
            raise TypeError(f"masked.{name}: takes a tensor, not {type(input).__name__}")
        return input
    kept = _mask(name, input, mask)
    if math.isinf(identity) and input._array.dtype not in INEXACT:
        ends = (0, 1) if input._array.dtype == BOOL else (iinfo(input._array.dtype).min, iinfo(input._array.dtype).max)
        identity = ends[identity > 0]
    return input.masked_fill(~kept, identity)


def _dims(input: Any, dim: Any) -> tuple[int, ...]:
    return normalize_dims(dim, len(input._array.shape))


def _counted(input: Any, dtype: Any) -> Any:
    """The dtype of sums and products."""
    return as_numpy(dtype) if dtype is not None else input._array.dtype if input._array.dtype in INEXACT else INT64


def _given(input: Any, dtype: Any) -> Any:
    return input._array.dtype if dtype is None else as_numpy(dtype)


@rounds_once
def sum(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """The sum over `dim` (default: all) of what the mask keeps; 0 of nothing.

    >>> gl.masked.sum(gl.tensor([1.0, 2.0, 4.0]), mask=gl.tensor([True, False, True]))
    tensor(5.)
    """
    x = _filled("sum", input, mask, 0)
    return x.sum(_dims(x, dim), keepdim=bool(keepdim), dtype=_counted(x, dtype)) if x.dim() else x.to(_counted(x, dtype))


@rounds_once
def prod(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """The product over `dim` (default: all) of what the mask keeps; 1 of nothing.

    >>> gl.masked.prod(gl.tensor([1.0, 2.0, 4.0]), mask=gl.tensor([True, False, True]))
    tensor(4.)
    """
    x = _filled("prod", input, mask, 1)
    found: Any = x.to(_counted(x, dtype))
    for d in reversed(_dims(x, dim)):
        found = found.prod(d, keepdim=bool(keepdim))
    return found


@rounds_once
def cumsum(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Running sums along `dim`; what the mask leaves out adds nothing.

    >>> gl.masked.cumsum(gl.tensor([1.0, 2.0, 4.0]), 0, mask=gl.tensor([True, False, True]))
    tensor([1., 1., 5.])
    """
    kind = _given(input, dtype)
    return _filled("cumsum", input, mask, 0).cumsum(dim, dtype=kind).to(kind)


@rounds_once
def cumprod(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Running products along `dim`; what the mask leaves out counts as 1.

    >>> gl.masked.cumprod(gl.tensor([1.0, 2.0, 4.0]), 0, mask=gl.tensor([True, False, True]))
    tensor([1., 1., 4.])
    """
    kind = _given(input, dtype)
    return _filled("cumprod", input, mask, 1).cumprod(dim, dtype=kind).to(kind)


def _extreme(name: str, input: Any, dim: Any, keepdim: bool, dtype: Any, mask: Any, identity: float) -> Any:
    x = _filled(name, input, mask, identity)
    return getattr(x, name)(_dims(x, dim), keepdim=bool(keepdim)).to(_given(input, dtype))


def amax(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """The largest element over `dim` (default: all) that the mask keeps; -inf (the smallest integer) of nothing.

    >>> gl.masked.amax(gl.tensor([1.0, 5.0, 4.0]), mask=gl.tensor([True, False, True]))
    tensor(4.)
    """
    return _extreme("amax", input, dim, keepdim, dtype, mask, -math.inf)


def amin(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """The smallest element over `dim` (default: all) that the mask keeps; inf (the largest integer) of nothing.

    >>> gl.masked.amin(gl.tensor([3.0, 1.0, 4.0]), mask=gl.tensor([True, False, True]))
    tensor(3.)
    """
    return _extreme("amin", input, dim, keepdim, dtype, mask, math.inf)


def argmax(input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """Where the largest element stands that the mask keeps, in the input's dtype (as in PyTorch) unless `dtype` is given.

    >>> gl.masked.argmax(gl.tensor([1, 5, 4]), mask=gl.tensor([True, False, True]))
    tensor(2)
    """
    return _filled("argmax", input, mask, -math.inf).argmax(dim, keepdim=bool(keepdim)).to(_given(input, dtype))


def argmin(input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """Where the smallest element stands that the mask keeps, in the input's dtype (as in PyTorch) unless `dtype` is given.

    >>> gl.masked.argmin(gl.tensor([3, 1, 4]), mask=gl.tensor([True, False, True]))
    tensor(0)
    """
    return _filled("argmin", input, mask, math.inf).argmin(dim, keepdim=bool(keepdim)).to(_given(input, dtype))


def _count(name: str, input: Any, dim: Any, mask: Any) -> Any:
    """How many elements there are over `dim`, whose sizes stay as 1."""
    kept = input.new_ones(input._array.shape, dtype=BOOL) if mask is None else _mask(name, input, mask)
    return kept.sum(_dims(input, dim), keepdim=True) if input.dim() else kept.to(INT64)


@rounds_once
def mean(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """The mean over `dim` (default: all) of what the mask keeps; NaN of nothing. ValueError for integers, unless `dtype` is floating point.

    >>> gl.masked.mean(gl.tensor([1.0, 2.0, 4.0]), mask=gl.tensor([True, False, True]))
    tensor(2.5000)
    """
    kind = _given(input, dtype)
    if kind not in INEXACT:
        raise ValueError(f"masked.mean: a mean is of a floating point type, not {from_numpy(kind)}; give dtype=")
    total: Any = sum(input, dim, keepdim=True, dtype=kind, mask=mask)
    found = total / _count("mean", input, dim, mask)
    return found if keepdim or not input.dim() else found.squeeze(_dims(input, dim))


@rounds_once
def median(input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """The median along `dim` of what the mask keeps, of two middle elements the lower one; NaN of nothing.

    ValueError for integers where the mask leaves nothing.

    >>> gl.masked.median(gl.tensor([1.0, 9.0, 4.0]), mask=gl.tensor([True, False, True]))
    tensor(1.)
    """
    kind = _given(input, dtype)
    if input._array.dtype in COMPLEX:
        raise TypeError(_needs_floating("masked.median", input.dtype))
    exact = input._array.dtype not in FLOATING
    found: Any = _filled("median", input.to(FLOAT32) if exact else input, mask, math.nan).nanmedian(dim, keepdim)[0]
    if exact:
        if bool(found.isnan().any()):
            raise ValueError("masked.median: integers have no median where the mask leaves nothing; give floating point numbers")
        return found.to(kind)
    return found


@rounds_once
def logsumexp(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """log Σ e^x over `dim` (default: all) of what the mask keeps; -inf of nothing.

    >>> gl.masked.logsumexp(gl.tensor([0.0, 2.0, 0.0]), mask=gl.tensor([True, False, True]))
    tensor(0.6931)
    """
    x = _filled("logsumexp", input, mask, -math.inf)
    return x.logsumexp(_dims(x, dim) if x.dim() else 0, keepdim=bool(keepdim)).to(_given(input, dtype))


@rounds_once
def logaddexp(input: Tensor, other: Tensor, *, dtype: Any = None, input_mask: Any = None, other_mask: Any = None) -> Tensor:
    """log(e^a + e^b), each -inf where its mask leaves it out.

    >>> gl.masked.logaddexp(gl.tensor([0.0, 1.0]), gl.tensor([0.0, 2.0]), other_mask=gl.tensor([True, False]))
    tensor([0.6931, 1.0000])
    """
    a, b = _filled("logaddexp", input, input_mask, -math.inf), _filled("logaddexp", other, other_mask, -math.inf)
    return a.logaddexp(b).to(_given(input, dtype))


@rounds_once
def norm(input: Tensor, ord: float | None = 2.0, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """The vector norm over `dim` (default: all) of what the mask keeps; 0 of nothing, inf where ord is -inf.

    >>> gl.masked.norm(gl.tensor([3.0, 2.0, 4.0]), mask=gl.tensor([True, False, True]))
    tensor(5.)
    """
    order = 2.0 if ord is None else float(ord)
    x = _filled("norm", input, mask, math.inf if order == -math.inf else 0)
    return _vector_norm(x, order, _dims(x, dim), bool(keepdim), dtype=_given(input, dtype))


def _spread(name: str, input: Any, dim: Any, unbiased: Any, correction: Any, keepdim: bool, dtype: Any, mask: Any) -> Any:
    """The variance: squares of what the mask keeps about its mean, divided by their number less the correction."""
    if unbiased is not None and correction is not None:
        raise ValueError(f"masked.{name}: unbiased and correction are one argument; give one of them")
    less = 1.0 if correction is None and unbiased is None else float(unbiased if correction is None else correction)
    kind = _given(input, dtype)
    kind = kind if kind in INEXACT else FLOAT32
    count = _count(name, input, dim, mask)
    about = input - sum(input, dim, keepdim=True, dtype=kind, mask=mask) / count
    total: Any = sum(about * about.conj() if about.is_complex() else about * about, dim, keepdim=True, dtype=kind, mask=mask)
    found = (total / ((count - less).clamp(min=0) if less else count)).to(kind)
    return found if keepdim or not input.dim() else found.squeeze(_dims(input, dim))


@rounds_once
def var(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, *, correction: float | None = None, keepdim: bool = False,
    dtype: Any = None, mask: Any = None,
) -> Tensor:  # fmt: skip
    """The variance over `dim` (default: all) of what the mask keeps, the sum of squares divided by their number less `correction` (1, or 0
    where unbiased is False).

    >>> gl.masked.var(gl.tensor([1.0, 9.0, 3.0]), mask=gl.tensor([True, False, True]))
    tensor(2.)
    """
    return _spread("var", input, dim, unbiased, correction, keepdim, dtype, mask)


@rounds_once
def std(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, *, correction: float | None = None, keepdim: bool = False,
    dtype: Any = None, mask: Any = None,
) -> Tensor:  # fmt: skip
    """The square root of `var`.

    >>> gl.masked.std(gl.tensor([1.0, 9.0, 3.0]), mask=gl.tensor([True, False, True]))
    tensor(1.4142)
    """
    return _spread("std", input, dim, unbiased, correction, keepdim, dtype, mask).sqrt()


@rounds_once
def softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Softmax along `dim` over what the mask keeps, 0 elsewhere; NaN where it keeps nothing.

    >>> gl.masked.softmax(gl.tensor([1.0, 9.0, 1.0]), 0, mask=gl.tensor([True, False, True]))
    tensor([0.5000, 0.0000, 0.5000])
    """
    return _filled("softmax", input, mask, -math.inf).softmax(dim, dtype=dtype)


@rounds_once
def log_softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """The logarithm of `softmax`.

    >>> gl.masked.log_softmax(gl.tensor([1.0, 9.0, 1.0]), 0, mask=gl.tensor([True, False, True]))
    tensor([-0.6931,    -inf, -0.6931])
    """
    return _filled("log_softmax", input, mask, -math.inf).log_softmax(dim, dtype=dtype)


@rounds_once
def softmin(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """`softmax` of -x.

    >>> gl.masked.softmin(gl.tensor([1.0, 0.0, 1.0]), 0, mask=gl.tensor([True, False, True]))
    tensor([0.5000, 0.0000, 0.5000])
    """
    return (-_filled("softmin", input, mask, math.inf)).softmax(dim, dtype=dtype)


@rounds_once
def normalize(input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None, mask: Any = None) -> Tensor:
    """What the mask keeps, divided by its norm along `dim` (at least eps); 0 elsewhere.

    >>> gl.masked.normalize(gl.tensor([3.0, 2.0, 4.0]), 2.0, 0, mask=gl.tensor([True, False, True]))
    tensor([0.6000, 0.0000, 0.8000])
    """
    normalize_dim(dim, len(input._array.shape))
    length: Any = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return _filled("normalize", input, mask, 0) / length.clamp(min=eps)


def __getattr__(name: str) -> Any:
    raise _absent("gradlab.masked", name)


named_functions(__name__)
