"""Linear algebra by PyTorch's names: `gradlab.linalg.solve` and so on. Matrices are the last two dimensions, all before are a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.named_errors import named_functions
from gradlab.ops.solve import LinAlgError
from gradlab.tensor import geometry, solve as square_systems
from gradlab.tensor.common_arguments import either as _either, into as _into
from gradlab.tensor.eigen import eig, eigvals
from gradlab.tensor.factor_info import cholesky_ex, inv_ex, lu_factor, lu_factor_ex, lu_solve, solve_ex
from gradlab.tensor.factorization import cholesky, cond, eigh, eigvalsh, lu, matrix_rank, qr, svd, svdvals
from gradlab.tensor.layout import diagonal as _diagonal
from gradlab.tensor.linalg import matmul
from gradlab.tensor.matrix_norms import matrix_norm, norm, vander, vecdot, vector_norm
from gradlab.tensor.missing_names import absent as _absent
from gradlab.tensor.packed_factors import householder_product, ldl_factor, ldl_factor_ex, ldl_solve
from gradlab.tensor.products import matrix_power, multi_dot
from gradlab.tensor.solve import lstsq, matrix_exp, pinv, solve, solve_triangular, tensorinv, tensorsolve

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh",
    "householder_product", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex", "ldl_solve", "lstsq", "lu", "lu_factor", "lu_factor_ex",
    "lu_solve", "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet",
    "solve", "solve_ex", "solve_triangular", "svd", "svdvals", "tensorinv", "tensorsolve", "vander", "vecdot", "vector_norm",
]  # fmt: skip


def det(A: Tensor, *, out: Any = None) -> Tensor:
    """Determinant of square matrices (…, n, n).

    >>> gl.linalg.det(gl.tensor([[2.0, 0.0], [1.0, 3.0]]))
    tensor(6.)
    """
    return square_systems.det(A, out=out)


def inv(A: Tensor, *, out: Any = None) -> Tensor:
    """Inverse of square matrices (…, n, n). LinAlgError for a singular one.

    >>> gl.linalg.inv(gl.tensor([[2.0]]))
    tensor([[0.5000]])
    """
    return square_systems.inverse(A, out=out)


def slogdet(A: Tensor, *, out: Any = None) -> Any:
    """Sign and logarithm of the magnitude of the determinants of square matrices (…, n, n).

    >>> gl.linalg.slogdet(gl.tensor([[1.0]]))
    slogdet(sign=tensor(1.), logabsdet=tensor(0.))
    """
    return square_systems.slogdet(A, out=out)


def cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Any = None, axis: Any = None) -> Tensor:
    """Cross product of vectors of three numbers along `dim`; the others broadcast.

    >>> gl.linalg.cross(gl.tensor([1.0, 0.0, 0.0]), gl.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """
    dim = dim if axis is None else _either("cross", dim, -1, axis)
    if out is not None:
        return _into("linalg.cross", out, cross(input, other, dim=dim))
    return geometry.cross(input, other, dim)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonal of matrices, its elements last. A view.

    >>> gl.linalg.diagonal(gl.tensor([[1, 2], [3, 4]]))
    tensor([1, 4])
    """
    return _diagonal(A, offset, dim1, dim2)


def __getattr__(name: str) -> Any:
    raise _absent("gradlab.linalg", name)


named_functions(__name__)
