"""Values by their order over dimensions: extremes, medians, quantiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind
from gradlab.dtype import HALF
from gradlab.named_errors import named_functions
from gradlab.spec import count, normalize_dim
from gradlab.tensor import reduction
from gradlab.tensor.common_arguments import either, into

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor
from gradlab.tensor.index_parts import at_hand
from gradlab.tensor.norms import dims_of, floating
from gradlab.tensor.rounding import once
from gradlab.tensor.where import where

__all__ = ["aminmax", "median", "nanmedian", "nanquantile", "quantile"]

_median, _median_of_all = map(bind, (ops.scan.median, ops.scan.median_of_all))
Dims = Any  # None, int or tuple of int


class Extremes(NamedTuple):
    """What `aminmax` returns."""

    min: Any
    max: Any


def aminmax(
    input: Tensor, *, dim: int | None = None, keepdim: bool = False, axis: Any = None, keepdims: bool | None = None, out: Any = None
) -> Any:  # fmt: skip
    """Smallest and largest element over `dim` (default all), as (min, max).

    >>> gl.aminmax(gl.tensor([3, 1, 2]))
    Extremes(min=tensor(1), max=tensor(3))
    """
    dim = dim if axis is None else either("aminmax", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    dims = dims_of("aminmax", input, dim)
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
    """As `median`, of the elements that are not NaN.

    >>> gl.nanmedian(gl.tensor([1.0, float("nan"), 3.0, 2.0]))
    tensor(2.)
    """
    dim = dim if axis is None else either("nanmedian", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    return _middle(input, dim, keepdim, True) if out is None else into("nanmedian", out, _middle(input, dim, keepdim, True))


def _quantile(name: str, input: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str, pass_nan: bool) -> Tensor:
    floating(name, input)
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise RuntimeError(f"{name}: interpolation is linear, lower, higher, midpoint or nearest, not {interpolation!r}")
    if isinstance(q, Differentiable):
        if q._array.dtype != input._array.dtype or len(q._array.shape) > 1:
            asked = f"a number or a vector of the input's dtype {input.dtype}"
            raise RuntimeError(f"{name}: q is {asked}, not {q._array.dtype} of shape {q._array.shape}")
        level: Any = q
        if at_hand(q) and not ((level >= 0) & (level <= 1)).all():
            raise RuntimeError(f"{name}: q lies between 0 and 1, got {level.tolist()}")
    else:
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}: q lies between 0 and 1, got {q}")
        level = input.new_full((), q)
    if input._array.dtype in HALF:
        return once(_quantile, (name, input, q, dim, keepdim, interpolation, pass_nan))
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
    else:  # where a NaN is, the last one, which is the largest
        rank_of = where(numbers < size, float(size - 1), levels * (size - 1))
    if interpolation == "nearest":
        rank_of = rank_of.round()
    below = rank_of.floor() if interpolation != "higher" else rank_of.ceil()
    found = ordered.gather(-1, below.long())
    if interpolation in ("linear", "midpoint"):
        above = ordered.gather(-1, rank_of.ceil().long())
        weight = (rank_of - below) if interpolation == "linear" else (rank_of != below).to(found._array.dtype) * 0.5
        found = found.lerp(above, weight)
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
    """As `quantile`, of the elements that are not NaN.

    >>> gl.nanquantile(gl.tensor([1.0, float("nan"), 3.0]), 0.5)
    tensor(2.)
    """
    dim = dim if axis is None else either("nanquantile", dim, None, axis)
    keepdim = keepdim if keepdims is None else keepdims
    result = _quantile("nanquantile", input, q, dim, keepdim, interpolation, True)
    return result if out is None else into("nanquantile", out, result)


named_functions(__name__)


class QuantileMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    aminmax, median, nanmedian, quantile, nanquantile = aminmax, median, nanmedian, quantile, nanquantile
