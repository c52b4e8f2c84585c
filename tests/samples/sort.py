"""Samples of the rows of `ops/sort.py`."""

from __future__ import annotations

import numpy as np

from samples.base import distinct, integers, normal, sample

X, EMPTY = distinct(4, 3, 5), np.zeros((0, 3))
TIES = integers(-2, 3, 5, 9)
SPECIAL = np.array([[1.0, np.nan, -np.inf, 1.0], [np.inf, 2.0, np.nan, -0.0]])
INT64, INT32 = np.dtype(np.int64), np.dtype(np.int32)


def rank(value):
    """Python's sort key in which NaN is the largest."""
    return (value != value, value)


def each_row(x, dim, function):
    """`function` maps a list to a list of places; the values and places, laid out along dim."""
    rows = np.moveaxis(x, dim, -1)
    places = np.array([function(row.tolist()) for row in rows.reshape(-1, rows.shape[-1])], np.int64).reshape(*rows.shape[:-1], -1)
    places = np.moveaxis(places, -1, dim)
    return np.take_along_axis(x, places, dim), places


def ordered(x, dim, descending):
    if not x.size:
        return x, np.zeros(x.shape, np.int64)

    def places(row):
        upwards = sorted(range(len(row)), key=lambda i: rank(row[i]))
        if not descending:
            return upwards
        groups = {}
        for i in upwards:
            groups.setdefault(repr(rank(row[i])), []).append(i)
        return [i for key in reversed(groups) for i in groups[key]]

    return each_row(x + 0, dim, places)


def top(x, k, dim, largest):
    values, places = ordered(x, dim, largest)
    return np.take(values, range(k), dim), np.take(places, range(k), dim)


def commonest(x, dim):
    def places(row):
        best = max(sorted(set(row)), key=row.count)
        return [max(i for i, v in enumerate(row) if v == best)]

    return each_row(x, dim, places)


def distinct_parts(x, dim, consecutive):
    parts = [(float(v),) for v in x.reshape(-1)] if dim is None else [tuple(p.reshape(-1)) for p in np.moveaxis(x, dim, 0)]
    found, inverse, counts = [], [], []
    if consecutive:
        for p in parts:
            if not found or found[-1] != p:
                found.append(p)
                counts.append(0)
            inverse.append(len(found) - 1)
            counts[-1] += 1
    else:
        found = sorted(set(parts))
        inverse, counts = [found.index(p) for p in parts], [parts.count(p) for p in found]
    values = np.array(found, x.dtype).reshape(-1)
    if dim is not None:
        rest = (*x.shape[:dim], *x.shape[dim + 1 :])
        values = np.moveaxis(values.reshape(-1, *rest), 0, dim)
    return values, np.array(inverse, np.int64).reshape(x.shape if dim is None else -1), np.array(counts, np.int64)


def places_in(boundaries, x, right, dtype):
    rows = np.broadcast_to(boundaries, (*x.shape[:-1], boundaries.shape[-1])) if x.ndim else boundaries
    found = [
        sum((b <= v) if right else (b < v) for b in (rows[at[:-1]] if x.ndim else rows).tolist()) for at, v in np.ndenumerate(x)
    ]
    return np.array(found, dtype).reshape(x.shape)


def counted(x, weights, minlength):
    y = np.zeros(max(minlength, int(x.max(initial=-1)) + 1), np.int64 if weights is None else np.float64)
    np.add.at(y, x, 1 if weights is None else weights)
    return y


def binned(x, bins, lo, hi):
    lo, hi = (x.min(), x.max()) if lo == hi == 0 else (lo, hi)
    return np.histogram(x, bins, (lo, hi))[0].astype(x.dtype)


