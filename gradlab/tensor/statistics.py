"""Statistics over dimensions: standard deviation, covariance, and sums that pass over NaN."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.autograd.record import bind
from gradlab.dtype import COMPLEX, FLOAT32, FLOAT64, FLOATING, INEXACT, get_default_dtype, real_of
from gradlab.named_errors import named_functions
from gradlab.spec import none
from gradlab.tensor import reduction
from gradlab.tensor.common_arguments import either, into
from gradlab.tensor.complex import complex
from gradlab.tensor.norms import dims_of, floating, least
from gradlab.tensor.rounding import rounds_once

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["corrcoef", "cov", "nanmean", "nansum", "std", "std_mean", "var_mean"]

_root = bind(ops.math.root)
Dims = Any  # None, int or tuple of int


# ---------------------------------------------------------------- spread


def _correction(unbiased: bool | None, correction: float | None) -> float:
    if unbiased is not None:
        if correction is not None:
            raise TypeError(f"takes unbiased or correction, not both: unbiased={unbiased}, correction={correction}")
        return 1 if unbiased else 0
    return 1 if correction is None else correction


@rounds_once(autocast="float32")
def std(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None, axis: Any =
    None, keepdims: bool | None = None, out: Any = None,
) -> Tensor:  # fmt: skip
    """Standard deviation over `dim`, the root of `var`; its gradient where it is 0 is 0.

    >>> gl.std(gl.tensor([1.0, 2.0, 3.0]))
    tensor(1.)
    """
    dim = dim if axis is None else either("std", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    floating("std", input, True)
    divisor = _correction(unbiased, correction)
    if input._array.dtype in COMPLEX:
        found = _root(reduction.var(input, dim, correction=divisor, keepdim=keepdim))
        return found if out is None else into("std", out, found)
    array = input._array
    eager = type(array) is np.ndarray and current().tracer is None
    # Where nobody looks at values, squares are always those of a wider type.
    found = _root(reduction.var(input if eager else _widened(input), dim, correction=divisor, keepdim=keepdim))
    if eager and array.size and found._array.size:
        low, high = found._array.min(), found._array.max()
        if not (least(array.dtype, 2.0) < low and high < math.inf):
            top: Any = 1.0 if array.dtype == FLOAT32 else _largest(input, dim)
            found = _root(reduction.var(_widened(input) / top, dim, correction=divisor, keepdim=True)) * top
            found = found if keepdim else found.squeeze(dims_of("std", input, dim))
    found = found if found._array.dtype == array.dtype else found.to(array.dtype)
    return found if out is None else into("std", out, found)


def _widened(x: Tensor) -> Any:
    return x.to(FLOAT64) if x._array.dtype == FLOAT32 else x


def _largest(x: Any, dim: Dims) -> Any:
    """The power of two below the largest size over `dim`, by which dividing rounds nothing; 1 where there is none to divide by."""
    top = reduction.amax(x.detach().abs(), dims_of("std", x, dim), True)
    return top.masked_fill((top == 0) | ~top.isfinite(), 1).log2().floor().exp2()


def _mean_of(input: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    return reduction.mean(input, None if none(dim) else dim, keepdim)


@rounds_once(autocast="float32")
def var_mean(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None, axis: Any =
    None, keepdims: bool | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Variance and mean over `dim`.

    >>> gl.var_mean(gl.tensor([1.0, 2.0, 3.0]))
    (tensor(1.), tensor(2.))
    """
    dim = dim if axis is None else either("var_mean", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    floating("var_mean", input, True)
    return reduction.var(input, dim, correction=_correction(unbiased, correction), keepdim=keepdim), _mean_of(input, dim, keepdim)


@rounds_once(autocast="float32")
def std_mean(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None, axis: Any =
    None, keepdims: bool | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Standard deviation and mean over `dim`.

    >>> gl.std_mean(gl.tensor([1.0, 2.0, 3.0]))
    (tensor(1.), tensor(2.))
    """
    dim = dim if axis is None else either("std_mean", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return std(input, dim, unbiased, keepdim, correction=correction), _mean_of(input, dim, keepdim)


# ---------------------------------------------------------------- sums that pass over NaN


def nansum(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None, axis: Any = None, keepdims: bool | None = None, out: Any
    = None,
) -> Tensor:  # fmt: skip
    """Sum over `dim`, NaN counting as 0.

    >>> gl.nansum(gl.tensor([1.0, float("nan")]))
    tensor(1.)
    """
    dim = dim if axis is None else either("nansum", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    if input._array.dtype in COMPLEX:
        raise RuntimeError("nansum: is not defined for complex numbers; use x.masked_fill(x.isnan(), 0).sum()")
    if input._array.dtype in FLOATING:
        input = input.masked_fill(input.isnan(), 0)
    result = reduction.sum(input, dim, keepdim, dtype=dtype)
    return result if out is None else into("nansum", out, result)


@rounds_once(autocast="float32")
def nanmean(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None, axis: Any = None, keepdims: bool | None = None, out: Any
    = None,
) -> Tensor:  # fmt: skip
    """Mean over `dim` of the elements that are not NaN; NaN where there is none.

    >>> gl.nanmean(gl.tensor([1.0, float("nan")]))
    tensor(1.)
    """
    dim = dim if axis is None else either("nanmean", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    floating("nanmean", input)
    result = nansum(input, dim, keepdim, dtype=dtype) / reduction.sum(~input.isnan(), dim, keepdim)
    return result if out is None else into("nanmean", out, result)


# ---------------------------------------------------------------- covariance


@rounds_once
def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """Covariance matrix of the rows of `input`, (variables, observations) or (observations).

    fweights: how often each observation counts (integers); aweights: its importance (floating point). Both are vectors.

    >>> gl.cov(gl.tensor([[1.0, 2.0, 3.0]]))
    tensor(1.)
    """
    rank = len(input._array.shape)
    if rank > 2:
        raise RuntimeError(f"cov: at most two dimensions, not shape {input._array.shape}")
    x: Any = input if input._array.dtype in INEXACT else input.to(get_default_dtype())
    x = x.reshape((1, -1)) if rank < 2 else x
    n = x._array.shape[1]
    weight: Any = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        if given._array.shape != (n,):
            raise RuntimeError(f"cov: {name} is a vector of {n} numbers, one for each observation, not of shape {given._array.shape}")
        if (given._array.dtype in FLOATING) != (name == "aweights"):
            raise RuntimeError(f"cov: {name} has dtype {given.dtype}; fweights are integers, aweights floating point")
        if _negative(given):
            raise RuntimeError(f"cov: {name} cannot be negative")
        part = given.to(real_of(x._array.dtype))
        weight = part if weight is None else weight * part
    if weight is None:
        total: Any = n * 1.0
        centred = x - x.mean(1, keepdim=True) if n else x
        centred = centred - centred.detach().mean(1, keepdim=True) if n else x  # what the mean's rounding adds
        scaled, divisor = centred, max(n - correction, 0)
    else:
        total = weight.sum()
        centred = x - (x * weight).sum(1, keepdim=True) / total
        scaled = centred * weight
        loss = (weight * aweights.to(weight._array.dtype)).sum() / total if aweights is not None else 1.0
        divisor = (total - correction * loss).clamp(min=0)
    product = scaled @ centred.mH
    found = product / divisor if not isinstance(divisor, int) or divisor else product / x.new_zeros(())
    return found.squeeze((0, 1)) if x._array.shape[0] == 1 and rank < 2 else found.squeeze()


def _negative(weights: Any) -> bool:
    """Whether a weight is below 0, where values can be looked at: not in a trace or under vmap, and not by waiting for a GPU."""
    array = weights._array
    return isinstance(array, np.ndarray) and bool((array < 0).any())


@rounds_once
def corrcoef(input: Tensor) -> Tensor:
    """Matrix of the correlation coefficients of the rows of `input`, (variables, observations) or (observations).

    >>> gl.corrcoef(gl.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    if len(input._array.shape) == 2 and input.numel():
        input = input / _largest(input, 1)  # products of what is larger or smaller are none
    c: Any = cov(input)
    if not c._array.shape:
        return c / c
    deviation = _root(c.diagonal().real)
    found = c / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    if found._array.dtype in COMPLEX:
        return complex(found.real.clamp(-1, 1), found.imag.clamp(-1, 1))
    return found.clamp(-1, 1)


named_functions(__name__)


class StatisticsMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    std, nansum, nanmean, cov, corrcoef = std, nansum, nanmean, cov, corrcoef
