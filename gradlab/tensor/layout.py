"""Layout: shifting, turning, triangles, diagonals, windows. Repetition is in `repetition.py`, joining and splitting in `assembly.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind, created
from gradlab.device import Device, default_device
from gradlab.dtype import INT64, as_numpy, result_type
from gradlab.named_errors import explain, named_functions
from gradlab.spec import DimensionError, ShapeError, none, normalize_dim, whole
from gradlab.tensor.common_arguments import either, into, only_tensors, plain, required
from gradlab.tensor.convert import moved
from gradlab.tensor.math_in_place import twin
from gradlab.tensor.shape import cat, flip, permute, reshape, transpose

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "diag", "diag_embed", "diagflat", "diagonal", "diagonal_scatter", "fliplr", "flipud", "moveaxis", "movedim", "ravel", "roll",
    "rot90", "select_scatter", "slice_scatter", "swapaxes", "swapdims", "trace", "tril", "tril_indices", "triu", "triu_indices",
]  # fmt: skip

_rows = ops.layout
_diagonal, _diagonal_embed, _diagonal_scatter, _tril, _triu, _unfold, _slice_scatter = map(
    bind,
    (
        _rows.diagonal, _rows.diagonal_embed, _rows.diagonal_scatter, _rows.tril, _rows.triu, _rows.unfold_view,
        ops.movement.slice_scatter,
    ),
)  # fmt: skip
swapdims = transpose


def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """`transpose`, under NumPy's name. A view.

    >>> gl.swapaxes(gl.ones(2, 3), 0, 1).shape
    (3, 2)
    """
    return transpose(input, axis0, axis1)


# ---------------------------------------------------------------- order


def _one_or_more(dims: Any) -> tuple[int, ...]:
    return tuple(dims) if isinstance(dims, (tuple, list)) else (dims,)


def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """The dimension(s) `source` at the place(s) `destination`, the others in their order. A view.

    >>> gl.movedim(gl.ones(2, 3, 4), 0, -1).shape
    (3, 4, 2)
    """
    rank = len(input._array.shape)
    given, places = _one_or_more(source), _one_or_more(destination)
    if len(given) != len(places):
        raise RuntimeError(f"movedim: as many sources as destinations, got {given} and {places}")
    start, end = ([normalize_dim(d, rank) for d in dims] for dims in (given, places))
    if len(set(start)) < len(start) or len(set(end)) < len(end):
        raise RuntimeError(f"movedim: a dimension is named twice in {given} or {places}")
    rest = iter(d for d in range(rank) if d not in start)
    target = dict(zip(end, start, strict=True))
    return permute(input, [target[d] if d in target else next(rest) for d in range(rank)])


moveaxis = movedim


def fliplr(input: Tensor) -> Tensor:
    """The columns in reverse order. A copy.

    >>> gl.fliplr(gl.tensor([[1, 2], [3, 4]]))
    tensor([[2, 1],
            [4, 3]])
    """
    if len(input._array.shape) < 2:
        raise RuntimeError(f"fliplr: at least two dimensions, not shape {input._array.shape}")
    return flip(input, 1)


def flipud(input: Tensor) -> Tensor:
    """The rows in reverse order. A copy.

    >>> gl.flipud(gl.tensor([[1, 2], [3, 4]]))
    tensor([[3, 4],
            [1, 2]])
    """
    if not input._array.shape:
        raise RuntimeError("flipud: at least one dimension")
    return flip(input, 0)


def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Elements moved by `shifts` along `dims`, those that leave at the end coming in at the beginning. Without `dims` in flat order.

    >>> gl.roll(gl.tensor([1, 2, 3]), 1)
    tensor([3, 1, 2])
    """
    steps = tuple(map(whole, _one_or_more(shifts)))
    if dims is None or none(dims):
        if len(steps) != 1:
            raise RuntimeError(f"roll: {len(steps)} shifts need as many dims")
        return reshape(roll(reshape(input, -1), steps, 0), input._array.shape)
    places = _one_or_more(dims)
    if len(steps) != len(places):
        raise RuntimeError(f"roll: as many shifts as dims, got {steps} and {places}")
    if not input._array.shape:
        raise DimensionError(f"roll: dims {places} of a tensor without dimensions")
    found = input
    for step, place in zip(steps, places, strict=True):
        dim = normalize_dim(place, len(input._array.shape))
        size = input._array.shape[dim]
        if size and step % size:
            cut = size - step % size
            found = cat([found.narrow(dim, cut, size - cut), found.narrow(dim, 0, cut)], dim)
    return found.clone() if found is input else found


