"""Factorisations of matrices (the last two dimensions), and what is read off them: Cholesky, QR, eigenvalues, singular values, rank.

float32 and float64, complex64 and complex128 (RuntimeError for others). What `gradlab.linalg` offers of this family is listed there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind
from gradlab.dtype import INT64
from gradlab.named_errors import named_functions
from gradlab.op import result_class
from gradlab.ops.solve import inverse_or_infinity
from gradlab.spec import ShapeError
from gradlab.tensor.common_arguments import into
from gradlab.tensor.matrix_norms import matrix_norm
from gradlab.tensor.solve import levels, matrix, ready, slogdet

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["cholesky"]

_rows = ops.factorization
_cholesky, _qr, _eigh, _svd, _lu = map(bind, (_rows.cholesky, _rows.qr, _rows.eigh, _rows.svd, _rows.lu))

Factors = result_class("lu", ("P", "L", "U"))


def cholesky(input: Tensor, upper: bool = False, *, out: Any = None) -> Tensor:
    """The lower triangular L with L Lᴴ = `input`, Hermitian (of real numbers: symmetric) positive definite matrices (…, n, n); with
    `upper` its conjugate transpose.

    Only the lower half is read. LinAlgError (a RuntimeError) where a matrix is not positive definite.

    >>> gl.cholesky(gl.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    """
    ready("cholesky", input)
    found = _cholesky(input.mH if upper and len(input._array.shape) > 1 else input)
    result = found.mH if upper else found
    return result if out is None else into("linalg.cholesky", out, result)


def qr(A: Tensor, mode: str = "reduced", *, out: Any = None) -> Any:
    """A = Q R with orthonormal columns Q (…, m, k) and R (…, k, n) upper triangular, as (Q, R).

    mode: "reduced", k = min(m, n); "complete", k = m; "r", R alone, Q is empty. "complete" has no gradient where m > n.

    >>> q, r = gl.linalg.qr(gl.eye(2))
    >>> (q @ r)
    tensor([[1., 0.],
            [0., 1.]])
    """
    ready("qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f'qr: mode is "reduced", "complete" or "r", not {mode!r}')
    found = _qr(A, mode="reduced" if mode == "r" else mode)
    result = type(found)(A.new_zeros((0,)), found[1]) if mode == "r" else found
    return result if out is None else into("linalg.qr", out, result)


def _half(name: str, UPLO: str) -> bool:
    if not isinstance(UPLO, str) or UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f'{name}: UPLO is "L" or "U", the half that is read, not {UPLO!r}')
    return UPLO.upper() == "L"


def eigh(input: Tensor, UPLO: str = "L", *, out: Any = None) -> Any:
    """Eigenvalues (…, n), ascending, and eigenvectors, the columns of (…, n, n), of symmetric matrices of which one half is read.

    The gradient of eigenvectors needs distinct eigenvalues.

    >>> gl.linalg.eigh(gl.tensor([[2.0, 0.0], [0.0, 4.0]])).eigenvalues
    tensor([2., 4.])
    """
    ready("eigh", input)
    return _eigh(input, lower=_half("eigh", UPLO)) if out is None else into("linalg.eigh", out, _eigh(input, lower=_half("eigh", UPLO)))


def eigvalsh(input: Tensor, UPLO: str = "L", *, out: Any = None) -> Tensor:
    """The eigenvalues (…, n), ascending, of symmetric matrices of which one half is read.

    >>> gl.linalg.eigvalsh(gl.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([2., 4.])
    """
    ready("eigvalsh", input)
    result = _eigh(input, lower=_half("eigvalsh", UPLO))[0]
    return result if out is None else into("linalg.eigvalsh", out, result)


def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None, out: Any = None) -> Any:
    """A = U diag(S) Vh with orthonormal U and Vh and singular values S (…, k), descending; k = min(m, n). As (U, S, Vh).

    U is (…, m, m) and Vh (…, n, n), or (…, m, k) and (…, k, n) with full_matrices=False. The gradient of U and Vh needs distinct singular
    values; it does not see the columns that only full matrices have. `driver` is for CUDA and changes nothing here.

    >>> gl.linalg.svd(gl.tensor([[2.0, 0.0], [0.0, 4.0]])).S
    tensor([4., 2.])
    """
    ready("svd", A)
    if driver is not None:
        raise RuntimeError(f"svd: driver={driver!r} is a choice among CUDA libraries; leave it out")
    return _svd(A, full=bool(full_matrices)) if out is None else into("linalg.svd", out, _svd(A, full=bool(full_matrices)))


def svdvals(A: Tensor, *, driver: str | None = None, out: Any = None) -> Tensor:
    """The singular values (…, min(m, n)), descending. Their gradient exists for equal ones too.

    >>> gl.linalg.svdvals(gl.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([4., 2.])
    """
    return svd(A, False, driver=driver)[1] if out is None else into("linalg.svdvals", out, svd(A, False, driver=driver)[1])


def lu(A: Tensor, *, pivot: bool = True, out: Any = None) -> Any:
    """A = P L U: a permutation matrix, a unit lower and an upper triangular one,
    as (P, L, U).

    pivot=False raises NotImplementedError: without exchanging rows small pivots make the result useless.

    >>> p, l, u = gl.linalg.lu(gl.tensor([[1.0, 2.0], [2.0, 2.0]]))
    >>> l, u
    (tensor([[1.0000, 0.0000],
            [0.5000, 1.0000]]), tensor([[2., 2.],
            [0., 1.]]))
    """
    order, lower, upper = ordered_lu(A, pivot)
    places = order.unsqueeze(-2) == A.new_ones((A._array.shape[-2],), dtype=INT64).cumsum(0).sub(1).unsqueeze(-1)
    result = Factors(places.to(A._array.dtype), lower, upper)
    return result if out is None else into("linalg.lu", out, result)


def ordered_lu(A: Tensor, pivot: bool = True) -> Any:
    """The order of A's rows in L U, L and U; see `lu`."""
    matrix("lu", A)
    if not pivot:
        raise NotImplementedError("lu: pivot=False is not offered; use pivot=True, whose P is a permutation of the rows")
    return _lu(A)


def matrix_rank(input: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None, out: Any = None) -> Tensor:
    """The number (int64) of singular values above max(atol, rtol · largest); rtol is max(m, n) · eps unless a tolerance is given.

    `tol` is the old name of atol, with no relative part. hermitian: the matrices are symmetric.

    >>> gl.linalg.matrix_rank(gl.ones(3, 3))
    tensor(1)
    """
    if out is not None:
        return into("matrix_rank", out, matrix_rank(input, tol, hermitian, atol=atol, rtol=rtol))
    matrix("matrix_rank", input)
    if tol is not None:
        atol, rtol = tol, 0.0
    values = eigvalsh(input.detach()).abs() if hermitian else svdvals(input.detach())
    if values._array.shape[-1] == 0:
        return values.sum(-1).long()
    return (values > levels(input, values, atol, rtol).unsqueeze(-1)).sum(-1)


def cond(input: Tensor, p: Any = None, *, out: Any = None) -> Tensor:
    """The condition number |A| · |A⁻¹| in the matrix norm p, of `matrix_norm`; None is 2. For ±2 also of matrices that are not square.

    That of a singular matrix is inf.

    >>> gl.linalg.cond(gl.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor(2.)
    """
    if out is not None:
        return into("cond", out, cond(input, p))
    shape = matrix("cond", input)
    if p is None or p in (2, -2):
        if 0 in shape[-2:]:
            raise ShapeError(f"cond: matrices without elements have no condition number in the 2-norm: shape {shape}")
        values = svdvals(input)
        largest, smallest = values.select(-1, 0), values.select(-1, -1)
        return smallest / largest if p == -2 else largest / smallest
    if not isinstance(p, str) and p not in (1, -1, math.inf, -math.inf):
        raise RuntimeError(f'cond: p is None, "fro", "nuc", ±1, ±2 or ±inf, not {p!r}')
    singular = slogdet(input.detach())[0] == 0
    return (matrix_norm(input, p) * matrix_norm(inverse_or_infinity(input, singular), p)).masked_fill(singular, math.inf)


named_functions(__name__, also="cond eigh eigvalsh lu matrix_rank qr svd svdvals")


class FactorizationMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    cholesky = cholesky