EDGES = np.array([-1.0, -0.5, -0.5, 0.25, 2.0])
SAMPLES = {
    "sort": [
        sample(x, dim=dim, descending=down, reference=ordered, gradients=grad)
        for down in (False, True)
        for x, dim, grad in [(X, 0, 2), (X, 1, 2), (X, 2, 2), (TIES, 1, 0), (EMPTY, 1, 0), (normal(1, 1), 0, 2)]
    ]
    + [sample(SPECIAL, dim=1, descending=False, reference=lambda x, **_: (np.sort(x), np.argsort(x, kind="stable")), gradients=0)],
    "topk": [
        sample(x, k=k, dim=dim, largest=largest, reference=top, gradients=2 if x.dtype.kind == "f" else 0)
        for largest in (True, False)
        for x, k, dim in [(X, 2, 0), (X, 3, 1), (X, 0, 2), (TIES, 4, 1), (distinct(2, 200), 3, 1)]
    ]
    + [
        sample(normal(2, 200).round(1), k=3, dim=1, largest=True, reference=top, gradients=0),
        sample(integers(0, 5, 200), k=3, dim=0, largest=True, reference=top),
    ],
    "mode": [
        sample(TIES, dim=1, reference=commonest),
        sample(TIES, dim=0, reference=commonest),
        *(sample(integers(-2, 2, 2, 5, 3), dim=d, reference=commonest) for d in range(3)),
        sample(TIES.astype(float), dim=1, reference=commonest, gradients=0),
        sample(np.array([3.0, 1.0, 2.0]), dim=0, reference=commonest),
    ],
    "unique": [
        *[sample(x, dim=dim, consecutive=False, reference=distinct_parts, dtypes=())
        for x, dim in [*((normal(3, 4), d) for d in (None, 0, 1)), *((normal(2, 3, 4), d) for d in range(3))]],
        *[sample(x, dim=dim, consecutive=consecutive, reference=distinct_parts, dtypes=(), gradients=0)
        for consecutive in (False, True)
        for x, dim in [
            (TIES, None),
            (TIES.astype(float), None),
            (integers(0, 2, 6, 2), 0),
            (integers(0, 2, 2, 7), 1),
            (np.zeros(0), None),
            (np.array(3), None),
            (integers(0, 2, 9).astype(bool), None),
        ]],
    ],
    "bincount": [
        sample(integers(0, 7, 30), None, minlength=0, reference=counted),
        sample(integers(0, 7, 30), normal(30), minlength=10, reference=counted, dtypes=("float32",)),
        sample(integers(0, 7, 30), integers(0, 5, 30), minlength=0, reference=counted),
        sample(np.zeros(0, np.int64), None, minlength=3, reference=counted),
    ],
    "searchsorted": [
        sample(b, x, right=right, dtype=dtype, reference=places_in)
        for right, dtype in ((False, INT64), (True, INT32))
        for b, x in [(EDGES, normal(3, 4).round(1)), (np.sort(normal(3, 6)), normal(3, 4)), (EDGES, np.array(0.25)), (EDGES, EMPTY)]
    ],
    "histc": [
        sample(normal(50), bins=7, lo=0.0, hi=0.0, reference=binned, dtypes=("float32",)),
        sample(normal(5, 10), bins=4, lo=-1.0, hi=0.5, reference=binned, dtypes=("float32",)),
        sample(np.zeros(3), bins=2, lo=-1.0, hi=1.0, reference=binned),
        sample(np.zeros((0, 2)), bins=3, lo=0.0, hi=0.0, reference=lambda x, bins, lo, hi: np.zeros(bins)),
    ],
    "isin": [
        sample(TIES, integers(-1, 2, 3), invert=False, reference=lambda x, test, invert: np.vectorize(lambda v: v in test)(x)),
        sample(np.round(normal(4, 5)), np.array([0.0, 1.0, np.nan]), invert=True, reference=lambda x, test, invert: ~((x == 0) | (x == 1))),
        sample(EMPTY, normal(3), invert=False, reference=lambda x, test, invert: np.zeros(x.shape, bool)),
    ],
}  # fmt: skip
