"""Reading and writing parts of a tensor along one dimension, by a vector of places: index_select and its relatives, take, embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.one_row import one_row
from gradlab.autograd.recall import scalar
from gradlab.autograd.record import bind, unrecorded, wrap
from gradlab.dtype import BOOL, FLOAT32, FLOAT64, HALF, INEXACT, INT64
from gradlab.named_errors import describe, explain, named_functions
from gradlab.spec import normalize_dim
from gradlab.tensor.common_arguments import into, required
from gradlab.tensor.from_data import beyond
from gradlab.tensor.in_place_methods import unrepeated, update
from gradlab.tensor.index_parts import known
from gradlab.tensor.indexing import fitted, write_into
from gradlab.tensor.rounding import once

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor
from gradlab.tensor.gather import IndexShapeError, lifted, places, row

__all__ = ["index_add", "index_copy", "index_fill", "index_select", "take"]

_rows = ops.indexing
_index, _index_put, _embedding, _scatter = map(bind, (_rows.index, _rows.index_put, _rows.embedding, ops.gather.scatter))


@one_row
def index_select(input: Tensor, dim: int | None = None, index: Any = None, *, out: Any = None, axis: Any = None) -> Tensor:
    """The parts of `input` at the places of the vector `index` along `dim`. Raises IndexError outside of [0, size).

    >>> gl.index_select(gl.tensor([[1, 2], [3, 4]]), 1, gl.tensor([1]))
    tensor([[2],
            [4]])
    """
    try:
        if axis is not None or dim is None:
            dim = required("index_select", dim, axis)
        if out is not None:
            return into("index_select", out, index_select(input, dim, index), (input, index))
        index = row("index_select", index)
        if not input._array.shape:
            return _index(input.reshape(1), index.unsqueeze(0), dims=(0,), wrap=False).reshape(())
        dim = normalize_dim(dim, len(input._array.shape))
        return _index(input, index.unsqueeze(0), dims=(dim,), wrap=False)
    except Exception as error:
        explain(error, "index_select", index_select, (input, dim, index), {"out": out, "axis": axis})


def _along(name: str, input: Tensor, dim: int, index: Any, source: Any) -> tuple[Any, Any, int]:
    index = row(name, index)
    shape = input._array.shape
    dim = normalize_dim(dim, len(shape))
    if not isinstance(source, Differentiable):
        raise TypeError(f"{name}: the source is a tensor, not {type(source).__name__}")
    if source._array.dtype != input._array.dtype:
        raise RuntimeError(f"{name}: the source has dtype {source._array.dtype}, the input {input._array.dtype}; convert one of them")
    target = (*shape[:dim], index._array.shape[0], *shape[dim + 1 :])
    if source._array.shape != target and not (len(target) <= 1 and lifted(source)._array.shape == index._array.shape):
        raise IndexShapeError(f"{name}: the source of shape {source._array.shape} is not of shape {target}, which the index asks for")
    return index.unsqueeze(0), source, dim


def index_add(
    input: Tensor, dim: int | None = None, index: Any = None, source: Any = None, *, alpha: float = 1, out: Any = None, axis: Any = None
) -> Tensor:  # fmt: skip
    """A copy of `input` with alpha · source[i] added to the part at index[i] along `dim`; repeated places add up, in order.

    >>> gl.index_add(gl.zeros(2), 0, gl.tensor([1, 1]), gl.tensor([1.0, 2.0]))
    tensor([0., 3.])
    """
    if axis is not None or dim is None:
        dim = required("index_add", dim, axis)
    if out is not None:
        return into("index_add", out, index_add(input, dim, index, source, alpha=alpha))
    return _along_row("index_add", input, dim, index, source, True, alpha)


def index_copy(
    input: Tensor, dim: int | None = None, index: Any = None, source: Any = None, *, out: Any = None, axis: Any = None
) -> Tensor:  # fmt: skip
    """A copy of `input` whose part at index[i] along `dim` is source[i].

    >>> gl.index_copy(gl.zeros(2), 0, gl.tensor([1]), gl.tensor([5.0]))
    tensor([0., 5.])
    """
    if axis is not None or dim is None:
        dim = required("index_copy", dim, axis)
    if out is not None:
        return into("index_copy", out, index_copy(input, dim, index, source))
    return _along_row("index_copy", input, dim, index, source, False)


def _along_row(name: str, input: Tensor, dim: int, index: Any, source: Any, accumulate: bool, alpha: float = 1, write: bool = False) -> Any:
    if alpha != 1 and input._array.dtype in HALF:
        if write:
            return update(name, input, index_add, dim, index, source, alpha=alpha)
        return once(_along_row, (name, input, dim, index, source, accumulate, alpha), first=1)
    at, source, dim = _along(name, input, dim, index, source)
    if alpha != 1:
        dtype = source._array.dtype
        source = source * (alpha if dtype in INEXACT else bool(alpha) if dtype == BOOL else int(alpha))  # cut, as PyTorch
    if not input._array.shape:
        found = _index_put(input.reshape(1), at, lifted(source), dims=(0,), accumulate=accumulate, wrap=False).reshape(())
        return input.copy_(found) if write else found
    params = {"dims": (dim,), "accumulate": accumulate, "wrap": False}
    source = lifted(source)
    return write_into(name, input, _rows.index_put, (at, source), params) if write else _index_put(input, at, source, **params)


def _fill(name: str, input: Any, dim: int, index: Any, value: Any, write: bool) -> Any:
    index = row(name, index)
    if isinstance(value, (tuple, list)) or getattr(value, "shape", None):
        raise RuntimeError(f"{name}: value is a number or a 0-d tensor, not {describe(value)}")
    shape = lifted(input)._array.shape
    dim = normalize_dim(dim, len(shape))
    if write and unrepeated(input) is not None:
        input[(slice(None),) * dim + (index,)] = value
        return input
    part = (*shape[:dim], index._array.shape[0], *shape[dim + 1 :])
    dtype, plain = input._array.dtype, type(input._array) is np.ndarray and unrecorded(index) is not None
    if plain and (type(value) is float or type(value) is int) and (dtype is FLOAT32 or dtype is FLOAT64) and not beyond(value, dtype):
        try:
            value = wrap(np.full(part, scalar(value, dtype)))
        except OverflowError:  # said below
            value = fitted(name, value, part, input)
    else:
        value = fitted(name, value, part, input)
    params = {"dims": (dim,), "accumulate": False, "wrap": True}
    if not input._array.shape:
        found = _index_put(input.reshape(1), index.unsqueeze(0), value, **params).reshape(())
        return input.copy_(found) if write else found
    at = index.unsqueeze(0)
    return write_into(name, input, _rows.index_put, (at, value), params) if write else _index_put(input, at, value, **params)


def index_fill(input: Tensor, dim: int | None = None, index: Any = None, value: Any = None, *, axis: Any = None) -> Tensor:
    """A copy of `input` with `value` (a number or a 0-d tensor) in the parts at `index` along `dim`.

    >>> gl.index_fill(gl.zeros(2), 0, gl.tensor([1]), 5)
    tensor([0., 5.])
    """
    if axis is not None or dim is None:
        dim = required("index_fill", dim, axis)
    if isinstance(value, Differentiable) and value._edge is not None and not value._array.shape:
        # An index may come twice, but its places are filled once: a mask gives `value` the gradient of each place once.
        shape = lifted(input)._array.shape
        dim = normalize_dim(dim, len(shape))
        at = row("index_fill", index)
        chosen = input.new_zeros((shape[dim],), dtype=BOOL)
        chosen = _index_put(chosen, at.unsqueeze(0), chosen.new_ones(at._array.shape), dims=(0,), accumulate=False, wrap=True)
        mask = chosen.reshape((-1,) + (1,) * (len(shape) - 1 - dim)) if input._array.shape else chosen.reshape(())
        return input.masked_fill(mask, value)
    return _fill("index_fill", input, dim, index, value, False)


def take(input: Tensor, index: Tensor, *, out: Any = None) -> Tensor:
    """Elements of the flattened `input` at `index`, in its shape. Negative places count from the end.

    >>> gl.take(gl.tensor([[1, 2], [3, 4]]), gl.tensor([0, -1]))
    tensor([1, 4])
    """
    if out is not None:
        return into("take", out, take(input, index), (input, index))
    return _index(input.reshape(-1), places("take", index).unsqueeze(0), dims=(0,), wrap=True)


def embedding_lookup(weight: Tensor, indices: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of the table `weight` (n, m) at `indices` of any shape s: a tensor of shape (*s, m). Row `padding_idx` gets no gradient.

    Raises IndexError outside of [0, n).
    """
    at = places("embedding", indices)
    return _embedding(weight, at, padding_idx=row_of_padding("embedding", weight, padding_idx))


