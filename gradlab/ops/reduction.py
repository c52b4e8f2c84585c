"""Reductions over dimensions: `dim` is a normalised tuple, `keepdim` a bool."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradlab.dtype import BOOL, FLOAT32, FLOATING, HALF, INT64
from gradlab.kernel import Elementwise, Kernel, Reduction
from gradlab.op import Op
from gradlab.spec import ShapeError, Spec, broadcast, count, reduced_shape

# As values of type Any: NumPy's stubs know `out` and `keepdims` only as keywords, which cost 0.2 µs more.
_add_reduce: Any = np.add.reduce
_maximum_reduce: Any = np.maximum.reduce
_minimum_reduce: Any = np.minimum.reduce


def reduced(x: Spec, *, dim: tuple[int, ...], keepdim: bool) -> Spec:
    """Rule: the sizes of `dim` go (or become 1)."""
    return Spec(reduced_shape(x.shape, dim, keepdim), x.dtype)


def reduced_nonempty(x: Spec, *, dim: tuple[int, ...], keepdim: bool) -> Spec:
    """Rule: as `reduced`, for reductions that have no value for nothing."""
    if any(x.shape[d] == 0 for d in dim):
        raise ShapeError(f"a reduction over no elements has no value: shape {x.shape}, dim {dim}")
    return reduced(x, dim=dim, keepdim=keepdim)


def spread(g: Any, x_spec: Spec, dim: tuple[int, ...], keepdim: bool) -> Any:
    """A reduced gradient, laid out over the shape before the reduction."""
    if not keepdim and len(dim) < len(x_spec.shape):
        g = g.reshape(reduced_shape(x_spec.shape, dim, True))
    return g.expand(x_spec.shape)


def share(g: Any, x: Any, y: Any, dim: tuple[int, ...], keepdim: bool) -> Any:
    """The gradient of a maximum or minimum: divided evenly among the elements that attain it, a NaN by those that are NaN."""
    if not keepdim and dim:
        kept = reduced_shape(x.shape, dim, True)
        g, y = g.reshape(kept), y.reshape(kept)
    return divided(g, (x == y) | x.isnan(), dim)


def divided(g: Any, hit: Any, dim: tuple[int, ...]) -> Any:
    """A gradient divided evenly among the elements that are marked."""
    return (g / hit.sum(dim, keepdim=True).to(g.dtype)).where(hit, 0)


def least(x: Any) -> float:
    """The smallest of an array's numbers, inf of none, NaN where one is. By methods, which cost half as much as a ufunc's `reduce`."""
    return x.item(x.argmin()) if x.size else math.inf


def most(x: Any) -> float:
    """The largest, likewise."""
    return x.item(x.argmax()) if x.size else -math.inf


def has_zero(x: Any) -> bool:
    """Whether one of an array's numbers is 0. Of few Python finds it in a third of the time."""
    return 0 in x.ravel().tolist() if x.size <= 32 else not x.all()


def sum_cpu(x: Any, y: Any, *, dim: tuple[int, ...], keepdim: bool) -> None:
    """NumPy adds pairwise only along the last, contiguous axis; over others a long sum of float32 is taken in float64."""
    across = x.size > 128 and dim and x.dtype == FLOAT32 and (dim[-1] != x.ndim - 1 or x.strides[-1] != 4)
    if across and count([x.shape[d] for d in dim]) > 128:
        np.copyto(y, _add_reduce(x, axis=dim, dtype=np.float64, keepdims=keepdim))
    else:
        _add_reduce(x, dim, None, y, keepdim)


def total_along(x: Any, dim: int) -> Any:
    """Sums along one dimension, which is kept, as `sum_cpu` takes them."""
    if dim >= x.ndim - 1:  # a number has dimension 0 too
        return _add_reduce(x, dim, None, None, True)
    total = np.empty((*x.shape[:dim], 1, *x.shape[dim + 1 :]), x.dtype)
    sum_cpu(x, total, dim=(dim,), keepdim=True)
    return total


sum_ = Op("sum", reduced, params=("dim", "keepdim"), cpu=sum_cpu, cuda=Reduction("x", "a + b", "T(0)"), autocast="float32",
         grad={"x": lambda g, x_spec, dim, keepdim: spread(g, x_spec, dim, keepdim)})  # fmt: skip


def mean_cpu(x: Any, y: Any, *, dim: tuple[int, ...], keepdim: bool) -> None:
    sum_cpu(x, y, dim=dim, keepdim=keepdim)
    np.true_divide(y, count([x.shape[d] for d in dim]), y)


mean = Op("mean", reduced, params=("dim", "keepdim"), cpu=mean_cpu, cuda=Reduction("x", "a + b", "T(0)", "a / T(n)"),
          grad={"x": lambda g, x_spec, dim, keepdim:
                spread(g, x_spec, dim, keepdim) / (count([x_spec.shape[d] for d in dim]) or 1)})  # fmt: skip
