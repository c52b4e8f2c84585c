"""Samples of the matrix products."""

from __future__ import annotations

import numpy as np

from samples.base import normal, sample

SAMPLES = {
    "matmul": [
        sample(normal(3, 4), normal(4, 5), reference=np.matmul),
        sample(normal(2, 3, 4), normal(4, 5), reference=np.matmul),
        sample(normal(3, 4), normal(2, 4, 5), reference=np.matmul),
        sample(normal(2, 1, 3, 4), normal(3, 4, 2), reference=np.matmul),
        sample(np.zeros((0, 4)), normal(4, 2), reference=np.matmul),
        sample(np.zeros((3, 0)), np.zeros((0, 2)), reference=np.matmul),
        sample(normal(2, 3, 4), normal(2, 4, 5), reference=np.matmul),
    ],
    "wide_matmul": [
        sample(normal(3, 4), normal(4, 5), reference=np.matmul),
        sample(normal(2, 3, 4), normal(4, 5), reference=np.matmul),
        sample(normal(3, 1), normal(2, 1, 2), reference=np.matmul),
    ],
}
