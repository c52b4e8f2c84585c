"""Samples of the eigenvalues of square matrices."""

from __future__ import annotations

import numpy as np

from samples.base import normal, sample

COMPLEX = normal(3, 3) + 1j * normal(3, 3, seed=1)
SAMPLES = {
    "eig": [
        sample(normal(4, 4, seed=5), reference=lambda x: tuple(np.linalg.eig(x)), dtypes=(), gradients=0),
        sample(COMPLEX, reference=lambda x: tuple(np.linalg.eig(x)), dtypes=(), gradients=0),
    ],
}
