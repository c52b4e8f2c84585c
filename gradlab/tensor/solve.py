"""Square systems and their relatives: inverse, determinant, solutions, least squares, powers. Matrices are the last two dimensions.

float32 and float64 only (RuntimeError for others). What `gradlab.linalg` offers of this family is listed there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind
from gradlab.dtype import COMPLEX, FLOAT32, FLOAT64, finfo
from gradlab.named_errors import named_functions
from gradlab.op import result_class
from gradlab.spec import ShapeError, count
from gradlab.tensor.common_arguments import into, only_tensors
from gradlab.tensor.rounding import rounds_once

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["cholesky_inverse", "cholesky_solve", "det", "inverse", "logdet", "matrix_exp", "pinverse", "slogdet"]

_rows = ops.solve
_inverse, _solve, _triangular, _det, _slogdet, _pinv, _exp = map(
    bind, (_rows.inverse, _rows.solve, _rows.solve_triangular, _rows.det, _rows.slogdet, _rows.pinv, _rows.matrix_exp)
)

SOLVED = frozenset((FLOAT32, FLOAT64)) | COMPLEX  # what LAPACK computes with
LeastSquares = result_class("lstsq", ("solution", "residuals", "rank", "singular_values"))


def ready(name: str, *tensors: Any) -> None:
    """Raise unless all are tensors of one dtype, float32 or float64, complex64 or complex128."""
    for x in tensors:
        if not isinstance(x, Differentiable):
            raise TypeError(f"{name}: takes tensors, not {type(x).__name__}")
        dtype = x._array.dtype
        if dtype is not FLOAT32 and dtype is not FLOAT64 and dtype not in SOLVED:
            raise RuntimeError(f"{name}: needs float32 or float64 (or complex numbers of them), got {dtype}; convert with .float()")
        if dtype != tensors[0]._array.dtype:
            raise RuntimeError(f"{name}: tensors of one dtype, got {tensors[0]._array.dtype} and {dtype}; convert one with .to()")


def matrix(name: str, x: Any) -> tuple[int, ...]:
    """The shape of a tensor that has rows and columns."""
    ready(name, x)
    shape: tuple[int, ...] = x._array.shape
    if len(shape) < 2:
        raise ShapeError(f"{name}: a matrix or a batch of them, at least two dimensions, not shape {shape}")
    return shape


def inverse(input: Tensor, *, out: Any = None) -> Tensor:
    """The inverse of square matrices (…, n, n). LinAlgError (a RuntimeError) where one is singular: use pinv or lstsq.

    >>> gl.inverse(gl.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """
    ready("inv", input)
    return _inverse(input) if out is None else into("inverse", out, _inverse(input))


def det(input: Tensor, *, out: Any = None) -> Tensor:
    """The determinant of square matrices (…, n, n); its gradient exists for singular matrices too.

    >>> gl.det(gl.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor(-2.)
    """
    if out is not None:
        return into("det", out, det(input))
    ready("det", input)
    return _det(input)


def slogdet(input: Tensor, *, out: Any = None) -> Any:
    """Sign and logarithm of the absolute value of the determinant, as (sign, logabsdet); 0 and -inf for singular matrices.

    >>> gl.slogdet(gl.eye(2))
    slogdet(sign=tensor(1.), logabsdet=tensor(0.))
    """
    if out is not None:
        return into("slogdet", out, slogdet(input))
    ready("slogdet", input)
    return _slogdet(input)


def logdet(input: Tensor) -> Tensor:
    """Logarithm of the determinant of square matrices (…, n, n): -inf for a determinant of 0, NaN for a negative one.

    >>> gl.logdet(gl.eye(2))
    tensor(0.)
    """
    ready("logdet", input)
    sign, size = _slogdet(input)
    if sign._array.dtype in COMPLEX:
        return sign.log() + size
    return size.masked_fill(sign < 0, math.nan)


def solve(A: Tensor, B: Tensor, *, left: bool = True, out: Any = None) -> Tensor:
    """X of A X = B (or of X A = B with left=False) for square matrices A (…, n, n) and B (…, n, k), or vectors B (…, n) in A's batch.

    LinAlgError (a RuntimeError) where a matrix is singular: use lstsq.

    >>> gl.linalg.solve(gl.tensor([[2.0, 0.0], [0.0, 4.0]]), gl.ones(2))
    tensor([0.5000, 0.2500])
    """
    if out is not None:
        return into("solve", out, solve(A, B, left=left))
    a, b = matrix("solve", A), B._array.shape if isinstance(B, Differentiable) else ()
    ready("solve", A, B)
    if a[-1] != a[-2]:
        raise ShapeError(f"solve: square matrices, not shape {a}")
    vector = len(b) == 1 or (len(b) == len(a) - 1 and b == a[:-1])
    right: Any = B.unsqueeze(-1) if vector else B
    if vector and not left:
        raise ShapeError(f"solve: vectors B of shape {b} stand on the right side only: left=True, or a matrix B")
    found = _solve(A, right) if left else _solve(A.mT, right.mT).mT
    return found.squeeze(-1) if vector else found


def solve_triangular(input: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False, out: Any = None) -> Tensor:
    """X of A X = B (or X A = B) for triangular A (…, n, n), of which only the `upper` or the lower half is read, and B (…, n, k).

    unitriangular: take the diagonal as 1. A zero on the diagonal gives inf or NaN.

    >>> gl.linalg.solve_triangular(gl.tensor([[1.0, 0.0], [1.0, 2.0]]), gl.ones(2, 1), upper=False)
    tensor([[1.],
            [0.]])
    """
    if out is not None:
        return into("linalg.solve_triangular", out, solve_triangular(input, B, upper=upper, left=left, unitriangular=unitriangular))
    ready("solve_triangular", input, B)
    matrix("solve_triangular", B)
    if left:
        return _triangular(input, B, upper=bool(upper), unitriangular=bool(unitriangular))
    return _triangular(input.mT, B.mT, upper=not upper, unitriangular=bool(unitriangular)).mT


def cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False, *, out: Any = None) -> Tensor:
    """X of A X = input, (…, n, k), given the Cholesky factor of A: L of A = L Lᴴ, or with `upper` R of A = Rᴴ R.

    >>> gl.cholesky_solve(gl.tensor([[8.0]]), gl.tensor([[2.0]]))
    tensor([[2.]])
    """
    only_tensors("cholesky_solve", input2)
    first, second = (input2.mH, input2) if upper else (input2, input2.mH)
    result = solve_triangular(second, solve_triangular(first, input, upper=False), upper=True)
    return result if out is None else into("cholesky_solve", out, result)


def cholesky_inverse(input: Tensor, upper: bool = False, *, out: Any = None) -> Tensor:
    """The inverse of A, given its Cholesky factor: L of A = L Lᵀ, or with `upper` R of A = Rᵀ R.

    >>> gl.cholesky_inverse(gl.tensor([[2.0]]))
    tensor([[0.2500]])
    """
    shape = matrix("cholesky_inverse", input)
    result = cholesky_solve(_rows.unit(input, shape[-1]).expand(shape), input, upper)
    return result if out is None else into("cholesky_inverse", out, result)


def tolerances(x: Tensor, atol: Any, rtol: Any) -> tuple[float, float]:
    """Below which singular values count as 0: absolute, and relative to the largest one. Default: max(m, n) · eps, relative."""
    given = 0.0 if atol is None else float(atol)
    if rtol is not None:
        return given, float(rtol)
    return given, 0.0 if given > 0 else max(x._array.shape[-2:]) * finfo(x._array.dtype).eps


def levels(x: Tensor, values: Tensor, atol: Any, rtol: Any) -> Tensor:
    """Of each matrix the level up to which its singular values (…, k) count as 0; a tolerance may be a tensor that broadcasts to (…)."""
    if rtol is None and isinstance(atol, Differentiable):  # the default where it is 0
        rtol = (atol <= 0).to(values._array.dtype) * tolerances(x, None, None)[1]  # type: ignore[operator, attr-defined]
    elif not isinstance(rtol, Differentiable) and not isinstance(atol, Differentiable):
        atol, rtol = tolerances(x, atol, rtol)
    level: Any = values.amax(-1) * rtol
    return level.maximum(atol.to(level._array.dtype)) if isinstance(atol, Differentiable) else level.clamp(min=atol or 0.0)  # type: ignore[attr-defined]


def _by_levels(A: Tensor, atol: Any, rtol: Any) -> Tensor:
    """The pseudo-inverse with a tolerance for each matrix: each is scaled so that 1 lies between the singular values that count and
    those that do not."""
    if 0 in A._array.shape[-2:]:
        return _pinv(A, atol=0.0, rtol=0.0)
    values = bind(ops.factorization.svd)(A.detach(), full=False)[1]
    counts = values > levels(A, values, atol, rtol).unsqueeze(-1)
    low, high = values.masked_fill(counts, 0).amax(-1), values.masked_fill(~counts, math.inf).amin(-1)
    between = ((low + high) / 2).where(counts.any(-1), low * 2)
    scale = 1 / between.where(between > 0, 1.0).unsqueeze(-1).unsqueeze(-1)
    return _pinv(A * scale, atol=1.0, rtol=0.0) * scale


def symmetric(A: Tensor) -> Tensor:
    """The lower half, mirrored. Its gradient goes to both halves alike, as PyTorch's does for matrices declared symmetric."""
    both, lower = 0.5 * (A + A.mH), A.detach()
    mirrored = lower.tril() + lower.tril(-1).mH
    if A._array.dtype in COMPLEX:  # of the diagonal the real parts are read
        mirrored = mirrored - (lower.diagonal(0, -2, -1).imag * 1j).diag_embed(0, -2, -1)
    return both + (mirrored - both.detach())


def pinv(input: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None, out: Any = None) -> Tensor:
    """The Moore-Penrose pseudo-inverse (…, n, m) of matrices (…, m, n). Singular values up to max(atol, rtol · largest) count as 0.

    rtol (`rcond` is its old name) is max(m, n) · eps unless it or atol is given; either may be a tensor, which broadcasts with (…), a
    tolerance for each matrix. hermitian: the matrices are symmetric.

    >>> gl.linalg.pinv(gl.tensor([[2.0], [0.0]]))
    tensor([[0.5000, 0.0000]])
    """
    shape = matrix("pinv", input)
    rtol = rcond if rtol is None else rtol
    if hermitian:
        if shape[-1] != shape[-2]:
            raise ShapeError(f"pinv: symmetric matrices are square, not of shape {shape}")
        input = symmetric(input)
    if isinstance(atol, Differentiable) or isinstance(rtol, Differentiable):
        result = _by_levels(input, atol, rtol)
    else:
        atol, rtol = tolerances(input, atol, rtol)
        result = _pinv(input, atol=atol, rtol=rtol)
    return result if out is None else into("linalg.pinv", out, result)


def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """As `linalg.pinv`, singular values up to rcond · largest counting as 0.

    >>> gl.pinverse(gl.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """
    return pinv(input, rcond)


def lstsq(input: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None, out: Any = None) -> Any:
    """The X of least |A X - B|, and of those the smallest: A is `input` (…, m, n), B is `b`, matrices (…, m, k) or vectors (…, m).

    Returns (solution, residuals, rank, singular_values). As in PyTorch the default driver "gelsy" gives no residuals and no singular
    values (empty), "gels" residuals but no rank, "gelsd" and "gelss" all; here all drivers compute with singular values. Residuals, the
    sums of squares (…, k), are given for more rows than columns.

    >>> gl.linalg.lstsq(gl.tensor([[1.0], [1.0]]), gl.tensor([[1.0], [3.0]])).solution
    tensor([[2.0000]])
    """
    if out is not None:
        return into("linalg.lstsq", out, lstsq(input, b, rcond, driver=driver))
    a = matrix("lstsq", input)
    ready("lstsq", input, b)
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(f"lstsq: driver is gels, gelsy, gelsd or gelss, not {driver!r}")
    shape = b._array.shape
    vector = len(shape) == len(a) - 1 and shape == a[:-1]
    right: Any = b.unsqueeze(-1) if vector else b
    if len(right._array.shape) < 2 or right._array.shape[-2] != a[-2]:
        raise ShapeError(f"lstsq: matrices of shape {a} take right sides of {a[-2]} rows, got shape {shape}")
    level = max(a[-2:]) * finfo(input._array.dtype).eps if rcond is None else float(rcond)
    solution = _pinv(input, atol=0.0, rtol=level) @ right
    empty: Any = input.real.new_zeros((0,))
    residuals = (input @ solution - right).abs().square().sum(-2) if a[-2] > a[-1] and driver not in (None, "gelsy") else empty
    values = bind(ops.factorization.svd)(input.detach(), full=False)[1] if driver != "gels" else empty
    if driver == "gels" or 0 in a[-2:]:
        rank = empty.new_zeros((0,) if driver == "gels" else a[:-2]).long()
    else:
        rank = (values > level * values.narrow(-1, 0, 1)).sum(-1)
    shown = values if driver in ("gelsd", "gelss") else empty
    return LeastSquares(solution.squeeze(-1) if vector else solution, residuals, rank, shown)


@rounds_once
def matrix_exp(input: Tensor) -> Tensor:
    """The matrix exponential Σ Aᵏ / k! of square matrices (…, n, n).

    >>> gl.matrix_exp(gl.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    ready("matrix_exp", input)
    return _exp(input)


def tensorinv(input: Tensor, ind: int = 2, *, out: Any = None) -> Tensor:
    """The inverse of `tensordot(A, ·, ind)`: the first `ind` dimensions of A and the others have the same product of sizes.

    >>> gl.linalg.tensorinv(gl.eye(4).reshape(2, 2, 4), ind=2).shape
    (4, 2, 2)
    """
    ready("tensorinv", input)
    shape = input._array.shape
    if ind < 1:
        raise RuntimeError(f"tensorinv: ind is positive, got {ind}")
    rows, columns = shape[:ind], shape[ind:]
    if count(rows) != count(columns):
        raise ShapeError(f"tensorinv: sizes {rows} and {columns} of shape {shape} have different products")
    result = inverse(input.reshape((count(rows), count(columns)))).reshape((*columns, *rows))
    return result if out is None else into("linalg.tensorinv", out, result)


def tensorsolve(input: Tensor, other: Tensor, dims: Sequence[int] | None = None, *, out: Any = None) -> Tensor:
    """X of `tensordot(A, X, X.ndim) = B`; `dims` of A are moved to its end first.

    >>> gl.linalg.tensorsolve(gl.eye(4).reshape(2, 2, 4), gl.ones(2, 2))
    tensor([1., 1., 1., 1.])
    """
    ready("tensorsolve", input, other)
    given: Any = input if dims is None else input.movedim(tuple(dims), tuple(range(-len(dims), 0)))
    b = other._array.shape
    rest = given._array.shape[len(b) :]
    if count(given._array.shape) != count(b) ** 2 or count(rest) != count(b):
        raise ShapeError(f"tensorsolve: A of shape {given._array.shape} does not map onto B of shape {b}")
    result = solve(given.reshape((count(b), count(rest))), other.reshape((-1,))).reshape(rest)
    return result if out is None else into("linalg.tensorsolve", out, result)


named_functions(__name__, also="lstsq pinv solve solve_triangular tensorinv tensorsolve")


class SolveMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    inverse, det, slogdet, logdet, matrix_exp, pinverse = inverse, det, slogdet, logdet, matrix_exp, pinverse
    cholesky_solve, cholesky_inverse = cholesky_solve, cholesky_inverse
