"""Samples of the rows that move elements."""

from __future__ import annotations

import numpy as np

from samples.base import integers, normal, sample

CUBE, MATRIX, NUMBER = normal(2, 3, 4), normal(3, 4), np.array(1.5)


def written(base, value, index):
    out = base.copy()
    out[index] = value
    return out


SAMPLES = {
    "view": [sample(CUBE, shape=s, reference=lambda x, shape: x.reshape(shape)) for s in ((6, 4), (24,), (2, 1, 12))]
    + [sample(NUMBER, shape=(1, 1), reference=lambda x, shape: x.reshape(shape))],
    "permute": [sample(CUBE, dims=d, reference=lambda x, dims: x.transpose(dims)) for d in ((2, 0, 1), (0, 1, 2), (2, 1, 0))],
    "transpose": [sample(CUBE, dim0=a, dim1=b, reference=lambda x, dim0, dim1: x.swapaxes(dim0, dim1)) for a, b in ((0, 2), (1, 2), (1, 1))]
    + [sample(NUMBER, dim0=0, dim1=0, reference=lambda x, dim0, dim1: x)],
    "t": [sample(MATRIX, reference=lambda x: x.T), sample(normal(3), reference=lambda x: x)],
    "expand": [
        sample(normal(3, 1), shape=(3, 4), reference=lambda x, shape: np.broadcast_to(x, shape)),
        sample(normal(4), shape=(2, 3, 4), reference=lambda x, shape: np.broadcast_to(x, shape)),
        sample(NUMBER, shape=(2,), reference=lambda x, shape: np.broadcast_to(x, shape)),
        sample(normal(4, 1, 3), shape=(2, 4, 5, 3), reference=lambda x, shape: np.broadcast_to(x, shape)),
    ],
    "squeeze": [sample(normal(1, 3, 1), dims=d, reference=lambda x, dims: x.squeeze(dims)) for d in ((0, 2), (0,), ())]
    + [sample(normal(3, 1, 4, 2), dims=(1,), reference=lambda x, dims: x.squeeze(dims))],
    "unsqueeze": [sample(x, dim=d, reference=lambda x, dim: np.expand_dims(x, dim)) for x in (MATRIX, CUBE) for d in range(x.ndim + 1)],
    "slice": [
        sample(CUBE, index=(1,), reference=lambda x, index: x[1]),
        sample(CUBE, index=((0, None, 1), (None, -1, 2), None, -1), reference=lambda x, index: x[:, :-1:2, None, -1]),
        sample(CUBE, index=(0, 1, 2), reference=lambda x, index: x[0, 1, 2]),
        sample(CUBE, index=((2, 5, 1),), reference=lambda x, index: x[2:5]),
    ],
    "slice_backward": [
        sample(
            normal(2, 2),
            shape=(2, 4),
            index=((0, None, 1), (1, 3, 1)),
            reference=lambda dy, shape, index: written(np.zeros(shape), dy, (slice(None), slice(1, 3))),
        ),
        sample(
            normal(2, 3), shape=(4, 2, 7), index=(2, (0, None, 1), (1, 6, 2)),
            reference=lambda dy, shape, index: written(np.zeros(shape), dy, (2, slice(None), slice(1, 6, 2))),
        ),
    ],
    "slice_scatter": [
        sample(MATRIX, normal(4), index=(1,), reference=lambda base, value, index: written(base, value, 1)),
        sample(
            MATRIX,
            normal(3, 2),
            index=((0, None, 1), (0, 4, 2)),
            reference=lambda base, value, index: written(base, value, (slice(None), slice(0, 4, 2))),
        ),
    ],
    "cat": [
        sample(MATRIX, normal(2, 4), dim=0, reference=lambda *xs, dim: np.concatenate(xs, dim)),
        sample(MATRIX, normal(3, 1), normal(3, 0), dim=1, reference=lambda *xs, dim: np.concatenate(xs, dim)),
        sample(integers(0, 5, 2, 2), integers(0, 5, 1, 2), dim=0, reference=lambda *xs, dim: np.concatenate(xs, dim)),
        *(sample(CUBE, np.repeat(CUBE, 2, d) + 1, dim=d, reference=lambda *xs, dim: np.concatenate(xs, dim)) for d in range(3)),
    ],
    "flip": [sample(CUBE, dims=d, reference=lambda x, dims: np.flip(x, dims)) for d in ((0,), (1, 2), ())],
}
