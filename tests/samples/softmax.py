"""Samples of softmax, its logarithm and their derivatives."""

from __future__ import annotations

import numpy as np

from samples.base import normal, sample

A, B, ROW, EMPTY = normal(3, 5), normal(3, 5, seed=1), normal(5, seed=2), np.zeros((0, 4))
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
    inputs = [(A, 1), (A, 0), (ROW, 0), (normal(2, 3, 4, seed=4), 1), (EMPTY, 1), (EMPTY, 0), (np.array(0.7), 0)]
    return [sample(x, dim=d, reference=reference) for x, d in inputs]


def masked(x, dim):
    e = np.where(np.isneginf(x.max(dim, keepdims=True)), 0, np.exp(x))
    total = e.sum(dim, keepdims=True)
    return e / np.where(total == 0, 1, total)


SAMPLES = {
    "softmax": [*along(softmax), sample(A * 300, dim=1, reference=softmax, dtypes=("float32",), note="nothing overflows")],
    "masked_softmax": [
        sample(A, dim=1, reference=masked),
        sample(HIDDEN, dim=1, reference=masked, gradients=0),
        sample(EMPTY, dim=1, reference=masked),
    ],
    "softmax_backward": [sample(B, softmax(A, d), dim=d, reference=softmax_backward) for d in (0, 1)],
    "log_softmax": along(lambda x, dim: np.log(softmax(x, dim)) if x.size else x),
    "log_softmax_backward": [sample(B, np.log(softmax(A, d)), dim=d, reference=log_softmax_backward) for d in (0, 1)],
}
