"""Sums, means, extremes and their places, orders and sets, by the array API standard."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from gradlab.array_api.types import BY_NAME, isdtype
from gradlab.dtype import int64
from gradlab.tensor import shape as shapes, sort as _sort
from gradlab.tensor.creation import as_tensor

UniqueAll = namedtuple("UniqueAll", "values indices inverse_indices counts")
UniqueCounts = namedtuple("UniqueCounts", "values counts")
UniqueInverse = namedtuple("UniqueInverse", "values inverse_indices")


def _axes(x: Any, axis: Any) -> tuple[int, ...]:
    """All axes for None. IndexError for one that there is not."""
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    for a in axes:
        if not -x.ndim <= a < x.ndim:
            raise IndexError(f"axis {a} is out of range for {x.ndim} dimensions")
    return tuple(a % x.ndim for a in axes)


def _summed(x: Any, dtype: Any) -> Any:
    """The array in the dtype in which it is summed: integers in the widest one."""
    if dtype is None and isdtype(x.dtype, ("integral", "bool")):
        dtype = BY_NAME.get("uint64", int64) if isdtype(x.dtype, "unsigned integer") else int64
    return x if dtype is None else x.to(dtype=dtype)


def sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """Sums along axes, all unless given; of integers in 64 bits.

    >>> gl.array_api.sum(gl.ones(2, 3), axis=0)
    tensor([2., 2., 2.])
    """
    x, axes = _summed(x, dtype), _axes(x, axis)
    return x.sum(axes, keepdim=keepdims, dtype=x.dtype) if axes else x.clone()


def prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """Products along axes, all unless given; of integers in 64 bits.

    >>> gl.array_api.prod(gl.tensor([2, 3]))
    tensor(6)
    """
    x, axes = _summed(x, dtype), _axes(x, axis)
    for a in sorted(axes, reverse=True):
        x = x.prod(a, keepdim=keepdims, dtype=x.dtype)
    return x


def mean(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Means along axes, all unless given.

    >>> gl.array_api.mean(gl.tensor([1.0, 3.0]))
    tensor(2.)
    """
    axes = _axes(x, axis)
    return x.mean(axes, keepdim=keepdims) if axes else x.clone()


