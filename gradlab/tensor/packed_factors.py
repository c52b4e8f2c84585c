"""Factors as LAPACK packs them: reflections of QR beside R, L and U in one matrix, L and D in one matrix; and what is made of them."""

from __future__ import annotations

from typing import Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.autograd.record import bind
from gradlab.named_errors import named_functions
from gradlab.op import result_class
from gradlab.ops.solve import LinAlgError, unit
from gradlab.spec import ShapeError
from gradlab.tensor.common_arguments import into
from gradlab.tensor.factor_info import lu_factor_ex, lu_solve as solve_by_lu, row_order
from gradlab.tensor.shape import cat, stack
from gradlab.tensor.solve import matrix, ready

Tensor = Any

Reflections = result_class("geqrf", ("a", "tau"))
UnpackedLU = result_class("lu_unpack", ("P", "L", "U"))
PackedLDL = result_class("ldl_factor", ("LD", "pivots"))
CheckedLDL = result_class("ldl_factor_ex", ("LD", "pivots", "info"))
_ldl, _ldl_solve = bind(ops.ldl.ldl), bind(ops.ldl.ldl_solve)


# ---------------------------------------------------------------- reflections


def geqrf(input: Tensor, *, out: Any = None) -> Any:
    """QR of matrices (…, m, n) as LAPACK packs it: R on and above the diagonal, below it the vectors v of Householder's reflections
    1 - tau v vᴴ (whose leading 1 is left out), and tau (…, k), k the smaller of m and n. `householder_product` makes Q of them.

    >>> gl.geqrf(gl.tensor([[3.0], [4.0]]))
    geqrf(a=tensor([[-5.0000],
            [ 0.5000]]), tau=tensor([1.6000]))
    """
    if out is not None:
        return into("geqrf", out, geqrf(input))
    m, n = matrix("geqrf", input)[-2:]
    rest, columns, taus = input, [], []
    for _ in range(min(m, n)):  # each step takes the first row and column off
        alpha, below = rest[..., :1, :1], rest[..., 1:, :1]
        length = _square(below).sum(-2, keepdim=True)
        flat = length == 0
        if alpha.is_complex():  # R's diagonal is real: a number alone is turned, too
            flat = flat.logical_and(alpha.imag == 0)
        sign = alpha.detach().real.sign().masked_fill(alpha.real == 0, 1)
        beta = (-sign * (_square(alpha) + length.masked_fill(flat, 1)).sqrt()).to(alpha.dtype).where(~flat, alpha)
        divisor = (alpha - beta).masked_fill(flat, 1)
        tail = below / divisor
        tau = ((beta - alpha) / beta.masked_fill(flat, 1)).masked_fill(flat, 0)
        right = rest[..., 1:]
        product = tau.conj() * (right[..., :1, :] + (tail.conj() * right[..., 1:, :]).sum(-2, keepdim=True))
        upper = cat([beta, right[..., :1, :] - product], -1)
        columns.append((upper, tail))
        taus.append(tau[..., 0, 0])
        rest = right[..., 1:, :] - tail * product
    found = rest  # what is left below and to the right is the rest of R, or has no rows
    for upper, tail in reversed(columns):
        found = cat([upper, cat([tail, found], -1)], -2)
    return Reflections(found, stack(taus, -1) if taus else input.new_zeros((*input._array.shape[:-2], 0)))


def _square(x: Tensor) -> Any:
    """|x|², real."""
    return (x * x.conj()).real if x.is_complex() else x * x


