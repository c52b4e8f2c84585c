"""Rows of matrix factorisations, of the last two dimensions: Cholesky, QR, eigenvectors of symmetric matrices, singular values, LU.

LAPACK through `numpy.linalg` (LU has none there); on a GPU one block of threads for each matrix. Where mathematics leaves a choice both
devices make the same one: the signs of eigenvectors and of singular vectors (`oriented`), what fills U or Vh up to a square (`svd_cpu`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.dtype import INT64, real_of
from gradlab.kernel import Kernel
from gradlab.op import Op
from gradlab.ops.movement import cat
from gradlab.ops.solve import lapack, matrices, solve_triangular, square, unit
from gradlab.spec import Spec, count

# ---------------------------------------------------------------- Cholesky


def cholesky_cpu(x: Any, y: Any) -> None:
    y[...] = lapack("cholesky", "a symmetric positive definite matrix is needed; add a small multiple of the unit matrix",
                    np.linalg.cholesky, x)  # fmt: skip


def _cholesky_gradient(g: Any, y: Any) -> Any:
    """I. Murray, "Differentiation of the Cholesky decomposition", arXiv:1602.07527 (2016); symmetric, though only one half is read."""
    phi = (y.mH @ g).tril()
    phi = phi - 0.5 * phi.diagonal(0, -2, -1).diag_embed(0, -2, -1)
    half = solve_triangular(y.mH, phi, upper=True, unitriangular=False)  # L⁻ᴴ Φ
    found = solve_triangular(y.mH, half.mH, upper=True, unitriangular=False)  # its transpose, times L⁻¹ from the right
    return 0.5 * (found + found.mH)


cholesky = Op("cholesky", square, cpu=cholesky_cpu, cuda=Kernel("cholesky.cu", "cholesky", "matrix"), grad={"x": _cholesky_gradient})

# ---------------------------------------------------------------- QR


def qr_rule(x: Spec, *, mode: str) -> tuple[Spec, Spec]:
    """Rule: Q (m, k) and R (k, n), where k is the smaller of m and n, or m if `mode` is "complete"."""
    matrices(x)
    m, n = x.shape[-2:]
    k = m if mode == "complete" else min(m, n)
    return Spec((*x.shape[:-2], m, k), x.dtype), Spec((*x.shape[:-2], k, n), x.dtype)


def qr_cpu(x: Any, Q: Any, R: Any, *, mode: str) -> None:
    if not x.size:  # LAPACK's wrapper takes no empty batches
        Q[...] = np.eye(*Q.shape[-2:], dtype=Q.dtype)
        R.fill(0)
        return
    Q[...], R[...] = np.linalg.qr(x, mode)  # type: ignore[call-overload]


def _copy_lower(m: Any) -> Any:
    """The lower triangle, mirrored to the upper one; the diagonal of R is real, also for complex matrices."""
    if not m.is_complex():
        return m.tril() + m.tril(-1).mT
    below = m.tril(-1)
    return below + below.mH + m.diagonal(0, -2, -1).real.diag_embed(0, -2, -1)


def _qr_gradient(Q: Any, R: Any, x: Any, mode: str, g_Q: Any = None, g_R: Any = None) -> Any:
    """S. F. Walter and L. Lehmann, "Algorithmic differentiation of linear algebra functions with application in optimum experimental
    design", arXiv:1001.1654 (2010); for wide matrices D. A. O. Roberts and L. R. Roberts, arXiv:2009.10071 (2020)."""
    m, n = x.shape[-2:]
    if mode == "complete" and m > n:
        raise RuntimeError(
            f'qr: with mode="complete" the gradient of matrices with more rows than columns ({m} and {n}) is not unique; use "reduced"'
        )
    g_Q = Q.new_zeros(Q.shape) if g_Q is None else g_Q
    g_R = R.new_zeros(R.shape) if g_R is None else g_R
    if m >= n:
        return _tall_qr_gradient(Q, R, g_Q, g_R)
    wide, g_wide = x.narrow(-1, m, n - m), g_R.narrow(-1, m, n - m)
    first = _tall_qr_gradient(Q, R.narrow(-1, 0, m), g_Q + wide @ g_wide.mH, g_R.narrow(-1, 0, m))
    return cat(first, Q @ g_wide, dim=len(x.shape) - 1)


