"""Reductions, running sums and products, sorting and counting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab.dtype import BOOL, FLOAT64, INT64
from gradlab.onnx.emitter import Emitter, Unsupported, Wire, is_dynamic
from gradlab.onnx.registry import exports
from gradlab.onnx.rows.movement import filled, flattened
from gradlab.spec import count

# ---------------------------------------------------------------- over dimensions; sums, means, products and extremes: `derived.py`


@exports("var")
def var(e: Emitter, x: Wire, *, dim: tuple[int, ...], keepdim: bool, divisor: float) -> Any:
    """The sum of squared distances from the mean, divided."""
    centred = x - e.reduce("ReduceMean", x, dim, True)
    return e.reduce("ReduceSum", centred * centred, dim, keepdim) / divisor


@exports("euclidean")
def euclidean(e: Emitter, x: Wire, *, dim: tuple[int, ...], keepdim: bool) -> Any:
    """The root of the sum of squares."""
    return e("Sqrt", e.reduce("ReduceSum", x * x, dim, keepdim))


def truth(kind: str) -> Callable[..., Any]:
    """A converter of all and any: the smallest or largest of 0 and 1; over no elements what it starts from."""

    def converter(e: Emitter, x: Wire, *, dim: tuple[int, ...], keepdim: bool) -> Any:
        flags = e.cast(e.cast(x, BOOL), np.dtype(np.int32))
        if not dim:
            return e.cast(flags, BOOL)
        sizes = [x.shape[d] for d in dim] if x.shape is not None else []
        if any(not is_dynamic(s) and s == 0 for s in sizes):
            return filled(e, kind == "ReduceMin", e.outputs[0].shape, BOOL)
        return e.cast(e.reduce(kind, flags, dim, keepdim), BOOL)

    return converter


exports("all")(truth("ReduceMin"))
exports("any")(truth("ReduceMax"))


def position(e: Emitter, x: Wire, kind: str, dim: int, keepdim: bool) -> Wire:
    """The first extreme element's place; NaN counts as extreme, which ONNX leaves open."""
    if not x.rank:
        return e.number(0, INT64)
    if x.dtype.kind != "f":
        return e(kind, x, axis=dim, keepdims=int(keepdim))
    plain = e(kind, x, axis=dim, keepdims=int(keepdim))
    nan = e.cast(e("IsNaN", x), np.dtype(np.int32))
    first = e("ArgMax", nan, axis=dim, keepdims=int(keepdim))
    there = e.cast(e.reduce("ReduceMax", nan, (dim,), keepdim), BOOL)
    return e.where(there, first, plain)


def positions(kind: str) -> Callable[..., Any]:
    """A converter of argmax and argmin."""
    return lambda e, x, *, dim, keepdim: position(e, x, kind, dim, keepdim)


def extreme(reduce: str, kind: str) -> Callable[..., Any]:
    """A converter of max and min with indices."""

    def converter(e: Emitter, x: Wire, *, dim: int, keepdim: bool) -> Any:
        if not x.rank:
            return e("Identity", x), e.number(0, INT64)
        return e.reduce(reduce, x, (dim,), keepdim), position(e, x, kind, dim, keepdim)

    return converter


exports("argmax", truths=True)(positions("ArgMax"))
exports("argmin", truths=True)(positions("ArgMin"))
exports("max", truths=True)(extreme("ReduceMax", "ArgMax"))
exports("min", truths=True)(extreme("ReduceMin", "ArgMin"))

# ---------------------------------------------------------------- running along a dimension


@exports("cumsum", truths=True)
def cumsum(e: Emitter, x: Wire, *, dim: int) -> Any:
    """CumSum."""
    return e("CumSum", x, e.number(dim, INT64)) if x.rank else e("Identity", x)


def lower(e: Emitter, x: Wire, dim: int, fill: Any) -> Wire:
    """(…, i, j) along the last two dimensions: x_j for j <= i, else `fill`; `dim` has moved to the end."""
    assert x.shape is not None
    n = x.shape[dim]
    if is_dynamic(n) or n > 4096:
        raise Unsupported("running extremes and products need a size that is known and not above 4096: each element looks at all before it")
    rank = x.rank
    moved = e.transpose(x, [*(d for d in range(rank) if d != dim), dim])
    return e.where(e.constant(np.tri(n, dtype=bool)), e.unsqueeze(moved, rank - 1), fill)


