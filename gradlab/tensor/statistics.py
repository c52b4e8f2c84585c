"""Statistics over dimensions: standard deviation, norms, medians, quantiles, covariance, and sums that pass over NaN."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind
from gradlab.dtype import FLOATING, HALF, float32
from gradlab.spec import ShapeError, count, normalize_dim, normalize_dims
from gradlab.tensor import reduction
from gradlab.tensor.alias import either, into

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "aminmax", "corrcoef", "cov", "dist", "median", "nanmean", "nanmedian", "nanquantile", "nansum", "norm", "quantile", "renorm", "std",
    "std_mean", "var_mean",
]  # fmt: skip

_median, _median_of_all, _root = map(bind, (ops.scan.median, ops.scan.median_of_all, ops.math.root))
Dims = Any  # None, int or tuple of int


class Extremes(NamedTuple):
    """What `aminmax` returns."""

    min: Any
    max: Any


def _dims(name: str, input: Tensor, dim: Dims) -> tuple[int, ...]:
    try:
        return normalize_dims(dim, len(input._array.shape))
    except (IndexError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


def _floating(name: str, input: Tensor) -> Tensor:
    if input._array.dtype not in FLOATING:
        raise RuntimeError(f"{name}: needs floating point, got {input.dtype}; convert with .float()")
    return input


# ---------------------------------------------------------------- spread


def _correction(unbiased: bool | None, correction: float | None) -> float:
    if unbiased is not None:
        return 1 if unbiased else 0
    return 1 if correction is None else correction


def std(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None, axis: Any =
    None, keepdims: bool | None = None, out: Any = None,
) -> Tensor:  # fmt: skip
    """Standard deviation over `dim`, the root of `var`; its gradient where it is 0 is 0."""
    dim = dim if axis is None else either("std", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    _floating("std", input)
    variance = reduction.var(input, dim, correction=_correction(unbiased, correction), keepdim=keepdim)
    return _root(variance) if out is None else into("std", out, _root(variance))


def _mean_of(input: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    return reduction.mean(input, None if dim == () else dim, keepdim)


def var_mean(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None, axis: Any =
    None, keepdims: bool | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Variance and mean over `dim`."""
    dim = dim if axis is None else either("var_mean", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    _floating("var_mean", input)
    return reduction.var(input, dim, correction=_correction(unbiased, correction), keepdim=keepdim), _mean_of(input, dim, keepdim)


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


# ---------------------------------------------------------------- norms


def vector_norm(input: Tensor, ord: float, dims: tuple[int, ...], keepdim: bool, *, out: Any = None) -> Tensor:
    """(Σ |x|^ord)^(1/ord) over normalised `dims`; the largest or smallest |x| for ±inf, the number of nonzeros for 0.

    The gradient is 0 where the norm is 0. Half types are computed in float32.
    """
    dtype = input._array.dtype
    x: Any = input.float() if dtype in HALF else input
    if ord == 2:
        found = _root(reduction.sum(x * x, dims, keepdim)) if dims else x.abs()
    elif ord == 1:
        found = reduction.sum(x.abs(), dims, keepdim) if dims else x.abs()
    elif ord == 0:
        ones = x.sign().abs()  # a comparison would have no graph; so the gradient is 0, as in PyTorch
        found = reduction.sum(ones, dims, keepdim) if dims else ones
    elif math.isinf(ord):
        found = (reduction.amax if ord > 0 else reduction.amin)(x.abs(), dims, keepdim) if dims else x.abs()
    else:
        size = x.abs()
        zero = size == 0
        powers = size.masked_fill(zero, 1).pow(ord).masked_fill(zero, 0 if ord > 0 else math.inf)
        total = reduction.sum(powers, dims, keepdim) if dims else powers
        flat = (total == 0) | total.isinf()
        edge = total.masked_fill(~flat, 0).pow(1 / ord)  # 0 or inf, without a gradient
        found = edge.detach().where(flat, total.masked_fill(flat, 1).pow(1 / ord))
    return found.to(dtype) if out is None else into("vector_norm", out, found.to(dtype))


def norm(
    input: Tensor, p: Any = "fro", dim: Dims = None, keepdim: bool = False, *, dtype: Any = None, axis: Any = None, keepdims: bool | None
    = None, out: Any = None,
) -> Tensor:  # fmt: skip
    """The p-norm of the elements over `dim` (default all): p is a number, inf, -inf, 0, or "fro", the same as 2.

    The gradient where the norm is 0 is 0. For matrix norms (p="nuc" and the like) use `linalg.matrix_norm`.
    """
    dim = dim if axis is None else either("norm", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    x = input if dtype is None else input.to(dtype)
    _floating("norm", x)
    if p is None or p == "fro":
        p = 2.0
    if not isinstance(p, (int, float)):
        raise ValueError(f'norm: p is a number or "fro", not {p!r}; linalg.matrix_norm has the norms of matrices')
    dims = _dims("norm", x, dim)
    if math.isinf(p) and any(x._array.shape[d] == 0 for d in dims):
        raise ShapeError(f"norm: order {p} has no value for no elements: shape {x._array.shape}")
    return vector_norm(x, float(p), dims, keepdim) if out is None else into("norm", out, vector_norm(x, float(p), dims, keepdim))


def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of input - other, which broadcast.

    >>> gl.dist(gl.tensor([0.0, 0.0]), gl.tensor([3.0, 4.0]))
    tensor(5.)
    """
    return norm(input - other, float(p))


def renorm(input: Tensor, p: float, dim: int, maxnorm: float, *, out: Any = None) -> Tensor:
    """The parts along `dim` whose p-norm is above `maxnorm`, scaled down to it; the others as they are."""
    rank = len(_floating("renorm", input)._array.shape)
    if rank < 2:
        raise RuntimeError(f"renorm: at least two dimensions, not shape {input._array.shape}")
    if not p > 0 or not maxnorm >= 0:
        raise RuntimeError(f"renorm: p is above 0 and maxnorm not negative, got {p} and {maxnorm}")
    dim = normalize_dim(dim, rank)
    size = vector_norm(input, float(p), tuple(d for d in range(rank) if d != dim), True)
    result = input * (maxnorm / (size + 1e-7)).where(size > maxnorm, 1.0)
    return result if out is None else into("renorm", out, result)


# ---------------------------------------------------------------- order statistics


def aminmax(
    input: Tensor, *, dim: int | None = None, keepdim: bool = False, axis: Any = None, keepdims: bool | None = None, out: Any = None
) -> Any:  # fmt: skip
    """Smallest and largest element over `dim` (default all), as (min, max).

    >>> gl.aminmax(gl.tensor([3, 1, 2]))
    Extremes(min=tensor(1), max=tensor(3))
    """
    dim = dim if axis is None else either("aminmax", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    dims = _dims("aminmax", input, dim)
    result = Extremes(reduction.amin(input, dims, keepdim), reduction.amax(input, dims, keepdim))
    return result if out is None else into("aminmax", out, result)


def _middle(input: Tensor, dim: int | None, keepdim: bool, pass_nan: bool) -> Any:
    if dim is None:
        return _median_of_all(input, pass_nan=pass_nan)
    return _median(input, dim=normalize_dim(dim, len(input._array.shape)), keepdim=bool(keepdim), pass_nan=pass_nan)


def median(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None, out: Any = None
) -> Any:  # fmt: skip
    """Without `dim` the median of all elements, with it (values, indices). Of an even number the lower one; NaN if any is NaN.

    >>> gl.median(gl.tensor([1.0, 9.0, 2.0]))
    tensor(2.)
    """
    dim = dim if axis is None else either("median", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    return _middle(input, dim, keepdim, False) if out is None else into("median", out, _middle(input, dim, keepdim, False))


def nanmedian(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None, out: Any = None
) -> Any:  # fmt: skip
    """As `median`, of the elements that are not NaN."""
    dim = dim if axis is None else either("nanmedian", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    return _middle(input, dim, keepdim, True) if out is None else into("nanmedian", out, _middle(input, dim, keepdim, True))


def _quantile(name: str, input: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str, pass_nan: bool) -> Tensor:
    _floating(name, input)
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise RuntimeError(f"{name}: interpolation is linear, lower, higher, midpoint or nearest, not {interpolation!r}")
    if isinstance(q, Differentiable):
        if q._array.dtype != input._array.dtype or len(q._array.shape) > 1:
            asked = f"a number or a vector of the input's dtype {input.dtype}"
            raise RuntimeError(f"{name}: q is {asked}, not {q._array.dtype} of shape {q._array.shape}")
        level: Any = q
    else:
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}: q lies between 0 and 1, got {q}")
        level = input.new_full((), q)
    shape = input._array.shape
    if count(shape) == 0:
        raise RuntimeError(f"{name}: the quantile of nothing has no value: shape {shape}")
    rank = len(shape)
    if dim is None:
        lines, kept = input.reshape(-1), (1,) * rank
    else:
        dim = normalize_dim(dim, rank)
        lines = input.transpose(dim, -1) if rank else input.reshape(1)
        kept = (*shape[:dim], 1, *shape[dim + 1 :]) if rank else ()
    ordered = lines.sort(-1)[0]
    size = ordered._array.shape[-1]
    levels = level.reshape((-1,))
    numbers: Any = (~ordered.isnan()).sum(-1, keepdim=True)
    if pass_nan:
        rank_of = (levels * (numbers - 1).clamp(min=0).to(levels._array.dtype)).expand((*ordered._array.shape[:-1], levels._array.shape[0]))
    else:
        rank_of = (levels * (size - 1)).expand((*ordered._array.shape[:-1], levels._array.shape[0]))
    if interpolation == "nearest":
        rank_of = rank_of.round()
    below = rank_of.floor() if interpolation != "higher" else rank_of.ceil()
    found = ordered.gather(-1, below.long())
    if interpolation in ("linear", "midpoint"):
        above = ordered.gather(-1, rank_of.ceil().long())
        weight = (rank_of - below) if interpolation == "linear" else (rank_of != below).to(found._array.dtype) * 0.5
        found = found.lerp(above, weight)
    found = found.masked_fill(numbers == 0 if pass_nan else numbers < size, math.nan)
    found = found.movedim(-1, 0)  # the levels come first
    if dim is not None and rank:
        found = found.unsqueeze(-1).transpose(dim + 1, -1)
        found = found if keepdim else found.squeeze(dim + 1)
    elif keepdim:
        found = found.reshape((found._array.shape[0], *kept))
    return found if level._array.shape else found.squeeze(0)


def quantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear", axis: Any = None, keepdims:
    bool | None = None, out: Any = None,
) -> Tensor:  # fmt: skip
    """The q-quantiles over `dim` (default all). `q` is a number in [0, 1] or a vector of them, which becomes the first dimension.

    interpolation: between the two nearest elements: linear, lower, higher, midpoint or nearest. NaN if any element is NaN.

    >>> gl.quantile(gl.tensor([1.0, 2.0, 3.0]), 0.25)
    tensor(1.5000)
    """
    dim = dim if axis is None else either("quantile", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    result = _quantile("quantile", input, q, dim, keepdim, interpolation, False)
    return result if out is None else into("quantile", out, result)


def nanquantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear", axis: Any = None, keepdims:
    bool | None = None, out: Any = None,
) -> Tensor:  # fmt: skip
    """As `quantile`, of the elements that are not NaN."""
    dim = dim if axis is None else either("nanquantile", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    result = _quantile("nanquantile", input, q, dim, keepdim, interpolation, True)
    return result if out is None else into("nanquantile", out, result)


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
    if input._array.dtype in FLOATING:
        input = input.masked_fill(input.isnan(), 0)
    result = reduction.sum(input, dim, keepdim, dtype=dtype)
    return result if out is None else into("nansum", out, result)


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
    _floating("nanmean", input)
    result = nansum(input, dim, keepdim, dtype=dtype) / reduction.sum(~input.isnan(), dim, keepdim)
    return result if out is None else into("nanmean", out, result)


# ---------------------------------------------------------------- covariance


def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """Covariance matrix of the rows of `input`, (variables, observations) or (observations).

    fweights: how often each observation counts (integers); aweights: its importance (floating point). Both are vectors.

    >>> gl.cov(gl.tensor([[1.0, 2.0, 3.0]]))
    tensor(1.)
    """
    rank = len(input._array.shape)
    if rank > 2:
        raise RuntimeError(f"cov: at most two dimensions, not shape {input._array.shape}")
    x: Any = input if input._array.dtype in FLOATING else input.to(float32)
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
        part = given.to(x._array.dtype)
        weight = part if weight is None else weight * part
    if weight is None:
        total: Any = float(n)
        centred = x - x.mean(1, keepdim=True) if n else x
        scaled, divisor = centred, max(n - correction, 0)
    else:
        total = weight.sum()
        centred = x - (x * weight).sum(1, keepdim=True) / total
        scaled = centred * weight
        loss = (weight * aweights.to(x._array.dtype)).sum() / total if aweights is not None else 1.0
        divisor = (total - correction * loss).clamp(min=0)
    found = scaled @ centred.mT / divisor if not isinstance(divisor, int) or divisor else (scaled @ centred.mT) / x.new_zeros(())
    return found.squeeze((0, 1)) if x._array.shape[0] == 1 and rank < 2 else found.squeeze()


def corrcoef(input: Tensor) -> Tensor:
    """Matrix of the correlation coefficients of the rows of `input`, (variables, observations) or (observations).

    >>> gl.corrcoef(gl.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    c: Any = cov(input)
    if not c._array.shape:
        return c / c
    deviation = _root(c.diagonal())
    return (c / deviation.unsqueeze(1) / deviation.unsqueeze(0)).clamp(-1, 1)


class StatisticsMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    std, norm, dist, renorm, aminmax, median, nanmedian, quantile = std, norm, dist, renorm, aminmax, median, nanmedian, quantile
    nanquantile, nansum, nanmean, cov, corrcoef = nanquantile, nansum, nanmean, cov, corrcoef