def _tall_qr_gradient(q: Any, r: Any, g_q: Any, g_r: Any) -> Any:
    middle = _copy_lower(r @ g_r.mH - g_q.mH @ q)
    return solve_triangular(r, (g_q + q @ middle).mH, upper=True, unitriangular=False).mH  # times R⁻ᴴ from the right


qr = Op("qr", qr_rule, params=("mode",), outputs=("Q", "R"), cpu=qr_cpu, cuda=Kernel("qr.cu", "qr", "matrix"), grad={"x": _qr_gradient})

# ---------------------------------------------------------------- eigenvectors of symmetric matrices


def oriented(rows: Any) -> Any:
    """For each row the sign, 1 or -1 (of complex ones: the number of size 1), that makes its first large element positive: large is what
    has at least 0.618 of the largest size.

    Not simply the largest one: elements of equal size are common, and which of them is larger would be rounding's choice.
    """
    size = np.abs(rows)
    first = (size >= 0.6180339887498949 * size.max(-1, keepdims=True, initial=0)).argmax(-1)
    found = np.take_along_axis(rows, first[..., None], -1)[..., 0]
    if rows.dtype.kind == "c":
        return found.conj() / np.abs(found)
    return np.where(found < 0, -1, 1).astype(rows.dtype)


def fixed_phase(v: Any, g: Any, turn: Any, large: Any = None) -> Any:
    """The gradient of complex vectors, the columns of `v`, of which each is turned until its first large element is real, as by `oriented`:
    a change of that element's imaginary part is undone by turning the whole. turn: how the loss changes with each vector's angle."""
    if 0 in v.shape:
        return g
    if large is None:
        size = v.detach().abs()
        large = size >= 0.6180339887498949 * size.amax(-2, keepdim=True)
    first = large & (large.to(INT64).cumsum(-2) == 1)
    top = (v.real * first).sum(-2, keepdim=True)
    return g - (turn.unsqueeze(-2) / top * first) * 1j


def eigh_rule(x: Spec, *, lower: bool) -> tuple[Spec, Spec]:
    """Rule: the eigenvalues and a matrix of the eigenvectors."""
    square(x)
    return Spec(x.shape[:-1], real_of(x.dtype)), x


def eigh_cpu(x: Any, eigenvalues: Any, eigenvectors: Any, *, lower: bool) -> None:
    eigenvalues[...], eigenvectors[...] = lapack("eigh", "are all elements finite?", np.linalg.eigh, x, UPLO="L" if lower else "U")
    if x.size:
        eigenvectors *= oriented(eigenvectors.swapaxes(-1, -2))[..., None, :]


def _eigh_gradient(eigenvalues: Any, eigenvectors: Any, g_eigenvalues: Any = None, g_eigenvectors: Any = None) -> Any:
    """M. B. Giles, "Collected matrix derivative results …" (2008); symmetric, though only one half is read. The gradient of eigenvectors
    is infinite where eigenvalues are equal: those vectors are not determined."""
    v, g = eigenvectors, g_eigenvectors
    middle: Any = None if g_eigenvalues is None else g_eigenvalues.diag_embed(0, -2, -1)
    if g is not None:
        if v.is_complex():
            g = fixed_phase(v, g, (v.conj() * g).sum(-2).imag)
        gap = eigenvalues.unsqueeze(-2) - eigenvalues.unsqueeze(-1)
        one = unit(gap, v.shape[-1])
        turned = (v.mH @ g) * (1 - one) / (gap + one)
        middle = turned if middle is None else middle + turned
    return v @ (middle if middle.dtype == v.dtype else middle.to(v.dtype)) @ v.mH


eigh = Op("eigh", eigh_rule, params=("lower",), outputs=("eigenvalues", "eigenvectors"), cpu=eigh_cpu,
          cuda=Kernel("eigh.cu", "eigh", "matrix"), grad={"x": _eigh_gradient})

