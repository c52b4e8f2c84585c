"""Rows that order and count: sort, topk, mode, unique, searchsorted, bincount, histc, isin.

Sorting is always stable, also downwards, so that equal elements keep their order on every machine. NaN counts as the largest value.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.dtype import BOOL, FLOAT32, FLOAT64, FLOATING, INT64
from gradlab.kernel import Kernel
from gradlab.op import Op
from gradlab.ops.gather import gather_backward
from gradlab.ops.sort_cpu import first_of, order_of, pick, wide
from gradlab.spec import ShapeError, Spec, count


def to_origin(g_values: Any, indices: Any, x_spec: Spec, dim: int) -> Any:
    """The gradient goes to where the values came from."""
    return gather_backward(g_values, indices, shape=x_spec.shape, dim=dim)


def sort_rule(x: Spec, *, dim: int, descending: bool) -> tuple[Spec, Spec]:
    """Rule: the sorted values and where they were."""
    return x, Spec(x.shape, INT64)


def sort_cpu(x: Any, values: Any, indices: Any, *, dim: int, descending: bool) -> None:
    indices[...] = order_of(x, dim, descending)
    pick(x, indices, dim, values)


sort = Op("sort", sort_rule, params=("dim", "descending"), outputs=("values", "indices"), cpu=sort_cpu, exact=True,
          cuda=Kernel("sort.cu", "sort", "sort"),
          grad={"x": to_origin})  # fmt: skip


def topk_rule(x: Spec, *, k: int, dim: int, largest: bool) -> tuple[Spec, Spec]:
    """Rule: k elements along `dim`."""
    if not 0 <= k <= x.shape[dim]:
        raise ShapeError(f"k={k} is not within the {x.shape[dim]} elements of dimension {dim} (shape {x.shape})")
    shape = (*x.shape[:dim], k, *x.shape[dim + 1 :])
    return Spec(shape, x.dtype), Spec(shape, INT64)


def topk_cpu(x: Any, values: Any, indices: Any, *, k: int, dim: int, largest: bool) -> None:
    size = x.shape[dim]
    if 64 * k <= size:  # a few of many: one after the other, which takes the first of equal ones, as the stable order does
        rest = np.array(np.moveaxis(wide(x), dim, -1))
        best, worst = (np.argmax, -np.inf) if largest else (np.argmin, np.inf)
        if rest.dtype.kind == "f" and np.isfinite(rest).all():
            places = np.moveaxis(indices, dim, -1)
            for i in range(k):
                found = best(rest, axis=-1)
                places[..., i] = found
                np.put_along_axis(rest, found[..., None], worst, -1)
            values[...] = np.take_along_axis(x, indices, dim)
            return
    indices[...] = first_of(x, dim, k, largest)
    pick(x, indices, dim, values)


topk = Op("topk", topk_rule, params=("k", "dim", "largest"), outputs=("values", "indices"), cpu=topk_cpu, exact=True,
          cuda=Kernel("sort.cu", "topk", "sort"),
          grad={"x": to_origin})  # fmt: skip


def mode_rule(x: Spec, *, dim: int) -> tuple[Spec, Spec]:
    """Rule: one element along `dim`, which stays with size 1."""
    if x.shape[dim] == 0:
        raise ShapeError(f"nothing has no most frequent value: shape {x.shape}, dim {dim}")
    shape = (*x.shape[:dim], 1, *x.shape[dim + 1 :])
    return Spec(shape, x.dtype), Spec(shape, INT64)


def mode_cpu(x: Any, values: Any, indices: Any, *, dim: int) -> None:
    """In the sorted row, the element that ends the first of the longest runs."""
    order = np.moveaxis(order_of(x, dim, False), dim, -1)
    ordered = np.take_along_axis(np.moveaxis(wide(x), dim, -1), order, -1)
    place = np.arange(ordered.shape[-1])
    starts = np.zeros(ordered.shape, np.int64)
    starts[..., 1:] = np.where(ordered[..., 1:] != ordered[..., :-1], place[1:], 0)
    run = place - np.maximum.accumulate(starts, axis=-1)
    found = np.take_along_axis(order, run.argmax(-1, keepdims=True), -1)
    indices[...] = np.moveaxis(found, -1, dim)
    values[...] = np.take_along_axis(x, indices, dim)


mode = Op("mode", mode_rule, params=("dim",), outputs=("values", "indices"), cpu=mode_cpu, exact=True,
          cuda=Kernel("sort.cu", "mode", "sort"),
          grad={"x": to_origin})  # fmt: skip

# ---------------------------------------------------------------- distinct values: sizes depend on values


def unique_rule(x: Spec, *, dim: int | None, consecutive: bool) -> tuple[Spec, Spec, Spec]:
    """Rule: at most as many as there are."""
    size = count(x.shape) if dim is None else x.shape[dim]
    values = Spec((size,), x.dtype) if dim is None else x
    return values, Spec(x.shape if dim is None else (size,), INT64), Spec((size,), INT64)


def unique_cpu(x: Any, *, dim: int | None, consecutive: bool) -> Any:
    rows = x.reshape(-1, 1) if dim is None else np.moveaxis(x, dim, 0).reshape(x.shape[dim], count((*x.shape[:dim], *x.shape[dim + 1 :])))
    keys = wide(rows)
    size = len(rows)
    # an order in which equal rows are neighbours: by the first column, then the second, …
    if consecutive or not keys.shape[1]:
        order = np.arange(size)
    else:
        order = order_of(keys[:, 0], 0, False) if keys.shape[1] == 1 else np.lexsort(keys.T[::-1])
    ordered = keys[order]
    first = np.ones(size, bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(1)
    starts = np.flatnonzero(first)
    inverse = np.empty(size, np.int64)
    inverse[order] = np.cumsum(first) - 1
    counts = np.diff(np.append(starts, size)).astype(INT64)
    found = rows[order[starts]]
    if dim is None:
        return found.reshape(-1), inverse.reshape(x.shape), counts
    shape = (len(starts), *x.shape[:dim], *x.shape[dim + 1 :])
    return np.ascontiguousarray(np.moveaxis(found.reshape(shape), 0, dim)), inverse, counts


def _unique_gradient(g_values: Any, inverse: Any, counts: Any, dim: int | None) -> Any:
    """Shared evenly among the equal elements (with `dim`: parts), as the gradient of a maximum is."""
    if dim is None:
        return (g_values / counts).index_select(0, inverse.reshape(-1)).reshape(inverse.shape)
    along = [-1 if d == dim else 1 for d in range(len(g_values.shape))]
    return (g_values / counts.reshape(along)).index_select(dim, inverse)


unique = Op("unique", unique_rule, params=("dim", "consecutive"), outputs=("values", "inverse", "counts"), cpu=unique_cpu, exact=True,
            dynamic=True, instead="sort, which keeps the size", grad={"x": _unique_gradient})  # fmt: skip


def bincount_rule(x: Spec, weights: Spec | None, *, minlength: int) -> Spec:
    """Rule: at least `minlength` numbers: counts, or sums of weights."""
    if len(x.shape) != 1 or x.dtype.kind not in "iu":
        raise ShapeError(f"needs a vector of integers, not shape {x.shape} of {x.dtype}")
    if weights is not None and weights.shape != x.shape:
        raise ShapeError(f"weights of shape {weights.shape} for {x.shape} numbers")
    dtype = INT64 if weights is None else FLOAT32 if weights.dtype == FLOAT32 else FLOAT64
    return Spec((minlength,), dtype)


def bincount_cpu(x: Any, weights: Any, *, minlength: int) -> Any:
    if x.size and x.min() < 0:
        raise RuntimeError(f"bincount: counts numbers from 0; there is {x.min()}")
    if weights is None:
        return np.bincount(x, minlength=minlength).astype(INT64, copy=False)
    return np.bincount(x, weights.astype(FLOAT64), minlength).astype(FLOAT32 if weights.dtype == FLOAT32 else FLOAT64, copy=False)


bincount = Op("bincount", bincount_rule, params=("minlength",), cpu=bincount_cpu, exact=True, dynamic=True,
              instead="zeros(n).scatter_add(0, input, weights)",
              grad={"weights": lambda g, x: g.index_select(0, x)})  # fmt: skip

# ---------------------------------------------------------------- places in sorted sequences, histograms, membership


def searchsorted_rule(boundaries: Spec, x: Spec, *, right: bool, dtype: np.dtype[Any]) -> Spec:
    """Rule: x's shape; boundaries of several dimensions have x's, but for the last."""
    if not boundaries.shape or (len(boundaries.shape) > 1 and boundaries.shape[:-1] != x.shape[:-1]):
        raise ShapeError(f"boundaries of shape {boundaries.shape} for values of shape {x.shape}: all sizes but the last agree")
    return Spec(x.shape, dtype)


def searchsorted_cpu(boundaries: Any, x: Any, y: Any, *, right: bool, dtype: np.dtype[Any]) -> None:
    boundaries, x = wide(boundaries), wide(x)
    side: Any = "right" if right else "left"
    if boundaries.ndim == 1:
        y[...] = np.searchsorted(boundaries, x, side)
        return
    for at in np.ndindex(boundaries.shape[:-1]):
        y[at] = np.searchsorted(boundaries[at], x[at], side)


searchsorted = Op("searchsorted", searchsorted_rule, params=("right", "dtype"), cpu=searchsorted_cpu, exact=True, promote="same",
                  cuda=Kernel("sort.cu", "searchsorted", "elementwise"))  # fmt: skip


def histc_rule(x: Spec, *, bins: int, lo: float, hi: float) -> Spec:
    """Rule: one count for each bin, of x's type."""
    if x.dtype not in FLOATING:
        raise TypeError(f"needs floating point, not {x.dtype}; convert with .float()")
    return Spec((bins,), x.dtype)


def histc_cpu(x: Any, y: Any, *, bins: int, lo: float, hi: float) -> None:
    values = x.reshape(-1).astype(FLOAT64)
    if lo == hi == 0 and values.size:
        lo, hi = float(values.min()), float(values.max())
    if lo == hi:
        lo, hi = lo - 1, hi + 1
    if not (np.isfinite(lo) and np.isfinite(hi)):
        raise RuntimeError(f"histc: the range [{lo}, {hi}] is not finite; pass min and max")
    values = values[(values >= lo) & (values <= hi)]
    places = np.minimum(((values - lo) / (hi - lo) * bins).astype(np.int64), bins - 1)
    y[...] = np.bincount(places, minlength=bins)


histc = Op("histc", histc_rule, params=("bins", "lo", "hi"), cpu=histc_cpu, exact=True, cuda=Kernel("sort.cu", "histc", "reduce"))
isin = Op("isin", lambda x, test, *, invert: Spec(x.shape, BOOL), params=("invert",), exact=True, promote="same",
          cpu=lambda x, test, y, *, invert: np.copyto(y, np.isin(wide(x), wide(test), invert=invert)),
          cuda=Kernel("sort.cu", "isin", "elementwise"))  # fmt: skip
