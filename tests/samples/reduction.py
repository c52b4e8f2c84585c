"""Samples of the reductions."""

from __future__ import annotations

import numpy as np

from samples.base import distinct, integers, normal, sample

CUBE, LONG = normal(2, 3, 4), normal(200, 3)
DIMS = [
    {"dim": dim, "keepdim": keepdim}
    for dim, keepdim in (((0, 1, 2), False), ((1,), False), ((0, 2), True), ((2,), False), ((0,), False))
]
TIES = np.array([[3.0, 1.0, 3.0], [2.0, 2.0, 2.0]])


def reductions(x, function, **more):
    def reference(x, dim, keepdim):
        return function(x, axis=dim, keepdims=keepdim)

    return [sample(x, reference=reference, **d, **more) for d in DIMS]


def numpy_dim(function):
    return lambda x, dim, keepdim: function(x, axis=dim, keepdims=keepdim)


def extreme(value, position):
    def reference(x, dim, keepdim):
        if not x.ndim:
            return x, np.array(0)
        return value(x, axis=dim, keepdims=keepdim), position(x, axis=dim, keepdims=keepdim)

    return reference


def indexed(value, position):
    return [
        sample(distinct(*s), dim=dim, keepdim=keepdim, reference=extreme(value, position), fresh=lambda rng, s=s: (distinct(*s, seed=3),))
        for s, dim, keepdim in (
            ((3, 4), 0, False), ((2, 3, 4), 1, True), ((3, 4), 1, False), ((2, 3, 4), 0, False), ((2, 3, 4), 2, False),
        )
    ] + [sample(np.array(2.0), dim=0, keepdim=False, reference=extreme(value, position))]


EMPTY = np.zeros((0, 3))
SAMPLES = {
    "sum": [
        *reductions(CUBE, np.sum),
        sample(LONG, dim=(0,), keepdim=False, reference=numpy_dim(np.sum)),
        sample(np.array(1.5), dim=(), keepdim=False, reference=lambda x, dim, keepdim: x),
        sample(EMPTY, dim=(0,), keepdim=False, reference=numpy_dim(np.sum)),
        sample(integers(0, 9, 3, 4), dim=(1,), keepdim=False, reference=numpy_dim(np.sum)),
    ],
    "mean": [*reductions(CUBE, np.mean), sample(LONG, dim=(0,), keepdim=True, reference=numpy_dim(np.mean))],
    "about_mean": [
        sample(np.square(CUBE) + 1.0, CUBE, n=7, divisor=6.0,
               reference=lambda squares, rest, n, divisor: np.maximum(squares - rest**2 / n, 0) / divisor),
        sample(np.array(4.0), np.array(2.0), n=1, divisor=1.0, gradients=0, reference=lambda squares, rest, n, divisor: np.array(0.0)),
    ],
    "var": [
        sample(CUBE, dim=d["dim"], keepdim=d["keepdim"], divisor=n - 1.0,
               reference=lambda x, dim, keepdim, divisor: np.var(x, axis=dim, keepdims=keepdim, ddof=1))
        for d, n in zip(DIMS, (24, 3, 8, 4, 2), strict=True)
    ] + [sample(LONG + 100.0, dim=(0,), keepdim=False, divisor=200.0, reference=lambda x, dim, keepdim, divisor: np.var(x, axis=dim))],
    "euclidean": [
        *reductions(CUBE, lambda x, axis, keepdims: np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims))),
        sample(np.zeros((2, 3)), dim=(1,), keepdim=False, gradients=0, reference=lambda x, dim, keepdim: np.zeros(2)),
    ],
    "amax": [*reductions(distinct(2, 3, 4), np.max), sample(TIES, dim=(1,), keepdim=False, gradients=0, reference=numpy_dim(np.max))],
    "amin": [*reductions(distinct(2, 3, 4), np.min), sample(TIES, dim=(1,), keepdim=False, gradients=0, reference=numpy_dim(np.min))],
    "all": reductions(integers(0, 2, 2, 3, 4).astype(bool), np.all),
    "any": reductions(integers(0, 2, 2, 3, 4).astype(bool), np.any),
    "argmax": [
        sample(distinct(2, 3, 4), dim=d, keepdim=k, reference=numpy_dim(np.argmax), fresh=lambda rng: (distinct(2, 3, 4, seed=3),))
        for d, k in ((0, False), (1, True), (2, False))
    ],
    "argmin": [
        sample(distinct(2, 3, 4), dim=d, keepdim=k, reference=numpy_dim(np.argmin), fresh=lambda rng: (distinct(2, 3, 4, seed=3),))
        for d, k in ((0, False), (1, True), (2, False))
    ],
    "max": indexed(np.max, np.argmax),
    "min": indexed(np.min, np.argmin),
}