def back(e: Emitter, x: Wire, dim: int, rank: int) -> Wire:
    """The last dimension where it belongs."""
    order = list(range(rank - 1))
    order.insert(dim, rank - 1)
    return e.transpose(x, order)


@exports("cumprod")
def cumprod(e: Emitter, x: Wire, *, dim: int) -> Any:
    """The product of all elements up to each."""
    if not x.rank:
        return e("Identity", x)
    return back(e, e.reduce("ReduceProd", lower(e, x, dim, 1), (x.rank,), False), dim, x.rank)


@exports("logcumsumexp")
def logcumsumexp(e: Emitter, x: Wire, *, dim: int) -> Any:
    """log Σ e^x of all elements up to each, by their largest."""
    if not x.rank:
        return e("Identity", x)
    wide = lower(e, x, dim, -math.inf)
    top = e.reduce("ReduceMax", wide, (x.rank,), True)
    safe = e.where(e("IsInf", top), 0.0, top)
    total = e("Log", e.reduce("ReduceSum", e("Exp", wide - safe), (x.rank,), True)) + safe
    return back(e, e.squeeze(total, x.rank), dim, x.rank)


def running_extreme(sign: int) -> Callable[..., Any]:
    """A converter of cummax and cummin: the extreme of all elements up to each, and the last place that attains it; a NaN stays."""

    def converter(e: Emitter, x: Wire, *, dim: int) -> Any:
        if not x.rank:
            return e("Identity", x), e.number(0, INT64)
        fill = sign * -math.inf if x.dtype.kind == "f" else int(np.iinfo(x.dtype).min if sign > 0 else np.iinfo(x.dtype).max)
        wide = lower(e, x, dim, fill)
        values = e.reduce("ReduceMax" if sign > 0 else "ReduceMin", wide, (x.rank,), False)
        moved = e.transpose(x, [*(d for d in range(x.rank) if d != dim), dim])
        if x.dtype.kind == "f":  # ONNX Runtime's reductions may pass over a NaN
            nan = e.cast(e("IsNaN", moved), np.dtype(np.int32))
            seen = e.cast(e("CumSum", nan, e.number(x.rank - 1, INT64)), BOOL)
            values = e.where(seen, math.nan, values)
            attained = e("Or", e("Equal", moved, values), e("IsNaN", moved))
        else:
            attained = e("Equal", moved, values)
        n = x.shape[dim] if x.shape else 0
        places = e.where(attained, e.constant(np.arange(n), INT64), 0)
        last = e.where(e.constant(np.tri(n, dtype=bool)), e.unsqueeze(places, x.rank - 1), 0)
        return back(e, values, dim, x.rank), back(e, e.reduce("ReduceMax", last, (x.rank,), False), dim, x.rank)

    return converter


exports("cummax")(running_extreme(1))
exports("cummin")(running_extreme(-1))


@exports("recurrence")
def recurrence(e: Emitter, a: Wire, b: Wire, *, dim: int, reverse: bool) -> Any:
    """y_i = a_i · y_(i-1) + b_i: a Scan over the dimension."""
    rank = b.rank
    order = [dim, *(d for d in range(rank) if d != dim)]
    shape = tuple((b.shape or ())[d] for d in order[1:])
    steps = [e.transpose(x, order) for x in (a, b)]
    with e.inside() as inner:
        state, factor, term = (inner.entry(b.dtype, shape) for _ in range(3))
        new = factor * state + term
        body = inner.graph([state, factor, term], [inner("Identity", new), inner("Identity", new)])
    start = filled(e, 0, shape, b.dtype)
    found = e("Scan", start, *steps, outputs=2, dtype=b.dtype, num_scan_inputs=2, scan_input_directions=[int(reverse)] * 2,
              scan_output_directions=[int(reverse)], body=body)[1]  # fmt: skip
    return e.transpose(found, [order.index(d) for d in range(rank)])


# ---------------------------------------------------------------- order


def ordered(e: Emitter, x: Wire, k: Any, dim: int, largest: bool) -> tuple[Wire, Wire]:
    """TopK, which takes the lower index first where elements are equal: a stable order. NaN is the largest value, which ONNX leaves open:
    where there may be some, infinity stands for it, and comes after it."""
    values, places = e("TopK", x, e.ints([k]), outputs=2, axis=dim, largest=int(largest), sorted=1)
    places.dtype = INT64
    return values, places


