"""Shapes: views (view, permute, expand, slices), and joining and splitting.
A view shares the tensor's memory: writing one in place writes the other, and gradients follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind, side_by_side
from gradlab.dtype import result_type
from gradlab.named_errors import explain, flag, named_functions
from gradlab.spec import DimensionError, NoInteger, ShapeError, cached_sizes, count, none, normalize_dim, normalize_dims, whole
from gradlab.tensor.bits import view_as_dtype
from gradlab.tensor.common_arguments import either, into, one_of, only_tensors, required

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["cat", "flatten", "flip", "permute", "reshape", "squeeze", "stack", "t", "transpose", "unflatten", "unsqueeze"]

_rows = ops.movement
_view, _permute, _transpose, _t, _expand = map(bind, (_rows.view, _rows.permute, _rows.transpose, _rows.t, _rows.expand))
_squeeze, _unsqueeze, _cat, _flip, _clone = map(bind, (_rows.squeeze, _rows.unsqueeze, _rows.cat, _rows.flip, ops.elementwise.clone))


def _size(value: Any, values: Any) -> int:
    try:
        return whole(value)  # int() would fix a size that is not known while a graph is made
    except TypeError:
        raise NoInteger(f"sizes are integers, not {type(value).__name__}: {values!r}", value) from None


def sizes(values: tuple[Any, ...]) -> tuple[int, ...]:
    """A shape given as separate numbers or as one sequence."""
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        values = tuple(values[0])
    for v in values:
        if type(v) is not int:
            return tuple([_size(v, values) for v in values])
    return values


@cached_sizes(4096)
def _filled(name: str, shape: tuple[int, ...], old: tuple[int, ...]) -> tuple[int, ...]:
    """A shape in which one -1 stands for what is left."""
    if -1 not in shape:
        if shape != old and count(shape) != count(old):
            raise ShapeError(f"{name}: shape {shape} has {count(shape)} elements, the tensor of shape {old} has {count(old)}")
        return shape
    known, total = -count(shape), count(old)
    if shape.count(-1) > 1 or min(shape) < -1 or known == 0 or total % known:
        raise ShapeError(f"{name}: the tensor of shape {old} ({total} elements) does not take shape {shape}")
    place = shape.index(-1)
    return (*shape[:place], total // known, *shape[place + 1 :])


def _viewable(array: Any, shape: tuple[int, ...]) -> bool:
    """Whether the array's strides allow `shape` without a copy. What has no strides (under vmap) always does."""
    flags = getattr(array, "flags", None)
    if flags is None or flags.c_contiguous:
        return True
    return _allowed(array.shape, array.strides, array.dtype.itemsize, shape)


@cached_sizes(4096)
def _allowed(shape: tuple[int, ...], strides: tuple[int, ...], size: int, new: tuple[int, ...]) -> bool:
    """What NumPy says of an array that lies so in memory; none is touched."""
    try:
        np.reshape(np.lib.stride_tricks.as_strided(np.empty((), f"V{size}"), shape, strides), new, copy=False)
    except ValueError:
        return False
    return True


def view(input: Tensor, *shape: Any, dtype: Any = None, size: Any = None) -> Tensor:
    """The same memory in another shape (one size may be -1). Raises RuntimeError where the strides do not allow it: use reshape, which
    then copies.

    Given a dtype: the same bits as elements of that dtype, of which the last size counts as many as there are; no gradient passes.
    RuntimeError where elements of another size do not fit: the last dimension has gaps, or a size or step is no multiple.

    >>> gl.arange(4).view(2, -1)
    tensor([[0, 1],
            [2, 3]])
    """
    try:
        if dtype is not None or size is not None:
            shape = (dtype if size is None else size,)
        if shape and (isinstance(shape[0], type) or not (hasattr(shape[0], "__index__") or isinstance(shape[0], (tuple, list)))):
            return view_as_dtype(input, shape[0])
        new = _filled("view", sizes(shape), input._array.shape)
        if not _viewable(input._array, new):
            raise RuntimeError(
                f"view: shape {new} is not possible without a copy for a tensor of shape {input._array.shape} and "
                f"stride {input.stride()}; use reshape({', '.join(map(str, new))}) or contiguous() first"
            )
        return _view(input, shape=new)
    except Exception as error:
        explain(error, "view", view, (input, *shape), {"dtype": dtype, "size": size})