def _reflectors(name: str, A: Tensor, tau: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The vectors (…, m, 1) of the reflections, and their factors (…, 1, 1)."""
    m, n = matrix(name, A)[-2:]
    ready(name, A, tau)
    k = tau._array.shape[-1] if tau._array.shape else 0
    if not tau._array.shape or tau._array.shape[:-1] != A._array.shape[:-2] or k > min(m, n) or (n > m and name != "ormqr"):
        raise ShapeError(
            f"{name}: reflections (…, m, n) with m >= n and factors (…, k) with k <= n, in the same batch, got {A.shape} and {tau.shape}"
        )
    vectors = A.tril(-1)[..., :k] + unit(A, m)[:, :k]
    return [(vectors[..., i : i + 1], tau[..., i : i + 1].unsqueeze(-1)) for i in range(k)]


def householder_product(input: Tensor, tau: Tensor, *, out: Any = None) -> Tensor:
    """The first n columns of Q = H₁ H₂ … H_k, given the reflections H = 1 - tau v vᴴ of `geqrf`: (…, m, n), with tau (…, k).

    >>> gl.linalg.householder_product(*gl.geqrf(gl.tensor([[3.0], [4.0]])))
    tensor([[-0.6000],
            [-0.8000]])
    """
    if out is not None:
        return into("linalg.householder_product", out, householder_product(input, tau))
    reflectors = _reflectors("householder_product", input, tau)
    m, n = input._array.shape[-2:]
    q = unit(input, m)[:, :n].expand(input._array.shape)
    for v, factor in reversed(reflectors):
        q = q - factor * v * (v.conj() * q).sum(-2, keepdim=True)
    return q.clone() if not reflectors else q


def orgqr(input: Tensor, input2: Tensor, *, out: Any = None) -> Tensor:
    """As `linalg.householder_product`.

    >>> gl.orgqr(*gl.geqrf(gl.tensor([[3.0], [4.0]])))
    tensor([[-0.6000],
            [-0.8000]])
    """
    return householder_product(input, input2, out=out)


def ormqr(input: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False, *, out: Any = None) -> Tensor:
    """Q C (C Q unless `left`), or Qᴴ C with `transpose`: Q (m, m) is the product of all reflections `input` (…, m, k), whose factors are
    `input2` (…, k), and C is `input3`. Q itself is not made.

    >>> a, tau = gl.geqrf(gl.tensor([[3.0], [4.0]]))
    >>> gl.ormqr(a, tau, gl.tensor([[3.0], [4.0]]), transpose=True)
    tensor([[-5.],
            [ 0.]])
    """
    if out is not None:
        return into("ormqr", out, ormqr(input, input2, input3, left, transpose))
    reflectors = _reflectors("ormqr", input, input2)
    matrix("ormqr", input3)
    ready("ormqr", input, input3)
    if not left:
        return ormqr(input, input2, input3.mH, True, not transpose).mH
    c = input3
    if len(reflectors) != min(input3._array.shape[-2], input._array.shape[-1]):
        raise ShapeError(f"ormqr: a factor for each of the reflections {input.shape}, got {input2.shape}")
    if c._array.shape[-2] != input._array.shape[-2]:
        raise ShapeError(f"ormqr: reflections of {input._array.shape[-2]} rows do not fit {input3.shape}")
    if c._array.shape[:-2] != input._array.shape[:-2]:
        raise ShapeError(f"ormqr: both in one batch, got {input.shape} and {input3.shape}")
    for v, factor in reflectors if transpose else reversed(reflectors):
        c = c - (factor.conj() if transpose else factor) * v * (v.conj() * c).sum(-2, keepdim=True)
    return c


# ---------------------------------------------------------------- LU


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None) -> Any:
    """`linalg.lu_factor` by its old name, as (LU, pivots), also of singular matrices, and with `get_infos` where the first pivot is 0.

    >>> gl.lu(gl.tensor([[0.0, 1.0], [2.0, 4.0]]))[1]
    tensor([2, 2], dtype=gradlab.int32)
    """
    found = tuple(lu_factor_ex(A, pivot=pivot))
    found = found if get_infos else found[:2]
    return found if out is None else into("lu", out, found)


def lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Any = None) -> Tensor:
    """X of A X = input, given `linalg.lu_factor(A)`.

    >>> gl.lu_solve(gl.ones(2, 1), *gl.linalg.lu_factor(gl.tensor([[0.0, 2.0], [4.0, 0.0]])))
    tensor([[0.2500],
            [0.5000]])
    """
    return solve_by_lu(LU_data, LU_pivots, input, out=out)


def _shape_of_lu(data: Any) -> tuple[int, ...]:
    """Its shape: nothing is computed with the numbers, so any type will do."""
    if not isinstance(data, Differentiable) or len(data._array.shape) < 2:
        return matrix("lu_unpack", data)
    found: tuple[int, ...] = data._array.shape
    return found


def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True, *, out: Any = None) -> Any:
    """P, L and U of A = P L U, given `linalg.lu_factor(A)`: (…, m, m), (…, m, k) and (…, k, n). What is not asked for is empty.

    >>> gl.lu_unpack(*gl.linalg.lu_factor(gl.tensor([[0.0, 1.0], [2.0, 4.0]]))).P
    tensor([[0., 1.],
            [1., 0.]])
    """
    if out is not None:
        return into("lu_unpack", out, lu_unpack(LU_data, LU_pivots, unpack_data, unpack_pivots))
    m, n = _shape_of_lu(LU_data)[-2:]
    k, empty = min(m, n), LU_data.new_zeros((0,))
    if unpack_pivots and (not isinstance(LU_pivots, Differentiable) or str(LU_pivots._array.dtype) != "int32"):
        raise RuntimeError("lu_unpack: pivots are an int32 tensor, as linalg.lu_factor gives them")
    if unpack_pivots and LU_pivots._array.shape != (*LU_data._array.shape[:-2], k):
        raise ShapeError(f"lu_unpack: pivots of shape {(*LU_data._array.shape[:-2], k)} belong to {LU_data.shape}, not {LU_pivots.shape}")
    P = L = U = empty
    if unpack_data:
        diagonal = unit(LU_data, m)[:, :k].bool()
        L, U = LU_data[..., :k].tril(-1).masked_fill(diagonal, 1), LU_data[..., :k, :].triu()
    if unpack_pivots:
        P = unit(LU_data, m)[row_order(LU_pivots, m)].mT.clone()
    return UnpackedLU(P, L, U)


# ---------------------------------------------------------------- L D Lᵀ


def _symmetric(name: str, input: Tensor, hermitian: bool) -> None:
    if hermitian and input.is_complex():
        raise NotImplementedError(f"{name}: of complex matrices only symmetric ones, A = L D Lᵀ; use linalg.lu_factor, or linalg.eigh")


def ldl_factor_ex(input: Tensor, *, hermitian: bool = False, check_errors: bool = False, out: Any = None) -> Any:
    """`ldl_factor` as (LD, pivots, info): info (int32, of the batch's shape) is 0, or where the first 0 stands in D, from 1.

    check_errors: raise LinAlgError there.

    >>> gl.linalg.ldl_factor_ex(gl.eye(2)).info
    tensor(0, dtype=gradlab.int32)
    """
    if out is not None:
        return into("linalg.ldl_factor_ex", out, ldl_factor_ex(input, hermitian=hermitian, check_errors=check_errors))
    matrix("ldl_factor", input)
    _symmetric("ldl_factor", input, hermitian)
    if input._edge is not None and current().recording:
        raise NotImplementedError("ldl_factor: the factors have no gradient; detach() the matrix, and use linalg.solve for a solution's")
    found = CheckedLDL(*_ldl(input))
    if check_errors and not input.is_meta and bool(found.info.any()):
        raise LinAlgError(f"ldl_factor: a matrix is singular: {found.info.tolist()} is where D has its first 0")
    return found


def ldl_factor(input: Tensor, *, hermitian: bool = False, out: Any = None) -> Any:
    """L and D of A = L D Lᵀ for symmetric matrices (…, n, n), of which the lower half is read, in one matrix, and the exchanges of rows
    (int32) as LAPACK's sytrf writes them: negative ones, always in pairs, for D's blocks of two. No gradient: NotImplementedError.

    >>> gl.linalg.ldl_factor(gl.tensor([[2.0, 4.0], [4.0, 9.0]]))
    ldl_factor(LD=tensor([[9.0000, 0.0000],
            [0.4444, 0.2222]]), pivots=tensor([2, 2], dtype=gradlab.int32))
    """
    found = PackedLDL(*ldl_factor_ex(input, hermitian=hermitian, check_errors=True)[:2])
    return found if out is None else into("linalg.ldl_factor", out, found)


def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False, out: Any = None) -> Tensor:
    """X of A X = B (…, n, k), given `ldl_factor(A)`. Its gradient is that by B.

    >>> gl.linalg.ldl_solve(*gl.linalg.ldl_factor(gl.tensor([[2.0, 4.0], [4.0, 9.0]])), gl.ones(2, 1))
    tensor([[ 2.5000],
            [-1.0000]])
    """
    ready("ldl_solve", LD, B)
    _symmetric("ldl_solve", LD, hermitian)
    if not isinstance(pivots, Differentiable) or pivots._array.dtype.kind not in "iu":
        raise RuntimeError("ldl_solve: pivots are an integer tensor, as ldl_factor gives them")
    if LD._edge is not None and current().recording:
        raise NotImplementedError("ldl_solve: the gradient is that by B; detach() the factors, and use linalg.solve for the matrix's")
    found: Tensor = _ldl_solve(LD, pivots, B)
    return found if out is None else into("linalg.ldl_solve", out, found)


named_functions(__name__)
