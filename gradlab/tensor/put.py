"""Writing to chosen places: by flat index (`put`), along a dimension, reduced (`index_reduce`), on the diagonal (`fill_diagonal_`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind, wrap
from gradlab.dtype import INT64
from gradlab.named_errors import named_functions
from gradlab.spec import count, normalize_dim
from gradlab.tensor.common_arguments import into, required
from gradlab.tensor.convert import moved
from gradlab.tensor.gather import IndexShapeError, TypeIndexError, places, row, scatter_reduce
from gradlab.tensor.in_place_methods import update

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["index_reduce", "put"]

_index_put = bind(ops.indexing.index_put)
_REDUCTIONS = ("prod", "mean", "amax", "amin")


def _source(name: str, input: Any, source: Any) -> Any:
    if not isinstance(source, Differentiable):
        raise TypeError(f"{name}: the source is a tensor, not {type(source).__name__}")
    if source._array.dtype != input._array.dtype:
        raise RuntimeError(f"{name}: the source has dtype {source._array.dtype}, the input {input._array.dtype}; convert one of them")
    return source


def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of `input` with the elements of `source` at the flat places `index` (int64, any shape; negative ones count from the end).

    source: as many elements as `index`, of input's dtype. accumulate: add instead of replace; repeated places then add up, in order;
    otherwise the last value stays. Raises IndexError for a place outside and for another number of elements.

    >>> import gradlab as gl
    >>> gl.put(gl.zeros(2, 2), gl.tensor([0, -1]), gl.tensor([1.0, 2.0]))
    tensor([[1., 0.],
            [0., 2.]])
    """
    if isinstance(index, Differentiable) and index._array.dtype != INT64:
        raise TypeIndexError(f"put: the index is an int64 tensor, not {index._array.dtype}; convert with .long()")
    at, values = places("put", index), _source("put", input, source)
    shape = input._array.shape
    if count(at._array.shape) != count(values._array.shape):
        raise IndexShapeError(f"put: {count(values._array.shape)} values for {count(at._array.shape)} places; give one for each")
    if not count(at._array.shape):
        return input.clone()
    flat = _index_put(input.reshape(-1), at.reshape(1, -1), values.reshape(-1), dims=(0,), accumulate=bool(accumulate), wrap=True)
    return flat.reshape(shape)


def index_reduce(
    input: Tensor, dim: int | None = None, index: Any = None, source: Any = None, reduce: Any = None, *, include_self: bool = True,
    out: Any = None, axis: Any = None,
) -> Tensor:  # fmt: skip
    """A copy of `input` whose part at index[i] along `dim` is reduced with all of its parts source[i].

    reduce: prod, mean, amax or amin. index: a vector of integers. source: of input's dtype and shape, but as long as `index` along `dim`.
    include_self: whether the values of `input` take part. The gradient of amax and amin is shared evenly among the values that attain it.

    >>> import gradlab as gl
    >>> gl.index_reduce(gl.ones(2), 0, gl.tensor([0, 0]), gl.tensor([2.0, 3.0]), "prod")
    tensor([6., 1.])
    """
    if axis is not None or dim is None:
        dim = required("index_reduce", dim, axis)
    if out is not None:
        return into("index_reduce", out, index_reduce(input, dim, index, source, reduce, include_self=include_self))
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"index_reduce: reduce is one of {', '.join(_REDUCTIONS)}, not {reduce!r}")
    at, values = row("index_reduce", index), _source("index_reduce", input, source)
    if not input._array.shape:
        return index_reduce(input.reshape(1), 0, at, values.reshape(-1), reduce, include_self=include_self).reshape(())
    shape = input._array.shape
    dim = normalize_dim(dim, len(shape))
    wanted = (*shape[:dim], at._array.shape[0], *shape[dim + 1 :])
    if values._array.shape != wanted:
        raise IndexShapeError(f"index_reduce: the source of shape {values._array.shape} is not of shape {wanted}, which the index asks for")
    spread = at.reshape((-1,) + (1,) * (len(shape) - 1 - dim)).expand(wanted)
    return scatter_reduce(input, dim, spread, values, reduce, include_self=include_self)


named_functions(__name__)


class PutMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    put, index_reduce = put, index_reduce

    def put_(self, index: Tensor, source: Tensor, accumulate: bool = False) -> Any:
        """put, in place.

        >>> gl.zeros(3).put_(gl.tensor([0, -1]), gl.tensor([1.0, 2.0]))
        tensor([1., 0., 2.])
        """
        return update("put_", self, put, index, source, accumulate)

    def index_reduce_(
        self, dim: int | None = None, index: Any = None, source: Any = None, reduce: Any = None, *, include_self: bool = True,
        axis: Any = None,
    ) -> Any:  # fmt: skip
        """index_reduce, in place.

        >>> gl.ones(2).index_reduce_(0, gl.tensor([0, 0]), gl.tensor([2.0, 3.0]), "prod")
        tensor([6., 1.])
        """
        if axis is not None or dim is None:
            dim = required("index_reduce_", dim, axis)
        return update("index_reduce_", self, index_reduce, dim, index, source, reduce, include_self=include_self)

    def fill_diagonal_(self: Any, fill_value: Any, wrap: bool = False) -> Any:
        """Write one number on the main diagonal, in place: at least two dimensions, of one size if there are more.

        wrap: in a matrix of more rows than columns the diagonal starts again, a row below its end.

        >>> gl.zeros(2, 2).fill_diagonal_(5)
        tensor([[5., 0.],
                [0., 5.]])
        """
        shape = self._array.shape
        if len(shape) < 2:
            raise RuntimeError(f"fill_diagonal_: at least two dimensions, not shape {shape}")
        if len(shape) > 2 and len(set(shape)) > 1:
            raise RuntimeError(f"fill_diagonal_: with more than two dimensions all have one size, got shape {shape}")
        return self.masked_fill_(moved(_mask(shape, wrap), self.device), fill_value)


def _mask(shape: tuple[int, ...], again: bool) -> Any:
    mask = np.zeros(shape, bool)
    np.fill_diagonal(mask, True, wrap=bool(again))
    return wrap(mask)