def sorted_places(e: Emitter, x: Wire, k: Any, dim: int, largest: bool) -> tuple[Wire, Wire]:
    """The values in order and their places; NaNs as the largest, in the order of their places."""
    if not x.rank:
        return e("Identity", x), e.number(0, INT64)
    if x.dtype.kind != "f":
        return ordered(e, x, k, dim, largest)
    n = (x.shape or ())[dim]
    nan = e("IsNaN", x)
    # in order of the numbers, NaN as infinity; then, stably, NaNs behind (or in front of) what is no NaN
    _, first = ordered(e, e.where(nan, math.inf, x), n, dim, largest)
    flags = e("GatherElements", e.cast(nan, np.dtype(np.int32)), first, axis=dim)
    _, second = ordered(e, flags, k, dim, largest)
    places = e("GatherElements", first, second, axis=dim)
    return e("GatherElements", x, places, axis=dim), places


@exports("sort", truths=True)
def sort(e: Emitter, x: Wire, *, dim: int, descending: bool) -> Any:
    """All of TopK."""
    return sorted_places(e, x, (x.shape or (1,))[dim] if x.rank else 1, dim, descending)


@exports("topk", truths=True)
def topk(e: Emitter, x: Wire, *, k: int, dim: int, largest: bool) -> Any:
    """TopK."""
    return sorted_places(e, x, k, dim, largest) if x.rank else (e("Identity", x), e.number(0, INT64))


