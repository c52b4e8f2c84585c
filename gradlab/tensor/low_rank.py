"""The largest singular values of large matrices, from products with a few random vectors.

Halko, Martinsson, Tropp, Finding structure with randomness (2011): algorithm 4.4, randomised subspace iteration, and 5.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.named_errors import named_functions
from gradlab.op import result_class
from gradlab.tensor.common_arguments import few_enough, only_tensors
from gradlab.tensor.factorization import qr, svd
from gradlab.tensor.linalg import matmul
from gradlab.tensor.random import randn
from gradlab.tensor.solve import matrix, ready

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["pca_lowrank", "svd_lowrank"]

Values = result_class("svd_lowrank", ("U", "S", "V"))


def get_approximate_basis(A: Tensor, q: int, niter: int | None = 2, M: Tensor | None = None) -> Tensor:
    """Orthonormal columns Q (…, m, q) that nearly span what A - M gives, matrices (…, m, n), after `niter` passes of A and its transpose.

    >>> from gradlab.tensor.low_rank import get_approximate_basis
    >>> get_approximate_basis(gl.ones(4, 3), 1).abs()[0]
    tensor([0.5000])
    """
    few_enough("niter", "passes", 2 if niter is None else niter)
    rest = A if M is None else A - M
    basis = qr(rest @ randn(rest.shape[-1], q, dtype=rest.dtype, device=rest.device))[0]
    for _ in range(2 if niter is None else niter):
        basis = qr(rest @ qr(rest.mH @ basis)[0])[0]
    found: Tensor = basis
    return found


def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None) -> Any:
    """The q largest singular values of A - M nearly, with their vectors, as (U, S, V): U diag(S) Vᴴ is near it.

    A: matrices (…, m, n), float32 or float64; M, one to take away first, broadcasts to it. q: how many, exact where the rank is at most q;
    give a few more than you need. niter: passes over the matrix, more where singular values fall slowly. Random numbers are drawn.
    Returns U (…, m, q), S (…, q), V (…, n, q), with as many as the shorter side has where q is larger.

    >>> U, S, V = gl.svd_lowrank(gl.diag(gl.tensor([3.0, 2.0, 0.0, 0.0])), q=2)
    >>> S
    tensor([3., 2.])
    """
    ready("svd_lowrank", A)
    m, n = matrix("svd_lowrank", A)[-2:]
    q = 6 if q is None else q
    if q < 0:
        raise ValueError(f"svd_lowrank: q is 0 or more, not {q}")
    q = min(q, m, n)
    if M is not None:
        only_tensors("svd_lowrank", M)
    rest = A if M is None else A - M
    if m < n:
        V, S, U = _svd(rest.mH, q, niter)
    else:
        U, S, V = _svd(rest, q, niter)
    return Values(U, S, V)


def _svd(A: Any, q: int, niter: int | None) -> tuple[Any, Any, Any]:
    """As `svd_lowrank`, of matrices with no more columns than rows."""
    basis: Any = get_approximate_basis(A, q, niter)
    U, S, Vh = svd(matmul(basis.mH, A), False)
    return basis @ U, S, Vh.mH


def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> Any:
    """The q main directions of rows of numbers nearly, as (U, S, V): `svd_lowrank` of A without its columns' means.

    A: (…, m, n), m rows of n numbers. q: min(6, m, n) by default. center: False where the means are 0 already. The directions are the
    columns of V, `A @ V[..., :k]` the first k coordinates, and S²/(m - 1) their variances. ValueError for a q beyond the sides.

    >>> U, S, V = gl.pca_lowrank(gl.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]), q=1)
    >>> V.abs()
    tensor([[1.],
            [0.]])
    """
    ready("pca_lowrank", A)
    m, n = matrix("pca_lowrank", A)[-2:]
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise ValueError(f"pca_lowrank: q is from 0 to the shorter side of {tuple(A.shape)}, not {q}")
    if niter < 0:
        raise ValueError(f"pca_lowrank: niter is not negative, not {niter}")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)


named_functions(__name__)
