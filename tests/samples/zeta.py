"""Samples of the zeta function, against its sum taken far."""

from __future__ import annotations

import numpy as np

from samples.base import sample, uniform

SETTINGS = {"dtypes": ("float32",)}


def by_sum(s, q):
    s, q = np.broadcast_arrays(np.asarray(s, np.float64), np.asarray(q, np.float64))
    total = sum((q + k) ** -s for k in range(300))
    z = q + 300
    return total + z ** (1 - s) / (s - 1) + z**-s / 2 + s * z ** (-s - 1) / 12 - s * (s + 1) * (s + 2) * z ** (-s - 3) / 720


SAMPLES = {
    "zeta": [
        sample(s, q, reference=by_sum, gradients=0, **SETTINGS)  # the derivative by the first argument is not there
        for s, q in ((uniform(1.2, 12, 3, 5), uniform(0.1, 20, 5)), (np.array(3.0), np.array([-0.5, -2.25, 4.0])),
                     (np.zeros((0, 3)), np.array(2.0)))
    ],
}  # fmt: skip