def row_of_padding(name: str, weight: Tensor, padding_idx: int | None) -> int | None:
    """padding_idx counted from 0. Raises ValueError where the table has no such row."""
    if padding_idx is None:
        return None
    size = weight._array.shape[0]
    if not -size <= padding_idx < size:
        raise ValueError(f"{name}: padding_idx {padding_idx} is not a row of the table of shape {weight._array.shape}")
    return int(padding_idx) % size


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """Class numbers (int64, any shape s) as int64 vectors of shape (*s, num_classes) with one 1. -1: one more than the largest number.

    >>> gl.nn.functional.one_hot(gl.tensor([0, 2]))
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    if not isinstance(input, Differentiable) or input._array.dtype != INT64:
        raise RuntimeError("one_hot: class numbers are an int64 tensor; convert with .long()")
    shape = input._array.shape
    if num_classes == -1:
        if not known(input):
            raise RuntimeError("one_hot: the number of classes must be known in a trace: pass num_classes=")
        if 0 in shape:
            raise RuntimeError("one_hot: the number of classes cannot be found from an empty tensor; pass num_classes=")
        num_classes = int(input.max().item()) + 1
    if num_classes < 1 and 0 not in shape:
        raise RuntimeError(f"one_hot: at least one class, not {num_classes}; class numbers are not negative")
    return _scatter(input.new_zeros((*shape, num_classes)), input.unsqueeze(-1), input.new_ones(()), dim=len(shape))


named_functions(__name__, also="one_hot")


class SelectionMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    index_select, index_add, index_copy, index_fill, take = index_select, index_add, index_copy, index_fill, take

    def index_add_(self: Any, dim: int | None = None, index: Any = None, source: Any = None, *, alpha: float = 1, axis: Any = None) -> Any:
        """index_add, in place.

        >>> gl.zeros(2).index_add_(0, gl.tensor([1, 1]), gl.tensor([1.0, 2.0]))
        tensor([0., 3.])
        """
        if axis is not None or dim is None:
            dim = required("index_add_", dim, axis)
        return _along_row("index_add_", self, dim, index, source, True, alpha, write=True)

    def index_copy_(self: Any, dim: int | None = None, index: Any = None, source: Any = None, *, axis: Any = None) -> Any:
        """index_copy, in place.

        >>> gl.zeros(2).index_copy_(0, gl.tensor([1]), gl.tensor([5.0]))
        tensor([0., 5.])
        """
        if axis is not None or dim is None:
            dim = required("index_copy_", dim, axis)
        return _along_row("index_copy_", self, dim, index, source, False, write=True)

    def index_fill_(self, dim: int | None = None, index: Any = None, value: Any = None, *, axis: Any = None) -> Any:
        """index_fill, in place.

        >>> gl.zeros(2).index_fill_(0, gl.tensor([1]), 5)
        tensor([0., 5.])
        """
        if axis is not None or dim is None:
            dim = required("index_fill_", dim, axis)
        return _fill("index_fill_", self, dim, index, value, True)
