"""Ordering and counting: sort, topk, unique, bincount, searchsorted and their relatives.

Sorting is stable, and NaN counts as the largest value. Gradients go to the places that the values came from.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind
from gradlab.dtype import INT64, as_numpy, get_default_dtype, int32
from gradlab.named_errors import named_functions
from gradlab.spec import ShapeError, normalize_dim, whole
from gradlab.tensor.common_arguments import either, into

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "argsort", "bincount", "bucketize", "histc", "isin", "kthvalue", "mode", "msort", "searchsorted", "sort", "topk", "unique",
    "unique_consecutive",
]  # fmt: skip

_rows = ops.sort
_sort, _topk, _mode, _unique, _bincount = map(bind, (_rows.sort, _rows.topk, _rows.mode, _rows.unique, _rows.bincount))
_searchsorted, _histc, _isin = map(bind, (_rows.searchsorted, _rows.histc, _rows.isin))
Pair = namedtuple("Pair", ("values", "indices"))


def _along(row: Any, input: Tensor, dim: int, **params: Any) -> Any:
    """A row's (values, indices) along `dim`; a 0-d tensor counts as one element."""
    shape = input._array.shape
    dim = normalize_dim(dim, len(shape))
    if shape:
        return row(input, dim=dim, **params)
    values, indices = row(input.reshape(1), dim=0, **params)
    return Pair(values.reshape(()), indices.reshape(()))


def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = False, *, axis: Any = None, out: Any = None) -> Any:
    """(values, indices) sorted along `dim`. Always stable, whatever `stable` says; NaN is the largest value.

    >>> gl.sort(gl.tensor([3, 1, 2]))
    sort(values=tensor([1, 2, 3]), indices=tensor([1, 2, 0]))
    """
    dim = dim if axis is None else either("sort", dim, -1, axis)
    result = _along(_sort, input, dim, descending=bool(descending))
    return result if out is None else into("sort", out, result)


def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False, *, axis: Any = None, out: Any = None) -> Tensor:
    """The indices (int64) that sort `input` along `dim`; stable.

    >>> gl.argsort(gl.tensor([3, 1, 2]))
    tensor([1, 2, 0])
    """
    if out is not None:
        return into("argsort", out, argsort(input, dim, descending, stable))
    dim = dim if axis is None else either("argsort", dim, -1, axis)
    return sort(input, dim, descending)[1]


def msort(input: Tensor, *, out: Any = None) -> Tensor:
    """The values sorted along the first dimension.

    >>> gl.msort(gl.tensor([3, 1, 2]))
    tensor([1, 2, 3])
    """
    return sort(input, 0)[0] if out is None else into("msort", out, sort(input, 0)[0])


def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True, *, axis: Any = None, out: Any = None) -> Any:
    """(values, indices) of the k largest (or smallest) elements along `dim`, in order; of equal ones the first. NaN is the largest value.

    Raises RuntimeError where there are fewer than k.

    >>> gl.topk(gl.tensor([3, 1, 2]), 2)
    topk(values=tensor([3, 2]), indices=tensor([0, 2]))
    """
    dim = dim if axis is None else either("topk", dim, -1, axis)
    if not hasattr(k, "__index__") or isinstance(k, bool):
        raise TypeError(f"topk: k is an integer, not {type(k).__name__}")
    k = whole(k)
    if k == 0 and not input._array.shape:
        k = 1  # a 0-d tensor has no smaller result; PyTorch does the same
    result = _along(_topk, input, dim, k=k, largest=bool(largest))
    return result if out is None else into("topk", out, result)


def kthvalue(
    input: Tensor, k: int, dim: int = -1, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None, out: Any = None
) -> Any:  # fmt: skip
    """(value, index) of the k-th smallest element along `dim`, counted from 1.

    >>> gl.kthvalue(gl.tensor([3, 1, 2]), 2)
    Pair(values=tensor(2), indices=tensor(2))
    """
    dim = dim if axis is None else either("kthvalue", dim, -1, axis)
    keepdim = keepdim if keepdims is None else keepdims
    dim = normalize_dim(dim, len(input._array.shape))
    size = input._array.shape[dim] if input._array.shape else 1
    if not 1 <= k <= size:
        raise RuntimeError(f"kthvalue: k={k} is not one of 1 to {size} (dimension {dim} of shape {input._array.shape})")
    values, indices = _along(_topk, input, dim, k=whole(k), largest=False)
    result = _one(values, indices, dim, whole(k) - 1, keepdim)
    return result if out is None else into("kthvalue", out, result, (input,))


def mode(input: Tensor, dim: int = -1, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None, out: Any = None) -> Any:
    """(value, index) of the most frequent value along `dim`: the smallest of equally frequent ones, where it stands last.

    >>> gl.mode(gl.tensor([1, 2, 2]))
    Pair(values=tensor(2), indices=tensor(2))
    """
    dim = dim if axis is None else either("mode", dim, -1, axis)
    keepdim = keepdim if keepdims is None else keepdims
    dim = normalize_dim(dim, len(input._array.shape))
    values, indices = _along(_mode, input, dim)
    return _one(values, indices, dim, 0, keepdim) if out is None else into("mode", out, _one(values, indices, dim, 0, keepdim))


def _one(values: Any, indices: Any, dim: int, place: int, keepdim: bool) -> Any:
    if not values._array.shape:
        return Pair(values, indices)
    if keepdim:
        return Pair(values.narrow(dim, place, 1), indices.narrow(dim, place, 1))
    return Pair(values.select(dim, place), indices.select(dim, place))


# ---------------------------------------------------------------- distinct values


