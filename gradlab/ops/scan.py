"""Rows that run along one dimension: products, running sums, products, extremes; the median. Sums and products run in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.dtype import FLOAT32, FLOAT64, FLOATING, INT64
from gradlab.kernel import Kernel, Reduction
from gradlab.op import Op
from gradlab.ops.movement import cat
from gradlab.ops.reduction import at_indices, divided, reduced, reduced_nonempty
from gradlab.ops.sort_cpu import order_of, place_of
from gradlab.spec import ShapeError, Spec, count, reduced_shape

_multiply_reduce: Any = np.multiply.reduce  # NumPy's stubs know no `keepdims` that is a variable

# ---------------------------------------------------------------- helpers of gradients, written with Tensor methods


def shifted(x: Any, dim: int, forward: bool, fill: float) -> Any:
    """Each element one place further (or back) along `dim`; the place that becomes free holds `fill`."""
    n = x.shape[dim]
    edge = x.new_full((*x.shape[:dim], 1, *x.shape[dim + 1 :]), fill)
    if forward:
        return cat(edge, x.narrow(dim, 0, n - 1), dim=dim)
    return cat(x.narrow(dim, 1, n - 1), edge, dim=dim)


def product_before(x: Any, dim: int) -> Any:
    """For each element the product of those before it."""
    return shifted(x, dim, True, 1).cumprod(dim)


def running(x: Spec, *, dim: int) -> Spec:
    """Rule: the output is like the input."""
    return x


# ---------------------------------------------------------------- products


def prod_cpu(x: Any, y: Any, *, dim: tuple[int, ...], keepdim: bool) -> None:
    if x.dtype == FLOAT32:
        y[...] = _multiply_reduce(x, axis=dim, dtype=FLOAT64, keepdims=keepdim)
    else:
        _multiply_reduce(x, axis=dim, out=y, keepdims=keepdim)


def prod_gradient(g: Any, x: Any, dim: tuple[int, ...], keepdim: bool) -> Any:
    """The product of the other elements, from both sides: no division, so zeros are no trouble."""
    if 0 in x.shape or not dim:
        return g.expand(x.shape) if not dim else g.new_zeros(x.shape)
    rest = tuple(d for d in range(len(x.shape)) if d not in dim)
    order = (*rest, *dim)
    moved = x.permute(order)
    last = len(rest)
    flat = moved.reshape((*moved.shape[:last], count(moved.shape[last:])))
    others = product_before(flat, last) * product_before(flat.flip(last), last).flip(last)
    outer = g.reshape((*(x.shape[d] for d in rest), 1))
    return (outer * others).reshape(moved.shape).permute(tuple(order.index(d) for d in range(len(order))))


prod = Op("prod", reduced, params=("dim", "keepdim"), cpu=prod_cpu, cuda=Reduction("x", "a * b", "T(1)"), autocast="float32",
          grad={"x": prod_gradient})  # fmt: skip


def accumulate(ufunc: Any) -> Any:
    """A running ufunc, for floating point in float64."""

    def cpu(x: Any, y: Any, *, dim: int) -> None:
        if not x.ndim:
            np.copyto(y, x)
        elif x.dtype == FLOAT32:
            wide = x.astype(FLOAT64)
            y[...] = ufunc.accumulate(wide, axis=dim, out=wide)
        else:
            ufunc.accumulate(x, axis=dim, out=y)

    return cpu


def kernel(name: str) -> Kernel:
    """A kernel of this family."""
    return Kernel("scan.cu", name, "scan")


cumsum = Op("cumsum", running, params=("dim",), cpu=accumulate(np.add), cuda=kernel("cumsum"), autocast="float32",
            grad={"x": lambda g, dim: g.flip(dim).cumsum(dim).flip(dim) if g.shape else g})  # fmt: skip


def cumprod_gradient(g: Any, x: Any, dim: int) -> Any:
    """Of element i: (x_0 … x_(i-1)) · s_i with s_i = g_i + x_(i+1) · s_(i+1); no division, so zeros are no trouble."""
    if not x.shape or 0 in x.shape:
        return g
    return product_before(x, dim) * recurrence(shifted(x, dim, False, 0), g, dim=dim, reverse=True)


cumprod = Op("cumprod", running, params=("dim",), cpu=accumulate(np.multiply), cuda=kernel("cumprod"), autocast="float32",
             grad={"x": cumprod_gradient})  # fmt: skip

# ---------------------------------------------------------------- a linear recurrence


def recurrence_rule(a: Spec, b: Spec, *, dim: int, reverse: bool) -> Spec:
    """Rule: two inputs of one shape."""
    if a.shape != b.shape or not a.shape:
        raise ShapeError(f"a recurrence takes two inputs of one shape with a dimension, not {a.shape} and {b.shape}")
    return b


def recurrence_cpu(a: Any, b: Any, y: Any, *, dim: int, reverse: bool) -> None:
    """y_i = a_i · y_(i-1) + b_i (reverse: of y_(i+1)), one step for all other dimensions at once; few long lines as Python floats."""
    a, b, out = (np.moveaxis(v, dim, 0) for v in (a, b, y))
    if reverse:
        a, b, out = a[::-1], b[::-1], out[::-1]
    n = len(a)
    if n and a[0].size <= 4:
        for place in np.ndindex(a.shape[1:]):
            line, last = [], 0.0
            for factor, term in zip(a[:, *place].tolist(), b[:, *place].tolist(), strict=True):
                last = factor * last + term
                line.append(last)
            out[:, *place] = line
        return
    state = np.zeros(a.shape[1:], FLOAT64)
    for i in range(n):
        state = a[i] * state + b[i]
        out[i] = state


def recurrence_gradient(g: Any, a: Any, y: Any, dim: int, reverse: bool) -> Any:
    """With d, the gradient of b: d · the neighbour of y that a multiplied; d itself is the recurrence run the other way."""
    if 0 in y.shape:
        return g, g
    d = recurrence(shifted(a, dim, reverse, 0), g, dim=dim, reverse=not reverse)
    return d * shifted(y, dim, not reverse, 0), d


recurrence = Op("recurrence", recurrence_rule, params=("dim", "reverse"), cpu=recurrence_cpu, cuda=kernel("recurrence"),
                grad={("a", "b"): recurrence_gradient})  # fmt: skip

# ---------------------------------------------------------------- running logsumexp


def logcumsumexp_gradient(g: Any, x: Any, y: Any, dim: int) -> Any:
    """exp(x_i - y_i) · s_i with s_i = g_i + exp(y_i - y_(i+1)) · s_(i+1): y never falls, so nothing overflows. 0 where y is infinite."""
    if not x.shape or 0 in x.shape:
        return g
    infinite = y.isinf()
    flat = y.masked_fill(infinite, 0)
    falls = (flat - shifted(flat, dim, False, 0)).exp()
    passes = falls.masked_fill(infinite | shifted(infinite, dim, False, True), 0)
    own = (x.masked_fill(infinite, 0) - flat).exp()  # times 0 where y is infinite
    return own * recurrence(passes, g.masked_fill(infinite, 0), dim=dim, reverse=True)


logcumsumexp = Op("logcumsumexp", running, params=("dim",), cpu=accumulate(np.logaddexp), cuda=kernel("logcumsumexp"),
                  promote="float", sharp=True, grad={"x": logcumsumexp_gradient})  # fmt: skip

# ---------------------------------------------------------------- running extremes


def with_indices(x: Spec, *, dim: int) -> tuple[Spec, Spec]:
    """Rule: a value and an index for each element."""
    return x, Spec(x.shape, INT64)


def extreme(ufunc: Any) -> Any:
    """The running extreme and the last place where it was attained; a NaN stays."""

    def cpu(x: Any, values: Any, indices: Any, *, dim: int) -> None:
        if not x.ndim:
            values[...], indices[...] = x, 0
            return
        ufunc.accumulate(x, axis=dim, out=values)
        places = np.arange(x.shape[dim]).reshape((-1,) + (1,) * (x.ndim - 1 - dim))
        attained = x == values
        if x.dtype in FLOATING:
            attained |= np.isnan(x)
        np.maximum.accumulate(np.where(attained, places, 0), axis=dim, out=indices)

    return cpu


def to_indices(g_values: Any, indices: Any, dim: int) -> Any:
    """Each running extreme's gradient goes to the element that it was."""
    return g_values.zeros_like().scatter_add(dim, indices, g_values) if g_values.shape else g_values


