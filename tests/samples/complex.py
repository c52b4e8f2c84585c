"""Samples of the rows of complex numbers."""

from __future__ import annotations

import numpy as np

from samples.base import normal, sample

Z, W = normal(3, 4) + 1j * normal(3, 4, seed=1), normal(4, seed=2) + 1j * normal(4, seed=3)
PAIRS = normal(3, 4, 2, seed=4)
NONE = np.zeros((0, 4), complex)
NARROW = Z.astype(np.complex64)


def sign(x):
    return x / np.abs(x)


SAMPLES = {
    "conj": [sample(Z), sample(NONE), sample(NARROW, gradients=0)],
    "complex": [
        sample(Z.real.copy(), Z.imag.copy(), reference=lambda a, b: a + 1j * b, dtypes=()),
        sample(Z.real.copy(), W.imag.copy(), reference=lambda a, b: a + 1j * b, dtypes=()),
    ],
    "real": [sample(Z), sample(np.array(1 + 2j)), sample(NONE)],
    "imag": [sample(Z), sample(np.array(1 + 2j)), sample(NONE)],
    "view_as_real": [
        sample(Z, reference=lambda x: np.stack([x.real, x.imag], -1)),
        sample(np.array(1 + 2j), reference=lambda x: np.stack([x.real, x.imag], -1)),
    ],
    "view_as_complex": [sample(PAIRS, reference=lambda x: x[..., 0] + 1j * x[..., 1], dtypes=(), strided=False)],
    "complex_abs": [sample(Z, reference=np.abs), sample(NARROW, reference=np.abs, gradients=0), sample(NONE, reference=np.abs)],
    "complex_sgn": [sample(Z, reference=sign), sample(np.array([0j, 3 - 4j]), reference=lambda x: x / 5, gradients=0)],
    "complex_angle": [sample(Z, reference=np.angle), sample(np.array([1j, -1 + 0j]), reference=np.angle)],
}
