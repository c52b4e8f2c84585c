"""Samples of the less common optimizers' update rows, with references like those of `optim.py`."""

from __future__ import annotations

import numpy as np

from samples.base import sample
from samples.optim import ADAM_H, FLAGS, QUIET, STEP, STEPS, G, M, P, V, W, adams, effective, moments

RMS_H = np.array([0.125, 0.75, 0.0625, 0.25, 0.5])
NADAM_H = np.array([0.125, 0.875, 0.75, 0.0625, 0.25, 0.5])


def rmsprop(centered, momentum):
    def reference(p, grad, square, *rest, maximize):
        *others, step, h = rest
        lr, alpha, eps, decay, mu = h
        g = effective(p, grad, decay, maximize)
        square = alpha * square + (1 - alpha) * g**2
        variance, outs = square, []
        if centered:
            mean = alpha * others[0] + (1 - alpha) * g
            variance, outs = square - mean**2, [mean]
        change = g / (np.sqrt(variance) + eps)
        if momentum:
            change = mu * others[-1] + change
            outs.append(change)
        return (p - lr * change, square, *outs, step + 1)

    return reference


def adagrad(p, grad, total, step, h, maximize):
    lr, lr_decay, decay, eps = h
    g = effective(p, grad, decay, maximize)
    total = total + g**2
    return p - lr / (1 + step * lr_decay) * g / (np.sqrt(total) + eps), total, step + 1


def adadelta(p, grad, square, delta, step, h, maximize):
    lr, rho, eps, decay = h
    g = effective(p, grad, decay, maximize)
    square = rho * square + (1 - rho) * g**2
    change = np.sqrt(delta + eps) / np.sqrt(square + eps) * g
    return p - lr * change, square, rho * delta + (1 - rho) * change**2, step + 1


def adamax(p, grad, mean, largest, step, h, maximize):
    lr, beta1, beta2, eps, decay = h
    g, t = effective(p, grad, decay, maximize), step + 1
    mean, largest = beta1 * mean + (1 - beta1) * g, np.maximum(beta2 * largest, np.abs(g) + eps)
    return p - lr / (1 - beta1**t) * mean / largest, mean, largest, t


def nadam(p, grad, mean, square, product, step, h, decoupled, maximize):
    lr, beta1, beta2, eps, _, slow = h
    g, mean, square, p = moments(p, grad, mean, square, h, decoupled, maximize)
    t = step + 1
    mu, following = (beta1 * (1 - 0.5 * 0.96 ** (n * slow)) for n in (t, t + 1))
    product = product * mu
    ahead = following * mean / (1 - product * following) + (1 - mu) * g / (1 - product)
    return p - lr * ahead / (np.sqrt(square / (1 - beta2**t)) + eps), mean, square, product, t


def radam(p, grad, mean, square, step, h, decoupled, maximize):
    lr, beta1, beta2, eps, _ = h
    _, mean, square, p = moments(p, grad, mean, square, h, decoupled, maximize)
    t = step + 1
    limit = 2 / (1 - beta2) - 1
    length = limit - 2 * t * beta2**t / (1 - beta2**t)
    change = mean / (1 - beta1**t)
    if length > 5:
        rectification = np.sqrt((length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length))
        change = change * rectification * np.sqrt(1 - beta2**t) / (np.sqrt(square) + eps)
    return p - lr * change, mean, square, t


def asgd(p, grad, mean, eta, mu, step, h, maximize):
    lr, lambd, alpha, t0, decay = h
    g, t = effective(p, grad, decay, maximize), step + 1
    p = p * (1 - lambd * eta) - eta * g
    return p, mean + (p - mean) * mu, lr / (1 + lambd * lr * t) ** alpha, 1 / np.maximum(1, t - t0), t


def rprop(p, grad, previous, size, step, h, maximize):
    less, more, smallest, largest = h
    g = -grad if maximize else grad
    factor = np.where(g * previous > 0, more, np.where(g * previous < 0, less, 1))
    size = np.clip(size * factor, smallest, largest)
    g = np.where(g * previous < 0, 0, g)
    return p - np.sign(g) * size, g, size, step + 1


SAMPLES = {
    "rmsprop_update": [sample(P, G, V, STEP, RMS_H, reference=rmsprop(False, False), maximize=m, **QUIET) for m in (False, True)],
    "rmsprop_centered_update": [sample(P, G, V + 2, M / 4, STEP, RMS_H, reference=rmsprop(True, False), maximize=False, **QUIET)],
    "rmsprop_momentum_update": [sample(P, G, V, M, STEP, RMS_H, reference=rmsprop(False, True), maximize=False, **QUIET)],
    "rmsprop_centered_momentum_update": [sample(P, G, V + 2, M / 4, G, STEP, RMS_H, reference=rmsprop(True, True), maximize=True, **QUIET)],
    "adagrad_update": [
        sample(P, G, V, s, np.array([0.125, 0.5, 0.25, 0.0625]), reference=adagrad, maximize=m, **QUIET)
        for s in (STEP, STEPS)
        for m in (False, True)
    ],
    "adadelta_update": [
        sample(P, G, V, W, STEP, np.array([0.5, 0.75, 0.0625, 0.25]), reference=adadelta, maximize=m, **QUIET) for m in (False, True)
    ],
    "adamax_update": [sample(P, G, M, V, s, ADAM_H, reference=adamax, maximize=m, **QUIET) for s in (STEP, STEPS) for m in (False, True)],
    "nadam_update": adams(nadam, NADAM_H, np.array(0.5)),
    "radam_update": [
        *adams(radam, ADAM_H),
        sample(P, G, M, V, STEPS, np.array([0.1, 0.9, 0.99, 0.1, 0.25]), reference=radam, dtypes=("float32",), **QUIET, **FLAGS[0]),
    ],
    "asgd_update": [
        sample(P, G, M, np.array(0.25), np.array(mu), s, np.array([0.125, 0.5, 0.75, 4, 0.25]), reference=asgd, maximize=mu == 1, **QUIET)
        for mu in (1.0, 0.5)
        for s in (STEP, STEPS)
    ],
    "rprop_update": [
        sample(P, G, M, V, STEP, np.array([0.5, 1.25, 0.75, 1.5]), reference=rprop, maximize=m, **QUIET) for m in (False, True)
    ],
}