amax = Op("amax", reduced_nonempty, params=("dim", "keepdim"), exact=True,
          cpu=lambda x, y, *, dim, keepdim: _maximum_reduce(x, dim, None, y, keepdim),
          cuda=Reduction("x", "maximum(a, b)", "lowest<T>()"),
          grad={"x": lambda g, x, y, dim, keepdim: share(g, x, y, dim, keepdim)})  # fmt: skip
amin = Op("amin", reduced_nonempty, params=("dim", "keepdim"), exact=True,
          cpu=lambda x, y, *, dim, keepdim: _minimum_reduce(x, dim, None, y, keepdim),
          cuda=Reduction("x", "minimum(a, b)", "highest<T>()"),
          grad={"x": lambda g, x, y, dim, keepdim: share(g, x, y, dim, keepdim)})  # fmt: skip


MOST = {dtype: float(np.finfo(dtype).max) for dtype in FLOATING if dtype not in HALF}


def about_mean_rule(squares: Spec, rest: Spec, *, n: int, divisor: float) -> Spec:
    """Rule: two inputs of one dtype, broadcast."""
    return broadcast(squares, rest)


def about_mean_cpu(squares: Any, rest: Any, y: Any, *, n: int, divisor: float = 1) -> None:
    np.multiply(rest, 1 / n if n else np.nan, y)
    np.multiply(rest, y, y)
    np.minimum(y, MOST[y.dtype], out=y)  # infinite squares stay
    np.subtract(squares, y, y)
    np.maximum(y, 0, out=y)
    if divisor != 1:
        np.true_divide(y, divisor, y)


# The mean of squared distances from the mean, with `divisor` in place of n, from the sum of the squares of `n` distances from a number near
# it (a rounded mean), and their sum, `rest`: Σ(x - m)² - (Σ(x - m))² / n (Chan, Golub and LeVeque, "Algorithms for computing the sample
# variance", 1983). Never below 0.
about_mean = Op("about_mean", about_mean_rule, params=("n", "divisor"), cpu=about_mean_cpu, promote="float",
                cuda=Elementwise("(isfinite(squares) ? maximum(squares - rest * (rest / T(n)), T(0)) : squares) / T(divisor)"),
                grad={"squares": lambda g, divisor: g / divisor,
                      "rest": lambda g, rest, n, divisor: g * rest * (-2 / n) / divisor})  # fmt: skip


def var_rule(x: Spec, *, dim: tuple[int, ...], keepdim: bool, divisor: float) -> Spec:
    """Rule: as `reduced`."""
    return reduced(x, dim=dim, keepdim=keepdim)


def var_cpu(x: Any, y: Any, *, dim: tuple[int, ...], keepdim: bool, divisor: float) -> None:
    if len(dim) == x.ndim and divisor and x.size:  # a number: Python's arithmetic is quicker
        x, n = x.reshape(-1), x.size
        centred = x - _add_reduce(x) / x.dtype.type(n)
        rest = float(_add_reduce(centred))
        squares = float(_add_reduce(np.multiply(centred, centred, centred)))
        y.fill((squares if squares == math.inf else max(squares - rest * (rest / n), 0 * squares)) / divisor)
        return
    n, kept = count([x.shape[d] for d in dim]), reduced_shape(x.shape, dim, True)
    rest, squares = np.empty((2, *kept), x.dtype)
    mean_cpu(x, rest, dim=dim, keepdim=True)
    centred = np.subtract(x, rest)
    sum_cpu(centred, rest, dim=dim, keepdim=True)
    np.multiply(centred, centred, centred)
    sum_cpu(centred, squares, dim=dim, keepdim=True)
    about_mean_cpu(squares, rest, y.reshape(kept), n=n, divisor=divisor)


# The variance of arrays on the CPU in one row. Elsewhere, and in graphs, it is made of the rows above, which fuse with their neighbours.
var = Op("var", var_rule, params=("dim", "keepdim", "divisor"), cpu=var_cpu, autocast="float32",
         grad={"x": lambda g, x, x_spec, dim, keepdim, divisor:
               (x - x.mean(dim, keepdim=True)) * spread(g * 2 / divisor, x_spec, dim, keepdim)})  # fmt: skip


def euclidean_cpu(x: Any, y: Any, *, dim: tuple[int, ...], keepdim: bool) -> None:
    """√Σ x². Where squares leave the range of the dtype they are taken in float64, or relative to the largest."""
    sum_cpu(np.multiply(x, x), y, dim=dim, keepdim=keepdim)
    np.sqrt(y, y)
    if not (x.size and y.size) or (SQUARES[y.dtype] < _minimum_reduce(y, None) and _maximum_reduce(y, None) < np.inf):
        return
    if x.dtype == FLOAT32:
        wide = x.astype(np.float64)
        np.copyto(y, np.sqrt(_add_reduce(np.multiply(wide, wide, wide), dim, None, None, keepdim)), casting="same_kind")
    else:
        top = _maximum_reduce(np.abs(x), dim, None, None, True)
        np.copyto(top, 1, where=(top == 0) | ~np.isfinite(top))
        np.sqrt(_add_reduce(np.square(x / top), dim, None, None, keepdim), y)
        y *= top.reshape(y.shape)


