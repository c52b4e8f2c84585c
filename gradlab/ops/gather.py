"""Rows that read and write along one dimension by an index tensor of the result's rank: gather, scatter and its reductions.

The index tensor may be smaller than the tensor it addresses; element i of it stands for the same place in all dimensions but `dim`.
Tensors have at least one dimension here. The CPU functions accept an output that is the first input itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.dtype import COMPLEX, FLOAT32, HALF, INT64
from gradlab.kernel import Kernel
from gradlab.op import Op
from gradlab.ops.indexing import add_flat, in_range
from gradlab.spec import ShapeError, Spec, cached_sizes, count, expect_shape

FEW = 1 << 12  # elements of an index of which what is found once is kept


def fits(name: str, big: tuple[int, ...], index: Spec, dim: int | None) -> None:
    """Raise ShapeError unless the index tensor fits into `big` in every dimension but `dim`."""
    if index.dtype != INT64:
        raise TypeError(f"the index is an int64 tensor, not {index.dtype}")
    if len(big) != len(index.shape):
        raise ShapeError(f"the index of shape {index.shape} needs as many dimensions as {name} of shape {big}")
    if 0 not in index.shape and any(i > s for d, (i, s) in enumerate(zip(index.shape, big, strict=True)) if d != dim):
        where = "" if dim is None else f" in the dimensions other than {dim}"
        raise ShapeError(f"the index of shape {index.shape} is larger than {name} of shape {big}{where}")


def addresses(name: str, shape: tuple[int, ...], index: Any, dim: int) -> Any:
    """For each element of the index its place in the flattened array of `shape`, as a flat array."""
    in_range(name, index, shape[dim], dim, shape, False)
    if index.size <= FEW:
        step, others = _others(shape, index.shape, dim)
        total = index * step if step != 1 else index
        return (total if others is None else total + others).reshape(-1)
    return _addresses(shape, index, dim)


@cached_sizes(64)
def _others(shape: tuple[int, ...], own: tuple[int, ...], dim: int) -> tuple[int, Any]:
    """What a place along `dim` counts for, and what the other dimensions add; None where that is nothing."""
    others = np.broadcast_to(_addresses(shape, np.zeros(own, INT64), dim).reshape(own), own)
    return count(shape[dim + 1 :]), others if others.any() else None


def _addresses(shape: tuple[int, ...], index: Any, dim: int) -> Any:
    step = 1
    total: Any = 0
    for d in range(len(shape) - 1, -1, -1):
        part = index if d == dim else np.arange(index.shape[d]).reshape(-1, *[1] * (len(shape) - 1 - d))
        if index.shape[d] > 1 or d == dim:
            total = total + (part * step if step != 1 else part)
        step *= shape[d]
    return total.reshape(-1)


def gather_rule(x: Spec, index: Spec, *, dim: int) -> Spec:
    """Rule: the index tensor's shape."""
    fits("the input", x.shape, index, dim)
    return Spec(index.shape, x.dtype)


def gather_cpu(x: Any, index: Any, y: Any, *, dim: int) -> None:
    if y.size:
        found = addresses("gather", x.shape, index, dim)
        np.take(x.reshape(-1), found, out=y.reshape(-1), mode="clip")


gather = Op("gather", gather_rule, params=("dim",), cpu=gather_cpu, cuda=Kernel("scatter.cu", "gather", "scatter"), exact=True,
            grad={"x": lambda g, index, x_spec, dim: gather_backward(g, index, shape=x_spec.shape, dim=dim)})  # fmt: skip


def add_at(name: str, y: Any, index: Any, src: Any, dim: int) -> None:
    """y[..., index, ...] += src; repeated places add up in the order of the index; half types in float32."""
    if not index.size:
        return
    places = addresses(name, y.shape, index, dim)
    direct = y.dtype not in HALF and y.flags.c_contiguous
    total = y.reshape(-1) if direct else y.astype(FLOAT32 if y.dtype in HALF else y.dtype, order="C").reshape(-1)
    values = (src if src.shape == index.shape else np.broadcast_to(src, index.shape)).reshape(-1)
    add_flat(total, places, values.astype(total.dtype, copy=False))
    if not direct:
        y[...] = total.reshape(y.shape)


