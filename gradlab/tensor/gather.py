"""Reading and writing by index tensors along a dimension: gather, scatter, index_select and their relatives; masks; embedding."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind
from gradlab.dtype import BOOL, INT64
from gradlab.spec import ShapeError, Spec, broadcast_shapes, normalize_dim
from gradlab.tensor.alias import either, into
from gradlab.tensor.index_parts import known
from gradlab.tensor.indexing import fitted, write_into
from gradlab.tensor.update import update

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "argwhere", "gather", "index_add", "index_copy", "index_fill", "index_select", "masked_scatter", "masked_select",
    "nonzero", "scatter", "scatter_add", "scatter_reduce", "take", "take_along_dim",
]  # fmt: skip

_rows = ops.index
_index, _index_put, _nonzero, _embedding = map(bind, (_rows.index, _rows.index_put, _rows.nonzero, _rows.embedding))
_masked_scatter, _gather, _scatter = map(bind, (_rows.masked_scatter, ops.scatter.gather, ops.scatter.scatter))
_scatter_add, _scatter_reduce = map(bind, (ops.scatter.scatter_add, ops.scatter.scatter_reduce))
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


def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, out: Any = None) -> Tensor:
    """Values of `input` at `index` along `dim`: result[i][j] = input[index[i][j]][j] for dim 0. The result has index's shape.

    `index` has input's number of dimensions and may be smaller than it in the others. Raises an error (IndexError and RuntimeError)
    for places outside the dimension; negative places do not count from the end.
    """
    if out is not None:
        return into("gather", out, gather(input, dim, index, sparse_grad=sparse_grad), (input, index))
    if sparse_grad:
        raise NotImplementedError("gather: gradlab has no sparse tensors; leave sparse_grad out")
    if isinstance(index, Differentiable) and 0 in index._array.shape:  # of no places neither type nor dimensions matter
        index = index.to(INT64)
        if len(index._array.shape) != len(input._array.shape):
            return input.reshape(-1).narrow(0, 0, 0).reshape(index._array.shape)
    index = places("gather", index)
    dim = normalize_dim(dim, len(input._array.shape))
    if not input._array.shape and len(index._array.shape) <= 1:
        return _gather(lifted(input), lifted(index), dim=0).reshape(index._array.shape)
    return _gather(input, index, dim=dim)


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None, *, axis: Any = None, out: Any = None) -> Tensor:
    """`gather` with `input` and `indices` broadcast in the dimensions other than `dim`; without `dim` both are flattened.

    Negative indices count from the end.
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
    if not isinstance(src, Differentiable):
        if not isinstance(src, (int, float)):
            raise TypeError(f"{name}: the source is a tensor or a number, not {type(src).__name__}")
        src = input.new_full((), src)
    else:
        ops.scatter.fits("the source", lifted(src)._array.shape, Spec(lifted(index)._array.shape, INT64), None)
        src = lifted(src)
    if not shape:
        index = lifted(index)
    for d, size in enumerate(index._array.shape):
        if src._array.shape and src._array.shape[d] != size:
            src = src.narrow(d, 0, size)
    return index, src, dim


def scatter(input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Tensor:
    """A copy of `input` with result[index[i][j]][j] = src[i][j] (for dim 0).

    `src` is a tensor of input's dtype, at least as large as `index`, or a number. reduce: "add" or "multiply" instead of writing.
    Of several values for one place the last one stays. Raises as `gather`.
    """
    return _scatter_function(reduce)(input, dim, index, value if src is None else src)


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


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Any) -> Tensor:
    """A copy of `input` with result[index[i][j]][j] += src[i][j] (for dim 0); repeated places add up, in order. Arguments as `scatter`."""
    return _run(_scatter_add, "scatter_add", input, dim, index, src)


