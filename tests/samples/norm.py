"""Samples of the normalisation rows."""

from __future__ import annotations

import numpy as np

from samples.base import normal, sample, uniform

EPS = 1e-5


def layer(x, weight, bias, k, eps, centred=True):
    dims = tuple(range(x.ndim - k, x.ndim))
    mean = x.mean(dims, keepdims=True) if x.size else np.zeros((*x.shape[: x.ndim - k], *(1,) * k))
    centre = x - mean if centred else x
    rstd = ((centre * centre).mean(dims, keepdims=True) if x.size else mean * 0) + eps
    rstd = rstd**-0.5
    y = centre * rstd * (1 if weight is None else weight) + (0 if bias is None else bias)
    return (y, mean, rstd) if centred else (y, rstd)


def rms(x, weight, k, eps):
    return layer(x, weight, None, k, eps, centred=False)


def batch(x, weight, bias, eps):
    dims = (0, *range(2, x.ndim))
    shape = (1, -1, *(1,) * (x.ndim - 2))
    mean, var = x.mean(dims), x.var(dims)
    w, b = (0.0 * mean + 1 if weight is None else weight), (0 * mean if bias is None else bias)
    y = (x - mean.reshape(shape)) / np.sqrt(var + eps).reshape(shape) * w.reshape(shape) + b.reshape(shape)
    return y, mean, (var + eps) ** -0.5, var


def normalised_backward(u, normal_, rstd, dims, centred=True):
    found = u - normal_ * (u * normal_).mean(dims, keepdims=True)
    return rstd * (found - u.mean(dims, keepdims=True) if centred else found)


def layer_backward(dy, x, weight, mean, rstd, k):
    dims, others = tuple(range(x.ndim - k, x.ndim)), tuple(range(x.ndim - k))
    n = (x - mean) * rstd
    return normalised_backward(dy * (1 if weight is None else weight), n, rstd, dims), (dy * n).sum(others), dy.sum(others)


def rms_backward(dy, x, weight, rstd, k):
    dims, others = tuple(range(x.ndim - k, x.ndim)), tuple(range(x.ndim - k))
    return normalised_backward(dy * (1 if weight is None else weight), x * rstd, rstd, dims, False), (dy * x * rstd).sum(others)


def batch_backward(dy, x, weight, mean, rstd):
    dims, shape = (0, *range(2, x.ndim)), (1, -1, *(1,) * (x.ndim - 2))
    n = (x - mean.reshape(shape)) * rstd.reshape(shape)
    u = dy * (1 if weight is None else weight.reshape(shape))
    return normalised_backward(u, n, rstd.reshape(shape), dims), (dy * n).sum(dims), dy.sum(dims)


A, DY = normal(4, 6), normal(4, 6, seed=1)
W, B = uniform(0.5, 2, 6), normal(6, seed=2)
IMAGE, IMAGE_DY = normal(3, 2, 4, 5), normal(3, 2, 4, 5, seed=3)
W2, B2 = uniform(0.5, 2, 2), normal(2, seed=4)
LONG = normal(700, 3, seed=5)
HALVES = ("float32",)  # derivatives of half inputs differ by the rounding of the statistics, which are outputs too


def stats(x, k):
    return layer(x, None, None, k, EPS)[1:]


SAMPLES = {
    "layer_norm": [
        sample(A, W, B, k=1, eps=EPS, reference=layer),
        sample(A, None, None, k=1, eps=EPS, reference=layer),
        sample(A, W, None, k=1, eps=0.1, reference=layer),
        sample(IMAGE, normal(4, 5), normal(4, 5, seed=1), k=2, eps=EPS, reference=layer),
        sample(np.zeros((0, 6)), W, B, k=1, eps=EPS, reference=layer),
    ],
    "rms_norm": [
        sample(A, W, k=1, eps=EPS, reference=rms),
        sample(A, None, k=1, eps=EPS, reference=rms),
        sample(IMAGE, normal(4, 5), k=2, eps=EPS, reference=rms),
    ],
    "batch_norm": [
        sample(A, W, B, eps=EPS, reference=batch),
        sample(IMAGE, W2, B2, eps=EPS, reference=batch),
        sample(IMAGE, None, None, eps=EPS, reference=batch),
        sample(LONG, None, None, eps=EPS, reference=batch, note="summed in blocks"),
    ],
    "layer_norm_backward": [
        sample(DY, A, W, *stats(A, 1), k=1, reference=layer_backward, dtypes=HALVES),
        sample(DY, A, None, *stats(A, 1), k=1, reference=layer_backward, dtypes=HALVES),
        sample(IMAGE_DY, IMAGE, normal(4, 5), *stats(IMAGE, 2), k=2, reference=layer_backward, dtypes=HALVES),
    ],
    "rms_norm_backward": [
        sample(DY, A, W, rms(A, None, 1, EPS)[1], k=1, reference=rms_backward, dtypes=HALVES),
        sample(DY, A, None, rms(A, None, 1, EPS)[1], k=1, reference=rms_backward, dtypes=HALVES),
    ],
    "batch_norm_backward": [
        sample(DY, A, W, *batch(A, None, None, EPS)[1:3], reference=batch_backward, dtypes=HALVES),
        sample(IMAGE_DY, IMAGE, W2, *batch(IMAGE, None, None, EPS)[1:3], reference=batch_backward, dtypes=HALVES),
        sample(IMAGE_DY, IMAGE, None, *batch(IMAGE, None, None, EPS)[1:3], reference=batch_backward, dtypes=HALVES),
    ],
    "running": [sample(W, B, keep=0.9, take=0.11, reference=lambda average, value, keep, take: keep * average + take * value)],
}
