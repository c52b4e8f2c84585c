"""Reading and writing by index tensors of the tensor's own rank: gather, scatter and their relatives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.one_row import one_row
from gradlab.autograd.record import bind
from gradlab.dtype import INEXACT, INT64, wide
from gradlab.named_errors import explain, flag, named_functions
from gradlab.spec import ShapeError, Spec, broadcast_shapes, normalize_dim
from gradlab.tensor.common_arguments import either, into, required
from gradlab.tensor.in_place_methods import update
from gradlab.tensor.indexing import write_into
from gradlab.tensor.rounding import rounds_once

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["gather", "scatter", "scatter_add", "scatter_reduce", "take_along_dim"]

_gather, _scatter = map(bind, (ops.gather.gather, ops.gather.scatter))
_scatter_add, _scatter_reduce = map(bind, (ops.gather.scatter_add, ops.gather.scatter_reduce))
_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def places(name: str, index: Any) -> Any:
    """An index tensor as int64. Raises TypeError for what is no tensor, IndexError for other dtypes than int32 and int64."""
    if not isinstance(index, Differentiable):
        raise TypeError(f"{name}: index is an int64 tensor, not {type(index).__name__}")
    if index._array.dtype == INT64:
        return index
    if index._array.dtype.kind != "i" or index._array.dtype.itemsize < 4:
        raise TypeIndexError(f"{name}: index tensors are int64 or int32, not {index._array.dtype}; convert with .long()")
    return index.to(INT64)  # type: ignore[attr-defined]


class TypeIndexError(IndexError, RuntimeError, TypeError):
    """An index tensor of a type that is no index: PyTorch raises IndexError here and RuntimeError there."""


def row(name: str, index: Any) -> Any:
    """An index tensor of one dimension; a 0-d one counts as one element."""
    index = places(name, index)
    if len(index._array.shape) > 1:
        raise IndexShapeError(f"{name}: the index is a vector, not of shape {index._array.shape}")
    return index if index._array.shape else index.reshape(1)


class IndexShapeError(IndexError, ShapeError):
    """An index tensor of the wrong number of dimensions."""


# ---------------------------------------------------------------- gather and scatter


def lifted(tensor: Any) -> Any:
    """A 0-d tensor as one of one dimension."""
    return tensor if tensor._array.shape else tensor.reshape(1)


@one_row
def gather(
    input: Tensor, dim: int | None = None, index: Any = None, *, sparse_grad: bool = False, out: Any = None, axis: Any = None
) -> Tensor:  # fmt: skip
    """Values of `input` at `index` along `dim`: result[i][j] = input[index[i][j]][j] for dim 0. The result has index's shape.

    `index` has input's number of dimensions and may be smaller than it in the others. Raises an error (IndexError and RuntimeError)
    for places outside the dimension; negative places do not count from the end.

    >>> gl.gather(gl.tensor([[1, 2], [3, 4]]), 1, gl.tensor([[0], [1]]))
    tensor([[1],
            [4]])
    """
    try:
        if axis is not None or dim is None:
            dim = required("gather", dim, axis)
        if out is not None:
            return into("gather", out, gather(input, dim, index, sparse_grad=sparse_grad), (input, index))
        if sparse_grad is not False and flag("gather", "sparse_grad", sparse_grad):
            raise NotImplementedError("gather: gradlab has no sparse tensors; leave sparse_grad out")
        if isinstance(index, Differentiable) and 0 in index._array.shape:  # of no places neither type nor dimensions matter
            index = index.to(INT64)  # type: ignore[attr-defined]
            if len(index._array.shape) != len(input._array.shape):
                return input.reshape(-1).narrow(0, 0, 0).reshape(index._array.shape)
        index = places("gather", index)
        shape = input._array.shape
        dim = normalize_dim(dim, len(shape))
        own = index._array.shape
        if len(own) < 2 and len(shape) < 2 and not (own and shape):  # one place, or a vector of one value
            return _gather(lifted(input), lifted(index), dim=0).reshape(index._array.shape)
        return _gather(input, index, dim=dim)
    except Exception as error:
        explain(error, "gather", gather, (input, dim, index), {"sparse_grad": sparse_grad, "out": out, "axis": axis})


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None, *, axis: Any = None, out: Any = None) -> Tensor:
    """`gather` with `input` and `indices` broadcast in the dimensions other than `dim`; without `dim` both are flattened.

    Negative indices count from the end.

    >>> gl.take_along_dim(gl.tensor([[1, 2], [3, 4]]), gl.tensor([[-1]]), 1)
    tensor([[2],
            [4]])
    """
    dim = dim if axis is None else either("take_along_dim", dim, None, axis)
    indices = places("take_along_dim", indices)
    if dim is None:
        input, indices, dim = input.reshape(-1), indices.reshape(-1), 0
    shape, own = input._array.shape, indices._array.shape
    if len(shape) != len(own):
        raise ShapeError(f"take_along_dim: indices of shape {own} need as many dimensions as the input of shape {shape}")
    dim = normalize_dim(dim, len(shape))
    wide = broadcast_shapes((*shape[:dim], 1, *shape[dim + 1 :]), (*own[:dim], 1, *own[dim + 1 :]))
    if shape:
        input = input.expand((*wide[:dim], shape[dim], *wide[dim + 1 :]))
        indices = indices.expand((*wide[:dim], own[dim], *wide[dim + 1 :]))
        indices = indices + (indices < 0) * shape[dim]
    return gather(input, dim, indices) if out is None else into("take_along_dim", out, gather(input, dim, indices))


def _scattered(name: str, input: Tensor, dim: int, index: Any, src: Any) -> tuple[Any, Any, int]:
    """The row's arguments: `src` cut to the index tensor's shape, or a 0-d tensor for a number."""
    index = places(name, index)
    shape = input._array.shape
    dim = normalize_dim(dim, len(shape))
    if 0 in index._array.shape and len(index._array.shape) != max(len(shape), 1):  # of no places the dimensions do not matter
        index = index.reshape((0,) * max(len(shape), 1))
        src = src.reshape(-1).narrow(0, 0, 0).reshape(index._array.shape) if isinstance(src, Differentiable) else src  # type: ignore[attr-defined]
    if not isinstance(src, Differentiable):
        if not isinstance(src, (int, float, np.generic)):
            raise TypeError(f"{name}: the source is a tensor or a number, not {type(src).__name__}")
        src = input.new_full((), src)
    else:
        ops.gather.fits("the source", lifted(src)._array.shape, Spec(lifted(index)._array.shape, INT64), None)
        src = lifted(src)
    if len(shape) < 2:
        index = lifted(index)
    for d, size in enumerate(index._array.shape):
        if src._array.shape and src._array.shape[d] != size:
            src = src.narrow(d, 0, size)
    return index, src, dim


def scatter(
    input: Tensor, dim: int | None = None, index: Any = None, src: Any = None, *, value: Any = None, reduce: str | None = None,
    out: Any = None, axis: Any = None,
) -> Tensor:  # fmt: skip
    """A copy of `input` with result[index[i][j]][j] = src[i][j] (for dim 0).

    `src` is a tensor of input's dtype, at least as large as `index`, or a number. reduce: "add" or "multiply" instead of writing.
    Of several values for one place the last one stays. Raises as `gather`.

    >>> gl.scatter(gl.zeros(3), 0, gl.tensor([2, 0]), gl.tensor([1.0, 2.0]))
    tensor([2., 0., 1.])
    """
    if axis is not None or dim is None:
        dim = required("scatter", dim, axis)
    if out is not None:
        return into("scatter", out, scatter(input, dim, index, src, value=value, reduce=reduce))
    return _scatter_function(reduce)(input, dim, index, _source("scatter", src, value))


def _source(name: str, src: Any, value: Any) -> Any:
    if src is not None and value is not None:
        raise TypeError(f"{name}: takes src or value, not both: {value!r} would not be written")
    return value if src is None else src


def _scatter_function(reduce: str | None) -> Callable[..., Tensor]:
    if reduce is None:
        return _put
    if reduce not in ("add", "multiply"):
        raise RuntimeError(f"scatter: reduce is 'add' or 'multiply', not {reduce!r}")
    return scatter_add if reduce == "add" else _multiply


def _multiply(input: Tensor, dim: int, index: Tensor, src: Any) -> Tensor:
    return scatter_reduce(input, dim, index, src, "prod")


def _run(row: Any, name: str, input: Tensor, dim: int, index: Any, src: Any, **params: Any) -> Tensor:
    index, src, dim = _scattered(name, input, dim, index, src)
    found = row(lifted(input), index, src, dim=dim, **params)
    return found if input._array.shape else found.reshape(())


def _put(input: Tensor, dim: int, index: Tensor, src: Any) -> Tensor:
    return _run(_scatter, "scatter", input, dim, index, src)


def _of_numbers(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """One unit on half types where the source is a number, which is not rounded before it is computed with."""
    unit = rounds_once(first=1)(function)

    @functools.wraps(function)
    def call(input: Tensor, dim: int | None = None, index: Any = None, src: Any = None, *rest: Any, **options: Any) -> Tensor:
        return (function if isinstance(src, Differentiable) else unit)(input, dim, index, src, *rest, **options)

    return call


@_of_numbers
def scatter_add(input: Tensor, dim: int | None = None, index: Any = None, src: Any = None, *, out: Any = None, axis: Any = None) -> Tensor:
    """A copy of `input` with result[index[i][j]][j] += src[i][j] (for dim 0); repeated places add up, in order. Arguments as `scatter`.

    >>> gl.scatter_add(gl.zeros(3), 0, gl.tensor([0, 0]), gl.tensor([1.0, 2.0]))
    tensor([3., 0., 0.])
    """
    if axis is not None or dim is None:
        dim = required("scatter_add", dim, axis)
    if out is not None:
        return into("scatter_add", out, scatter_add(input, dim, index, src))
    return _run(_scatter_add, "scatter_add", input, dim, index, src)


@_of_numbers
def scatter_reduce(
    input: Tensor, dim: int | None = None, index: Any = None, src: Any = None, reduce: Any = None, *, include_self: bool = True,
    out: Any = None, axis: Any = None,
) -> Tensor:  # fmt: skip
    """A copy of `input` in which each place named by `index` is reduced with all of its values of `src`.

    reduce: sum, prod, mean, amax or amin. include_self: whether the value of `input` takes part. The gradient of amax and amin is shared
    evenly among the values that attain it. Other arguments as `scatter`.

    >>> gl.scatter_reduce(gl.ones(2), 0, gl.tensor([0, 0]), gl.tensor([2.0, 3.0]), "prod")
    tensor([6., 1.])
    """
    if axis is not None or dim is None:
        dim = required("scatter_reduce", dim, axis)
    if out is not None:
        return into("scatter_reduce", out, scatter_reduce(input, dim, index, src, reduce, include_self=include_self))
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"scatter_reduce: reduce is one of {', '.join(_REDUCTIONS)}, not {reduce!r}")
    if reduce not in ("sum", "mean"):
        return _run(_scatter_reduce, "scatter_reduce", input, dim, index, src, reduce=reduce, include_self=bool(include_self))
    index, src, dim = _scattered("scatter_reduce", input, dim, index, src)
    start = lifted(input)
    dtype = start._array.dtype
    if reduce == "mean":  # half types are rounded behind the division
        start, src = start.to(wide(dtype)), src.to(wide(src._array.dtype))
    if not include_self:
        start = _scatter(start, index, start.new_zeros(()), dim=dim)
    found = _scatter_add(start, index, src, dim=dim)
    if reduce == "mean":
        ones = start.new_ones(start._array.shape, dtype=INT64)
        hits = ones if include_self else _scatter(ones, index, ones.new_zeros(()), dim=dim)
        hits = _scatter_add(hits, index, ones.new_ones(()), dim=dim).clamp(min=1)
        found = (found / hits.to(found._array.dtype) if found._array.dtype in INEXACT else found.div(hits, rounding_mode="floor")).to(dtype)
    return found if input._array.shape else found.reshape(())


named_functions(__name__)


class GatherMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    gather, take_along_dim, scatter, scatter_add, scatter_reduce = gather, take_along_dim, scatter, scatter_add, scatter_reduce

    def scatter_(
        self: Any, dim: int | None = None, index: Any = None, src: Any = None, *, value: Any = None, reduce: str | None = None,
        axis: Any = None,
    ) -> Any:  # fmt: skip
        """scatter, in place.

        >>> gl.zeros(3).scatter_(0, gl.tensor([2, 0]), 1)
        tensor([1., 0., 1.])
        """
        if axis is not None or dim is None:
            dim = required("scatter_", dim, axis)
        src = _source("scatter_", src, value)
        if reduce is None and self._array.shape:
            index, src, dim = _scattered("scatter_", self, dim, index, src)
            return write_into("scatter_", self, ops.gather.scatter, (index, src), {"dim": dim})
        return update("scatter_", self, _scatter_function(reduce), dim, index, src)

    def scatter_add_(self: Any, dim: int | None = None, index: Any = None, src: Any = None, *, axis: Any = None) -> Any:
        """scatter_add, in place.

        >>> gl.zeros(3).scatter_add_(0, gl.tensor([0, 0]), gl.tensor([1.0, 2.0]))
        tensor([3., 0., 0.])
        """
        if axis is not None or dim is None:
            dim = required("scatter_add_", dim, axis)
        if not self._array.shape or not isinstance(src, Differentiable):
            return update("scatter_add_", self, scatter_add, dim, index, src)
        index, src, dim = _scattered("scatter_add_", self, dim, index, src)
        return write_into("scatter_add_", self, ops.gather.scatter_add, (index, src), {"dim": dim})

    def scatter_reduce_(
        self, dim: int | None = None, index: Any = None, src: Any = None, reduce: Any = None, *, include_self: bool = True, axis: Any = None
    ) -> Any:  # fmt: skip
        """scatter_reduce, in place.

        >>> gl.ones(2).scatter_reduce_(0, gl.tensor([0, 0]), gl.tensor([2.0, 3.0]), "amax")
        tensor([3., 1.])
        """
        if axis is not None or dim is None:
            dim = required("scatter_reduce_", dim, axis)
        return update("scatter_reduce_", self, scatter_reduce, dim, index, src, reduce, include_self=include_self)
