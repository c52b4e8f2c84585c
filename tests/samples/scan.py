"""Samples of the rows of `ops/scan.py`."""

from __future__ import annotations

import numpy as np

from samples.base import distinct, integers, normal, sample, uniform

X, SMALL, ZEROS = normal(3, 5), uniform(0.5, 1.5, 2, 3, 4), np.array([[2.0, 0.0, 4.0], [1.0, 2.0, 3.0], [0.0, 0.0, 9.0]])
INTS, EMPTY, SCALAR = integers(-3, 4, 3, 5), np.zeros((0, 4)), np.array(1.5)
NANS = np.array([[1.0, np.nan, 3.0, 2.0], [4.0, 0.0, 1.0, 2.5]])


def products(x, dim, keepdim):
    return np.multiply.reduce(x, axis=dim, keepdims=keepdim)


def along(function):
    return lambda x, dim: function(x, dim) if x.ndim else x


def recurred(a, b, dim, reverse):
    y = np.zeros_like(b)
    n = b.shape[dim]
    for i in range(n):
        k = n - 1 - i if reverse else i
        place = (slice(None),) * dim + (k,)
        before = (slice(None),) * dim + (k + (1 if reverse else -1),)
        y[place] = b[place] + (a[place] * y[before] if i else 0)
    return y


def running_extreme(better):
    """Values and the latest places, element by element."""

    def reference(x, dim):
        if not x.ndim:
            return x, np.zeros((), np.int64)
        values, places = np.array(x), np.zeros(x.shape, np.int64)
        v, p, source = (np.moveaxis(a, dim, 0) for a in (values, places, x))
        for line in np.ndindex(source.shape[1:]):
            best, place = source[(0, *line)] if len(source) else None, 0
            for i in range(len(source)):
                new = source[(i, *line)]
                if np.isnan(new) or (not np.isnan(best) and (better(new, best) or new == best)):
                    best, place = new, i
                v[(i, *line)], p[(i, *line)] = best, place
        return values, places

    return reference


def medians(x, dim, keepdim, pass_nan):
    if not x.ndim:
        return x, np.zeros((), np.int64)
    moved = np.moveaxis(x, dim, -1)
    values, places = np.empty(moved.shape[:-1], x.dtype), np.empty(moved.shape[:-1], np.int64)
    for line in np.ndindex(values.shape):
        row = moved[line].tolist()
        kept = sorted((v, i) for i, v in enumerate(row) if v == v)
        if len(kept) < len(row) and not pass_nan:
            places[line] = next(i for i, v in enumerate(row) if v != v)
        else:
            places[line] = kept[(len(kept) - 1) // 2][1]
        values[line] = row[places[line]]
    return (np.expand_dims(values, dim), np.expand_dims(places, dim)) if keepdim else (values, places)


def median_of_all(x, pass_nan):
    flat = sorted(v for v in x.ravel().tolist() if v == v)
    return np.array(np.nan if not pass_nan and np.isnan(x).any() else flat[(len(flat) - 1) // 2], x.dtype)


D = distinct(3, 5)
EACH, PARTED = ([(x, d) for d in range(3)] for x in (SMALL, distinct(2, 4, 3)))  # the first, a middle and the last dimension
SAMPLES = {
    "prod": [
        *(sample(X, dim=d, keepdim=k, reference=products) for d, k in (((1,), False), ((0,), True), ((0, 1), False), ((), False))),
        *(sample(SMALL, dim=d, keepdim=len(d) % 2 > 0, reference=products) for d in ((0, 2), (1,), (0, 1, 2), (0,), (2,))),
        *(sample(ZEROS, dim=d, keepdim=False, reference=products) for d in ((0,), (1,), (0, 1))),
        sample(INTS, dim=(1,), keepdim=False, reference=products),
        *(sample(EMPTY, dim=d, keepdim=False, reference=products) for d in ((0,), (1,))),
        sample(SCALAR, dim=(), keepdim=False, reference=products),
    ],
    "cumsum": [sample(x, dim=d, reference=along(np.cumsum)) for x, d in (*EACH, (X, 0), (X, 1), (INTS, 1), (EMPTY, 0), (SCALAR, 0))],
    "cumprod": [
        sample(x, dim=d, reference=along(np.cumprod))
        for x, d in (*EACH, (X, 0), (X, 1), (INTS, 1), (EMPTY, 0), (SCALAR, 0), (ZEROS, 0), (ZEROS, 1))
    ],
    "recurrence": [
        sample(a, b, dim=d, reverse=r, reference=recurred)
        for a, b, d in (
            (X, X[::-1].copy(), 1), *((SMALL, SMALL - 1, d) for d in range(3)), (normal(7), normal(7, seed=2), 0), (X.T, X.T + 1, 0),
        )
        for r in (False, True)
    ],
    "logcumsumexp": [
        sample(x, dim=d, reference=along(np.logaddexp.accumulate)) for x, d in (*EACH, (X, 0), (X, 1), (EMPTY, 0), (SCALAR, 0))
    ],
    "cummax": [
        sample(x, dim=d, reference=running_extreme(np.greater)) for x, d in (*PARTED, (D, 0), (D, 1), (INTS, 1), (EMPTY, 0), (SCALAR, 0))
    ],
    "cummin": [
        sample(x, dim=d, reference=running_extreme(np.less)) for x, d in (*PARTED, (D, 0), (D, 1), (INTS, 0), (EMPTY, 1), (SCALAR, 0))
    ],
    "median": [
        *(sample(D, dim=d, keepdim=k, pass_nan=False, reference=medians) for d, k in ((0, False), (1, True))),
        *(sample(x, dim=d, keepdim=k, pass_nan=True, reference=medians) for x, d in PARTED for k in (False, True) if d == 1 or k),
        *(sample(NANS, dim=1, keepdim=False, pass_nan=p, reference=medians, gradients=0) for p in (False, True)),
        sample(INTS[:, :4], dim=1, keepdim=False, pass_nan=False, reference=medians),
        sample(SCALAR, dim=0, keepdim=False, pass_nan=False, reference=medians),
    ],
    "median_of_all": [
        *(sample(x, pass_nan=p, reference=median_of_all) for x in (D, distinct(6), SCALAR, INTS) for p in (False, True)),
        *(sample(NANS, pass_nan=p, reference=median_of_all, gradients=0) for p in (False, True)),
    ],
}