def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Turned by k · 90 degrees in the plane of two dims, from the first toward the second.

    >>> gl.rot90(gl.tensor([[1, 2], [3, 4]]))
    tensor([[2, 4],
            [1, 3]])
    """
    rank = len(input._array.shape)
    if len(dims) != 2 or rank < 2:
        raise RuntimeError(f"rot90: two dims of at least two dimensions, got dims {tuple(dims)} for shape {input._array.shape}")
    a, b = (normalize_dim(d, rank) for d in dims)
    if a == b:
        raise RuntimeError(f"rot90: dims {tuple(dims)} are the same dimension")
    turns = k % 4
    if turns == 0:
        return input.clone()
    if turns == 2:
        return flip(input, a, b)
    return transpose(flip(input, b), a, b) if turns == 1 else flip(transpose(input, a, b), b)


def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension, one beside the other: a view of what is contiguous, else a copy.

    >>> gl.ravel(gl.tensor([[1, 2], [3, 4]]))
    tensor([1, 2, 3, 4])
    """
    return reshape(input.contiguous(), -1)


# ---------------------------------------------------------------- triangles and diagonals


def _matrices(name: str, input: Tensor) -> Tensor:
    if len(input._array.shape) < 2:
        raise RuntimeError(f"{name}: at least two dimensions, not shape {input._array.shape}")
    return input


def tril(input: Tensor, diagonal: int = 0, *, out: Any = None) -> Tensor:
    """The lower triangle of the last two dimensions, up to the given diagonal; 0 above.

    >>> gl.tril(gl.ones(2, 2))
    tensor([[1., 0.],
            [1., 1.]])
    """
    result = _tril(_matrices("tril", input), diagonal=whole(diagonal))
    return result if out is None else into("tril", out, result)


def triu(input: Tensor, diagonal: int = 0, *, out: Any = None) -> Tensor:
    """The upper triangle of the last two dimensions, from the given diagonal; 0 below.

    >>> gl.triu(gl.ones(2, 2))
    tensor([[1., 1.],
            [0., 1.]])
    """
    result = _triu(_matrices("triu", input), diagonal=whole(diagonal))
    return result if out is None else into("triu", out, result)


def _triangle_indices(find: Any, row: int, col: int, offset: int, dtype: Any, device: Any) -> Tensor:
    if row < 0 or col < 0:
        raise RuntimeError(f"sizes are not negative, got {row} and {col}")
    places = find(np.arange(whole(row))[:, None] + whole(offset), np.arange(whole(col))).nonzero()
    made = created(np.array(places, INT64 if dtype is None else as_numpy(dtype)))
    return moved(made, default_device() if device is None else Device(device))


def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
    """Row and column numbers, (2, n), of the lower triangle of a (row, col) matrix.

    >>> gl.tril_indices(2, 2)
    tensor([[0, 1, 1],
            [0, 0, 1]])
    """
    if options:
        plain("tril_indices", options)
    return _triangle_indices(np.greater_equal, row, col, offset, dtype, device)


def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
    """Row and column numbers, (2, n), of the upper triangle of a (row, col) matrix.

    >>> gl.triu_indices(2, 2)
    tensor([[0, 0, 1],
            [0, 1, 1]])
    """
    if options:
        plain("triu_indices", options)
    return _triangle_indices(np.less_equal, row, col, offset, dtype, device)


def _two(name: str, dim1: int, dim2: int, rank: int) -> tuple[int, int]:
    a, b = normalize_dim(dim1, rank), normalize_dim(dim2, rank)
    if a == b:
        raise RuntimeError(f"{name}: dim1 and dim2 are both dimension {a}")
    return a, b


def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of two dimensions, as the last dimension. A view.

    >>> gl.diagonal(gl.tensor([[1, 2], [3, 4]]))
    tensor([1, 4])
    """
    try:
        a, b = _two("diagonal", dim1, dim2, len(_matrices("diagonal", input)._array.shape))
        return _diagonal(input, offset=whole(offset), dim1=a, dim2=b)
    except Exception as error:
        explain(error, "diagonal", diagonal, (input, offset, dim1, dim2))


def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The last dimension as the diagonal of a new square of dimensions dim1 and dim2, 0 elsewhere.

    >>> gl.diag_embed(gl.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """
    shape, offset = input._array.shape, whole(offset)
    if not shape:
        raise RuntimeError("diag_embed: at least one dimension")
    a, b = _two("diag_embed", dim1, dim2, len(shape) + 1)
    outer = list(shape[:-1])
    for d in sorted((a, b)):
        outer.insert(d, shape[-1] + abs(offset))
    return _diagonal_embed(input, shape=tuple(outer), offset=whole(offset), dim1=a, dim2=b)