def middle_place(e: Emitter, x: Wire, dim: int, pass_nan: bool) -> Wire:
    """The place of the lower median along a dimension (kept with size 1), or of the first NaN; `pass_nan`: of the numbers alone."""
    n = (x.shape or ())[dim]
    _, places = sorted_places(e, x, n, dim, False)
    if x.dtype.kind != "f":
        return e.cut(places, (n - 1) // 2, (n - 1) // 2 + 1, dim)
    nans = e.reduce("ReduceSum", e.cast(e("IsNaN", x), INT64), (dim,), True)
    numbers = e.number(n, INT64) - nans
    middle = e("Max", e("Div", numbers - 1, 2), 0)
    if not pass_nan:
        middle = e.where(e("Greater", nans, 0), numbers, middle)
    return e("GatherElements", places, middle, axis=dim)


@exports("median")
def median(e: Emitter, x: Wire, *, dim: int, keepdim: bool, pass_nan: bool) -> Any:
    """The lower median and its place."""
    if not x.rank:
        return e("Identity", x), e.number(0, INT64)
    place = middle_place(e, x, dim, pass_nan)
    values = e("GatherElements", x, place, axis=dim)
    return (values, place) if keepdim else (e.squeeze(values, dim), e.squeeze(place, dim))


@exports("median_of_all")
def median_of_all(e: Emitter, x: Wire, *, pass_nan: bool) -> Any:
    """The lower median of all elements."""
    total = count(x.shape or ())
    if not is_dynamic(total) and total == 0:
        return e.number(math.nan, x.dtype)
    flat = flattened(e, x)
    flat.shape = (total,)
    return e.reshape(e("GatherElements", flat, middle_place(e, flat, 0, pass_nan), axis=0), ())


@exports("mode", truths=True)
def mode(e: Emitter, x: Wire, *, dim: int) -> Any:
    """In the sorted row the element that ends the first of the longest runs: the length of the run that ends at each place is counted."""
    if not x.rank:
        return e("Identity", x), e.number(0, INT64)
    n = (x.shape or ())[dim]
    if is_dynamic(n):
        raise Unsupported("the most frequent value along a dynamic size")
    values, places = sorted_places(e, x, n, dim, False)
    rank = x.rank
    order = [*(d for d in range(rank) if d != dim), dim]
    row = e.transpose(values, order)
    same = e("Equal", e.unsqueeze(row, rank), e.unsqueeze(row, rank - 1))
    run = e.reduce("ReduceSum", e.where(e.constant(np.tri(n, dtype=bool)), e.cast(same, INT64), 0), (rank,), False)
    best = e("ArgMax", run, axis=rank - 1, keepdims=1)
    best = back(e, best, dim, rank)
    return e("GatherElements", values, best, axis=dim), e("GatherElements", places, best, axis=dim)


# ---------------------------------------------------------------- counting


@exports("searchsorted", truths=True)
def searchsorted(e: Emitter, boundaries: Wire, x: Wire, *, right: bool, dtype: Any) -> Any:
    """The number of boundaries below each value (or not above it); a NaN is above all, and all that are no NaN are below it."""
    wide = e("Unsqueeze", x, e.constant([-1], INT64))
    row = boundaries if boundaries.rank == 1 else e.unsqueeze(boundaries, boundaries.rank - 1)
    below = e("LessOrEqual" if right else "Less", row, wide)
    if x.dtype.kind == "f":
        passed = e("IsNaN", wide) if right else e("And", e("IsNaN", wide), e("Not", e("IsNaN", row)))
        below = e("Or", below, passed)
    return e.cast(e("ReduceSum", e.cast(below, INT64), e.constant([-1], INT64), keepdims=0), np.dtype(dtype))


@exports("histc")
def histc(e: Emitter, x: Wire, *, bins: int, lo: float, hi: float) -> Any:
    """Each value's bin, computed in float64, compared with all bins' numbers."""
    flat = e.cast(flattened(e, x), FLOAT64)
    if lo == hi == 0:
        if not is_dynamic(count(x.shape or ())) and count(x.shape or ()) == 0:
            return filled(e, 0, (bins,), x.dtype)
        low, high = e.reduce("ReduceMin", flat, (0,), True), e.reduce("ReduceMax", flat, (0,), True)
        equal = e("Equal", low, high)
        low, high = low - e.cast(equal, FLOAT64), high + e.cast(equal, FLOAT64)
    else:
        low, high = (e.number(v, FLOAT64) for v in ((lo - 1, hi + 1) if lo == hi else (lo, hi)))
    inside = e("And", e("GreaterOrEqual", flat, low), e("LessOrEqual", flat, high))
    place = e("Min", e("Floor", (flat - low) / (high - low) * float(bins)), float(bins - 1))
    hit = e("Equal", e.unsqueeze(e.where(inside, place, -1.0), 1), e.constant(np.arange(bins), FLOAT64))
    return e.reduce("ReduceSum", e.cast(hit, x.dtype), (0,), False)


@exports("isin", truths=True)
def isin(e: Emitter, x: Wire, test: Wire, *, invert: bool) -> Any:
    """Compared with each tested value."""
    size = count(test.shape or ())
    if not is_dynamic(size) and size == 0:
        return filled(e, invert, x.shape or (), BOOL)
    same = e("Equal", e("Unsqueeze", x, e.constant([-1], INT64)), flattened(e, test))
    found = e.cast(e("ReduceMax", e.cast(same, np.dtype(np.int32)), e.constant([-1], INT64), keepdims=0), BOOL)
    return e("Not", found) if invert else found


# ---------------------------------------------------------------- softmax


@exports("softmax")
def softmax(e: Emitter, x: Wire, *, dim: int) -> Any:
    """Softmax."""
    return e("Softmax", x, axis=dim) if x.rank else x * 0.0 + 1.0


@exports("masked_softmax")
def masked_softmax(e: Emitter, x: Wire, *, dim: int) -> Any:
    """As softmax, but a group of nothing but -inf gives zeros."""
    top = e.reduce("ReduceMax", x, (dim,), True)
    return e.where(e("Equal", top, -math.inf), 0.0, e("Softmax", x, axis=dim))


@exports("log_softmax")
def log_softmax(e: Emitter, x: Wire, *, dim: int) -> Any:
    """LogSoftmax."""
    return e("LogSoftmax", x, axis=dim) if x.rank else x * 0.0


@exports("softmax_backward")
def softmax_backward(e: Emitter, dy: Wire, r: Wire, *, dim: int) -> Any:
    """r·(dy - Σ dy·r)"""
    return r * (dy - e.reduce("ReduceSum", dy * r, (dim,), True))


@exports("log_softmax_backward")
def log_softmax_backward(e: Emitter, dy: Wire, r: Wire, *, dim: int) -> Any:
    """dy - e^r·Σ dy"""
    return dy - e("Exp", r) * e.reduce("ReduceSum", dy, (dim,), True)