def gather_backward_cpu(dy: Any, index: Any, y: Any, *, shape: tuple[int, ...], dim: int) -> None:
    y.fill(0)
    add_at("gather_backward", y, index, dy, dim)


def gather_backward_rule(dy: Spec, index: Spec, *, shape: tuple[int, ...], dim: int) -> Spec:
    """Rule: the shape that was gathered from; a gradient for each index."""
    fits("the input", shape, index, dim)
    expect_shape("the gradient", dy, index.shape)
    return Spec(shape, dy.dtype)


gather_backward: Op = Op("gather_backward", gather_backward_rule, params=("shape", "dim"), exact=True,
                     cpu=gather_backward_cpu, cuda=Kernel("scatter.cu", "gather_backward", "scatter"),
                     grad={"dy": lambda g, index, dim: gather(g, index, dim=dim)})  # fmt: skip


def scatter_rule(x: Spec, index: Spec, src: Spec, *, dim: int) -> Spec:
    """Rule: like x; `src` has the index tensor's shape, or is one value for all."""
    fits("the input", x.shape, index, dim)
    if src.shape not in (index.shape, ()):
        raise ShapeError(f"the source of shape {src.shape} has not the index tensor's shape {index.shape}")
    if src.dtype != x.dtype:
        raise TypeError(f"the source has dtype {src.dtype}, the input {x.dtype}; convert one of them")
    return x


def scatter_cpu(x: Any, index: Any, src: Any, y: Any, *, dim: int) -> None:
    places = addresses("scatter", x.shape, index, dim) if index.size else None
    if y is not x:
        np.copyto(y, x)
    if places is not None:
        values = src.reshape(-1) if src.shape == index.shape else src
        if y.flags.c_contiguous:
            y.reshape(-1)[places] = values
        else:
            y[np.unravel_index(places, y.shape)] = values


scatter: Op = Op("scatter", scatter_rule, params=("dim",), cpu=scatter_cpu, cuda=Kernel("scatter.cu", "scatter", "scatter"), exact=True,
             grad={"x": lambda g, index, dim: scatter(g, index, g.new_zeros(()), dim=dim),
                   "src": lambda g, index, dim: gather(g, index, dim=dim)})  # fmt: skip


def scatter_add_cpu(x: Any, index: Any, src: Any, y: Any, *, dim: int) -> None:
    if y is not x:
        np.copyto(y, x)
    add_at("scatter_add", y, index, src, dim)


scatter_add = Op("scatter_add", scatter_rule, params=("dim",), cpu=scatter_add_cpu, exact=True, autocast="widest",
                 cuda=Kernel("scatter.cu", "scatter_add", "scatter"),
                 grad={"x": lambda g: g, "src": lambda g, index, dim: gather(g, index, dim=dim)})  # fmt: skip

# ---------------------------------------------------------------- other reductions

