"""Samples of Fourier transforms; the references are products with matrices of e^(-2πi jk/n)."""

from __future__ import annotations

import numpy as np

from samples.base import normal, sample

X = normal(3, 6)
Z = normal(3, 5, 4) + 1j * normal(3, 5, 4, seed=1)


def along(x, dim, sign):
    n = x.shape[dim]
    matrix = np.exp(sign * 2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)
    return np.moveaxis(np.tensordot(matrix, np.moveaxis(x, dim, 0), 1), 0, dim)


def whole(x, dims, inverse, scale):
    x = x.astype(complex)
    for d in dims:
        x = along(x, d, 1 if inverse else -1)
    return x * scale


def half(x, dims, scale):
    found = whole(x, dims, False, scale)
    return np.take(found, range(x.shape[dims[-1]] // 2 + 1), dims[-1])


def real(x, dims, n, scale):
    for d in dims[:-1]:
        x = along(x, d, 1)
    weight = np.full(x.shape[dims[-1]], 2.0)
    weight[0] = 1
    if n % 2 == 0:
        weight[-1] = 1
    matrix = weight * np.exp(2j * np.pi * np.outer(np.arange(n), np.arange(x.shape[dims[-1]])) / n)
    return np.moveaxis(np.tensordot(matrix, np.moveaxis(x, dims[-1], 0), 1), 0, dims[-1]).real * scale


F32 = {"dtypes": ("float32",)}
SAMPLES = {
    "fft": [sample(Z, dims=(1,), inverse=False, scale=0.5, reference=whole),
            sample(Z, dims=(0, 2), inverse=True, scale=0.5, reference=whole),
            sample(X, dims=(1,), inverse=False, scale=1.0, reference=whole, **F32)],
    "rfft": [sample(X, dims=(1,), scale=1.0, reference=half, **F32),
             sample(normal(2, 3, 5), dims=(1, 2), scale=0.25, reference=half, **F32)],
    "irfft": [sample(Z, dims=(0, 2), n=n, scale=0.5, reference=real) for n in (6, 7)],
}  # fmt: skip
