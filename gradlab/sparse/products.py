"""Products of sparse matrices: with dense ones by the row `spmm`, with each other by their entries."""

from __future__ import annotations

from typing import Any

from gradlab import ops
from gradlab.autograd.mode import current, lowered
from gradlab.autograd.record import bind
from gradlab.sparse import entries, shapes
from gradlab.sparse.array import Pattern, is_sparse, only_eager, refusal, sparse
from gradlab.spec import ShapeError
from gradlab.tensor import Tensor
from gradlab.tensor.creation import arange
from gradlab.tensor.repetition import repeat_interleave
from gradlab.tensor.selection import index_select
from gradlab.tensor.shape import stack

_spmm, _sddmm = map(bind, (ops.sparse.spmm, ops.sparse.sddmm))


def _plan(pattern: Pattern, differentiated: bool) -> tuple[Any, ...]:
    """What the rows are told of a pattern: where its entries are, which each row has, and, for a gradient, which each column has."""
    starts, order = pattern.compressed(0)
    columns = pattern.compressed(1) if differentiated and current().recording else (None, None)
    return pattern.indices[0], pattern.indices[1], starts, order, *columns


def _matrix(name: str, x: Any) -> Any:
    array = x._array
    if len(array.shape) != 2 or len(array.pattern.sizes) != 2:
        raise refusal(f"{name} with a sparse tensor of shape {array.shape}, which is no matrix of numbers,")
    return array


def _inner(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    if a[-1] != b[0]:
        raise ShapeError(f"{name}: shapes {a} and {b} do not multiply: {a[-1]} columns and {b[0]} rows")


def times_dense(name: str, x: Any, dense: Any) -> Any:
    """A sparse matrix (n, m) times a dense one (m, k)."""
    array = _matrix(name, x)
    _inner(name, array.shape, dense._array.shape)
    if array.dtype != dense._array.dtype:
        raise RuntimeError(f"{name}: tensors of one dtype, got {x.dtype} and {dense.dtype}; convert one with .to()")
    differentiated = array.values._edge is not None or dense._edge is not None
    return _spmm(array.values, dense, *_plan(array.pattern, differentiated))


def times_sparse(name: str, a: Any, b: Any) -> Any:
    """Two sparse matrices multiplied: each entry of the first with those of the second's row that its column names, added up."""
    left, right = _matrix(name, a), _matrix(name, b)
    _inner(name, left.shape, right.shape)
    row, col = left.pattern.indices[0], left.pattern.indices[1]
    starts, order = right.pattern.compressed(0)
    first = starts[col]
    often = starts[col + 1] - first
    which = repeat_interleave(arange(left.pattern.number, device=col.device), often)
    chosen = first[which] + arange(which.shape[0], device=col.device) - (often.cumsum(0) - often)[which]
    chosen = chosen if order is None else order[chosen]
    values = index_select(left.values, 0, which) * index_select(right.values, 0, chosen)
    pattern = Pattern(stack([row[which], right.pattern.indices[1][chosen]]), (left.shape[0], right.shape[1]))
    return shapes.in_layout(sparse(*entries.coalesced(pattern, values)), left.layout)


def matmul(a: Any, b: Any, name: str = "matmul") -> Any:
    """The product of two matrices of which one at least is sparse; of a sparse matrix and a batch of dense ones."""
    only_eager(name)
    a, b = lowered(a, b)
    if is_sparse(a) and is_sparse(b):
        return times_sparse(name, a, b)
    if is_sparse(b):
        _matrix(name, b)
        return matmul(b.t(), a.transpose(-1, -2), name).transpose(-1, -2)
    _matrix(name, a)
    shape = b._array.shape
    if len(shape) == 2:
        return times_dense(name, a, b)
    if len(shape) < 2:
        raise ShapeError(f"{name}: a matrix, not shape {shape}")
    _inner(name, a._array.shape, shape[-2:])
    rows = b.reshape((-1, *shape[-2:])).permute(1, 0, 2).reshape((shape[-2], -1))
    found = times_dense(name, a, rows).reshape((a._array.shape[0], -1, shape[-1]))
    return found.permute(1, 0, 2).reshape((*shape[:-2], a._array.shape[0], shape[-1]))


def linear(x: Any, w: Any, b: Any) -> Any:
    """x wᵀ + b, one of the first two sparse."""
    if not is_sparse(x) and not is_sparse(w):
        raise refusal("linear with a sparse bias")
    found = matmul(x, w.t(), "linear")
    return found if b is None else found + b


def sampled(x: Any, a: Any, b: Any) -> Any:
    """The product of two dense matrices at the places of a sparse one's entries: their values."""
    array = _matrix("sampled_addmm", x)
    if a.ndim != 2 or b.ndim != 2 or (a.shape[0], b.shape[1]) != array.shape or a.shape[1] != b.shape[0]:
        raise ShapeError(f"sampled_addmm: matrices (n, k) and (k, m) for shape {array.shape}, not {a.shape} and {b.shape}")
    pattern = array.pattern
    found: Tensor = _sddmm(a, b.t(), *_plan(pattern, True))
    return found


def combined(name: str, input: Any, product: Any, beta: float, alpha: float) -> Any:
    """beta · input + alpha · product"""
    if is_sparse(product) and not is_sparse(input):
        raise refusal(f"{name} of a dense tensor and a sparse product")
    product = product if alpha == 1 else alpha * product
    return product if beta == 0 else (input if beta == 1 else beta * input) + product
