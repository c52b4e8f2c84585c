"""Samples of the elementwise activations."""

from __future__ import annotations

import math

import numpy as np

from samples.base import distinct, normal, sample

A, B, EMPTY = normal(3, 5), normal(3, 5, seed=1), np.zeros((0, 4))
AWAY = distinct(4, 5, gap=0.37) + 0.05  # far from 0 and from the points where the piecewise functions bend


def each(function):
    """A function of one number, for arrays."""
    return lambda x, *_, **__: np.vectorize(function, otypes=[float])(x)


def phi(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))


def density(x):
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def gelu_tanh_derivative(x):
    t = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x, beta, threshold):
    return np.where(x * beta > threshold, x, np.log1p(np.exp(x * beta)) / beta)


def softplus_backward(dy, x, beta, threshold):
    return dy * np.where(x * beta > threshold, 1, sigmoid(x * beta))


def elu(x, alpha, scale, slope):
    return scale * np.where(x > 0, x, alpha * np.expm1(x * slope))


def elu_backward(dy, x, alpha, scale, slope):
    return dy * scale * np.where(x > 0, 1, alpha * slope * np.exp(x * slope))


def mish_derivative(x):
    t = np.tanh(np.log1p(np.exp(x)))
    return t + x * sigmoid(x) * (1 - t * t)


GRADIENT = normal(4, 5, seed=8)


def one(reference):
    return [sample(A, reference=each(reference)), sample(EMPTY, reference=lambda x: x), sample(np.array(0.3), reference=each(reference))]


def backward(reference):
    return [sample(B, A, reference=lambda dy, x: dy * reference(x)), sample(normal(1, 5), A, reference=lambda dy, x: dy * reference(x))]


SAMPLES = {
    "gelu": one(lambda x: x * phi(x)),
    "gelu_backward": backward(lambda x: each(phi)(x) + x * density(x)),
    "gelu_tanh": one(lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    "gelu_tanh_backward": backward(gelu_tanh_derivative),
    "silu": one(lambda x: x / (1 + math.exp(-x))),
    "silu_backward": backward(lambda x: sigmoid(x) + x * sigmoid(x) * (1 - sigmoid(x))),
    "mish": one(lambda x: x * math.tanh(math.log1p(math.exp(x)))),
    "softplus": [
        sample(A, beta=b, threshold=t, reference=softplus)
        for b, t in ((1.0, 20.0), (2.5, 20.0), (1.0, 0.4))
    ],
    "mish_backward": backward(mish_derivative),
    "softplus_backward": [
        sample(B, A, beta=b, threshold=t, reference=softplus_backward)
        for b, t in ((1.0, 20.0), (2.5, 20.0), (1.0, 0.4))
    ],
    "elu_backward": [
        sample(GRADIENT, AWAY, alpha=a, scale=s, slope=k, reference=elu_backward)
        for a, s, k in ((1.0, 1.0, 1.0), (1.6732632423543772, 1.0507009873554805, 1.0), (2.0, 1.0, 0.5))
    ],
    "leaky_relu_backward": [
        sample(GRADIENT, AWAY, slope=s, reference=lambda dy, x, slope: dy * np.where(x > 0, 1, slope)) for s in (0.01, 2.0)
    ],
    "hardtanh_backward": [
        sample(GRADIENT, AWAY, lo=a, hi=b, reference=lambda dy, x, lo, hi: dy * ((x > lo) & (x < hi))) for a, b in ((-1.0, 1.0), (0.0, 6.0))
    ],
    "logsigmoid": [*one(lambda x: -math.log1p(math.exp(-x))), sample(A * 100, reference=lambda x: -np.logaddexp(0, -x))],
    "elu": [
        sample(AWAY, alpha=a, scale=s, slope=k, reference=elu)
        for a, s, k in ((1.0, 1.0, 1.0), (1.6732632423543772, 1.0507009873554805, 1.0), (2.0, 1.0, 0.5))
    ],
    "leaky_relu": [sample(AWAY, slope=s, reference=lambda x, slope: np.where(x > 0, x, x * slope)) for s in (0.01, 0.3, 2.0, -0.5)],
    "hardtanh": [
        sample(AWAY, lo=a, hi=b, reference=lambda x, lo, hi: np.minimum(np.maximum(x, lo), hi)) for a, b in ((-1.0, 1.0), (0.0, 6.0))
    ],
    "hardswish_backward": [
        sample(GRADIENT, AWAY * 4, reference=lambda dy, x: dy * np.where(x >= 3, 1, np.where(x <= -3, 0, x / 3 + 0.5))),
    ],
    "hardswish": [sample(AWAY, reference=lambda x: x * np.minimum(np.maximum(x + 3, 0), 6) / 6)],
}
