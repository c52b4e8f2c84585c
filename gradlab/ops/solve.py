"""Rows of square systems: inverse, determinant, solutions, the pseudo-inverse and the matrix exponential, of the last two dimensions.

LAPACK through `numpy.linalg`, which is the CPU's fast path for all of them; on a GPU one block of threads for each matrix.
Gradients: M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation" (2008), unless said
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab.dtype import real_of
from gradlab.kernel import Kernel
from gradlab.op import Op
from gradlab.ops.movement import cat
from gradlab.spec import LinAlgError as LinAlgError, ShapeError, Spec, broadcast_shapes


def lapack(name: str, advice: str, function: Callable[..., Any], *arrays: Any, **options: Any) -> Any:
    """A `numpy.linalg` function; its error names the operation and says what to do."""
    try:
        return function(*arrays, **options)
    except np.linalg.LinAlgError as error:
        shapes = ", ".join(str(a.shape) for a in arrays)
        raise LinAlgError(f"{name}: {error} (shape {shapes}); {advice}") from None


SINGULAR = "a matrix that may be singular needs pinv or lstsq"


def matrices(x: Spec) -> None:
    """Raise unless `x` has rows and columns."""
    if len(x.shape) < 2:
        raise ShapeError(f"expected a matrix or a batch of them, at least two dimensions, got shape {x.shape}")


def square(x: Spec, **_: Any) -> Spec:
    """Rule: square matrices of that shape."""
    matrices(x)
    if x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"expected square matrices, got shape {x.shape}")
    return x


def unit(like: Any, n: int) -> Any:
    """The n×n unit matrix, of the dtype and device of `like`."""
    return like.new_ones((n,)).diag()


# ---------------------------------------------------------------- inverse and solutions


def inverse_cpu(x: Any, y: Any) -> None:
    y[...] = lapack("inv", SINGULAR, np.linalg.inv, x)


inverse = Op("inverse", square, cpu=inverse_cpu, cuda=Kernel("solve.cu", "inverse", "matrix"), grad={"x": lambda g, y: -(y.mT @ g @ y.mT)})


def solve_rule(a: Spec, b: Spec, **_: Any) -> Spec:
    """Rule: x of a @ x = b; the dimensions before the last two broadcast."""
    square(a)
    matrices(b)
    if a.shape[-1] != b.shape[-2]:
        raise ShapeError(f"matrices of shape {a.shape} take right sides of {a.shape[-1]} rows, got shape {b.shape}")
    return Spec((*broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]), b.dtype)


def solve_cpu(a: Any, b: Any, y: Any) -> None:
    y[...] = lapack("solve", SINGULAR, np.linalg.solve, a, b)


def _solve_gradients(g: Any, a: Any, y: Any) -> tuple[Any, Any]:
    right = solve(a.mT, g)
    return -(right @ y.mT), right


solve = Op("solve", solve_rule, cpu=solve_cpu,
           cuda=Kernel("solve.cu", "solve", "matrix"), promote="same", grad={("a", "b"): _solve_gradients})


def solve_triangular_cpu(a: Any, b: Any, y: Any, *, upper: bool, unitriangular: bool) -> None:
    """Substitution, a row at a time; each row is a matrix product over the batch. A zero on the diagonal gives inf or NaN."""
    y[...] = b
    n = a.shape[-1]
    for i in range(n - 1, -1, -1) if upper else range(n):
        known = slice(i + 1, n) if upper else slice(0, i)
        row = y[..., i, :]
        row -= np.matmul(a[..., i : i + 1, known], y[..., known, :])[..., 0, :]
        if not unitriangular:
            row /= a[..., i, i, None]


def _solve_triangular_gradients(g: Any, a: Any, y: Any, upper: bool, unitriangular: bool) -> tuple[Any, Any]:
    right = solve_triangular(a.mT, g, upper=not upper, unitriangular=unitriangular)
    left = -(right @ y.mT)
    edge = int(unitriangular)  # the diagonal is not read
    return left.triu(edge) if upper else left.tril(-edge), right


solve_triangular = Op("solve_triangular", solve_rule, params=("upper", "unitriangular"), cpu=solve_triangular_cpu,
                      cuda=Kernel("solve.cu", "solve_triangular", "matrix"), promote="same",
                      grad={("a", "b"): _solve_triangular_gradients})  # fmt: skip

# ---------------------------------------------------------------- determinants


def det_rule(x: Spec) -> Spec:
    """Rule: one number for each square matrix."""
    return Spec(square(x).shape[:-2], x.dtype)


def det_cpu(x: Any, y: Any) -> None:
    y[...] = np.linalg.det(x)


# Jacobi's formula. The cofactors exist also where the matrix is singular and has no inverse.
det = Op("det", det_rule, cpu=det_cpu,
         cuda=Kernel("solve.cu", "det", "matrix"), grad={"x": lambda g, x: g.unsqueeze(-1).unsqueeze(-1) * cofactor(x)})


def cofactor_cpu(x: Any, y: Any) -> None:
    """From x = U S V: the cofactors are det(U V) Ū C V̄, where C has on its diagonal the product of the other singular values."""
    finite = np.isfinite(x).all((-2, -1))
    u, s, v = lapack("det", SINGULAR, np.linalg.svd, x if finite.all() else np.where(finite[..., None, None], x, 0))
    n = s.shape[-1]
    before, after = np.ones_like(s), np.ones_like(s)
    before[..., 1:] = np.cumprod(s[..., : n - 1], -1)
    after[..., : max(n - 1, 0)] = np.cumprod(s[..., :0:-1], -1)[..., ::-1]
    sign = np.sign(np.linalg.det(u) * np.linalg.det(v))
    y[...] = np.matmul(u.conj() * (before * after * sign[..., None])[..., None, :], v.conj())
    y[~finite] = np.nan


def _cofactor_gradient(g: Any, x: Any, y: Any) -> Any:
    """C = det(A) A⁻ᵀ differentiated; where det(A) is exactly 0 this is NaN."""
    product = (g * y).sum((-1, -2), keepdim=True)
    return (product * y - y @ g.mT @ y) / det(x).unsqueeze(-1).unsqueeze(-1)


cofactor: Op = Op("cofactor", square, cpu=cofactor_cpu, cuda=Kernel("svd.cu", "cofactor", "matrix"), grad={"x": _cofactor_gradient})


def slogdet_cpu(x: Any, sign: Any, logabsdet: Any) -> None:
    sign[...], logabsdet[...] = np.linalg.slogdet(x)


def slogdet_rule(x: Spec) -> tuple[Spec, Spec]:
    """Rule: of each square matrix a sign (of complex ones a number of size 1), and a real number."""
    sign = det_rule(x)
    return sign, Spec(sign.shape, real_of(x.dtype))


def inverse_or_infinity(x: Any, singular: Any) -> Any:
    """The inverses of matrices; where `singular` is true every element is infinite, instead of an error."""
    unit = singular.to(x.dtype).unsqueeze(-1).expand(x.shape[:-1]).diag_embed()
    where = singular.unsqueeze(-1).unsqueeze(-1)
    return inverse(x.masked_fill(where, 0) + unit).masked_fill(where, float("inf"))


def _slogdet_gradient(x: Any, sign: Any, g_sign: Any = None, g_logabsdet: Any = None) -> Any:
    """log det A = logabsdet + i·angle(sign); its derivative is A⁻¹. The sign of a real matrix is constant."""
    g = g_logabsdet
    if g_sign is not None and x.is_complex():
        turn = (g_sign.conj() * sign).imag * -1j
        g = turn if g is None else g + turn
    return None if g is None else g.unsqueeze(-1).unsqueeze(-1) * inverse_or_infinity(x, sign == 0).mH


slogdet = Op("slogdet", slogdet_rule, outputs=("sign", "logabsdet"), cpu=slogdet_cpu,
             cuda=Kernel("solve.cu", "slogdet", "matrix"), grad={"x": _slogdet_gradient})

# ---------------------------------------------------------------- pseudo-inverse, exponential


def pinv_rule(x: Spec, **_: Any) -> Spec:
    """Rule: rows and columns exchanged."""
    matrices(x)
    return Spec((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype)


def pinv_cpu(x: Any, y: Any, *, atol: float, rtol: float) -> None:
    """Singular values up to max(atol, rtol · largest) count as 0."""
    if not x.size:
        y.fill(0)
        return
    u, s, v = lapack("pinv", "are all elements finite?", np.linalg.svd, x, full_matrices=False)
    keep = s > np.maximum(atol, rtol * s[..., :1])
    inverted = np.divide(1, s, where=keep, out=np.zeros_like(s))
    y[...] = np.matmul(v.swapaxes(-1, -2).conj() * inverted[..., None, :], u.swapaxes(-1, -2).conj())


def _pinv_gradient(g: Any, x: Any, y: Any) -> Any:
    """G. H. Golub and V. Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems whose variables
    separate", SIAM J. Numer. Anal. 10 (1973), for matrices of constant rank."""
    left = g.mH @ y @ y.mH
    right = y.mH @ y @ g.mH
    return left - x @ (y @ left) + right - (right @ y) @ x - y.mH @ g @ y.mH


