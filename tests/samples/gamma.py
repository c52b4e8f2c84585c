"""Samples of the gamma function's logarithm and its derivatives; references are series of another kind than the rows use."""

from __future__ import annotations

import math

import numpy as np

from samples.base import sample, uniform

POSITIVE = uniform(0.05, 30, 3, 5)
NEGATIVE = np.array([-0.5, -1.25, -3.7, -12.01])
EMPTY = np.zeros((0, 3))
SETTINGS = {"dtypes": ("float32",)}  # derivatives near a pole magnify what half types round


def by_sum(n):
    """The n-th derivative of digamma: 200 terms of its sum, the rest as an integral with two corrections."""

    def reference(x, **_):
        s, total = n + 1, 0.0
        for k in range(200):
            total = total + 1 / (x + k) ** s
        z = x + 200
        total = total + z ** (1.0 - s) / (s - 1) + z**-s / 2 + s * z ** (-s - 1.0) / 12 - s * (s + 1) * (s + 2) * z ** (-s - 3.0) / 720
        return (-1) ** (n + 1) * math.factorial(n) * total

    return reference


def digamma(x):
    z, total = x + 200, 0.0
    for k in range(200):
        total = total - 1 / (x + k)
    return total + np.log(z) - 1 / (2 * z) - 1 / (12 * z**2) + 1 / (120 * z**4)


lgamma = np.vectorize(math.lgamma, otypes=[float])
SAMPLES = {
    "lgamma": [sample(x, reference=lgamma, **SETTINGS) for x in (POSITIVE, NEGATIVE, np.array(2.5), EMPTY)]
    + [sample(np.array([1e5, 1e-8]), reference=lgamma, gradients=0, **SETTINGS)],
    "digamma": [sample(x, reference=digamma, **SETTINGS) for x in (POSITIVE, NEGATIVE, np.array(2.5), EMPTY)],
    "polygamma": [sample(x, n=n, reference=by_sum(n), **SETTINGS) for x in (POSITIVE + 0.3, NEGATIVE, EMPTY) for n in (1, 2, 3)],
}