# A norm above this lost no digits to squares that are too small for the dtype.
SQUARES = {dtype: float(np.sqrt(np.finfo(dtype).tiny / np.finfo(dtype).eps)) for dtype in MOST}
# The Euclidean norm of arrays in one row; in graphs it is made of others, which fuse with their neighbours. Its gradient at 0 is 0.
euclidean = Op("euclidean", reduced, params=("dim", "keepdim"), cpu=euclidean_cpu, autocast="float32",
               cuda=Reduction("x * T(x)", "a + b", "T(0)", "sqrt(a)", wide=True),
               grad={"x": lambda g, x, y, x_spec, dim, keepdim:
                     spread(g, x_spec, dim, keepdim) * (x / spread(y.masked_fill(y == 0, 1), x_spec, dim, keepdim))})  # fmt: skip


def truth(x: Spec, *, dim: tuple[int, ...], keepdim: bool) -> Spec:
    """Rule: a truth value for each reduced group."""
    return Spec(reduced_shape(x.shape, dim, keepdim), BOOL)


all_ = Op("all", truth, params=("dim", "keepdim"), exact=True, cuda=Reduction("bool(x)", "a && b", "true"),
         cpu=lambda x, y, *, dim, keepdim: np.logical_and.reduce(x, axis=dim, out=y, keepdims=keepdim))  # fmt: skip
any_ = Op("any", truth, params=("dim", "keepdim"), exact=True, cuda=Reduction("bool(x)", "a || b", "false"),
         cpu=lambda x, y, *, dim, keepdim: np.logical_or.reduce(x, axis=dim, out=y, keepdims=keepdim))  # fmt: skip

# ---------------------------------------------------------------- with indices, over one dimension


def position_rule(x: Spec, *, dim: int, keepdim: bool) -> Spec:
    """Rule: the index of one element along `dim`."""
    return Spec(reduced_nonempty(x, dim=(dim,) if x.shape else (), keepdim=keepdim).shape, INT64)


def extreme_rule(x: Spec, *, dim: int, keepdim: bool) -> tuple[Spec, Spec]:
    """Rule: the extreme value along `dim` and its index."""
    kept = reduced_nonempty(x, dim=(dim,) if x.shape else (), keepdim=keepdim)
    return kept, Spec(kept.shape, INT64)


def position_cpu(find: Any) -> Any:
    """argmax or argmin: the first extreme element; NaN counts as extreme."""

    def cpu(x: Any, y: Any, *, dim: int, keepdim: bool) -> None:
        if not x.ndim:
            y[...] = 0
        else:
            find(x, dim, y, keepdims=keepdim)

    return cpu


def extreme_cpu(reduce: Any, find: Any) -> Any:
    """The extreme value, and the position that `find` gives."""

    def cpu(x: Any, values: Any, indices: Any, *, dim: int, keepdim: bool) -> None:
        if not x.ndim:
            values[...], indices[...] = x, 0
            return
        reduce(x, dim, None, values, keepdim)
        find(x, dim, indices, keepdims=keepdim)

    return cpu


def at_indices(g: Any, indices: Any, x_spec: Spec, dim: int, keepdim: bool) -> Any:
    """The gradient goes to the elements that were picked along `dim`."""
    if not x_spec.shape:
        return g
    if not keepdim:
        g, indices = g.unsqueeze(dim), indices.unsqueeze(dim)
    return g.new_zeros(x_spec.shape, dtype=g.dtype).scatter_add(dim, indices, g)


argmax = Op("argmax", position_rule, params=("dim", "keepdim"), exact=True, cpu=position_cpu(np.ndarray.argmax),
            cuda=Kernel("reduce.cu", "argmax", "reduce"))  # fmt: skip
argmin = Op("argmin", position_rule, params=("dim", "keepdim"), exact=True, cpu=position_cpu(np.ndarray.argmin),
            cuda=Kernel("reduce.cu", "argmin", "reduce"))  # fmt: skip
max_ = Op("max", extreme_rule, params=("dim", "keepdim"), outputs=("values", "indices"), exact=True,
         cpu=extreme_cpu(np.maximum.reduce, np.ndarray.argmax),
         cuda=Kernel("reduce.cu", "max", "reduce"),
         grad={"x": lambda g_values, indices, x_spec, dim, keepdim: at_indices(g_values, indices, x_spec, dim, keepdim)})  # fmt: skip
min_ = Op("min", extreme_rule, params=("dim", "keepdim"), outputs=("values", "indices"), exact=True,
         cpu=extreme_cpu(np.minimum.reduce, np.ndarray.argmin),
         cuda=Kernel("reduce.cu", "min", "reduce"),
         grad={"x": lambda g_values, indices, x_spec, dim, keepdim: at_indices(g_values, indices, x_spec, dim, keepdim)})  # fmt: skip
