"""Factors and solutions that say by a number, `info`, which matrices have none, in place of an error; LU factors in one matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab.autograd.base import Differentiable
from gradlab.named_errors import named_functions
from gradlab.op import result_class
from gradlab.ops.solve import LinAlgError
from gradlab.spec import ShapeError, count
from gradlab.tensor.common_arguments import into
from gradlab.tensor.creation import as_tensor, full, zeros
from gradlab.tensor.factorization import cholesky, lu, ordered_lu
from gradlab.tensor.shape import stack
from gradlab.tensor.solve import inverse, solve, solve_triangular

Tensor = Any


CheckedCholesky = result_class("cholesky_ex", ("L", "info"))
CheckedInverse = result_class("inv_ex", ("inverse", "info"))
CheckedSolution = result_class("solve_ex", ("result", "info"))
PackedLU = result_class("lu_factor", ("LU", "pivots"))
CheckedLU = result_class("lu_factor_ex", ("LU", "pivots", "info"))


def _checked(kind: Any, function: Callable[..., Any], A: Tensor, others: tuple[Any, ...], check_errors: bool, first: Any) -> Any:
    """function(A, *others) and zeros; where a matrix has no result NaN, and in `info` what `first(matrix)` says."""
    batch = A._array.shape[:-2]
    try:
        return kind(function(A, *others), zeros(batch, dtype="int32", device=A.device))
    except LinAlgError:
        if check_errors:
            raise
    if not batch:
        shape = others[0]._array.shape if others else A._array.shape
        return kind(full(shape, float("nan"), dtype=A.dtype, device=A.device), full((), first(A), dtype="int32", device=A.device))
    split = [x.expand(*batch, *x._array.shape[-2:]) if isinstance(x, Differentiable) else x for x in others]  # type: ignore[attr-defined]
    parts = [
        _checked(kind, function, A[i], tuple(x[i] if isinstance(x, Differentiable) else x for x in split), False, first)  # type: ignore[index]
        for i in range(batch[0])
    ]
    return kind(stack([part[0] for part in parts]), stack([part[1] for part in parts]))


def _first_minor(matrix: Tensor) -> int:
    """The size of the smallest leading minor that is not positive definite."""
    matrix = matrix.detach()
    for size in range(1, matrix._array.shape[-1] + 1):
        try:
            cholesky(matrix[:size, :size])
        except LinAlgError:
            return size
    return 0


def _first_pivot(matrix: Tensor) -> int:
    """Where the first 0 stands on the diagonal of U, from 1."""
    diagonal = lu(matrix.detach())[2].diagonal(dim1=-2, dim2=-1)
    return int((diagonal == 0).long().argmax()) + 1


def cholesky_ex(input: Tensor, *, upper: bool = False, check_errors: bool = False, out: Any = None) -> Any:
    """`cholesky` as (L, info): info (int32, of the batch's shape) is 0, or the size of the first leading minor that is not positive
    definite.

    Where it is not 0, L is NaN. check_errors: raise LinAlgError there.

    >>> gl.linalg.cholesky_ex(gl.tensor([[1.0, 2.0], [2.0, 1.0]])).info
    tensor(2, dtype=gradlab.int32)
    """
    found = _checked(CheckedCholesky, lambda a: cholesky(a, upper), input, (), check_errors, _first_minor)
    return found if out is None else into("linalg.cholesky_ex", out, found)


def inv_ex(A: Tensor, *, check_errors: bool = False, out: Any = None) -> Any:
    """`inv` as (inverse, info): info (int32, of the batch's shape) is 0, or where the first pivot is 0; the inverse is NaN there.

    check_errors: raise LinAlgError instead.

    >>> gl.linalg.inv_ex(gl.eye(2)).info
    tensor(0, dtype=gradlab.int32)
    """
    found = _checked(CheckedInverse, inverse, A, (), check_errors, _first_pivot)
    return found if out is None else into("linalg.inv_ex", out, found)


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False, out: Any = None) -> Any:
    """`solve` as (result, info): info (int32, of A's batch) is 0, or where the first pivot of A is 0; the result is NaN there.

    check_errors: raise LinAlgError instead.

    >>> gl.linalg.solve_ex(gl.eye(2), gl.ones(2, 1)).info
    tensor(0, dtype=gradlab.int32)
    """
    vector = B._array.ndim == 1 if hasattr(B._array, "ndim") else len(B._array.shape) == 1
    vector = vector or tuple(B._array.shape) == tuple(A._array.shape[:-1])
    right = B.unsqueeze(-1) if vector else B
    found = _checked(CheckedSolution, lambda a, b: solve(a, b, left=left), A, (right,), check_errors, _first_pivot)
    found = CheckedSolution(found.result.squeeze(-1), found.info) if vector else found
    return found if out is None else into("linalg.solve_ex", out, found)


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False, out: Any = None) -> Any:
    """`lu_factor` as (LU, pivots, info): info (int32, of the batch's shape) is 0, or where the first 0 stands on U's diagonal, from 1.

    check_errors: raise LinAlgError there.

    >>> gl.linalg.lu_factor_ex(gl.ones(2, 2)).info
    tensor(2, dtype=gradlab.int32)
    """
    order, lower, upper = ordered_lu(A, pivot)
    size = min(A._array.shape[-2:])
    packed = _packed(lower, upper, A)
    if type(order._array) is np.ndarray:
        pivots = as_tensor(_exchanges(order._array, size))
        zeros_of = np.diagonal(upper._array, axis1=-2, axis2=-1) == 0
        first = np.where(zeros_of.any(-1), zeros_of.argmax(-1) + 1, 0) if size else np.zeros(zeros_of.shape[:-1])
        info = as_tensor(first.astype(np.int32))
    else:
        exchanged = zeros((*A._array.shape[:-2], size), dtype="int32", device=A.device)
        pivots = exchanged if A.is_meta else as_tensor(_exchanges(order.cpu().numpy(), size)).to(A.device)
        zero = upper.detach().diagonal(dim1=-2, dim2=-1) == 0
        info = (((~zero).long().cumprod(-1).sum(-1) + 1) * zero.any(-1)).int()
    if check_errors and not A.is_meta and bool(info.any()):
        raise LinAlgError(f"lu_factor: a matrix is singular: {info.tolist()} is where its first pivot is 0")
    found = CheckedLU(packed, pivots, info)
    return found if out is None else into("linalg.lu_factor_ex", out, found)


def _packed(lower: Tensor, upper: Tensor, A: Tensor) -> Tensor:
    """L without its diagonal and U in one matrix of A's shape."""
    rows, columns = A._array.shape[-2:]
    below = lower.tril(-1)
    if columns > below._array.shape[-1]:
        return below.new_zeros((*A._array.shape[:-2], rows, columns)).slice_scatter(below, -1, 0, below._array.shape[-1]) + upper
    if rows > upper._array.shape[-2]:
        return below + upper.new_zeros(A._array.shape).slice_scatter(upper, -2, 0, upper._array.shape[-2])
    return below + upper


def _exchanges(order: Any, size: int) -> Any:
    """The exchanges of rows, one after the other and counted from 1, that bring them into an order (as LAPACK writes them)."""
    given = order.reshape(count(order.shape[:-1]), order.shape[-1])
    out, batch = np.empty((len(given), size), np.int32), np.arange(len(given))
    if len(given) < size:  # one by one, or a step of all at a time
        for found, wanted in zip(out, given.tolist(), strict=True):
            standing, where = list(range(len(wanted))), list(range(len(wanted)))
            for i in range(size):
                found[i] = j = where[wanted[i]]
                standing[j], where[standing[i]] = standing[i], j
    else:
        rows = np.tile(np.arange(order.shape[-1]), (len(given), 1))
        places = rows.copy()
        for i in range(size):
            out[:, i] = j = places[batch, given[:, i]]
            rows[batch, j], places[batch, rows[:, i]] = rows[:, i], j
    return (out + 1).reshape(*order.shape[:-1], size)


def lu_factor(A: Tensor, *, pivot: bool = True, out: Any = None) -> Any:
    """The LU factors of matrices (…, m, n) in one matrix, and the exchanges of rows (int32, counted from 1), as (LU, pivots).

    >>> gl.linalg.lu_factor(gl.tensor([[0.0, 1.0], [2.0, 4.0]]))
    lu_factor(LU=tensor([[2., 4.],
            [0., 1.]]), pivots=tensor([2, 2], dtype=gradlab.int32))
    """
    found = PackedLU(*lu_factor_ex(A, pivot=pivot)[:2])
    return found if out is None else into("linalg.lu_factor", out, found)


def row_order(pivots: Tensor, rows: int) -> Tensor:
    """The rows of A in the order in which LU has them."""
    if pivots.is_meta:
        return zeros((*pivots._array.shape[:-1], rows), dtype="int64", device=pivots.device)
    given = pivots.detach().cpu().numpy()
    if given.size and not 1 <= given.min() <= given.max() <= rows:
        raise RuntimeError(f"lu: pivots are rows from 1 to {rows}, got some from {given.min()} to {given.max()}")
    apart = given.reshape(count(given.shape[:-1]), given.shape[-1]) - 1
    order, batch = np.tile(np.arange(rows), (len(apart), 1)), np.arange(len(apart))
    if len(apart) < rows:  # one by one, or a step of all at a time
        for n, exchanges in enumerate(apart.tolist()):
            found = list(range(rows))
            for i, j in enumerate(exchanges):
                found[i], found[j] = found[j], found[i]
            order[n] = found
    else:
        for i in range(apart.shape[-1]):
            j = apart[:, i]
            order[batch, i], order[batch, j] = order[batch, j], order[batch, i]
    return as_tensor(order.reshape(*given.shape[:-1], rows)).to(pivots.device)


def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False, out: Any = None) -> Tensor:
    """X of A X = B (X A = B with left=False, Aᴴ in A's place with adjoint) from the factors (…, n, n) of A that `lu_factor` gave.

    >>> gl.linalg.lu_solve(*gl.linalg.lu_factor(gl.tensor([[0.0, 2.0], [4.0, 0.0]])), gl.ones(2, 1))
    tensor([[0.2500],
            [0.5000]])
    """
    if out is not None:
        return into("linalg.lu_solve", out, lu_solve(LU, pivots, B, left=left, adjoint=adjoint))
    n = LU._array.shape[-1]
    if LU._array.shape[-2] != n or B._array.shape[-2 if left else -1] != n:
        raise ShapeError(f"lu_solve: square factors and a B that fits them, not {LU.shape} and {B.shape}")
    if not isinstance(pivots, Differentiable) or pivots._array.dtype != np.int32:
        raise RuntimeError(f"lu_solve: pivots are an int32 tensor, as linalg.lu_factor gives them, not {pivots!r:.80}")
    if pivots._array.shape != LU._array.shape[:-1]:
        raise ShapeError(f"lu_solve: pivots of shape {LU._array.shape[:-1]} belong to {LU.shape}, not {pivots._array.shape}")
    if not left:
        return lu_solve(LU, pivots, B.mH, adjoint=not adjoint).mH
    order = row_order(pivots, n)
    index = order.unsqueeze(-1)
    if not adjoint:
        shape = (*np.broadcast_shapes(order._array.shape[:-1], B._array.shape[:-2]), n, B._array.shape[-1])
        moved = B.expand(shape).gather(-2, index.expand(shape))
        return solve_triangular(LU, solve_triangular(LU, moved, upper=False, unitriangular=True), upper=True)
    y = solve_triangular(LU.mH, solve_triangular(LU.mH, B, upper=False), upper=True, unitriangular=True)
    return y.gather(-2, index.argsort(-2).expand(y._array.shape))


named_functions(__name__)
