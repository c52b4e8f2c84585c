"""Samples of norms of a sum."""

from __future__ import annotations

import numpy as np

from samples.base import normal, sample
from samples.norm import DY, EPS, HALVES, IMAGE, IMAGE_DY, A, B, W, layer, layer_backward, rms, rms_backward, stats

R, DS = normal(4, 6, seed=7), normal(4, 6, seed=8)
IMAGE_R, IMAGE_DS = normal(3, 2, 4, 5, seed=7), normal(3, 2, 4, 5, seed=8)


def layer_of_sum(x, residual, weight, bias, k, eps):
    y, *statistics = layer(x + residual, weight, bias, k, eps)
    return y, x + residual, *statistics


def rms_of_sum(x, residual, weight, k, eps):
    y, rstd = rms(x + residual, weight, k, eps)
    return y, x + residual, rstd


def layer_of_sum_backward(dy, ds, s, weight, mean, rstd, k):
    dx, *parameters = layer_backward(dy, s, weight, mean, rstd, k)
    return dx + ds, *parameters


def rms_of_sum_backward(dy, ds, s, weight, rstd, k):
    dx, dweight = rms_backward(dy, s, weight, rstd, k)
    return dx + ds, dweight


SAMPLES = {
    "layer_norm_residual": [
        sample(A, R, W, B, k=1, eps=EPS, reference=layer_of_sum),
        sample(A, R, None, None, k=1, eps=EPS, reference=layer_of_sum),
        sample(A, R, W, None, k=1, eps=0.1, reference=layer_of_sum),
        sample(IMAGE, IMAGE_R, normal(4, 5), normal(4, 5, seed=1), k=2, eps=EPS, reference=layer_of_sum),
        sample(np.zeros((0, 6)), np.zeros((0, 6)), W, B, k=1, eps=EPS, reference=layer_of_sum),
    ],
    "rms_norm_residual": [
        sample(A, R, W, k=1, eps=EPS, reference=rms_of_sum),
        sample(A, R, None, k=1, eps=EPS, reference=rms_of_sum),
        sample(IMAGE, IMAGE_R, normal(4, 5), k=2, eps=EPS, reference=rms_of_sum),
    ],
    "layer_norm_residual_backward": [
        sample(DY, DS, A, W, *stats(A, 1), k=1, reference=layer_of_sum_backward, dtypes=HALVES),
        sample(DY, DS, A, None, *stats(A, 1), k=1, reference=layer_of_sum_backward, dtypes=HALVES),
        sample(IMAGE_DY, IMAGE_DS, IMAGE, normal(4, 5), *stats(IMAGE, 2), k=2, reference=layer_of_sum_backward, dtypes=HALVES),
    ],
    "rms_norm_residual_backward": [
        sample(DY, DS, A, W, rms(A, None, 1, EPS)[1], k=1, reference=rms_of_sum_backward, dtypes=HALVES),
        sample(DY, DS, A, None, rms(A, None, 1, EPS)[1], k=1, reference=rms_of_sum_backward, dtypes=HALVES),
    ],
}