def diag(input: Tensor, diagonal: int = 0, *, out: Any = None) -> Tensor:
    """Of a vector the matrix with that diagonal; of a matrix a copy of its diagonal.

    >>> gl.diag(gl.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """
    try:
        if out is not None:
            return into("diag", out, diag(input, diagonal))
        rank = len(input._array.shape)
        if rank == 1:
            return diag_embed(input, diagonal)
        if rank != 2:
            raise RuntimeError(f"diag: a vector or a matrix, not shape {input._array.shape}; see diagonal and diag_embed")
        return _diagonal(input, offset=whole(diagonal), dim1=0, dim2=1).clone()
    except Exception as error:
        explain(error, "diag", diag, (input, diagonal), {"out": out})


def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """The matrix with all elements on its diagonal.

    >>> gl.diagflat(gl.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """
    return diag_embed(reshape(input, -1), offset)


def trace(input: Tensor) -> Tensor:
    """Sum of a matrix's diagonal.

    >>> gl.trace(gl.tensor([[1, 2], [3, 4]]))
    tensor(5)
    """
    if len(input._array.shape) != 2:
        raise RuntimeError(f"trace: a matrix, not shape {input._array.shape}")
    return diagonal(input).sum()


def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy of `input` with the diagonal replaced by `src`.

    >>> gl.diagonal_scatter(gl.zeros(2, 2), gl.ones(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    only_tensors("diagonal_scatter", src)
    a, b = _two("diagonal_scatter", dim1, dim2, len(_matrices("diagonal_scatter", input)._array.shape))
    return _diagonal_scatter(input, src.to(input._array.dtype), offset=whole(offset), dim1=a, dim2=b)


def select_scatter(input: Tensor, src: Tensor, dim: int | None = None, index: Any = None, *, axis: Any = None) -> Tensor:
    """A copy of `input` with the part at `index` along `dim` replaced by `src`.

    >>> gl.select_scatter(gl.zeros(2, 2), gl.ones(2), 0, 1)
    tensor([[0., 0.],
            [1., 1.]])
    """
    only_tensors("select_scatter", src)
    if axis is not None or dim is None:
        dim = required("select_scatter", dim, axis)
    dim = normalize_dim(dim, len(input._array.shape))
    return _slice_scatter(input, src.to(input._array.dtype), index=((0, None, 1),) * dim + (whole(index),))


def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1, *, out: Any = None,
    axis: Any = None,
) -> Tensor:  # fmt: skip
    """A copy of `input` with the slice start:end:step along `dim` replaced by `src`.

    >>> gl.slice_scatter(gl.zeros(3), gl.ones(1), 0, 1, 2)
    tensor([0., 1., 0.])
    """
    only_tensors("slice_scatter", src)
    dim = dim if axis is None else either("slice_scatter", dim, 0, axis)
    if out is not None:
        return into("slice_scatter", out, slice_scatter(input, src, dim, start, end, step))
    dim = normalize_dim(dim, len(input._array.shape))
    if step < 1:
        raise RuntimeError(f"slice_scatter: step is positive, got {step}")
    return _slice_scatter(input, src.to(input._array.dtype), index=((0, None, 1),) * dim + ((start, end, step),))


# ---------------------------------------------------------------- windows


def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """All windows of `size` elements along `dimension`, `step` apart; a window's elements are the last dimension. A view.

    >>> gl.tensor([1, 2, 3, 4]).unfold(0, 2, 1)
    tensor([[1, 2],
            [2, 3],
            [3, 4]])
    """
    try:
        shape = input._array.shape
        dim = normalize_dim(dimension, len(shape))
        if size < 0 or step < 1 or size > (shape[dim] if shape else 1):
            raise ShapeError(f"unfold: windows of size {size}, step {step} do not fit dimension {dim} of shape {shape}")
        return _unfold(input, dim=dim, size=whole(size), step=whole(step))
    except Exception as error:
        explain(error, "unfold", unfold, (input, dimension, size, step))


def common_dtype(tensors: Sequence[Tensor]) -> np.dtype[Any]:
    """The result type of several tensors."""
    return result_type([(x._array.dtype, len(x._array.shape)) for x in tensors])


named_functions(__name__)


class LayoutMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    swapaxes = swapaxes
    movedim, moveaxis, fliplr, flipud, roll, rot90 = movedim, movedim, fliplr, flipud, roll, rot90
    ravel, tril, triu = ravel, tril, triu
    diagonal, diag, diagflat, diag_embed, trace, unfold = diagonal, diag, diagflat, diag_embed, trace, unfold
    diagonal_scatter, select_scatter, slice_scatter = diagonal_scatter, select_scatter, slice_scatter
    tril_, triu_ = twin(tril), twin(triu)
