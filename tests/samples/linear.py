"""Samples of the row of a fully connected layer."""

from __future__ import annotations

import numpy as np

from samples.base import normal, sample

X = normal(5, 4)


def linear(x, w, b):
    return np.einsum("...i,oi->...o", x, w) + (0 if b is None else b)


SAMPLES = {
    "linear": [
        sample(X, normal(3, 4), normal(3), reference=linear),
        sample(X, normal(3, 4), None, reference=linear),
        sample(normal(4), normal(3, 4), normal(3), reference=linear),
        sample(normal(2, 3, 4), normal(5, 4), normal(5), reference=linear),
        sample(np.zeros((0, 4)), normal(3, 4), normal(3), reference=linear),
    ],
}
