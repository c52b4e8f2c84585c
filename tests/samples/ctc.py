"""Samples of connectionist temporal classification, beside all alignments written out."""

import itertools

import numpy as np

from samples.base import normal, sample


def alignments(x, target, blank):
    """Of one sequence's log_probs: the probability of the target, and of the alignments that have each class at each step."""
    total, shares = 0.0, np.zeros(x.shape)
    for path in itertools.product(range(x.shape[1]), repeat=x.shape[0]):
        if [c for c, _ in itertools.groupby(path) if c != blank] == list(target):
            p = np.exp(sum(x[t, c] for t, c in enumerate(path)))
            total += p
            for t, c in enumerate(path):
                shares[t, c] += p
    return total, shares


def sequences(x, targets, inputs, labels):
    at = 0
    for n, (steps, length) in enumerate(zip(inputs, labels, strict=True)):
        yield n, x[:steps, n], targets[at : at + length] if targets.ndim == 1 else targets[n, :length]
        at += length


def ctc_loss(x, targets, inputs, labels, blank, zero_infinity):
    y = np.zeros(x.shape[1])
    for n, own, target in sequences(x, targets, inputs, labels):
        total, _ = alignments(own, target, blank)
        y[n] = -np.log(total) if total else 0 if zero_infinity else np.inf
    return y


def ctc_loss_backward(g, x, targets, inputs, labels, blank, zero_infinity):
    dx = np.zeros(x.shape)
    for n, own, target in sequences(x, targets, inputs, labels):
        total, shares = alignments(own, target, blank)
        if total:
            dx[: len(own), n] = g[n] * (np.exp(own) - shares / total)
    return dx


def log_probs(*shape, seed=0):
    x = normal(*shape, seed=seed)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


X = log_probs(4, 5, 3)
LENGTHS = np.array([4, 4, 3, 4, 2]), np.array([2, 2, 1, 0, 2])
PADDED = np.array([[1, 2], [1, 1], [2, 0], [0, 0], [2, 2]])  # the last one has no alignment
ROW = np.array([1, 2, 1, 1, 2, 2, 2])
LAST = log_probs(3, 2, 4, seed=1), np.array([[0, 2, 1], [2, 0, 0]]), np.array([3, 3]), np.array([3, 1])
GIVEN = [
    ((X, PADDED, *LENGTHS), {"blank": 0, "zero_infinity": True}), ((X, ROW, *LENGTHS), {"blank": 0, "zero_infinity": True}),
    (LAST, {"blank": 3, "zero_infinity": False}),
    ((X[:2, :1], ROW[1:4], np.array([2]), np.array([1])), {"blank": 1, "zero_infinity": False}),
    ((X, PADDED, *LENGTHS), {"blank": 0, "zero_infinity": False}),
    ((X[:0, :2], PADDED[:2], np.array([0, 0]), np.array([0, 1])), {"blank": 0, "zero_infinity": True}),
    ((X[:, :0], PADDED[:0], LENGTHS[0][:0], LENGTHS[1][:0]), {"blank": 0, "zero_infinity": True}),
]  # fmt: skip


def above(given):
    return normal(given[0].shape[1], seed=2), *given


def fresh(given):
    """Others of the same shapes: targets and lengths stay, as they have to fit each other."""
    return lambda rng: tuple(rng.normal(size=a.shape) if a.dtype.kind == "f" else a for a in given)


# The gradient is that of log_softmax in front of the row (PyTorch's convention): finite differences of the row alone have less.
SAMPLES = {
    "ctc_loss": [sample(*given, fresh=fresh(given), reference=ctc_loss, gradients=0, **how) for given, how in GIVEN],
    "ctc_loss_backward": [
        sample(*above(given), fresh=fresh(above(given)), reference=ctc_loss_backward, gradients=0, **how) for given, how in GIVEN
    ],
}  # fmt: skip