def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Any, reduce: str, *, include_self: bool = True) -> Tensor:
    """A copy of `input` in which each place named by `index` is reduced with all of its values of `src`.

    reduce: sum, prod, mean, amax or amin. include_self: whether the value of `input` takes part. The gradient of amax and amin is shared
    evenly among the values that attain it. Other arguments as `scatter`.
    """
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"scatter_reduce: reduce is one of {', '.join(_REDUCTIONS)}, not {reduce!r}")
    if reduce not in ("sum", "mean"):
        return _run(_scatter_reduce, "scatter_reduce", input, dim, index, src, reduce=reduce, include_self=bool(include_self))
    index, src, dim = _scattered("scatter_reduce", input, dim, index, src)
    start = lifted(input)
    if not include_self:
        start = _scatter(start, index, start.new_zeros(()), dim=dim)
    found = _scatter_add(start, index, src, dim=dim)
    if reduce == "mean":
        ones = start.new_ones(start._array.shape, dtype=INT64)
        hits = ones if include_self else _scatter(ones, index, ones.new_zeros(()), dim=dim)
        hits = _scatter_add(hits, index, ones.new_ones(()), dim=dim).clamp(min=1)
        found = found / hits.to(found._array.dtype) if found.is_floating_point() else found.div(hits, rounding_mode="floor")
    return found if input._array.shape else found.reshape(())


# ---------------------------------------------------------------- along one dimension, by a vector of places


def index_select(input: Tensor, dim: int, index: Tensor, *, out: Any = None) -> Tensor:
    """The parts of `input` at the places of the vector `index` along `dim`. Raises IndexError outside of [0, size)."""
    if out is not None:
        return into("index_select", out, index_select(input, dim, index), (input, index))
    index = row("index_select", index)
    if not input._array.shape:
        return _index(input.reshape(1), index.unsqueeze(0), dims=(0,), wrap=False).reshape(())
    dim = normalize_dim(dim, len(input._array.shape))
    return _index(input, index.unsqueeze(0), dims=(dim,), wrap=False)


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


def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """A copy of `input` with alpha · source[i] added to the part at index[i] along `dim`; repeated places add up, in order."""
    return _along_row("index_add", input, dim, index, source, True, alpha)


