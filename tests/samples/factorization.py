"""Samples of factorisations. Where only one half of a matrix is read the gradient is symmetric by convention, which a difference of single
elements does not show: `test_linalg.py` compares those gradients on symmetric changes."""

from __future__ import annotations

import numpy as np

from samples.base import normal, sample

ROOT = normal(4, 4) + 3 * np.eye(4)
POSITIVE = ROOT @ ROOT.T
BATCH = normal(2, 3, 3, seed=1) + 3 * np.eye(3)
EMPTY, NONE = np.zeros((2, 0, 0)), np.zeros((0, 3, 3))
TALL, WIDE = normal(5, 3), normal(2, 3, 4)
LAPACK = {"dtypes": ("float32",)}


def by_columns(x):
    """Cholesky's factor by its definition, an element at a time."""
    found = np.zeros(x.shape)
    for j in range(x.shape[-1]):
        for i in range(j, x.shape[-1]):
            rest = x[..., i, j] - (found[..., i, :j] * found[..., j, :j]).sum(-1)
            found[..., i, j] = np.sqrt(rest) if i == j else rest / found[..., j, j]
    return found


def gram_schmidt(x, mode):
    """Q and R for matrices with LAPACK's signs: the diagonal of R is that of `numpy.linalg.qr`."""
    q, r = np.linalg.qr(x, mode)
    np.testing.assert_allclose(q @ r, x, atol=1e-12)
    return q, r


def turned(v):
    """Columns with their first large element above zero, one column at a time."""
    for at in np.ndindex(v.shape[:-2]):
        for column in v[at].T:
            large = [e for e in column if abs(e) >= 0.6180339887498949 * abs(column).max()]
            column *= 1 if large[0] >= 0 else -1
    return v


def values(x, lower):
    full = np.tril(x) + np.tril(x, -1).swapaxes(-1, -2) if lower else np.triu(x) + np.triu(x, 1).swapaxes(-1, -2)
    w, v = np.linalg.eigh(full, "L" if lower else "U")
    np.testing.assert_allclose(full @ v, v * w[..., None, :], atol=1e-12)
    return w, turned(v)


def singular(x, full):
    """LAPACK's with those signs; what fills up to a square is the complete Q's of the rest."""
    u, s, v = np.linalg.svd(x, full_matrices=full)
    k = s.shape[-1]
    first = turned(v[..., :k, :].swapaxes(-1, -2).copy())
    u[..., :k] *= (first.swapaxes(-1, -2) * v[..., :k, :]).sum(-1)[..., None, :]
    v[..., :k, :] = first.swapaxes(-1, -2)
    u[..., k:] = np.linalg.qr(u[..., :k], "complete")[0][..., k : u.shape[-1]]
    v[..., k:, :] = np.linalg.qr(first, "complete")[0].swapaxes(-1, -2)[..., k : v.shape[-2], :]
    np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ v[..., :k, :], x, atol=1e-12)
    return u, s, v


def elimination(x):
    """Gaussian elimination of each matrix with partial pivoting, on whole rows."""
    m, n = x.shape[-2:]
    k = min(m, n)
    order, lower, upper = np.zeros((*x.shape[:-2], m), int), np.zeros((*x.shape[:-2], m, k)), np.zeros((*x.shape[:-2], k, n))
    for at in np.ndindex(x.shape[:-2]):
        rest, rows, factors = x[at].copy(), list(range(m)), np.eye(m)
        for j in range(k):
            p = j + int(np.argmax(abs(rest[j:, j])))
            rest[[j, p]], factors[[j, p], :j] = rest[[p, j]], factors[[p, j], :j]
            rows[j], rows[p] = rows[p], rows[j]
            for i in range(j + 1, m):
                factors[i, j] = rest[i, j] / rest[j, j]
                rest[i] = rest[i] - factors[i, j] * rest[j]
        order[at], lower[at], upper[at] = rows, factors[:, :k], rest[:k]
    return order, lower, upper


SAMPLES = {
    "cholesky": [sample(x, reference=by_columns, gradients=0, fresh=lambda rng, x=x: (x + np.eye(x.shape[-1]),), **LAPACK)
                 for x in (POSITIVE, BATCH @ BATCH.swapaxes(-1, -2), EMPTY, NONE)],
    "qr": [sample(x, mode=mode, reference=gram_schmidt, **LAPACK)
           for x, mode in ((TALL, "reduced"), (BATCH, "reduced"), (WIDE, "reduced"), (WIDE, "complete"), (normal(3, 3), "complete"))],
    "eigh": [sample(x, lower=lower, reference=values, gradients=0, **LAPACK)
             for x, lower in ((POSITIVE, True), (BATCH, True), (BATCH, False), (EMPTY, True), (NONE, True))],
    "svd": [sample(x, full=full, reference=singular, **LAPACK) for x, full in ((TALL, False), (BATCH, False), (WIDE, False))]
    + [sample(TALL, full=True, reference=singular, gradients=0, **LAPACK)],
    "lu": [sample(x, reference=elimination, **LAPACK) for x in (ROOT, BATCH, TALL, WIDE)],
}  # fmt: skip
