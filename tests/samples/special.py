"""Samples of the error function and its kin, among them the normal distribution's functions, against Python's math."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from samples.base import normal, sample, uniform

PLAIN = {"dtypes": ("float32",)}  # float16 cannot hold what these functions are for
A, EMPTY = normal(3, 5), np.zeros((0, 4))


def inverse_erf(x):
    """By bisection of math.erf."""
    low, high = -7.0, 7.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle) < x else (low, middle)
    return (low + high) / 2


def each(function):
    """A function of one number, for arrays."""
    return np.vectorize(function, otypes=[float])


SAMPLES = {
    "erf": [sample(A * 2, reference=each(math.erf)), sample(EMPTY, reference=lambda x: x), sample(np.array(0.1), reference=each(math.erf))],
    "erfc": [sample(A * 2, reference=each(math.erfc)), sample(EMPTY, reference=lambda x: x)],
    "erfinv": [sample(uniform(-0.95, 0.95, 4, 5), reference=each(inverse_erf))],
    "erfcx": [sample(x, reference=each(lambda v: math.exp(v * v) * math.erfc(v)), **PLAIN)
              for x in (normal(3, 5), uniform(2, 5, 4), np.array(0.4687), np.zeros((0, 2)))],
    "log_ndtr": [sample(x, reference=each(lambda v: math.log(0.5 * math.erfc(-v / math.sqrt(2)))), **PLAIN)
                 for x in (normal(3, 5, scale=2), uniform(-20, -5, 4), np.array(-1.0), np.zeros((0, 2)))],
    "ndtri": [sample(x, reference=each(NormalDist().inv_cdf), **PLAIN)
              for x in (uniform(0.01, 0.99, 3, 5), np.zeros((0, 2)))]
    + [sample(np.array([1e-9, 1e-4, 0.999]), reference=each(NormalDist().inv_cdf), gradients=0, **PLAIN)],
}  # fmt: skip
