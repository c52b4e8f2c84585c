"""Samples of the rows of `ops/math.py`. Without a reference the row is a NumPy ufunc."""

from __future__ import annotations

import math

import numpy as np

from samples.base import integers, normal, sample, uniform

A, B, ROW, COLUMN, EMPTY = normal(3, 4), normal(3, 4, seed=1), normal(4, seed=2), normal(3, 1, seed=3), np.zeros((0, 4))
POSITIVE, INNER = uniform(0.5, 2, 3, 4), uniform(-0.9, 0.9, 3, 4)
INTS, DIVISORS, COUNTS = integers(-50, 50, 3, 4), integers(1, 9, 3, 4), integers(0, 70, 3, 4)


def binary(a=A, b=B, **more):
    pairs = ((a, b), (a, b[0]), (a[:, :1], b), (np.array(0.75), b), (EMPTY, b[0]))
    return [sample(*pair, **more) for pair in pairs]


def sinc(x):
    return np.where(x == 0, 1, np.sin(math.pi * x) / np.where(x == 0, 1, math.pi * x))


def mixed(a, b, weight):
    return (1 - weight) * a + weight * b


SAMPLES = {
    **{name: [sample(A), sample(EMPTY), sample(np.array(0.3))] for name in ("exp2", "expm1", "tan", "atan", "sinh", "cosh", "asinh")},
    **{name: [sample(POSITIVE), sample(EMPTY)] for name in ("log2", "log10", "log1p")},
    **{name: [sample(INNER), sample(EMPTY)] for name in ("asin", "acos", "atanh")},
    "root": [sample(POSITIVE), sample(EMPTY)],
    "acosh": [sample(POSITIVE + 1)],
    "sinc": [sample(A, reference=sinc), sample(np.array([0.0, 1.0, -2.5]), reference=sinc, gradients=1)],
    "signbit": [sample(np.array([-0.0, 0.0, -1.0, 2.0])), sample(INTS)],
    "atan2": binary(reference=lambda a, b: np.angle(b + 1j * a)),
    "hypot": binary(reference=lambda a, b: np.abs(a + 1j * b)),
    "fmod": [*binary(B, POSITIVE, gradients=1), sample(INTS, DIVISORS)],
    "remainder": [*binary(B, POSITIVE, gradients=1), sample(INTS, -DIVISORS)],
    "floor_divide": [*binary(B, POSITIVE), sample(INTS, -DIVISORS)],
    "copysign": [*binary(reference=lambda a, b: np.abs(a) * np.sign(b))],
    "fmax": [*binary(), sample(INTS, DIVISORS)],
    "fmin": [*binary(), sample(INTS, DIVISORS)],
    "logaddexp": binary(reference=lambda a, b: np.log(np.exp(a) + np.exp(b))),
    "logaddexp2": binary(reference=lambda a, b: np.log2(2**a + 2**b)),
    "xlogy": binary(A, POSITIVE, reference=lambda a, b: a * np.log(b)),
    "heaviside": [sample(np.array([-1.0, 0.0, 2.0]), np.array(0.5), reference=np.heaviside, gradients=0),
                  sample(INTS, DIVISORS, reference=np.heaviside)],
    "nextafter": [sample(A, B, dtypes=(), gradients=0)],
    "left_shift": [sample(INTS, COUNTS), sample(INTS.astype(np.int8), COUNTS.astype(np.int8)[:, :1])],
    "right_shift": [sample(INTS, COUNTS), sample(INTS.astype(np.int8), COUNTS.astype(np.int8)[:, :1])],
    "gcd": [sample(INTS, DIVISORS * 6), sample(INTS, DIVISORS[0])],
    "lcm": [sample(INTS, DIVISORS), sample(INTS, DIVISORS[0])],
    "lerp": [
        sample(A, B, uniform(-0.5, 1.5, 3, 4), reference=mixed),
        sample(A, ROW, COLUMN, reference=mixed),
        sample(A, B, 0.25, reference=mixed),
        sample(A, B, np.array(0.9), reference=mixed),
        sample(EMPTY, ROW, 0.9, reference=mixed),
    ],
}
