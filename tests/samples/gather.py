"""Samples of the rows of `ops/gather.py`."""

from __future__ import annotations

import numpy as np

from samples.base import distinct, integers, normal, sample

A = normal(4, 3, 5)
EMPTY = np.zeros((0, 3, 5), np.int64)
# (index, dim): in the shape of A, smaller than A, longer along dim, empty
INDEXES = [(integers(0, 4, 4, 3, 5), 0), (integers(0, 3, 2, 2, 4), 1), (integers(0, 5, 3, 2, 9), 2), (EMPTY, 0)]
ONCE = [  # no place twice
    (np.argsort(normal(4, 3, 5), axis=0), 0),
    (np.argsort(normal(2, 3, 4), axis=1)[:, :2], 1),
    (np.argsort(normal(3, 2, 5), axis=2), 2),
    (EMPTY, 0),
]


def each(index, dim):
    """Pairs: a place in the index tensor, and the place it stands for."""
    for at in np.ndindex(index.shape):
        yield at, (*at[:dim], index[at], *at[dim + 1 :])


def gathered(x, index, dim):
    y = np.empty(index.shape, x.dtype)
    for at, to in each(index, dim):
        y[at] = x[to]
    return y


def reduced(function, include_self=True):
    def reference(x, index, src, dim, **_):
        y, src, seen = x.copy(), np.broadcast_to(src, index.shape), set()
        for at, to in each(index, dim):
            y[to] = function(y[to], src[at]) if include_self or to in seen else src[at]
            seen.add(to)
        return y

    return reference


def spread(dy, index, shape, dim):
    return reduced(lambda a, b: a + b)(np.zeros(shape), index, dy, dim)


UFUNCS = {"prod": np.multiply, "amax": np.maximum, "amin": np.minimum}
X = distinct(4, 3, 5)


def several(index, start=0):
    """As many distinct values as the index has elements."""
    return distinct(index.size, seed=start + 1, gap=0.13).reshape(index.shape) + 0.05


def with_zeros(x):
    y = x.copy()
    y.reshape(-1)[::7] = 0
    return y


SAMPLES = {
    "gather": [sample(A, index, dim=dim, reference=gathered) for index, dim in INDEXES],
    "gather_backward": [sample(normal(*index.shape), index, shape=A.shape, dim=dim, reference=spread) for index, dim in INDEXES],
    "scatter": [
        *[sample(A, index, normal(*index.shape), dim=dim, reference=reduced(lambda a, b: b)) for index, dim in ONCE],
        *[sample(A, index, np.array(1.5), dim=dim, reference=reduced(lambda a, b: b)) for index, dim in ONCE],
    ],
    "scatter_add": [
        *[sample(A, index, normal(*index.shape), dim=dim, reference=reduced(lambda a, b: a + b)) for index, dim in INDEXES],
        sample(A, INDEXES[1][0], np.array(0.5), dim=1, reference=reduced(lambda a, b: a + b)),
        sample(integers(0, 9, 4, 3, 5), INDEXES[0][0], integers(0, 9, 4, 3, 5), dim=0, reference=reduced(lambda a, b: a + b)),
    ],
    "scatter_reduce": [
        sample(
            X if reduce != "prod" else A, index, several(index), dim=dim, reduce=reduce, include_self=own,
            reference=reduced(function, own),
            dtypes=("float32",),
        )
        for reduce, function in UFUNCS.items()
        for own in (True, False)
        for index, dim in INDEXES
    ]
    # one zero among the factors: its gradient is the product of the others (the second order is PyTorch's: not the limit)
    + [
        sample(with_zeros(A), INDEXES[0][0], normal(4, 3, 5), dim=0, reduce="prod", include_self=own,
               reference=reduced(np.multiply, own), gradients=1, dtypes=("float32",))
        for own in (True, False)
    ],
}  # fmt: skip
