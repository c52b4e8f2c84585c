"""Samples of the incomplete gamma functions; the reference is the series DLMF 8.7.1 with positive terms alone, summed for long."""

from __future__ import annotations

import math

import numpy as np

from samples.base import sample, uniform


def lower(a, x, **_):
    """x^a e^-x / Γ(a + 1) · Σ x^n / ((a + 1) … (a + n)), which converges everywhere."""
    a, x = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(x, np.float64))
    term = total = np.ones(a.shape)
    for n in range(1, 2000):
        term = term * (x / (a + n))
        total = total + term
    return np.exp(a * np.log(x) - x - np.vectorize(math.lgamma, otypes=[float])(a + 1)) * total


PAIRS = [
    (uniform(0.1, 20, 3, 5), uniform(0.1, 30, 5)),
    (uniform(0.05, 0.9, 7), uniform(0.01, 0.9, 7, seed=1)),
    (uniform(100, 300, 2, 3), uniform(90, 310, 2, 1)),
    (np.array(2.5), np.array(1.5)),
    (np.zeros((0, 3)), np.zeros(3)),
]
# The derivative by the first argument is not there, as in PyTorch.
SAMPLES = {
    "igamma": [sample(a, x, reference=lower, dtypes=("float32",), gradients=0) for a, x in PAIRS],
    "igammac": [sample(a, x, reference=lambda a, x, **_: 1 - lower(a, x), dtypes=("float32",), gradients=0) for a, x in PAIRS],
}
