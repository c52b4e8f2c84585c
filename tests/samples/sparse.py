"""Samples of the rows of `ops/sparse.py`."""

from __future__ import annotations

import numpy as np

from samples.base import integers, normal, sample


def places(rows, columns, number, seed=0):
    """Random places, several of them equal: the entries' rows and columns, and which entries each row and each column has."""
    row, col = integers(0, rows, number, seed=seed), integers(0, columns, number, seed=seed + 1)
    found = []
    for index, size in ((row, rows), (col, columns)):
        order = np.argsort(index, kind="stable")
        found += [np.searchsorted(index[order], np.arange(size + 1)), order]
    return row, col, *found


def in_order(rows, columns, number, seed=0):
    """The same with the entries in the order of their rows, which needs no `order`."""
    row, col, starts, order, _, _ = places(rows, columns, number, seed)
    row, col = row[order], col[order]
    back = np.argsort(col, kind="stable")
    return row, col, starts, None, np.searchsorted(col[back], np.arange(columns + 1)), back


def multiplied(values, dense, row, col, *_):
    y = np.zeros((len(_[0]) - 1, dense.shape[1]))
    np.add.at(y, row, values[:, None] * dense[col])
    return y


def sampled(a, b, row, col, *_):
    return (a[row] * b[col]).sum(1)


WHERE = [places(5, 4, 9), in_order(6, 4, 11), places(3, 40, 70), places(4, 3, 0)]
SAMPLES = {
    "spmm": [
        sample(normal(len(w[0])), normal(len(w[4]) - 1, k), *w, reference=multiplied, strided=False) for w in WHERE for k in (1, 3, 8)
    ],
    "sddmm": [
        sample(normal(len(w[2]) - 1, k), normal(len(w[4]) - 1, k), *w, reference=sampled, strided=False) for w in WHERE for k in (1, 3, 8)
    ],
}  # fmt: skip
