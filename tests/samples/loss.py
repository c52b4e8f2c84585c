"""Samples of the loss rows."""

from __future__ import annotations

import numpy as np

from samples.base import integers, normal, sample, uniform

X, IMAGE = normal(5, 4), normal(2, 3, 4, seed=1)
T, T_IMAGE = integers(0, 4, 5), integers(0, 3, 2, 4)
IGNORED = np.array([1, -100, 3, 0, -100])
NOTHING = np.full(5, -100)


def probabilities(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def picked(x, target, ignore_index):
    """x at each target's class, 0 where ignored; and which count."""
    counts = target != ignore_index
    found = np.zeros(target.shape)
    for at in np.ndindex(target.shape):
        if counts[at]:
            found[at] = x[(at[0], target[at], *at[1:])]
    return found, counts


def cross_entropy(x, target, ignore_index, reduction):
    found, counts = picked(-np.log(probabilities(x)), target, ignore_index)
    y = found if reduction == "none" else found.sum() if reduction == "sum" else found.sum() / counts.sum()
    return y, probabilities(x)


def onehot(target, classes, ignore_index):
    found = np.zeros((target.shape[0], classes, *target.shape[1:]))
    for at in np.ndindex(target.shape):
        if target[at] != ignore_index:
            found[(at[0], target[at], *at[1:])] = 1
    return found


def cross_entropy_backward(dy, p, target, ignore_index, reduction):
    counts = np.expand_dims(target != ignore_index, 1)
    dy = np.expand_dims(dy, 1) if reduction == "none" else dy / (max(counts.sum(), 1) if reduction == "mean" else 1)
    return (p - onehot(target, p.shape[1], ignore_index)) * counts * dy


def nll(x, target, ignore_index):
    return -picked(x, target, ignore_index)[0]


def nll_backward(dy, target, classes, ignore_index):
    return -onehot(target, classes, ignore_index) * np.expand_dims(dy, 1)


def squared(a, b, mean):
    return ((a - b) ** 2).mean() if mean else ((a - b) ** 2).sum()


def bce(x, target):
    return -(target * np.log(x) + (1 - target) * np.log(1 - x))


P, TARGET = uniform(0.05, 0.95, 4, 5), uniform(0, 1, 4, 5, seed=3)
ARGUMENTS = [(X, T), (X, IGNORED), (IMAGE, T_IMAGE)]

SAMPLES = {
    "cross_entropy": [
        sample(x, t, ignore_index=i, reduction=r, reference=cross_entropy)
        for x, t in ARGUMENTS
        for r, i in (("mean", -100), ("sum", -100), ("none", -100), ("mean", 1 if t is T else -100))
    ],
    "cross_entropy_backward": [
        sample(
            normal(*t.shape) if r == "none" else np.array(0.7),
            probabilities(x),
            t,
            ignore_index=-100,
            reduction=r,
            reference=cross_entropy_backward,
        )
        for x, t in [*ARGUMENTS, (X, NOTHING)]
        for r in ("mean", "sum", "none")
    ],
    "nll": [sample(x, t, ignore_index=-100, reference=nll) for x, t in ARGUMENTS],
    "nll_backward": [sample(normal(*t.shape), t, classes=x.shape[1], ignore_index=-100, reference=nll_backward) for x, t in ARGUMENTS],
    "mse": [
        *(sample(X, normal(5, 4, seed=2), mean=m, reference=squared) for m in (True, False)),
        sample(np.array(1.5), np.array(0.2), mean=True, reference=squared),
    ],
    "bce": [sample(P, TARGET, reference=bce), sample(P, uniform(0, 1, 5), reference=bce)],
    "bce_logits": [
        sample(normal(4, 5) * 3, TARGET, reference=lambda x, target: np.logaddexp(0, x) - x * target),
        sample(normal(4, 1), TARGET, reference=lambda x, target: np.logaddexp(0, x) - x * target),
    ],
}
