"""Samples of L D Lᵀ and of what it solves; the references put the product together again, and ask LAPACK for the solution."""

from __future__ import annotations

import numpy as np

from gradlab.ops.ldl import factor

from samples.base import normal, sample

A = normal(2, 5, 5)
SYMMETRIC = A + A.swapaxes(-1, -2) + 2 * np.diag([0.0, 3.0, 0.0, -2.0, 1.0])
DIAGONAL = np.diag([1.0, -2.0, 0.5])


def rebuilt(LD, pivots):
    """The matrix of which these are the factors: P₁ L₁ P₂ L₂ … D … L₂ᵀ P₂ᵀ L₁ᵀ P₁ᵀ."""
    n = len(LD)
    d, steps, k = np.zeros((n, n)), [], 0
    while k < n:
        size = 1 if pivots[k] > 0 else 2
        block = np.tril(LD[k : k + size, k : k + size])
        d[k : k + size, k : k + size] = block + np.tril(block, -1).T
        lower, exchange, other = np.eye(n), np.eye(n), abs(pivots[k]) - 1
        lower[k + size :, k : k + size] = LD[k + size :, k : k + size]
        exchange[[k + size - 1, other]] = exchange[[other, k + size - 1]]
        steps.append(exchange @ lower)
        k += size
    for step in reversed(steps):
        d = step @ d @ step.T
    return d


def packed(x):
    factors, pivots, info = np.tril(x), np.zeros(x.shape[:-1], np.int32), np.zeros(x.shape[:-2], np.int32)
    for at in np.ndindex(x.shape[:-2]):
        info[at] = factor(factors[at], pivots[at])
        np.testing.assert_allclose(rebuilt(factors[at], pivots[at]), np.tril(x[at]) + np.tril(x[at], -1).T, atol=1e-12)
    return factors, pivots, info


def solved(LD, pivots, b):
    return np.linalg.solve(np.stack([rebuilt(*pair) for pair in zip(LD, pivots)]), b)


LD, PIVOTS, _ = packed(SYMMETRIC)
SAMPLES = {
    "ldl": [sample(x, reference=packed, gradients=0, dtypes=("float32",)) for x in (SYMMETRIC, DIAGONAL, np.zeros((0, 3, 3)))],
    "ldl_solve": [sample(LD, PIVOTS, normal(2, 5, 2), reference=solved, gradients=0, dtypes=("float32",))],
}
