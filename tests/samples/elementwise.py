"""Samples of the elementwise rows."""

from __future__ import annotations

import numpy as np

from samples.base import integers, normal, sample, uniform

A, B = normal(3, 4), normal(3, 4, seed=1)
ROW, COLUMN, EMPTY = normal(4, seed=2), normal(3, 1, seed=3), np.zeros((0, 4))
POSITIVE = uniform(0.5, 2, 3, 4)
INTS, BOOLS = integers(-5, 5, 3, 4), integers(0, 2, 3, 4).astype(bool)


def binary(**more):
    return [
        sample(A, B, **more),
        sample(A, ROW, **more),
        sample(COLUMN, B, **more),
        sample(np.array(1.5), A, **more),
        sample(EMPTY, ROW, **more),
    ]


SAMPLES = {
    "add": [*binary(), sample(INTS, INTS)],
    "sub": binary(),
    "mul": [*binary(), sample(A, 2.5)],
    "div": [sample(A, POSITIVE), sample(A, uniform(1, 2, 4)), sample(1.0, POSITIVE)],
    "pow_tensor": [
        sample(POSITIVE, B, reference=np.power),
        sample(POSITIVE, ROW, reference=np.power),
        sample(
            np.array([0, 1, -1, 2, -2]),
            np.array([[-1], [-2], [3]]),
            reference=lambda a, b: np.trunc(np.power(np.where(a == 0, 9, a).astype(float), b)) * (a != 0),
        ),
    ],
    "maximum": binary(reference=np.maximum),
    "minimum": binary(reference=np.minimum),
    "exp": [sample(A), sample(EMPTY), sample(np.array(0.5))],
    "log": [sample(POSITIVE)],
    "sqrt": [sample(POSITIVE)],
    "sin": [sample(A)],
    "cos": [sample(A)],
    "tanh": [sample(A), sample(EMPTY)],
    "sigmoid": [sample(A, reference=lambda x: 1 / (1 + np.exp(-x)))],
    "reciprocal": [sample(POSITIVE, reference=lambda x: 1 / x)],
    "rsqrt": [sample(POSITIVE, reference=lambda x: x**-0.5)],
    "neg": [sample(A), sample(INTS)],
    "abs": [sample(A), sample(INTS)],
    "sign": [sample(A)],
    "square": [sample(A), sample(INTS)],
    "floor": [sample(A)],
    "ceil": [sample(A)],
    "trunc": [sample(A)],
    "round": [sample(A)],
    "relu": [sample(A, reference=lambda x: np.maximum(x, 0))],
    "relu_backward": [sample(A, B, reference=lambda dy, r: np.where(r > 0, dy, 0))],
    "tanh_backward": [sample(A, np.tanh(B), reference=lambda dy, y: dy * (1 - y * y))],
    "sigmoid_backward": [sample(A, uniform(0, 1, 3, 4), reference=lambda dy, y: dy * y * (1 - y))],
    "pow": [sample(POSITIVE, exponent=e, reference=lambda x, exponent: x**exponent) for e in (0, 1, 2, 3, 0.5, -1, 2.5)],
    "clamp_backward": [
        sample(A, B, lo=lo, hi=hi, reference=lambda dy, x, lo, hi: np.where((x >= lo) & (x <= hi), dy, 0))
        for lo, hi in ((-0.5, 0.5), (-np.inf, 0.3), (0.1, np.inf))
    ],
    "clamp": [
        sample(A, lo=lo, hi=hi, reference=lambda x, lo, hi: np.clip(x, lo, hi)) for lo, hi in ((-0.5, 0.5), (-np.inf, 0.3), (0.1, np.inf))
    ],
    **{name: [sample(A, B), sample(INTS, INTS), sample(A, ROW)] for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name: [sample(BOOLS, BOOLS.T.copy().reshape(3, 4)), sample(INTS, BOOLS)] for name in ("logical_and", "logical_or", "logical_xor")},
    "logical_not": [sample(BOOLS), sample(INTS)],
    **{name: [sample(np.array([1.0, np.nan, np.inf, -np.inf]))] for name in ("isnan", "isinf", "isfinite")},
    **{name: [sample(INTS, INTS + 3), sample(BOOLS, BOOLS)] for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    "bitwise_not": [sample(INTS), sample(BOOLS)],
    "where": [
        sample(BOOLS, A, B, reference=np.where),
        sample(BOOLS, A, ROW, reference=np.where),
        sample(BOOLS, COLUMN, B, reference=np.where),
    ],
    "cast": [
        sample(A, dtype=np.dtype("float32"), reference=lambda x, dtype: x.astype(dtype), dtypes=(), gradients=0),
        sample(A, dtype=np.dtype("float64"), reference=lambda x, dtype: x, dtypes=()),
        sample(A, dtype=np.dtype("int32"), reference=lambda x, dtype: np.trunc(x), dtypes=()),
    ],
    "clone": [sample(A, reference=lambda x: x)],
}