def var(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """Variances along axes; the sum of squares is divided by n - correction.

    >>> gl.array_api.var(gl.tensor([1.0, 3.0]))
    tensor(1.)
    """
    axes = _axes(x, axis)
    return x.var(axes, correction=correction, keepdim=keepdims) if axes else _alone(x, correction)


def std(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """Standard deviations along axes: square roots of `var`.

    >>> gl.array_api.std(gl.tensor([1.0, 3.0]))
    tensor(1.)
    """
    axes = _axes(x, axis)
    return x.std(axes, correction=correction, keepdim=keepdims) if axes else _alone(x, correction)


def _alone(x: Any, correction: float) -> Any:
    """The variance of each element by itself."""
    return (x - x) / (1 - correction if correction < 1 else 0)


def _extreme(name: str, x: Any, axis: Any, keepdims: bool) -> Any:
    axes = _axes(x, axis)
    if not axes:
        return x.clone()
    return getattr(x, name)(axes, keepdim=keepdims)


def max(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The greatest elements along axes, all unless given.

    >>> gl.array_api.max(gl.tensor([1, 3]))
    tensor(3)
    """
    return _extreme("amax", x, axis, keepdims)


def min(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The least elements along axes, all unless given.

    >>> gl.array_api.min(gl.tensor([1, 3]))
    tensor(1)
    """
    return _extreme("amin", x, axis, keepdims)


def all(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether all elements along axes are true, or not zero.

    >>> gl.array_api.all(gl.tensor([True, False]))
    tensor(False)
    """
    axes = _axes(x, axis)
    return x.to(dtype="bool").all(axes, keepdim=keepdims) if axes else x.to(dtype="bool", copy=True)


def any(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether some element along axes is true, or not zero.

    >>> gl.array_api.any(gl.tensor([True, False]))
    tensor(True)
    """
    axes = _axes(x, axis)
    return x.to(dtype="bool").any(axes, keepdim=keepdims) if axes else x.to(dtype="bool", copy=True)


def count_nonzero(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """How many elements along axes are not zero.

    >>> gl.array_api.count_nonzero(gl.tensor([0, 2]))
    tensor(1)
    """
    return sum((x != 0).to(dtype=int64), axis=axis, keepdims=keepdims)


def _cumulative(name: str, x: Any, axis: Any, dtype: Any, include_initial: bool) -> Any:
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"cumulative_{name[3:]}: of an array of {x.ndim} dimensions, which axis= is meant?")
        axis = 0
    (place,) = _axes(x, axis)
    x = _summed(x, dtype)
    found = getattr(x, name)(place, dtype=x.dtype)
    if not include_initial:
        return found
    shape = list(x.shape)
    shape[place] = 1
    first = x.new_full(tuple(shape), 0 if name == "cumsum" else 1)
    return shapes.cat([first, found], place)


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """Sums of all elements so far along an axis; `include_initial`: with the 0 before the first.

    >>> gl.array_api.cumulative_sum(gl.tensor([1, 2]), include_initial=True)
    tensor([0, 1, 3])
    """
    return _cumulative("cumsum", x, axis, dtype, include_initial)


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """Products of all elements so far along an axis; `include_initial`: with the 1 before the first.

    >>> gl.array_api.cumulative_prod(gl.tensor([2, 3]))
    tensor([2, 6])
    """
    return _cumulative("cumprod", x, axis, dtype, include_initial)


def argmax(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """The index of the first greatest element along an axis; None: in the array as one line.

    >>> gl.array_api.argmax(gl.tensor([1, 3]))
    tensor(1)
    """
    return x.argmax(axis, keepdim=keepdims)


def argmin(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """The index of the first least element along an axis; None: in the array as one line.

    >>> gl.array_api.argmin(gl.tensor([1, 3]))
    tensor(0)
    """
    return x.argmin(axis, keepdim=keepdims)


def nonzero(x: Any, /) -> tuple[Any, ...]:
    """The indices of the elements that are not zero, an array for each dimension.

    >>> gl.array_api.nonzero(gl.tensor([0, 2]))
    (tensor([1]),)
    """
    if not x.ndim:
        raise ValueError("nonzero: a 0-d array has no indices")
    return tuple(x.nonzero(as_tuple=True))


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
    """The places in sorted `x1` before which the elements of `x2` would have to stand for it to stay sorted.

    >>> gl.array_api.searchsorted(gl.tensor([1, 3]), gl.tensor([2]))
    tensor([1])
    """
    return _sort.searchsorted(x1, as_tensor(x2), side=side, sorter=sorter)


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The elements in order along an axis.

    >>> gl.array_api.sort(gl.tensor([3, 1]))
    tensor([1, 3])
    """
    return x.sort(dim=axis, descending=descending, stable=True).values


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The indices that put the elements in order along an axis.

    >>> gl.array_api.argsort(gl.tensor([3, 1]))
    tensor([1, 0])
    """
    return x.argsort(dim=axis, descending=descending, stable=True)


def unique_all(x: Any, /) -> UniqueAll:
    """The different elements in order, where each is first, which of them each element is, and how often each is there.

    NaNs are all different.

    >>> gl.array_api.unique_all(gl.tensor([3, 1, 3])).indices
    tensor([1, 0])
    """
    flat = x.reshape(-1)
    values, inverse, counts = _sort.unique(flat, return_inverse=True, return_counts=True)
    order = inverse.argsort(stable=True)
    first = (counts.cumsum(0) - counts).to(dtype=int64)
    return UniqueAll(values, order[first], inverse.reshape(x.shape), counts)


def unique_counts(x: Any, /) -> UniqueCounts:
    """The different elements in order, and how often each is there.

    >>> gl.array_api.unique_counts(gl.tensor([3, 1, 3])).counts
    tensor([1, 2])
    """
    return UniqueCounts(*_sort.unique(x.reshape(-1), return_counts=True))


def unique_inverse(x: Any, /) -> UniqueInverse:
    """The different elements in order, and which of them each element is.

    >>> gl.array_api.unique_inverse(gl.tensor([3, 1, 3])).inverse_indices
    tensor([1, 0, 1])
    """
    values, inverse = _sort.unique(x.reshape(-1), return_inverse=True)
    return UniqueInverse(values, inverse.reshape(x.shape))


def unique_values(x: Any, /) -> Any:
    """The different elements in order.

    >>> gl.array_api.unique_values(gl.tensor([3, 1, 3]))
    tensor([1, 3])
    """
    return _sort.unique(x.reshape(-1))