def _extreme(name: str, ufunc: Any) -> Op:
    return Op(name, with_indices, params=("dim",), outputs=("values", "indices"), cpu=extreme(ufunc), cuda=kernel(name),
              grad={"x": to_indices})  # fmt: skip


cummax, cummin = _extreme("cummax", np.maximum), _extreme("cummin", np.minimum)

# ---------------------------------------------------------------- median


def median_rule(x: Spec, *, dim: int, keepdim: bool, pass_nan: bool) -> tuple[Spec, Spec]:
    """Rule: a value and an index along `dim`."""
    kept = reduced_nonempty(x, dim=(dim,) if x.shape else (), keepdim=keepdim)
    return kept, Spec(kept.shape, INT64)


def median_places(x: Any, pass_nan: bool) -> Any:
    """Along the last dimension (kept with size 1): where the lower median is, or the first NaN; `pass_nan` counts numbers only."""
    n = x.shape[-1]
    if x.dtype not in FLOATING:
        return place_of(x, (n - 1) // 2)
    numbers = (x == x).sum(-1, keepdims=True)  # noqa: PLR0124 - what is not NaN
    if (numbers == n).all():
        return place_of(x, (n - 1) // 2)
    order = order_of(x, -1, False)  # NaN comes last
    middle = (numbers - 1) // 2
    middle = np.maximum(middle, 0) if pass_nan else np.where(numbers < n, numbers, middle)
    return np.take_along_axis(order, middle, -1)


def median_cpu(x: Any, values: Any, indices: Any, *, dim: int, keepdim: bool, pass_nan: bool) -> None:
    if not x.ndim:
        values[...], indices[...] = x, 0
        return
    moved = np.moveaxis(x, dim, -1)
    found = median_places(moved, pass_nan)
    shape = values.shape
    indices[...] = np.moveaxis(found, -1, dim).reshape(shape)
    values[...] = np.moveaxis(np.take_along_axis(moved, found, -1), -1, dim).reshape(shape)


def median_gradient(g_values: Any, indices: Any, x_spec: Spec, dim: int, keepdim: bool) -> Any:
    """The gradient goes to the element that was picked."""
    return at_indices(g_values, indices, x_spec, dim, keepdim)


median = Op("median", median_rule, params=("dim", "keepdim", "pass_nan"), outputs=("values", "indices"), cpu=median_cpu,
            cuda=kernel("median"), grad={"x": median_gradient})  # fmt: skip


def median_of_all_rule(x: Spec, *, pass_nan: bool) -> Spec:
    """Rule: one value; NaN of nothing."""
    if not count(x.shape) and x.dtype not in FLOATING:
        raise ShapeError(f"the median of no integers has no value: shape {x.shape}")
    return Spec(reduced_shape(x.shape, tuple(range(len(x.shape))), False), x.dtype)


def median_of_all_cpu(x: Any, y: Any, *, pass_nan: bool) -> None:
    flat = x.reshape(-1)
    y[...] = flat[median_places(flat, pass_nan)][0] if flat.size else np.nan


median_of_all = Op("median_of_all", median_of_all_rule, params=("pass_nan",), cpu=median_of_all_cpu, cuda=kernel("median_of_all"),
                   grad={"x": lambda g, x, y: divided(g, (x == y) | (x.isnan() & y.isnan()), tuple(range(len(x.shape))))})  # fmt: skip
