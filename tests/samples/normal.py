"""Samples of the normal distribution's functions and the scaled complement of the error function, against Python's math."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from samples.base import normal, sample, uniform

PLAIN = {"dtypes": ("float32",)}  # float16 cannot hold what these functions are for
each = np.vectorize
SAMPLES = {
    "erfcx": [sample(x, reference=each(lambda v: math.exp(v * v) * math.erfc(v), otypes=[float]), **PLAIN)
              for x in (normal(3, 5), uniform(2, 5, 4), np.array(0.4687), np.zeros((0, 2)))],
    "log_ndtr": [sample(x, reference=each(lambda v: math.log(0.5 * math.erfc(-v / math.sqrt(2))), otypes=[float]), **PLAIN)
                 for x in (normal(3, 5, scale=2), uniform(-20, -5, 4), np.array(-1.0), np.zeros((0, 2)))],
    "ndtri": [sample(x, reference=each(NormalDist().inv_cdf, otypes=[float]), **PLAIN)
              for x in (uniform(0.01, 0.99, 3, 5), np.zeros((0, 2)))]
    + [sample(np.array([1e-9, 1e-4, 0.999]), reference=each(NormalDist().inv_cdf, otypes=[float]), gradients=0, **PLAIN)],
}  # fmt: skip
