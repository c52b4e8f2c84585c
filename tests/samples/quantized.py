"""Samples of layers with weights of few bits. Gradients pass straight through a rounding: they are no derivatives."""

from __future__ import annotations

import numpy as np

from samples.base import normal, sample, uniform


def whole(*shape, seed=0, low=-127):
    return np.random.default_rng([seed, *shape]).integers(low, 128, shape).astype(np.int8)


def grid(x, scale, zero, low, high):
    if scale is None:
        least, most = min(x.min(initial=0), 0), max(x.max(initial=0), 0)
        scale, low, high = max((most - least) / 255, 1e-12), -128, 127
        zero = -128 - np.round(least / scale)
    return (np.clip(np.round(x / scale) + zero, low, high) - zero) * scale


def linear(x, w, scale, b, x_scale, x_zero, low, high):
    y = grid(x, x_scale, x_zero, low, high) @ (w * scale[:, None]).T
    return y if b is None else y + b


def linear4(x, w, scale, b, x_scale, x_zero, low, high, rounds):
    wide = np.stack([w % 16, w // 16], 2).reshape(len(w), -1, 32).astype(float) - 8
    wide = (wide * scale[..., None]).reshape(len(w), -1)[:, : x.shape[-1]]
    y = (grid(x, x_scale, x_zero, low, high) if rounds else x) @ wide.T
    return y if b is None else y + b


def convolution(x, w, scale, b, x_scale, x_zero, stride, padding, dilation, groups, low, high):
    at = grid(x, x_scale, x_zero, low, high)
    at = np.pad(at, ((0, 0), (0, 0), *((p, p) for p in padding)))
    wide = w * scale.reshape(-1, *(1,) * (w.ndim - 1))
    sizes = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(at.shape[2:], w.shape[2:], stride, dilation)]
    y = np.zeros((x.shape[0], w.shape[0], *sizes))
    rows, own = w.shape[0] // groups, w.shape[1]
    for group in range(groups):
        part = at[:, group * own : (group + 1) * own]
        for place in np.ndindex(*w.shape[2:]):
            cut = tuple(slice(p * d, p * d + (n - 1) * s + 1, s) for p, d, n, s in zip(place, dilation, sizes, stride))
            factors = wide[(slice(group * rows, (group + 1) * rows), slice(None), *place)]
            y[:, group * rows : (group + 1) * rows] += np.einsum("oc,nc...->no...", factors, part[(slice(None), slice(None), *cut)])
    return y if b is None else y + b.reshape(-1, *(1,) * len(stride))


SCALE, ZERO = np.array(0.03), np.array(-7, np.int32)
PLACES = {"low": -128, "high": 127}
SQUARE = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
UNEVEN = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 4}
ONLY = {"gradients": 0, "dtypes": ("float32",)}  # half types round inputs to other places
X, IMAGE = normal(6, 37), normal(2, 4, 7, 6)


def scales(*shape):
    return uniform(0.01, 0.1, *shape)


SAMPLES = {
    "quantized_linear": [
        sample(X, whole(5, 37), scales(5), normal(5), SCALE, ZERO, **PLACES, reference=linear, **ONLY),
        sample(normal(2, 3, 37), whole(19, 37), scales(19), None, SCALE, ZERO, low=-128, high=0, reference=linear, **ONLY),
        sample(X, whole(5, 37), scales(5), normal(5), None, None, **PLACES, reference=linear, **ONLY),
        sample(normal(3, 700), whole(4, 700), scales(4), normal(4), SCALE, ZERO, **PLACES, reference=linear, note="long", **ONLY),
    ],
    "quantized_linear4": [
        sample(X, whole(5, 32).view(np.uint8), scales(5, 2), normal(5), None, None, **PLACES, rounds=False, reference=linear4, **ONLY),
        sample(X, whole(5, 32).view(np.uint8), scales(5, 2), normal(5), SCALE, ZERO, **PLACES, rounds=True, reference=linear4, **ONLY),
        sample(X, whole(5, 32).view(np.uint8), scales(5, 2), None, None, None, **PLACES, rounds=True, reference=linear4, **ONLY),
    ],
    "quantized_convolution": [
        sample(IMAGE, whole(5, 4, 3, 3), scales(5), normal(5), SCALE, ZERO, **SQUARE, **PLACES, reference=convolution, **ONLY),
        sample(IMAGE, whole(4, 1, 3, 2), scales(4), None, None, None, **UNEVEN, **PLACES, reference=convolution, **ONLY),
        sample(normal(1, 4, 9), whole(6, 2, 3), scales(6), normal(6), SCALE, ZERO, stride=(2,), padding=(1,), dilation=(2,), groups=2,
               **PLACES, reference=convolution, **ONLY),
    ],
}  # fmt: skip