UFUNCS = {"prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


def neutral(reduce: str, dtype: np.dtype[Any]) -> Any:
    """The value that changes nothing in the reduction."""
    if reduce == "prod":
        return 1
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if reduce == "amax" else np.iinfo(dtype).max
    return (reduce == "amin") if dtype.kind == "b" else -np.inf if reduce == "amax" else np.inf


def scatter_reduce_rule(x: Spec, index: Spec, src: Spec, *, dim: int, reduce: str, include_self: bool) -> Spec:
    """Rule: like x."""
    if reduce not in UFUNCS:
        raise ShapeError(f"reduce is one of {', '.join(UFUNCS)}, not {reduce!r}")
    if reduce != "prod" and x.dtype in COMPLEX:
        raise TypeError(f"{reduce} is not defined for complex numbers, which have no order; apply it to x.abs(), or to gl.view_as_real(x)")
    return scatter_rule(x, index, src, dim=dim)


def scatter_reduce_cpu(x: Any, index: Any, src: Any, y: Any, *, dim: int, reduce: str, include_self: bool) -> None:
    places = addresses("scatter_reduce", x.shape, index, dim) if index.size else None
    wide = FLOAT32 if x.dtype in HALF else x.dtype
    total = x.astype(wide, order="C").reshape(-1)
    if places is not None:
        if not include_self:
            total[places] = neutral(reduce, wide)
        UFUNCS[reduce].at(total, places, np.broadcast_to(src, index.shape).reshape(-1).astype(wide, copy=False))
    y[...] = total.reshape(y.shape)


def meets(a: Any, b: Any) -> Any:
    """Whether two values are the same; a NaN is the same as a NaN."""
    return (a == b) | (a.isnan() & b.isnan())


def extreme_gradients(g: Any, x: Any, index: Any, src: Any, y: Any, dim: int, include_self: bool) -> tuple[Any, Any]:
    """The gradient of a maximum or minimum, divided evenly among the values that attain it."""
    own = meets(x, y)
    if not include_self:
        written = scatter(own.zeros_like(), index, own.new_ones(()), dim=dim)
        own = own.logical_and(written.logical_not())
    hit = meets(src, gather(y, index, dim=dim))
    each = g / scatter_add(own.to(g.dtype), index, hit.to(g.dtype), dim=dim)
    return each.masked_fill(own.logical_not(), 0), gather(each, index, dim=dim).masked_fill(hit.logical_not(), 0)


def product_gradients(g: Any, x: Any, index: Any, src: Any, dim: int, include_self: bool) -> tuple[Any, Any]:
    """Each factor gets the product of the others: found from the product without zeros and the number of zeros.

    Where one other factor is 0 that product is this zero times the rest: 0, and for a second derivative the rest.
    """
    x0, s0 = x == 0, src == 0
    if not include_self:
        written = scatter(x0.zeros_like(), index, x0.new_ones(()), dim=dim)
        x, x0 = x.masked_fill(written, 1), x0.logical_and(written.logical_not())
    x1, s1 = x.masked_fill(x0, 1), src.masked_fill(s0, 1)
    top = g * scatter_reduce(x1, index, s1, dim=dim, reduce="prod", include_self=True)
    own_x, own_s = x0.to(g.dtype), s0.to(g.dtype)
    zero_x, zero_s = x.masked_fill(x0.logical_not(), 0), src.masked_fill(s0.logical_not(), 0)  # a zero's value is 0, its slope 1
    number, zero = scatter_add(own_x, index, own_s, dim=dim), scatter_add(zero_x, index, zero_s, dim=dim)

    def of_others(top: Any, factor: Any, number: Any, zero: Any) -> Any:
        rest = top / factor
        return rest.where(number == 0, (rest * zero).masked_fill(number != 1, 0))

    for_x = of_others(top, x1, number - own_x, zero - zero_x)
    for_src = of_others(gather(top, index, dim=dim), s1, gather(number, index, dim=dim) - own_s, gather(zero, index, dim=dim) - zero_s)
    return (for_x if include_self else for_x.masked_fill(written, 0)), for_src


def reduce_gradients(
    g: Any, x: Any, index: Any, src: Any, y: Any, dim: int, reduce: str, include_self: bool
) -> tuple[Any, Any]:
    """The gradients of `x` and `src`."""
    if reduce == "prod":
        return product_gradients(g, x, index, src, dim, include_self)
    return extreme_gradients(g, x, index, src, y, dim, include_self)


scatter_reduce = Op("scatter_reduce", scatter_reduce_rule, params=("dim", "reduce", "include_self"), cpu=scatter_reduce_cpu, exact=True,
                    cuda=Kernel("scatter.cu", "scatter_reduce", "scatter"),
                    grad={("x", "src"): reduce_gradients})  # fmt: skip