def _distinct(input: Tensor, dim: int | None, consecutive: bool, return_inverse: bool, return_counts: bool) -> Any:
    if dim is not None:
        dim = normalize_dim(dim, len(input._array.shape))
        if not input._array.shape:
            input = input.reshape(1)
    values, inverse, counts = _unique(input, dim=dim, consecutive=consecutive)
    found = (values, *((inverse,) if return_inverse else ()), *((counts,) if return_counts else ()))
    return found[0] if len(found) == 1 else found


def unique(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None, *, axis: Any =
    None,
) -> Any:  # fmt: skip
    """The distinct values, in order (with `dim`: the distinct parts along it). Its size depends on values: not for a trace.

    return_inverse: also where each element of `input` is among them; return_counts: also how often each occurs. Every NaN is distinct.

    >>> gl.unique(gl.tensor([2, 1, 2]))
    tensor([1, 2])
    """
    dim = dim if axis is None else either("unique", dim, None, axis)
    return _distinct(input, dim, False, return_inverse, return_counts)


def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None, *, axis: Any = None
) -> Any:  # fmt: skip
    """`input` without the elements (with `dim`: parts along it) that are equal to the one before. Results as `unique`.

    >>> gl.unique_consecutive(gl.tensor([1, 1, 2, 1]))
    tensor([1, 2, 1])
    """
    dim = dim if axis is None else either("unique_consecutive", dim, None, axis)
    return _distinct(input, dim, True, return_inverse, return_counts)


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each number from 0 occurs in an integer vector, or the sum of its weights. Its size depends on values: not for a trace.

    >>> gl.bincount(gl.tensor([0, 2, 2]))
    tensor([1, 0, 2])
    """
    minlength = whole(minlength)
    if minlength < 0:
        raise RuntimeError(f"bincount: minlength cannot be negative, got {minlength}")
    if weights is not None and not isinstance(weights, Differentiable):
        raise TypeError(f"bincount: weights are a tensor, not {type(weights).__name__}")
    if input._array.dtype.kind not in "iu":
        raise RuntimeError(f"bincount: needs integers, not {input._array.dtype}; convert with .long()")
    return _bincount(input.to(INT64), weights, minlength=int(minlength))


# ---------------------------------------------------------------- places, histograms, membership


def _operand(value: Any, like: Tensor) -> Any:
    """A tensor, or a number as a 0-d tensor of its own kind."""
    if isinstance(value, Differentiable):
        return value
    return like.new_full((), value, dtype=as_numpy(get_default_dtype()) if isinstance(value, float) else INT64)


def searchsorted(
    sorted_sequence: Tensor, input: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Tensor | None =
    None, out: Any = None,
) -> Tensor:  # fmt: skip
    """Where in the sorted last dimension each value of `input` belongs: before equal ones, or after them with right=True.

    sorted_sequence: a vector, or a tensor whose sizes but the last are input's. sorter: the indices that sort it. Returns int64
    (int32 with out_int32) of input's shape.

    >>> gl.searchsorted(gl.tensor([1.0, 2.0, 3.0]), gl.tensor([2.5]))
    tensor([2])
    """
    if side is not None:
        if side not in ("left", "right"):
            raise RuntimeError(f"searchsorted: side is 'left' or 'right', not {side!r}")
        if right and side == "left":
            raise RuntimeError("searchsorted: right=True contradicts side='left'")
        right = side == "right"
    if sorter is not None:
        if sorter._array.shape != sorted_sequence._array.shape or sorter._array.dtype != INT64:
            raise RuntimeError("searchsorted: the sorter is an int64 tensor of the sequence's shape")
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    dtype = as_numpy(int32) if out_int32 else INT64
    result = _searchsorted(sorted_sequence, _operand(input, sorted_sequence), right=bool(right), dtype=dtype)
    return result if out is None else into("searchsorted", out, result)


def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False, out: Any = None) -> Tensor:
    """The number of the bucket of each value: how many of the sorted `boundaries` (a vector) are less (right=True: not greater).

    >>> gl.bucketize(gl.tensor([2.5]), gl.tensor([1.0, 2.0, 3.0]))
    tensor([2])
    """
    if len(boundaries._array.shape) != 1:
        raise ShapeError(f"bucketize: boundaries are a vector, not of shape {boundaries._array.shape}")
    result = searchsorted(boundaries, input, out_int32=out_int32, right=right)
    return result if out is None else into("bucketize", out, result)


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0, *, out: Any = None) -> Tensor:
    """How many elements lie in each of `bins` equal parts of [min, max] (by default of the range of the elements), as input's type.

    >>> gl.histc(gl.tensor([0.0, 1.0, 1.0]), bins=2)
    tensor([1., 2.])
    """
    bins = whole(bins)
    if bins < 1:
        raise RuntimeError(f"histc: at least one bin, not {bins}")
    if min > max:
        raise RuntimeError(f"histc: max {max} is less than min {min}")
    result = _histc(input, bins=int(bins), lo=float(min), hi=float(max))
    return result if out is None else into("histc", out, result)


def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False, out: Any = None) -> Tensor:
    """Whether each element is among `test_elements` (with invert: is not). One of the two may be a number.

    >>> gl.isin(gl.tensor([1, 2, 3]), gl.tensor([2]))
    tensor([False,  True, False])
    """
    if out is not None:
        return into("isin", out, isin(elements, test_elements, assume_unique=assume_unique, invert=invert))
    if not isinstance(elements, Differentiable):
        elements = _operand(elements, test_elements)
    return _isin(elements, _operand(test_elements, elements), invert=bool(invert))


named_functions(__name__)


class SortMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    sort, argsort, msort, topk, kthvalue, mode = sort, argsort, msort, topk, kthvalue, mode
    unique, unique_consecutive, bincount, histc = unique, unique_consecutive, bincount, histc