def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` whose part at index[i] along `dim` is source[i]."""
    return _along_row("index_copy", input, dim, index, source, False)


def _along_row(name: str, input: Tensor, dim: int, index: Any, source: Any, accumulate: bool, alpha: float = 1, write: bool = False) -> Any:
    at, source, dim = _along(name, input, dim, index, source)
    if alpha != 1:
        source = source * alpha
    if not input._array.shape:
        found = _index_put(input.reshape(1), at, lifted(source), dims=(0,), accumulate=accumulate, wrap=False).reshape(())
        return input.copy_(found) if write else found
    params = {"dims": (dim,), "accumulate": accumulate, "wrap": False}
    source = lifted(source)
    return write_into(name, input, _rows.index_put, (at, source), params) if write else _index_put(input, at, source, **params)


def _fill(name: str, input: Any, dim: int, index: Any, value: Any, write: bool) -> Any:
    index = row(name, index)
    if isinstance(value, Differentiable) and value._array.shape:
        raise RuntimeError(f"{name}: value is a number or a 0-d tensor, not one of shape {value._array.shape}")
    shape = lifted(input)._array.shape
    dim = normalize_dim(dim, len(shape))
    value = fitted(name, value, (*shape[:dim], index._array.shape[0], *shape[dim + 1 :]), input)
    params = {"dims": (dim,), "accumulate": False, "wrap": True}
    if not input._array.shape:
        found = _index_put(input.reshape(1), index.unsqueeze(0), value, **params).reshape(())
        return input.copy_(found) if write else found
    at = index.unsqueeze(0)
    return write_into(name, input, _rows.index_put, (at, value), params) if write else _index_put(input, at, value, **params)


def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy of `input` with `value` (a number or a 0-d tensor) in the parts at `index` along `dim`."""
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


def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements of the flattened `input` at `index`, in its shape. Negative places count from the end."""
    return _index(input.reshape(-1), places("take", index).unsqueeze(0), dims=(0,), wrap=True)


def embedding_lookup(weight: Tensor, indices: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of the table `weight` (n, m) at `indices` of any shape s: a tensor of shape (*s, m). Row `padding_idx` gets no gradient.

    Raises IndexError outside of [0, n).
    """
    at = places("embedding", indices)
    if padding_idx is not None:
        size = weight._array.shape[0]
        if not -size <= padding_idx < size:
            raise ValueError(f"embedding: padding_idx {padding_idx} is not a row of the table of shape {weight._array.shape}")
        padding_idx = int(padding_idx) % size
    return _embedding(weight, at, padding_idx=padding_idx)


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """Class numbers (int64, any shape s) as int64 vectors of shape (*s, num_classes) with one 1. -1: one more than the largest number."""
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


# ---------------------------------------------------------------- masks


def _mask(name: str, mask: Any) -> Any:
    if not isinstance(mask, Differentiable) or mask._array.dtype != BOOL:
        what = mask._array.dtype if isinstance(mask, Differentiable) else type(mask).__name__
        raise MaskError(f"{name}: the mask is a bool tensor, not {what}")
    return mask


class MaskError(TypeError, RuntimeError):
    """A mask that is not a bool tensor."""


def masked_select(input: Tensor, mask: Tensor, *, out: Any = None) -> Tensor:
    """The elements where the bool tensor `mask` is true, as a vector; both are broadcast. Its size depends on values: not for a trace."""
    mask = _mask("masked_select", mask)
    shape = broadcast_shapes(input._array.shape, mask._array.shape)
    at = _nonzero(mask.expand(shape).reshape(-1)).t()
    result = _index(input.expand(shape).reshape(-1), at, dims=(0,), wrap=True)
    return result if out is None else into("masked_select", out, result, (input, mask))


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` in which the true places of `mask` hold the elements of `source`, in order. Needs as many as there are."""
    mask, source = _masked(input, mask, source)
    shape = broadcast_shapes(input._array.shape, mask._array.shape)
    return _masked_scatter(input.expand(shape), mask.expand(shape), source)


def _masked(input: Tensor, mask: Any, source: Any) -> tuple[Any, Any]:
    if not isinstance(source, Differentiable) or source._array.dtype != input._array.dtype:
        raise RuntimeError(f"masked_scatter: the source is a tensor of the input's type {input._array.dtype}")
    return _mask("masked_scatter", mask), source


def nonzero(input: Tensor, *, as_tuple: bool = False, out: Any = None) -> Any:
    """Places of the nonzero elements: an int64 tensor (n, dimensions), or, with as_tuple, one vector for each dimension.

    Its size depends on values: not for a trace (use where).
    """
    if out is not None:
        return into("nonzero", out, nonzero(input, as_tuple=as_tuple))
    if not as_tuple:
        return _nonzero(input)
    return _nonzero(lifted(input)).unbind(1)


def argwhere(input: Tensor) -> Tensor:
    """nonzero(input)."""
    return _nonzero(input)


class GatherMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    gather, take_along_dim, scatter, scatter_add, scatter_reduce = gather, take_along_dim, scatter, scatter_add, scatter_reduce
    index_select, index_add, index_copy, index_fill, take = index_select, index_add, index_copy, index_fill, take
    masked_select, masked_scatter, nonzero, argwhere = masked_select, masked_scatter, nonzero, argwhere

    def scatter_(self: Any, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Any:
        """scatter, in place."""
        src = value if src is None else src
        if reduce is None and self._array.shape:
            index, src, dim = _scattered("scatter_", self, dim, index, src)
            return write_into("scatter_", self, ops.scatter.scatter, (index, src), {"dim": dim})
        return update("scatter_", self, _scatter_function(reduce), dim, index, src)

    def scatter_add_(self: Any, dim: int, index: Tensor, src: Any) -> Any:
        """scatter_add, in place."""
        if not self._array.shape:
            return update("scatter_add_", self, scatter_add, dim, index, src)
        index, src, dim = _scattered("scatter_add_", self, dim, index, src)
        return write_into("scatter_add_", self, ops.scatter.scatter_add, (index, src), {"dim": dim})

    def scatter_reduce_(self, dim: int, index: Tensor, src: Any, reduce: str, *, include_self: bool = True) -> Any:
        """scatter_reduce, in place."""
        return update("scatter_reduce_", self, scatter_reduce, dim, index, src, reduce, include_self=include_self)

    def index_add_(self: Any, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Any:
        """index_add, in place."""
        return _along_row("index_add_", self, dim, index, source, True, alpha, write=True)

    def index_copy_(self: Any, dim: int, index: Tensor, source: Tensor) -> Any:
        """index_copy, in place."""
        return _along_row("index_copy_", self, dim, index, source, False, write=True)

    def index_fill_(self, dim: int, index: Tensor, value: Any) -> Any:
        """index_fill, in place."""
        return _fill("index_fill_", self, dim, index, value, True)

    def masked_scatter_(self: Any, mask: Tensor, source: Tensor) -> Any:
        """masked_scatter, in place."""
        mask, source = _masked(self, mask, source)
        return write_into("masked_scatter_", self, _rows.masked_scatter, (mask.expand(self.shape), source), {})