pinv = Op("pinv", pinv_rule, params=("atol", "rtol"), cpu=pinv_cpu, cuda=Kernel("svd.cu", "pinv", "matrix"), grad={"x": _pinv_gradient})

# Coefficients of the [13/13] Padé approximant of e^x: N. J. Higham, "The scaling and squaring method for the matrix exponential
# revisited", SIAM J. Matrix Anal. Appl. 26 (2005); it is accurate in float64 up to a norm of 5.37.
PADE = (64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600, 670442572800,
        33522128640, 1323241920, 40840800, 960960, 16380, 182, 1)  # fmt: skip


def matrix_exp_cpu(x: Any, y: Any) -> None:
    """Scaled by a power of 2, exponentiated by Padé's approximant, squared as often."""
    if not x.size:
        return
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    norm = np.abs(wide).sum(-2).max(-1)
    times = np.where(norm > 5.37, np.ceil(np.log2(np.maximum(norm, 1) / 5.37)), 0)
    times = np.where(np.isfinite(times), times, 0).astype(int)
    a = wide / np.exp2(times)[..., None, None]
    one = np.eye(x.shape[-1])
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2
    b = [float(c) for c in PADE]
    odd = a @ (a6 @ (b[13] * a6 + b[11] * a4 + b[9] * a2) + b[7] * a6 + b[5] * a4 + b[3] * a2 + b[1] * one)
    even = a6 @ (b[12] * a6 + b[10] * a4 + b[8] * a2) + b[6] * a6 + b[4] * a4 + b[2] * a2 + b[0] * one
    found = np.linalg.solve(even - odd, even + odd)
    for step in range(int(times.max(initial=0))):
        found = np.where((times > step)[..., None, None], found @ found, found)
    np.copyto(y, found, casting="same_kind")


def _matrix_exp_gradient(g: Any, x: Any) -> Any:
    """The upper right block of exp([[Xᵀ, G], [0, Xᵀ]]): Higham, "Functions of Matrices" (2008), section 3.2."""
    n = x.shape[-1]
    if not n:
        return g
    a = x.mT
    last = len(x.shape) - 1
    blocks = cat(cat(a, g, dim=last), cat(a.new_zeros(a.shape), a, dim=last), dim=last - 1)
    return matrix_exp(blocks).narrow(-2, 0, n).narrow(-1, n, n)


matrix_exp: Op = Op("matrix_exp", square, cpu=matrix_exp_cpu,
                    cuda=Kernel("expm.cu", "matrix_exp", "matrix"), grad={"x": _matrix_exp_gradient})