def reshape(input: Tensor, *size: Any, shape: Any = None) -> Tensor:
    """The same elements in another shape (one size may be -1): a view where the strides allow it, else a copy.

    >>> gl.reshape(gl.arange(4), (2, 2))
    tensor([[0, 1],
            [2, 3]])
    """
    try:
        new = _filled("reshape", sizes(size if shape is None else (shape,)), input._array.shape)
        return _view(input if _viewable(input._array, new) else _clone(input), shape=new)
    except Exception as error:
        explain(error, "reshape", reshape, (input, *size), {"shape": shape})


def copied(input: Tensor, shape: tuple[int, ...]) -> Tensor:
    """As `reshape`, but always a copy: what `repeat` and the like give, whose result is nobody's view."""
    return _view(_clone(input), shape=shape)


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions start_dim to end_dim as one.

    >>> gl.flatten(gl.ones(2, 3, 4), 1).shape
    (2, 12)
    """
    shape = input._array.shape
    if not shape:
        return reshape(input, 1)
    start, end = normalize_dim(start_dim, len(shape)), normalize_dim(end_dim, len(shape))
    if start > end:
        raise RuntimeError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
    return reshape(input, (*shape[:start], count(shape[start : end + 1]), *shape[end + 1 :])) if start < end else input


def unflatten(input: Tensor, dim: int | None = None, sizes: Any = None, *, axis: Any = None) -> Tensor:
    """One dimension as several (one size may be -1).

    >>> gl.unflatten(gl.ones(6), 0, (2, 3)).shape
    (2, 3)
    """
    if axis is not None or dim is None:
        dim = required("unflatten", dim, axis)
    shape = input._array.shape
    dim = normalize_dim(dim, len(shape))
    return reshape(input, (*shape[:dim], *_filled("unflatten", tuple(map(whole, sizes)), (shape[dim],)), *shape[dim + 1 :]))


@cached_sizes(1024)
def _turned(order: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return tuple([normalize_dim(d, rank) for d in order])


def permute(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """Dimensions in another order: dimension i of the result is dimension dims[i] of the input. A view.

    >>> gl.permute(gl.ones(2, 3, 4), (2, 0, 1)).shape
    (4, 2, 3)
    """
    try:
        order = sizes(one_of("permute", order, dims))
        rank = len(input._array.shape)
        if len(order) != rank:
            raise ShapeError(f"permute: {len(order)} dims {order} for a tensor of {rank} dimensions {input._array.shape}")
        return _permute(input, dims=_turned(order, rank))
    except Exception as error:
        explain(error, "permute", permute, (input, *order), {"dims": dims})


def transpose(input: Tensor, dim0: Any, dim1: Any = None) -> Tensor:
    """Two dimensions exchanged. A view. Given one sequence, as NumPy's and opt_einsum's, all dimensions in that order: `permute`.

    >>> gl.transpose(gl.ones(2, 3), 0, 1).shape
    (3, 2)
    """
    try:
        rank = len(input._array.shape)
        if dim1 is None:
            if not isinstance(dim0, (tuple, list)):
                whole(dim0)
                raise TypeError("transpose() missing 1 required positional argument: 'dim1'; or give the order of all dimensions as one")
            return input.permute(tuple(dim0))
        if not (type(dim0) is type(dim1) is int and 0 <= dim0 < rank and 0 <= dim1 < rank):
            dim0, dim1 = normalize_dim(dim0, rank), normalize_dim(dim1, rank)
        return _transpose(input, dim0=dim0, dim1=dim1)
    except Exception as error:
        explain(error, "transpose", transpose, (input, dim0, dim1))


def t(input: Tensor) -> Tensor:
    """The transpose of a matrix; a vector or number as it is. A view.

    >>> gl.t(gl.ones(2, 3)).shape
    (3, 2)
    """
    try:
        if len(input._array.shape) > 2:
            raise RuntimeError(f"t: at most two dimensions, not shape {input._array.shape}; use .mT or transpose(dim0, dim1)")
        return _t(input)
    except Exception as error:
        explain(error, "t", t, (input,))


@cached_sizes(4096)
def _widened(asked: tuple[int, ...], old: tuple[int, ...]) -> tuple[int, ...]:
    if (lead := len(asked) - len(old)) < 0:
        raise ShapeError(f"expand: shape {asked} has fewer dimensions than the tensor's {old}")
    if any(s == -1 for s in asked[:lead]):
        raise ShapeError(f"expand: -1 cannot stand for a new dimension in {asked}")
    return tuple(old[i - lead] if s == -1 else s for i, s in enumerate(asked))


def expand(input: Tensor, *shape: Any, size: Any = None, implicit: bool = False) -> Tensor:
    """Sizes of 1 repeated without a copy; -1 keeps a size; new dimensions come in front. A view, which cannot be
    written where something is repeated.

    >>> gl.tensor([1, 2]).expand(2, 2)
    tensor([[1, 2],
            [1, 2]])
    """
    try:
        if implicit is not False:
            flag("expand", "implicit", implicit)
        return _expand(input, shape=_widened(sizes(shape if size is None else (size,)), input._array.shape))
    except Exception as error:
        explain(error, "expand", expand, (input, *shape), {"size": size, "implicit": implicit})


def squeeze(input: Tensor, dim: Any = None, *more: int, axis: Any = None) -> Tensor:
    """Without the dimensions of size 1 (only those in `dim`, if given: a number, a tuple, or several numbers). A view.

    >>> gl.squeeze(gl.ones(2, 1, 3)).shape
    (2, 3)
    """
    try:
        dim = (dim, *more) if more else dim if axis is None else either("squeeze", dim, None, axis)
        shape = input._array.shape
        dims = tuple(range(len(shape))) if dim is None else () if none(dim) else normalize_dims(dim, len(shape))
        return _squeeze(input, dims=tuple(d for d in dims if shape[d] == 1))
    except Exception as error:
        explain(error, "squeeze", squeeze, (input, dim, *more), {"axis": axis})


def unsqueeze(input: Tensor, dim: int | None = None, *, axis: Any = None) -> Tensor:
    """A new dimension of size 1 at `dim`. A view.

    >>> gl.unsqueeze(gl.ones(2), 0).shape
    (1, 2)
    """
    try:
        dim = dim if dim is not None and axis is None else required("unsqueeze", dim, axis)
        dim = dim if type(dim) is int else whole(dim)
        rank = len(input._array.shape) + 1
        if not -rank <= dim < rank:
            raise DimensionError(f"unsqueeze: dimension out of range: dim={dim} (expected {-rank} to {rank - 1})")
        return _unsqueeze(input, dim=dim % rank)
    except Exception as error:
        explain(error, "unsqueeze", unsqueeze, (input, dim), {"axis": axis})


def _listed(name: str, tensors: Sequence[Tensor]) -> list[Tensor]:
    if isinstance(tensors, Differentiable):
        raise TypeError(f"{name}: a tuple or list of tensors, not one tensor; tensor.unbind() gives its rows")
    if not (found := list(tensors)):
        raise ValueError(f"{name}: expected at least one tensor, got none")
    for i, tensor in enumerate(found):
        if not isinstance(tensor, Differentiable):
            raise TypeError(f"{name}: element {i} is a {type(tensor).__name__}, not a tensor")
    first = found[0]._array.dtype
    if all(x._array.dtype == first for x in found):
        return found
    dtype = result_type([(x._array.dtype, len(x._array.shape)) for x in found])
    return [x.to(dtype) for x in found]


def cat(tensors: Sequence[Tensor], dim: int = 0, *, axis: Any = None, out: Any = None) -> Tensor:
    """Tensors one after the other along `dim`; their other sizes agree. A tensor of shape (0,) is passed over, as in PyTorch.

    >>> gl.cat([gl.ones(2), gl.zeros(1)])
    tensor([1., 1., 0.])
    """
    try:
        dim = dim if axis is None else either("cat", dim, 0, axis)
        small: Tensor | None = side_by_side(tensors, dim) if out is None else None
        if small is not None:
            return small
        found = _listed("cat", tensors)
        shapes = [x._array.shape for x in found]
        if not (most := max(shapes, key=len)):
            raise RuntimeError("cat: 0-d tensors cannot be concatenated; use stack")
        dim = 0 if all(shape == (0,) for shape in shapes) else normalize_dim(dim, len(most))  # none of them counts: it may be any
        if most != (0,) in shapes:
            found = [x.reshape((*most[:dim], 0, *most[dim + 1 :])) if x._array.shape == (0,) else x for x in found]
        return _cat(*found, dim=dim) if out is None else into("cat", out, _cat(*found, dim=dim), found)
    except Exception as error:
        explain(error, "cat", cat, (tensors, dim), {"axis": axis, "out": out})


def stack(tensors: Sequence[Tensor], dim: int = 0, *, axis: Any = None, out: Any = None) -> Tensor:
    """Tensors of one shape along a new dimension.

    >>> gl.stack([gl.ones(2), gl.zeros(2)])
    tensor([[1., 1.],
            [0., 0.]])
    """
    try:
        dim = dim if axis is None else either("stack", dim, 0, axis)
        if out is not None:
            return into("stack", out, stack(tensors, dim))
        found = _listed("stack", tensors)
        shape = found[0]._array.shape
        for i, x in enumerate(found):
            if x._array.shape != shape:
                raise ShapeError(f"stack: all shapes must be equal: tensor {i} has {x._array.shape}, tensor 0 has {shape}")
        dim = normalize_dim(dim, len(shape) + 1)
        if dim == len(shape):
            return _cat(*[_unsqueeze(x, dim=dim) for x in found], dim=dim)
        joined = _cat(*found, dim=dim)  # what lies one after the other along `dim` also lies along a dimension in front of it
        return _view(joined, shape=(*shape[:dim], len(found), *shape[dim:]))
    except Exception as error:
        explain(error, "stack", stack, (tensors, dim), {"axis": axis, "out": out})


def flip(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """The elements in reverse order along `dims`, given as separate numbers or one sequence. A copy.

    >>> gl.flip(gl.arange(3), (0,))
    tensor([2, 1, 0])
    """
    return _flip(input, dims=(d := sizes(one_of("flip", order, dims) or required("flip", None, None))) and normalize_dims(d, input.ndim))


named_functions(__name__)


class ShapeMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    view, reshape, flatten, unflatten, permute, transpose, t, expand = view, reshape, flatten, unflatten, permute, transpose, t, expand
    squeeze, unsqueeze, flip = squeeze, unsqueeze, flip
    swapdims = transpose

    def view_as(self, other: Tensor) -> Tensor:
        """view(other.shape).

        >>> gl.arange(4).view_as(gl.ones(2, 2))
        tensor([[0, 1],
                [2, 3]])
        """
        only_tensors("view_as", other)
        return view(self, other.shape)  # type: ignore[arg-type]

    def reshape_as(self, other: Tensor) -> Tensor:
        """reshape(other.shape).

        >>> gl.arange(4).reshape_as(gl.ones(2, 2))
        tensor([[0, 1],
                [2, 3]])
        """
        only_tensors("reshape_as", other)
        return reshape(self, other.shape)  # type: ignore[arg-type]

    def expand_as(self, other: Tensor) -> Tensor:
        """expand(other.shape).

        >>> gl.tensor([1, 2]).expand_as(gl.ones(2, 2))
        tensor([[1, 2],
                [1, 2]])
        """
        only_tensors("expand_as", other)
        return expand(self, other.shape)  # type: ignore[arg-type]

    @property
    def T(self) -> Tensor:
        """All dimensions in reverse order. A view.

        >>> gl.ones(2, 3).T.shape
        (3, 2)
        """
        return _t(self)

    @property
    def mT(self) -> Tensor:
        """The last two dimensions exchanged; a number itself. A view. RuntimeError for a vector.

        >>> gl.ones(2, 3, 4).mT.shape
        (2, 4, 3)
        """
        rank = len(self._array.shape)
        if rank == 1:
            raise RuntimeError(f"mT: at least two dimensions, not shape {self._array.shape}")
        if rank == 0:
            return self  # type: ignore[return-value]
        return _t(self) if rank == 2 else _transpose(self, dim0=rank - 2, dim1=rank - 1)
