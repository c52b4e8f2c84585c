"""Samples of softmax, its logarithm and their derivatives."""

from __future__ import annotations

import numpy as np

from samples.base import normal, sample

A, B, ROW, EMPTY, CUBE = normal(3, 5), normal(3, 5, seed=1), normal(5, seed=2), np.zeros((0, 4)), normal(2, 3, 4, seed=4)
HIDDEN = np.array([[0.5, -np.inf, 1.0], [-np.inf, -np.inf, -np.inf]])


def softmax(x, dim):
    e = np.exp(x - x.max(dim, keepdims=True)) if x.size else x
    return e / e.sum(dim, keepdims=True) if x.size else x


def softmax_backward(dy, r, dim):
    return r * dy - r * (r * dy).sum(dim, keepdims=True)


def log_softmax_backward(dy, r, dim):
    return dy - np.exp(r) * dy.sum(dim, keepdims=True)


def along(reference):
    """Over each dimension of matrices, a vector, a number, a larger tensor and nothing."""
    inputs = [(A, 1), (A, 0), (ROW, 0), (CUBE, 1), (CUBE, 0), (CUBE, 2), (EMPTY, 1), (EMPTY, 0), (np.array(0.7), 0)]
    return [sample(x, dim=d, reference=reference) for x, d in inputs]


def masked(x, dim):
    e = np.where(np.isneginf(x.max(dim, keepdims=True)), 0, np.exp(x))
    total = e.sum(dim, keepdims=True)
    return e / np.where(total == 0, 1, total)


# No probability beyond 0.9: there the formula uses that they add up to 1, and finite differences leave that.
PAIRS = [(B, A, 0), (B, A, 1), *((normal(2, 3, 4, seed=5), CUBE / 4, d) for d in range(3))]
SAMPLES = {
    "softmax": [*along(softmax), sample(A * 300, dim=1, reference=softmax, dtypes=("float32",), note="nothing overflows")],
    "masked_softmax": [
        sample(A, dim=1, reference=masked),
        *(sample(CUBE, dim=d, reference=masked) for d in range(3)),
        sample(HIDDEN, dim=1, reference=masked, gradients=0),
        sample(EMPTY, dim=1, reference=masked),
    ],
    "softmax_backward": [sample(y, softmax(x, d), dim=d, reference=softmax_backward) for y, x, d in PAIRS],
    "log_softmax": along(lambda x, dim: np.log(softmax(x, dim)) if x.size else x),
    "log_softmax_backward": [sample(y, np.log(softmax(x, d)), dim=d, reference=log_softmax_backward) for y, x, d in PAIRS],
}
