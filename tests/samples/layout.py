"""Samples of the rows of `ops/layout.py`."""

from __future__ import annotations

import numpy as np

from samples.base import integers, normal, sample

M, CUBE, INTS, EMPTY = normal(3, 5), normal(2, 3, 4), integers(-9, 9, 4, 3), np.zeros((0, 4))


def diagonal(x, offset, dim1, dim2):
    return np.diagonal(x, offset, dim1, dim2)


def embedded(values, shape, offset, dim1, dim2):
    """Element by element."""
    y = np.zeros(shape, values.dtype)
    rest = [d for d in range(len(shape)) if d not in (dim1, dim2)]
    for place in np.ndindex(values.shape):
        index = dict(zip(rest, place))
        index[dim1], index[dim2] = place[-1] - min(offset, 0), place[-1] + max(offset, 0)
        y[tuple(index[d] for d in range(len(shape)))] = values[place]
    return y


def scattered(base, value, offset, dim1, dim2):
    on = embedded(np.ones_like(value), base.shape, offset, dim1, dim2)
    return embedded(value, base.shape, offset, dim1, dim2) + base * (1 - on)


def windows(x, dim, size, step):
    if not x.ndim:
        return np.full((size,), x)
    starts = range(0, x.shape[dim] - size + 1, step)
    return np.stack([np.moveaxis(np.take(x, range(s, s + size), dim), dim, -1) for s in starts], dim)


def summed(g, shape, dim, size, step):
    y = np.zeros(shape)
    for place in np.ndindex(g.shape):
        target = list(place[:-1])
        target[dim] = place[dim] * step + place[-1]
        y[tuple(target)] += g[place]
    return y


DIAGONALS = ((M, 0, 0, 1), (M, 2, 0, 1), (M, -1, 1, 0), (CUBE, 1, 0, 2), (CUBE, 0, 2, 1), (INTS, -3, 0, 1), (EMPTY, 0, 0, 1), (M, 7, 0, 1))
WINDOWS = ((normal(9), 0, 3, 2), (M, 1, 2, 1), (M, 0, 3, 1), (CUBE, 2, 2, 2), (CUBE, 1, 1, 2), (INTS, 0, 2, 3), (CUBE, 0, 2, 1))


def lower(x, diagonal):
    rows, columns = np.indices(x.shape[-2:])
    return np.where(columns <= rows + diagonal, x, 0)


def upper(x, diagonal):
    rows, columns = np.indices(x.shape[-2:])
    return np.where(columns >= rows + diagonal, x, 0)


def values(x, *where):
    return np.array(np.diagonal(x, *where)) * 2


SAMPLES = {
    "diagonal": [sample(x, offset=o, dim1=a, dim2=b, reference=diagonal) for x, o, a, b in DIAGONALS],
    "diagonal_embed": [
        sample(values(x, o, a, b), shape=x.shape, offset=o, dim1=a, dim2=b, reference=embedded) for x, o, a, b in DIAGONALS
    ],
    "diagonal_scatter": [sample(x, values(x, o, a, b), offset=o, dim1=a, dim2=b, reference=scattered) for x, o, a, b in DIAGONALS],
    "tril": [sample(x, diagonal=k, reference=lower) for x in (M, CUBE, INTS, EMPTY) for k in (0, 1, -2)],
    "triu": [sample(x, diagonal=k, reference=upper) for x in (M, CUBE, INTS, EMPTY) for k in (0, 1, -2)],
    "unfold": [sample(x, dim=d, size=n, step=s, reference=windows) for x, d, n, s in (*WINDOWS, (np.array(2.0), 0, 1, 1))],
    "unfold_backward": [
        sample(windows(x, d, n, s) * 2, shape=x.shape, dim=d, size=n, step=s, reference=summed) for x, d, n, s in WINDOWS
    ],
    "repeated": [sample(np.array(r, np.int64), reference=lambda r: np.repeat(np.arange(len(r)), r)) for r in ([2, 0, 3], [1], [])],
}
