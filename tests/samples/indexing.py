"""Samples of the rows of `ops/indexing.py`."""

from __future__ import annotations

import numpy as np

from samples.base import integers, normal, sample

A = normal(4, 3, 5)
MATRIX = normal(6, 4)
BOOLS = integers(0, 2, 4, 3, 5).astype(bool)


def places(*columns):
    return np.stack(np.broadcast_arrays(*map(np.asarray, columns))).astype(np.int64)


def key(at, dims):
    found = [slice(None)] * (max(dims) + 1)
    for part, dim in zip(at, dims, strict=True):
        found[dim] = part
    return tuple(found)


def put(x, at, value, dims, accumulate, wrap):
    y = x.copy()
    if accumulate:
        np.add.at(y, key(at, dims), value)
    else:
        y[key(at, dims)] = value
    return y


def added(dy, at, shape, dims):
    return put(np.zeros(shape), at, dy, dims, True, True)


INDEXES = [
    (places([0, 3, 3, -1]), (0,)),
    (places([[2, 0], [-3, 2]]), (1,)),
    (places(1), (2,)),
    (places([1, 1, -2], [[0], [2]]), (0, 1)),
    (places([1, 0, 1], [4, -1, 4]), (0, 2)),
    (places([0, 0], [2, 2], [1, 1]), (0, 1, 2)),
    (np.zeros((1, 0), np.int64), (1,)),
    (np.zeros((2, 2, 0), np.int64), (1, 2)),
]


def result(at, dims):
    return normal(*A[key(at, dims)].shape, seed=2)


def pick(x, at, dims, wrap):
    return x[key(at, dims)]


def table(weight, at, padding_idx):
    return weight[at]


def rows_added(dy, at, rows, padding_idx):
    y = np.zeros((rows, dy.shape[-1]))
    np.add.at(y, at, dy)
    if padding_idx is not None:
        y[padding_idx] = 0
    return y


def masked(x, mask, source):
    y = x.copy()
    y[mask] = source.reshape(-1)[: mask.sum()]
    return y


def gathered(x, mask, shape):
    y = np.zeros(int(np.prod(shape)))
    y[: mask.sum()] = x[mask]
    return y.reshape(shape)


SOURCE = normal(9, 7, seed=3)
TOKENS = [integers(0, 6, 3, 5), integers(0, 6, 400), np.array(2), np.zeros((0, 2), np.int64)]
SAMPLES = {
    "index": [
        *[sample(A, at, dims=dims, wrap=True, reference=pick) for at, dims in INDEXES],
        sample(np.zeros((0, 3)), np.zeros((1, 0), np.int64), dims=(0,), wrap=False, reference=pick),
        sample(integers(0, 9, 4, 3, 5), INDEXES[3][0], dims=(0, 1), wrap=True, reference=pick),
    ],
    "index_backward": [sample(result(at, dims), at, shape=A.shape, dims=dims, reference=added) for at, dims in INDEXES],
    "index_put": [
        *[sample(A, at, result(at, dims), dims=dims, accumulate=True, wrap=True, reference=put) for at, dims in INDEXES],
        # each place once: of values for the same place only the last has a slope, yet all get the gradient, as in PyTorch
        *[
            sample(A, at, result(at, dims), dims=dims, accumulate=False, wrap=True, reference=put)
            for at, dims in [
                (places([0, 3, -2]), (0,)),
                (places([[2, 0], [1, 1]], [[0, 1], [3, -1]]), (0, 2)),
                (places(1), (2,)),
                (places([1, 1, 0], [0, 2, 0]), (1, 2)),
                INDEXES[-1],
            ]
        ],
    ],
    "embedding": [sample(MATRIX, at, padding_idx=p, reference=table, gradients=2 if p is None else 0) for at in TOKENS for p in (None, 2)],
    "embedding_backward": [
        sample(normal(*at.shape, 4), at, rows=6, padding_idx=p, reference=rows_added) for at in TOKENS for p in (None, 2)
    ],
    "nonzero": [
        sample(x, reference=lambda x: np.stack(np.nonzero(x), 1))
        for x in (BOOLS, integers(-1, 2, 7), normal(3, 2), np.zeros((0, 2)), np.zeros(3))
    ],
    "masked_scatter": [sample(A, BOOLS, SOURCE, reference=masked), sample(A, BOOLS, normal(60), reference=masked)],
    "masked_gather": [sample(A, BOOLS, shape=(9, 7), reference=gathered), sample(A, BOOLS, shape=(60,), reference=gathered)],
}
