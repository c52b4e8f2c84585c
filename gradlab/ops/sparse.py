"""Rows of sparse matrices: products of the entries of a matrix with dense ones. All is a dense array here; `gradlab.sparse` puts it
together.

A matrix is given by its entries `values` (n,), in any order, and by where they are: `row` and `col` (n,). Products go along the rows of the
result, so they are told which entries a row has: those at `order[starts[i]:starts[i + 1]]` (`order` None: the entries lie in this order).
`t_starts` and `t_order` say the same of the columns, for the gradient, which is a product with the transposed matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gradlab.dtype import INT64
from gradlab.kernel import Kernel
from gradlab.op import Op
from gradlab.spec import ShapeError, Spec

BLOCK = 1 << 17  # elements that a product without a compiled kernel works on at a time
LARGE = 1 << 15  # multiplications from which a compiled product is asked for
compiled: Callable[..., bool] | None = None  # it, handed over by `gradlab.sparse`; it says whether there is one


def _entries(number: int, *places: Spec | None) -> None:
    for p in places:
        if p is not None and (p.shape != (number,) or p.dtype != INT64):
            raise ShapeError(f"{number} entries need as many places, int64, not {p.dtype} of shape {p.shape}")


def spmm_rule(
    values: Spec, dense: Spec, row: Spec, col: Spec, starts: Spec, order: Spec | None, t_starts: Spec | None, t_order: Spec | None
) -> Spec:
    """Rule: the matrix's rows times the dense matrix's columns."""
    if len(values.shape) != 1 or len(dense.shape) != 2:
        raise ShapeError(f"entries of one dimension and a dense matrix, not shapes {values.shape} and {dense.shape}")
    if values.dtype != dense.dtype:
        raise TypeError(f"the sparse matrix has dtype {values.dtype}, the dense one {dense.dtype}; convert one of them")
    _entries(values.shape[0], row, col, order, t_order)
    if len(starts.shape) != 1:
        raise ShapeError(f"the rows' first entries in one dimension, not in shape {starts.shape}")
    return Spec((starts.shape[0] - 1, dense.shape[1]), values.dtype)


def sddmm_rule(
    a: Spec, b: Spec, row: Spec, col: Spec, starts: Spec, order: Spec | None, t_starts: Spec | None, t_order: Spec | None
) -> Spec:
    """Rule: a number for each entry."""
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[1]:
        raise ShapeError(f"two matrices of as many columns, not shapes {a.shape} and {b.shape}")
    if len(row.shape) != 1:
        raise ShapeError(f"entries of one dimension, not of shape {row.shape}")
    _entries(row.shape[0], row, col, order, t_order)
    return Spec(row.shape, a.dtype)


def blocks(starts: Any, width: int) -> Iterator[tuple[Any, int, int]]:
    """The rows that have entries, some at a time: the numbers of these rows, and which entries are theirs."""
    present = np.flatnonzero(starts[1:] > starts[:-1])
    ends = starts[present + 1]
    i = 0
    while i < present.size:
        first = int(starts[present[i]])
        j = max(i + 1, int(np.searchsorted(ends, first + max(1, BLOCK // max(width, 1)), "right")))
        yield present[i:j], first, int(ends[j - 1])
        i = j


def spmm_cpu(values: Any, dense: Any, row: Any, col: Any, starts: Any, order: Any, t_starts: Any, t_order: Any, y: Any) -> None:
    if not y.size:
        return
    work = values.size * y.shape[1]
    if work >= LARGE and compiled is not None and compiled("spmm", [y, values, dense, col, starts, order], y.shape, work):
        return
    y.fill(0)
    for rows, first, last in blocks(starts, y.shape[1]):
        at = slice(first, last) if order is None else order[first:last]
        parts = dense[col[at]] * values[at, None]
        y[rows] = np.add.reduceat(parts, starts[rows] - first, axis=0, dtype=y.dtype)


def sddmm_cpu(a: Any, b: Any, row: Any, col: Any, starts: Any, order: Any, t_starts: Any, t_order: Any, y: Any) -> None:
    work = y.size * a.shape[1]
    if work >= LARGE and compiled is not None and compiled("sddmm", [y, a, b, row, col], (y.size, a.shape[1]), work):
        return
    step = max(1, BLOCK // max(a.shape[1], 1))
    for i in range(0, y.shape[0], step):
        part = slice(i, i + step)
        np.einsum("nk,nk->n", a[row[part]], b[col[part]], out=y[part])


# y[i, k] = the sum of values[e] dense[col[e], k] over the entries e of row i
spmm: Op = Op(
    "spmm", spmm_rule, cpu=spmm_cpu, cuda=Kernel("sparse.cu", "spmm", "sparse"),
    grad={
        "values": lambda g, dense, row, col, starts, order, t_starts, t_order: sddmm(g, dense, row, col, starts, order, t_starts, t_order),
        "dense": lambda g, values, row, col, starts, order, t_starts, t_order: spmm(values, g, col, row, t_starts, t_order, starts, order),
    },
)  # fmt: skip

# y[e] = the inner product of a[row[e]] and b[col[e]]
sddmm: Op = Op(
    "sddmm", sddmm_rule, cpu=sddmm_cpu, cuda=Kernel("sparse.cu", "sddmm", "sparse"),
    grad={
        "a": lambda g, b, row, col, starts, order, t_starts, t_order: spmm(g, b, row, col, starts, order, t_starts, t_order),
        "b": lambda g, a, row, col, starts, order, t_starts, t_order: spmm(g, a, col, row, t_starts, t_order, starts, order),
    },
)  # fmt: skip
