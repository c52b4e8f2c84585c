"""Samples of Bessel functions; the references are power series of 64-bit mantissas, and for K its
integral DLMF 10.32.9 by the trapezoid rule."""

from __future__ import annotations

import math

import numpy as np

from samples.base import sample, uniform

EULER = np.longdouble(0.5772156649015328606) + np.longdouble("0.512e-19")
SETTINGS = {"dtypes": ("float32",)}
ANY = (uniform(-6, 6, 3, 5), np.array(2.5), np.zeros((0, 3)))
POSITIVE = (uniform(0.2, 7, 3, 5), np.array(2.5), np.zeros((0, 3)))


def first(order):
    def reference(x, **_):
        x = np.asarray(x, np.longdouble)
        t, term, total = x * x / 4, (x / 2) ** order, 0
        for k in range(1, 60):
            total = total + term
            term = -term * t / (k * (k + order))
        return total.astype(np.float64)

    return reference


def second(order):
    """DLMF 10.8.1."""

    def reference(x, **_):
        x = np.asarray(x, np.longdouble)
        t, term, total, harmonic = x * x / 4, (x / 2) ** order, 0, np.longdouble(order)
        for k in range(60):
            total = total + term * (harmonic - 2 * EULER)
            harmonic = harmonic + np.longdouble(1) / (k + 1) + np.longdouble(1) / (k + 1 + order)
            term = -term * t / ((k + 1) * (k + 1 + order))
        found = 2 * np.log(x / 2) * first(order)(x).astype(np.longdouble) - total - (2 / x if order else 0)
        return (found / np.longdouble(math.pi)).astype(np.float64)

    return reference


def modified(order, scaled):
    steps = np.arange(0, 8, 0.02)

    def reference(x, **_):
        x = np.asarray(x, np.float64)[..., None]
        parts = np.exp(-x * (np.cosh(steps) - scaled)) * np.cosh(order * steps)
        return 0.02 * (parts.sum(-1) - 0.5 * parts[..., 0])

    return reference


SAMPLES = {
    **{f"bessel_j{n}": [sample(x, reference=first(n), **SETTINGS) for x in ANY] for n in (0, 1)},
    **{f"bessel_y{n}": [sample(x, reference=second(n), **SETTINGS) for x in POSITIVE] for n in (0, 1)},
    **{f"modified_bessel_k{n}": [sample(x, reference=modified(n, 0), **SETTINGS) for x in POSITIVE] for n in (0, 1)},
    **{f"scaled_modified_bessel_k{n}": [sample(x, reference=modified(n, 1), **SETTINGS) for x in POSITIVE] for n in (0, 1)},
    "spherical_bessel_j0": [sample(x, reference=lambda x: np.sinc(np.asarray(x) / np.pi), **SETTINGS)
                            for x in (*ANY, np.array([0.0, 0.3, -0.4]))],
}  # fmt: skip
