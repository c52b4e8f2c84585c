"""Samples of the optimizers' update rows, with references written from the papers' formulas, element by element in float64."""

from __future__ import annotations

import numpy as np

from samples.base import normal, sample, uniform

P, G, M = normal(3, 5, seed=40), normal(3, 5, seed=41), normal(3, 5, seed=42)
V, W = uniform(0.5, 2, 3, 5, seed=43), uniform(0.5, 2, 3, 5, seed=44)
BIG = [normal(40_001, seed=45 + i) for i in range(4)]  # several blocks
SCALAR = [np.array(v) for v in (0.5, -0.25, 0.125)]
STEP, STEPS = np.array(0.0), np.array(6.0)
EMPTY = np.zeros((0, 3))


def effective(p, grad, weight_decay, maximize):
    return (-grad if maximize else grad) + weight_decay * p


def sgd(p, grad, h, maximize):
    return p - h[0] * effective(p, grad, h[1], maximize)


def sgd_momentum(p, grad, buffer, h, nesterov, maximize):
    lr, decay, momentum, dampening = h
    g = effective(p, grad, decay, maximize)
    buffer = g if buffer is None else momentum * buffer + (1 - dampening) * g
    return p - lr * (g + momentum * buffer if nesterov else buffer), buffer


def moments(p, grad, mean, square, h, decoupled, maximize):
    lr, beta1, beta2, _, decay = h[:5]
    g = effective(p, grad, 0 if decoupled else decay, maximize)
    return g, beta1 * mean + (1 - beta1) * g, beta2 * square + (1 - beta2) * g**2, p * (1 - lr * decay) if decoupled else p


def adam(p, grad, mean, square, step, h, decoupled, maximize):
    lr, beta1, beta2, eps, _ = h
    _, mean, square, p = moments(p, grad, mean, square, h, decoupled, maximize)
    t = step + 1
    return p - lr * (mean / (1 - beta1**t)) / (np.sqrt(square / (1 - beta2**t)) + eps), mean, square, t


def amsgrad(p, grad, mean, square, largest, step, h, decoupled, maximize):
    lr, beta1, beta2, eps, _ = h
    _, mean, square, p = moments(p, grad, mean, square, h, decoupled, maximize)
    t, largest = step + 1, np.maximum(largest, square)
    return p - lr * (mean / (1 - beta1**t)) / (np.sqrt(largest / (1 - beta2**t)) + eps), mean, square, largest, t


def lion(p, grad, mean, h, maximize):
    lr, beta1, beta2, weight_decay = h
    g = -grad if maximize else grad
    return p * (1 - lr * weight_decay) - lr * np.sign(beta1 * mean + (1 - beta1) * g), beta2 * mean + (1 - beta2) * g


SGD_H = np.array([0.1, 0.25, 0.875, 0.5])
ADAM_H = np.array([0.1, 0.875, 0.75, 0.0625, 0.25])
PLAIN_H = np.array([0.125, 0.875, 0.75, 0.0625, 0])
QUIET = {"gradients": 0}
FLAGS = [{"decoupled": d, "maximize": m} for d in (False, True) for m in (False, True)]


def adams(reference, h, *more):
    """Samples of a row that takes two running means, `more` buffers, and the two flags."""
    cases = [sample(P, G, M, V, *more, s, h, reference=reference, **QUIET, **f) for s in (STEP, STEPS) for f in FLAGS]
    return cases


SAMPLES = {
    "sgd_update": [
        *[sample(P, G, SGD_H, reference=sgd, maximize=m, **QUIET) for m in (False, True)],
        sample(*BIG[:2], SGD_H, reference=sgd, maximize=False, **QUIET),
        sample(*SCALAR[:2], SGD_H, reference=sgd, maximize=False, **QUIET),
        sample(EMPTY, EMPTY, SGD_H, reference=sgd, maximize=False, **QUIET),
    ],
    "sgd_momentum_update": [
        *[
            sample(P, G, b, SGD_H, reference=sgd_momentum, nesterov=n, maximize=b is None, **QUIET)
            for b in (M, None)
            for n in (False, True)
        ],
        *[sample(*BIG[:2], b, SGD_H, reference=sgd_momentum, nesterov=True, maximize=False, **QUIET) for b in (BIG[2], None)],
        sample(*SCALAR, SGD_H, reference=sgd_momentum, nesterov=False, maximize=True, **QUIET),
    ],
    "adam_update": [
        *adams(adam, ADAM_H),
        sample(*BIG[:3], BIG[3] ** 2, STEPS, ADAM_H, reference=adam, **QUIET, **FLAGS[2]),
        sample(*SCALAR, np.array(0.5), STEP, PLAIN_H, reference=adam, **QUIET, **FLAGS[0]),
        sample(EMPTY, EMPTY, EMPTY, EMPTY, STEP, PLAIN_H, reference=adam, **QUIET, **FLAGS[0]),
    ],
    "amsgrad_update": [
        *adams(amsgrad, ADAM_H, W),
        sample(*BIG[:3], BIG[3] ** 2, BIG[2] ** 2, STEPS, ADAM_H, reference=amsgrad, **QUIET, **FLAGS[0]),
    ],
    "lion_update": [
        *[sample(P, G, M, np.array([0.125, 0.75, 0.5, 0.25]), reference=lion, maximize=m, **QUIET) for m in (False, True)],
        sample(*BIG[:3], np.array([0.125, 0.75, 0.5, 0.0]), reference=lion, maximize=False, **QUIET),
        sample(EMPTY, EMPTY, EMPTY, np.array([0.125, 0.75, 0.5, 0.25]), reference=lion, maximize=False, **QUIET),
    ],
}