# ---------------------------------------------------------------- singular values


def svd_rule(x: Spec, *, full: bool) -> tuple[Spec, Spec, Spec]:
    """Rule: U (m, k), S (k) and Vh (k, n), where k is the smaller of m and n; U is (m, m) and Vh (n, n) if `full`."""
    matrices(x)
    batch, (m, n) = x.shape[:-2], x.shape[-2:]
    k = min(m, n)
    u, v = ((m, m), (n, n)) if full else ((m, k), (k, n))
    return Spec((*batch, *u), x.dtype), Spec((*batch, k), real_of(x.dtype)), Spec((*batch, *v), x.dtype)


def svd_cpu(x: Any, U: Any, S: Any, Vh: Any, *, full: bool) -> None:
    if not x.size:
        U[...], Vh[...] = (np.eye(*part.shape[-2:], dtype=x.dtype) for part in (U, Vh))
        return
    u, S[...], vh = lapack("svd", "are all elements finite?", np.linalg.svd, x, full_matrices=False)
    sign = oriented(vh)
    k = S.shape[-1]
    np.multiply(u, sign[..., None, :].conj(), U[..., :k])
    np.multiply(vh, sign[..., :, None], Vh[..., :k, :])
    if full:
        if U.shape[-1] > k:
            U[..., k:] = np.linalg.qr(U[..., :k], "complete")[0][..., k:]
        if Vh.shape[-2] > k:
            Vh[..., k:, :] = np.linalg.qr(Vh[..., :k, :].swapaxes(-1, -2).conj(), "complete")[0][..., k:].swapaxes(-1, -2).conj()


def _skew(m: Any) -> Any:
    return m - m.mH


def _svd_gradient(U: Any, S: Any, Vh: Any, g_U: Any = None, g_S: Any = None, g_Vh: Any = None) -> Any:
    """J. Townsend, "Differentiating the singular value decomposition" (2016). The gradient of singular vectors is infinite where singular
    values are equal; that of singular values alone always exists."""
    k = S.shape[-1]
    u, vh = U.narrow(-1, 0, k), Vh.narrow(-2, 0, k)
    s = S.unsqueeze(-2)
    g_u, g_v = (None if g_U is None else g_U.narrow(-1, 0, k)), (None if g_Vh is None else g_Vh.narrow(-2, 0, k).mH)
    if U.is_complex() and (g_u is not None or g_v is not None):
        parts = [(a.conj() * g).sum(-2).imag for a, g in ((u, g_u), (vh.mH, g_v)) if g is not None]
        g_v = fixed_phase(vh.mH, vh.mH.zeros_like() if g_v is None else g_v, sum(parts[1:], parts[0]))
    middle: Any = None if g_S is None else g_S.diag_embed(0, -2, -1)
    outside = None
    if g_u is not None or g_v is not None:
        gap = (S * S).unsqueeze(-2) - (S * S).unsqueeze(-1) + unit(S, k)
    if g_u is not None:
        inner = u.mH @ g_u
        turned = _skew(inner) / gap * s
        if U.is_complex():  # the diagonal of a skew matrix is imaginary
            turned = turned * (1 - unit(S, k)) + (inner.diagonal(0, -2, -1).imag / S * 1j).diag_embed(0, -2, -1)
        middle = turned if middle is None else middle + turned
        if u.shape[-2] > k:
            outside = ((g_u - u @ inner) / s) @ vh
    if g_v is not None:
        inner = vh @ g_v
        turned = S.unsqueeze(-1) * (_skew(inner) / gap)
        if U.is_complex():
            turned = turned * (1 - unit(S, k))
        middle = turned if middle is None else middle + turned
        if vh.shape[-1] > k:
            part = u @ ((g_v - vh.mH @ inner).mH / S.unsqueeze(-1))
            outside = part if outside is None else outside + part
    found = u @ (middle if middle.dtype == u.dtype else middle.to(u.dtype)) @ vh
    return found if outside is None else found + outside


svd = Op("svd", svd_rule, params=("full",), outputs=("U", "S", "Vh"), cpu=svd_cpu,
         cuda=Kernel("svd.cu", "svd", "matrix"), grad={"x": _svd_gradient})

