"""Samples of the matrix products."""

from __future__ import annotations

import numpy as np

from samples.base import normal, sample


def grouped(a, b, ends):
    """One group after the other."""
    starts = [0, *ends[:-1]]
    if a.ndim == b.ndim:
        return np.stack([a[:, i:j] @ b[i:j] for i, j in zip(starts, ends, strict=True)])
    if a.ndim == 3:
        return grouped(b.T, a.transpose(0, 2, 1), ends).T
    y = np.zeros((a.shape[0], b.shape[2]))
    for group, (i, j) in enumerate(zip(starts, ends, strict=True)):
        y[i:j] = a[i:j] @ b[group]
    return y


def in_groups(a, b, *ends, **options):
    """A sample with groups that end there, and with others of as many elements in all."""
    sizes = np.diff(ends, prepend=0)

    def fresh(draws):
        return draws.normal(size=a.shape), draws.normal(size=b.shape), np.cumsum(draws.permutation(sizes)).astype(np.int32)

    return sample(a, b, np.array(ends, np.int32), reference=grouped, fresh=fresh, **options)


SAMPLES = {
    "grouped_mm": [
        in_groups(normal(7, 4), normal(3, 4, 5), 2, 2, 6),  # a group of none; a row beyond the last
        in_groups(normal(3, 4, 5), normal(5, 7), 1, 3, 7),
        in_groups(normal(3, 7), normal(7, 2), 0, 4, 4, 6),
        in_groups(normal(150, 18), normal(2, 18, 70), 65, 140, gradients=0),
        in_groups(normal(0, 4), normal(2, 4, 3), 0, 0),
        in_groups(normal(2, 3, 0), normal(0, 4), 1, 4),
    ],
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
