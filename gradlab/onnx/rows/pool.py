"""Pooling: maxima with their indices, averages, their gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradlab.dtype import FLOAT32, FLOAT64, INT64
from gradlab.onnx.emitter import Emitter, Unsupported, Wire, is_dynamic, same_shape
from gradlab.onnx.registry import exports
from gradlab.onnx.rows.movement import filled
from gradlab.ops.pool_cpu import adaptive_edges
from gradlab.spec import count

Sizes = tuple[int, ...]


def padable(e: Emitter, x: Wire) -> Wire:
    """In a dtype that ONNX Runtime's Pad takes."""
    return e.cast(x, {"int16": np.dtype(np.int32), "bfloat16": FLOAT32}.get(x.dtype.name, x.dtype))


def padded(e: Emitter, x: Wire, before: Any, after: Any, value: float) -> Wire:
    """The spatial dimensions with borders."""
    wide = padable(e, x)
    found: Wire = e("Pad", wide, e.ints([0, 0, *before, 0, 0, *after]), e.number(value, wide.dtype))
    return found


def whole_windows(x: Wire, outputs: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes) -> list[Any]:
    """Behind each dimension as many elements as make the last window whole: then rounding up or down is no question."""
    sizes = (x.shape or ())[2:]
    geometry = zip(sizes, outputs, kernel, stride, padding, dilation)
    return [(n - 1) * s + d * (k - 1) + 1 - size - p for size, n, k, s, p, d in geometry]


def whole(sizes: Sizes, kernel: Sizes, padding: Sizes) -> bool:
    """Whether one window is the whole plane."""
    return same_shape(sizes, kernel) and not any(padding)


# ---------------------------------------------------------------- maxima