# ---------------------------------------------------------------- LU


def lu_rule(x: Spec) -> tuple[Spec, Spec, Spec]:
    """Rule: the row order (m), L (m, k) and U (k, n), where k is the smaller of m and n."""
    matrices(x)
    batch, (m, n) = x.shape[:-2], x.shape[-2:]
    k = min(m, n)
    return Spec((*batch, m), INT64), Spec((*batch, m, k), x.dtype), Spec((*batch, k, n), x.dtype)


def _size(x: Any) -> Any:
    """What pivots are chosen by: of complex numbers the sum of both parts' sizes, as LAPACK."""
    return np.abs(x.real) + np.abs(x.imag) if x.dtype.kind == "c" else np.abs(x)


def lu_cpu(x: Any, order: Any, L: Any, U: Any) -> None:
    """Gaussian elimination with the largest pivot of each column, a column at a time over the batch."""
    m, n = x.shape[-2:]
    k = min(m, n)
    a = x.reshape((count(x.shape[:-2]), m, n)).copy()
    rows = np.tile(np.arange(m), (len(a), 1))
    batch = np.arange(len(a))
    for j in range(k):
        pivot = _size(a[:, j:, j]).argmax(1) + j
        for table in (a, rows):
            table[batch, j], table[batch, pivot] = table[batch, pivot], table[batch, j].copy()
        top = a[:, j, j, None]
        factor = np.divide(a[:, j + 1 :, j], top, out=np.zeros_like(a[:, j + 1 :, j]), where=top != 0)
        a[:, j + 1 :, j] = factor
        a[:, j + 1 :, j + 1 :] -= factor[:, :, None] * a[:, j, None, j + 1 :]
    order[...] = rows.reshape(order.shape)
    lower, upper = np.tril(a[:, :, :k], -1), np.triu(a[:, :k])
    diagonal = np.arange(k)
    lower[:, diagonal, diagonal] = 1
    L[...], U[...] = lower.reshape(L.shape), upper.reshape(U.shape)


def _lu_gradient(order: Any, L: Any, U: Any, g_L: Any = None, g_U: Any = None) -> Any:
    """The gradient of A = P L U, from dA = P (dL U + L dU): the two triangles of L⁻¹ Pᵀ dA U⁻¹ = L⁻¹ dL + dU U⁻¹ stand apart.

    What a wide U or a tall L has beyond the square part follows from the rest, U₂ = L⁻¹ A₂ and L₂ = A₂ U⁻¹.
    """
    m, k, n = L.shape[-2], L.shape[-1], U.shape[-1]
    g_L = L.new_zeros(L.shape) if g_L is None else g_L
    g_U = U.new_zeros(U.shape) if g_U is None else g_U
    first, second = L.narrow(-2, 0, k), U.narrow(-1, 0, k)
    g_first, g_second, rest = g_L.narrow(-2, 0, k), g_U.narrow(-1, 0, k), None
    if n > k:
        rest = solve_triangular(first.mH, g_U.narrow(-1, k, n - k), upper=True, unitriangular=True)
        g_first = g_first - rest @ U.narrow(-1, k, n - k).mH
    elif m > k:
        rest = solve_triangular(second, g_L.narrow(-2, k, m - k).mH, upper=True, unitriangular=False).mH
        g_second = g_second - L.narrow(-2, k, m - k).mH @ rest
    middle = (first.mH @ g_first).tril(-1) + (g_second @ second.mH).triu()
    half = solve_triangular(first.mH, middle, upper=True, unitriangular=True)
    found = solve_triangular(second, half.mH, upper=True, unitriangular=False).mH
    if rest is not None:
        found = cat(found, rest, dim=len(L.shape) - (1 if n > k else 2))
    return found.gather(-2, order.argsort(-1).unsqueeze(-1).expand(found.shape))


lu = Op("lu", lu_rule, outputs=("order", "L", "U"), cpu=lu_cpu, cuda=Kernel("solve.cu", "lu", "matrix"), grad={"x": _lu_gradient})
