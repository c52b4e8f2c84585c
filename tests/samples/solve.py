"""Samples of square systems, determinants, the pseudo-inverse and the matrix exponential."""

from __future__ import annotations

import numpy as np

from samples.base import normal, sample

WELL = normal(4, 4) + 4 * np.eye(4)  # far from singular
BATCH = normal(2, 3, 3, seed=1) + 3 * np.eye(3)
EMPTY, NONE = np.zeros((2, 0, 0)), np.zeros((0, 3, 3))
LOW = np.outer([1.0, 2.0, -1.0], [0.5, 1.0, 3.0]) + np.outer([0.0, 1.0, 1.0], [2.0, -1.0, 0.0])  # rank 2
LAPACK = {"dtypes": ("float32",)}  # half types are refused by the functions


def triangular(a, b, upper, unitriangular):
    half = np.triu(a) if upper else np.tril(a)
    if unitriangular:
        half = half - half * np.eye(a.shape[-1]) + np.eye(a.shape[-1])
    return np.linalg.inv(half) @ b


def minors(x):
    """Cofactors by their definition: determinants of what is left without a row and a column, with alternating signs."""
    n = x.shape[-1]
    found = np.zeros(x.shape)
    for i in range(n):
        for j in range(n):
            part = np.delete(np.delete(x, i, -2), j, -1)
            found[..., i, j] = (-1) ** (i + j) * (np.linalg.det(part) if n > 1 else 1)
    return found


def series(x):
    """The sum of x^k / k!, for small matrices."""
    total = term = np.broadcast_to(np.eye(x.shape[-1]), x.shape)
    for k in range(1, 80):
        term = term @ x / k
        total = total + term
    return total


SAMPLES = {
    "inverse": [sample(x, reference=lambda x: np.linalg.solve(x, np.broadcast_to(np.eye(x.shape[-1]), x.shape)), **LAPACK)
                for x in (WELL, BATCH, EMPTY, NONE)],
    "solve": [sample(a, b, reference=lambda a, b: np.linalg.inv(a) @ b, **LAPACK) for a, b in
              ((WELL, normal(4, 2)), (BATCH, normal(3, 1)), (BATCH[0], normal(2, 3, 2)), (EMPTY, np.zeros((2, 0, 3))))],
    "solve_triangular": [
        sample(WELL, normal(4, 2), upper=True, unitriangular=False, reference=triangular, **LAPACK),
        sample(BATCH, normal(3, 3), upper=False, unitriangular=False, reference=triangular, **LAPACK),
        sample(WELL / 4, normal(4, 1), upper=False, unitriangular=True, reference=triangular, **LAPACK),
        sample(EMPTY, np.zeros((2, 0, 1)), upper=True, unitriangular=True, reference=lambda a, b, upper, unitriangular: b, **LAPACK),
    ],
    "det": [sample(x, reference=lambda x: np.prod(np.linalg.eigvals(x), -1).real, **LAPACK) for x in (WELL, BATCH, EMPTY, NONE)]
    + [sample(LOW, reference=lambda x: np.zeros(()), gradients=1, **LAPACK)],
    "cofactor": [sample(x, reference=minors, **LAPACK) for x in (WELL, BATCH, NONE, np.array([[2.0]]))]
    + [sample(LOW, reference=minors, gradients=0, **LAPACK)],
    "slogdet": [sample(x, reference=lambda x: (np.sign(np.linalg.det(x)), np.log(np.abs(np.linalg.det(x)))), **LAPACK)
                for x in (WELL, BATCH, -BATCH, EMPTY, NONE)],
    "pinv": [
        sample(x, atol=0.0, rtol=1e-10, reference=lambda x, atol, rtol: np.linalg.pinv(x, rtol), gradients=order, **LAPACK)
        for x, order in ((normal(4, 3), 2), (normal(2, 3, 4), 2), (BATCH, 2), (np.zeros((3, 0)), 1), (np.zeros((0, 2, 3)), 1))
    ],
    "matrix_exp": [sample(x, reference=series, **LAPACK) for x in (normal(4, 4), 3 * BATCH / 2, EMPTY, NONE)],
}  # fmt: skip