@exports("max_pool")
def max_pool(
    e: Emitter, x: Wire, *, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> Any:
    """MaxPool; its indices count over the whole tensor, ours within one plane."""
    sizes = (x.shape or ())[2:]
    after: list[Any] = list(padding)
    if x.dtype.kind != "f":
        x = shaped(e.cast(x, FLOAT64), x.shape)
    if whole(sizes, kernel, padding) and any(map(is_dynamic, sizes)):
        flat = e.reshape(x, (*(x.shape or ())[:2], count(sizes)))
        values, places = e.reduce("ReduceMax", flat, (2,), False), e("ArgMax", flat, axis=2, keepdims=0)
        return tuple(e.unsqueeze(v, *range(2, 2 + len(sizes))) for v in (values, places))
    rounding = {}
    if ceil_mode and any(map(is_dynamic, sizes)) and not any(padding):  # then no window can start beyond the end, if stride is not larger
        if any(s > d * (k - 1) + 1 for k, s, d in zip(kernel, stride, dilation)):
            raise Unsupported("ceil_mode over dynamic sizes with a stride larger than the kernel: the number of windows is not known")
        ceil_mode, rounding = False, {"ceil_mode": 1}
    if ceil_mode:
        after = whole_windows(x, e.outputs[0].shape[2:], kernel, stride, padding, dilation)
        if any(map(is_dynamic, after)):
            raise Unsupported("ceil_mode over dynamic sizes: how far the last window reaches is not known")
        after = [max(a, 0) for a in after]
    geometry: dict[str, Any] = {"kernel_shape": list(kernel), "strides": list(stride), "dilations": list(dilation), **rounding}
    if all(p < k for p, k in zip((*padding, *after), (*kernel, *kernel))):
        values, places = e("MaxPool", x, outputs=2, pads=[*padding, *after], **geometry)
        places.dtype = INT64
        return values, e("Mod", places, e.number(count(sizes), INT64))
    wide = tuple(s + p + a for s, p, a in zip(sizes, padding, after))
    values, places = e("MaxPool", padded(e, x, padding, after, -math.inf), outputs=2, **geometry)
    places.dtype = INT64
    return values, without_borders(e, e("Mod", places, e.number(count(wide), INT64)), wide, sizes, padding)


def shaped(x: Wire, shape: Any) -> Wire:
    """A wire whose shape is known."""
    x.shape = shape
    return x


def without_borders(e: Emitter, places: Any, wide: Sizes, sizes: Sizes, padding: Sizes) -> Any:
    """Places in a padded plane as places in the plane itself."""
    found: Any = None
    for i, (size, p) in enumerate(zip(sizes, padding)):
        step = count(wide[i + 1 :])
        at = e("Mod", e("Div", places, e.number(step, INT64)), e.number(wide[i], INT64)) - p
        found = at if found is None else found * e.number(size, INT64) + at
    return found


@exports("adaptive_max_pool")
def adaptive_max_pool(e: Emitter, x: Wire, *, size: Sizes) -> Any:
    """Equal cells: MaxPool. Else each cell's elements are gathered, short cells repeating their first, and the first maximum is found."""
    sizes = (x.shape or ())[2:]
    if any(map(is_dynamic, (*sizes, *size))):
        raise Unsupported("adaptive pooling to maxima over dynamic sizes: the cells differ from size to size")
    if 0 in e.outputs[0].shape:
        return filled(e, 0, e.outputs[0].shape, x.dtype), filled(e, 0, e.outputs[0].shape, INT64)
    if all(s % o == 0 for s, o in zip(sizes, size)):
        kernel = tuple(s // o for s, o in zip(sizes, size))
        none = (0,) * len(size)
        return max_pool(e, x, kernel=kernel, stride=kernel, padding=none, dilation=(1,) * len(size), ceil_mode=False)
    cells = cell_places(sizes, size)  # (outputs, elements)
    flat = e.reshape(x, (*(x.shape or ())[:2], count(sizes)))
    found = e("Gather", flat, e.constant(cells, INT64), axis=2)  # (N, C, outputs, elements)
    first = e("ArgMax", found, axis=3, keepdims=1)
    values = e.reshape(e.reduce("ReduceMax", found, (3,), False), e.outputs[0].shape)
    wide = e.expand(e.constant(cells, INT64), (*(x.shape or ())[:2], *cells.shape))
    return values, e.reshape(e("GatherElements", wide, first, axis=3), e.outputs[0].shape)


def cell_places(sizes: Sizes, size: Sizes) -> Any:
    """Of each output the places of its cell's elements in the plane."""
    edges = [adaptive_edges(s, o) for s, o in zip(sizes, size)]
    plane = np.arange(count(sizes)).reshape(sizes)
    cells = [plane[tuple(slice(*e[i]) for e, i in zip(edges, at))].reshape(-1) for at in np.ndindex(*size)]
    most = max(len(c) for c in cells)
    return np.stack([np.concatenate([c, np.full(most - len(c), c[0])]) for c in cells])


# ---------------------------------------------------------------- by indices


def in_planes(e: Emitter, x: Wire, indices: Wire, shape: Sizes, reduction: str) -> Wire:
    """Elements written into planes of zeros."""
    lead, plane, many = shape[:2], count(shape[2:]), count((indices.shape or ())[2:])
    zeros = filled(e, 0, (*lead, plane), x.dtype)
    found = e("ScatterElements", zeros, e.reshape(indices, (*lead, many)), e.reshape(x, (*lead, many)), axis=2, reduction=reduction)
    return e.reshape(found, shape)


@exports("max_pool_backward")
def max_pool_backward(e: Emitter, dy: Wire, indices: Wire, *, shape: Sizes, overlap: bool) -> Any:
    """Added to zeros at the indices."""
    return in_planes(e, dy, indices, shape, "add" if overlap else "none")


@exports("max_unpool", wide=False)
def max_unpool(e: Emitter, x: Wire, indices: Wire, *, shape: Sizes) -> Any:
    """Written into zeros at the indices."""
    return in_planes(e, x, indices, shape, "none")


@exports("max_pool_gather", wide=False)
def max_pool_gather(e: Emitter, x: Wire, indices: Wire) -> Any:
    """Read at the indices."""
    shape, at = x.shape or (), indices.shape or ()
    flat = e.reshape(x, (*shape[:2], count(shape[2:])))
    return e.reshape(e("GatherElements", flat, e.reshape(indices, (*at[:2], count(at[2:]))), axis=2), at)


# ---------------------------------------------------------------- averages


def window_sizes(e: Emitter, x: Wire, padding: Sizes, after: Any, geometry: dict[str, Any], include: bool) -> Any:
    """How many elements each window counts, as a share of the kernel's; at least one. (1, 1, outputs)"""
    sizes = (x.shape or ())[2:]
    ones = filled(e, 1.0, (1, 1, *sizes), x.dtype)
    if include:
        ones = padded(e, ones, padding, padding, 1.0)
        wide = padded(e, ones, (0,) * len(padding), [a - p for a, p in zip(after, padding)], 0.0)
    else:
        wide = padded(e, ones, padding, after, 0.0)
    return e("Max", e("AveragePool", wide, **geometry), 1 / count(geometry["kernel_shape"]))


@exports("avg_pool")
def avg_pool(
    e: Emitter, x: Wire, *, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool, include: bool, divisor: int | None
) -> Any:
    """AveragePool. Where windows reach beyond the borders that count, or `divisor` replaces their size: the mean over whole windows of a
    padded tensor, corrected by each window's own number of elements."""
    if whole((x.shape or ())[2:], kernel, padding) and divisor is None and all(n == 1 for n in e.outputs[0].shape[2:]):
        return e.reduce("ReduceMean", x, tuple(range(2, x.rank)), True)
    geometry: dict[str, Any] = {"kernel_shape": list(kernel), "strides": list(stride)}
    simple = all(p < k for p, k in zip(padding, kernel))
    if not ceil_mode and simple and (divisor is None or not any(padding)):
        y = e("AveragePool", x, pads=[*padding, *padding], count_include_pad=int(include), **geometry)
        return y if divisor is None else y * (count(kernel) / divisor)
    after = whole_windows(x, e.outputs[0].shape[2:], kernel, stride, padding, (1,) * len(kernel))
    if any(map(is_dynamic, after)):
        raise Unsupported("ceil_mode over dynamic sizes: how far the last window reaches is not known")
    after = [max(a, 0) for a in after]
    if include and ceil_mode:
        after = [max(a, p) for a, p in zip(after, padding)]
    mean = e("AveragePool", padded(e, x, padding, after, 0.0), **geometry)
    wanted = e.outputs[0].shape[2:]
    if divisor is not None:
        return trimmed(e, mean * (count(kernel) / divisor), wanted)
    return trimmed(e, mean / window_sizes(e, x, padding, after, geometry, include), wanted)


def trimmed(e: Emitter, y: Any, sizes: Sizes) -> Any:
    """Without windows beyond those that are wanted."""
    for d, size in enumerate(sizes):
        y = e.cut(y, 0, size, d + 2)
    return y


@exports("avg_pool_backward")
def avg_pool_backward(
    e: Emitter, dy: Wire, *, shape: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool, include: bool, divisor: int | None
) -> Any:
    """Each output's share, spread over its window: a transposed convolution with ones, one for each plane."""
    outputs = (dy.shape or ())[2:]
    if any(map(is_dynamic, (*shape[1:], *outputs))):
        raise Unsupported("the gradient of an average pooling over dynamic sizes")
    after = [max(a, 0) for a in whole_windows(shaped(Wire("", dy.dtype, e), shape), outputs, kernel, stride, padding, (1,) * len(kernel))]
    geometry: dict[str, Any] = {"kernel_shape": list(kernel), "strides": list(stride)}
    if divisor is not None:
        share: Any = dy * (1 / divisor)
    else:
        like = shaped(Wire("", dy.dtype, e), shape)
        if include:
            after = [max(a, p) for a, p in zip(after, padding)]
        share = dy / (trimmed(e, window_sizes(e, like, padding, after, geometry, include), outputs) * float(count(kernel)))
    planes = e.reshape(shaped(share, dy.shape), (-1 if is_dynamic(shape[0]) else shape[0] * shape[1], 1, *outputs))
    spread = e("ConvTranspose", planes, filled(e, 1.0, (1, 1, *kernel), dy.dtype), strides=list(stride), kernel_shape=list(kernel))
    for d, (size, p) in enumerate(zip(shape[2:], padding)):
        reach = (outputs[d] - 1) * stride[d] + kernel[d]
        if reach < p + size:
            nothing = [0] * len(outputs)
            after = [p + size - reach if i == d else 0 for i in range(len(outputs))]
            spread = padded(e, spread, nothing, after, 0)
        spread = e.cut(spread, p, p + size, d + 2)
    spread.shape = None
    return e.reshape(spread, shape)


