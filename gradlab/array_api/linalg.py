"""Linear algebra by the array API standard: `gradlab.linalg` with its names. Matrices are the last two axes, all before are a batch."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from gradlab import linalg as _own
from gradlab.array_api.elementwise import conj
from gradlab.array_api.shapes import matrix_transpose
from gradlab.array_api.statistics import sum as _sum
from gradlab.array_api.types import promoted
from gradlab.tensor import products

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power", "matrix_rank",
    "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip

EighResult = namedtuple("EighResult", "eigenvalues eigenvectors")
QRResult = namedtuple("QRResult", "Q R")
SlogdetResult = namedtuple("SlogdetResult", "sign logabsdet")
SVDResult = namedtuple("SVDResult", "U S Vh")


def cholesky(x: Any, /, *, upper: bool = False) -> Any:
    """The triangular factor of symmetric positive definite matrices: L of x = L L^T, or its transpose.

    >>> gl.array_api.linalg.cholesky(4 * gl.eye(2))
    tensor([[2., 0.],
            [0., 2.]])
    """
    return _own.cholesky(x, upper=upper)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The cross products of vectors of three elements along an axis.

    >>> gl.array_api.linalg.cross(gl.tensor([1, 0, 0]), gl.tensor([0, 1, 0]))
    tensor([0, 0, 1])
    """
    x, y = promoted("cross", x1, x2)
    rank = max(x.ndim, y.ndim)
    return _own.cross(x, y, dim=axis if axis < 0 else axis - rank)


def det(x: Any, /) -> Any:
    """Determinants.

    >>> gl.array_api.linalg.det(gl.eye(2))
    tensor(1.)
    """
    return _own.det(x)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """The diagonals of matrices, or the ones beside them.

    >>> gl.array_api.linalg.diagonal(gl.eye(2))
    tensor([1., 1.])
    """
    return _own.diagonal(x, offset=offset)


def eigh(x: Any, /) -> EighResult:
    """Eigenvalues and eigenvectors of symmetric matrices.

    >>> gl.array_api.linalg.eigh(gl.eye(2)).eigenvalues
    tensor([1., 1.])
    """
    return EighResult(*_own.eigh(x))


def eigvalsh(x: Any, /) -> Any:
    """Eigenvalues of symmetric matrices.

    >>> gl.array_api.linalg.eigvalsh(gl.eye(2))
    tensor([1., 1.])
    """
    return _own.eigvalsh(x)


def inv(x: Any, /) -> Any:
    """Inverse matrices.

    >>> gl.array_api.linalg.inv(2 * gl.eye(1))
    tensor([[0.5000]])
    """
    return _own.inv(x)


def matmul(x1: Any, x2: Any, /) -> Any:
    """Products of matrices.

    >>> gl.array_api.matmul(gl.eye(2), gl.ones(2))
    tensor([1., 1.])
    """
    x, y = promoted("matmul", x1, x2)
    return _own.matmul(x, y)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Norms of matrices: "fro", "nuc", 1, 2, inf and their negatives.

    >>> gl.array_api.linalg.matrix_norm(gl.eye(2))
    tensor(1.4142)
    """
    return _own.matrix_norm(x, ord=ord, keepdim=keepdims)


def matrix_power(x: Any, n: int, /) -> Any:
    """Powers of matrices; negative ones are those of the inverse.

    >>> gl.array_api.linalg.matrix_power(2 * gl.eye(1), 3)
    tensor([[8.]])
    """
    return _own.matrix_power(x, n)


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Any:
    """How many singular values are greater than `rtol` times the largest.

    >>> gl.array_api.linalg.matrix_rank(gl.eye(2))
    tensor(2)
    """
    return _own.matrix_rank(x, rtol=rtol)


def outer(x1: Any, x2: Any, /) -> Any:
    """The products of each element of one vector and each of another.

    >>> gl.array_api.linalg.outer(gl.tensor([1, 2]), gl.tensor([3]))
    tensor([[3],
            [6]])
    """
    x, y = promoted("outer", x1, x2)
    return products.outer(x, y)


def pinv(x: Any, /, *, rtol: Any = None) -> Any:
    """Pseudo-inverses.

    >>> gl.array_api.linalg.pinv(2 * gl.eye(1))
    tensor([[0.5000]])
    """
    return _own.pinv(x, rtol=rtol)


def qr(x: Any, /, *, mode: str = "reduced") -> QRResult:
    """Orthogonal and triangular factors. mode: "reduced" or "complete".

    >>> gl.array_api.linalg.qr(gl.ones(2, 1)).R.shape
    (1, 1)
    """
    return QRResult(*_own.qr(x, mode=mode))


def slogdet(x: Any, /) -> SlogdetResult:
    """Signs of determinants, and logarithms of their absolute values.

    >>> gl.array_api.linalg.slogdet(gl.eye(2)).sign
    tensor(1.)
    """
    return SlogdetResult(*_own.slogdet(x))


def solve(x1: Any, x2: Any, /) -> Any:
    """The solutions of x1 @ y = x2. `x2` is a vector where it has one axis, and otherwise matrices.

    >>> gl.array_api.linalg.solve(2 * gl.eye(2), gl.ones(2))
    tensor([0.5000, 0.5000])
    """
    x, y = promoted("solve", x1, x2)
    if y.ndim == 1:
        return _own.solve(x, y.unsqueeze(-1)).squeeze(-1)
    return _own.solve(x, y.expand(*x.shape[:-2], *y.shape[-2:]) if y.ndim < x.ndim else y)


def svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    """Singular values and vectors.

    >>> gl.array_api.linalg.svd(gl.eye(2)).S
    tensor([1., 1.])
    """
    return SVDResult(*_own.svd(x, full_matrices=full_matrices))


def svdvals(x: Any, /) -> Any:
    """Singular values, the largest first.

    >>> gl.array_api.linalg.svdvals(gl.eye(2))
    tensor([1., 1.])
    """
    return _own.svdvals(x)


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    """Sums of products over axes of the two: the last and first `axes` ones, or two sequences of them.

    >>> gl.array_api.tensordot(gl.ones(2, 3), gl.ones(3, 4), axes=1).shape
    (2, 4)
    """
    x, y = promoted("tensordot", x1, x2)
    return products.tensordot(x, y, dims=axes)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """Sums of the diagonals of matrices.

    >>> gl.array_api.linalg.trace(gl.eye(2))
    tensor(2.)
    """
    return _sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Sums of products of vectors along an axis.

    >>> gl.array_api.vecdot(gl.tensor([1, 2]), gl.tensor([3, 4]))
    tensor(11)
    """
    x, y = promoted("vecdot", x1, x2)
    if x.shape[axis] != y.shape[axis]:
        raise ValueError(f"vecdot: vectors of one length, not {x.shape[axis]} and {y.shape[axis]} (shapes {x.shape} and {y.shape})")
    return (conj(x) * y).sum(axis, dtype=x.dtype)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Any:
    """Norms of vectors along axes; None: of all elements.

    >>> gl.array_api.linalg.vector_norm(gl.tensor([3.0, 4.0]))
    tensor(5.)
    """
    return _own.vector_norm(x, ord, dim=axis, keepdim=keepdims)
