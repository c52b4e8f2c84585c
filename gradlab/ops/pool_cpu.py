"""The NumPy side of pooling: x (N, C, *sizes), any number of spatial dimensions. Windows are compared or added place by place."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gradlab.ops.conv_cpu import strided_part
from gradlab.spec import cached_sizes, count

Sizes = tuple[int, ...]


def lowest(dtype: np.dtype[Any]) -> Any:
    """What loses against every number of this dtype."""
    return dtype.type(-np.inf) if dtype.kind == "f" else np.iinfo(dtype).min


def reach(kernel: Sizes, stride: Sizes, dilation: Sizes, outputs: Sizes) -> Sizes:
    """How far all windows together reach."""
    return tuple(s * (n - 1) + d * (k - 1) + 1 for k, s, d, n in zip(kernel, stride, dilation, outputs, strict=True))


def padded(x: Any, padding: Sizes, wide: Sizes, value: Any) -> Any:
    """x with `value` around it, at least as large as `wide`; x itself where nothing is added."""
    sizes = x.shape[2:]
    shape = tuple(max(s + p, w) for s, p, w in zip(sizes, padding, wide, strict=True))
    if shape == sizes:
        return x
    out: Any = np.full((*x.shape[:2], *shape), value, x.dtype)
    out[(..., *(slice(p, p + s) for p, s in zip(padding, sizes, strict=True)))] = x
    return out


# ---------------------------------------------------------------- maximum


class MaxWindows(NamedTuple):
    """The geometry of a max pooling: where each kernel place starts and what part of the padded input it meets; how far all windows
    reach; the places within a window, and the windows' corners, as numbers of the flattened plane."""

    starts: list[list[int]]
    parts: list[tuple[Any, ...]]
    reach: Sizes
    within: Any
    corner: Any


@cached_sizes(256)
def max_windows(sizes: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, outputs: Sizes) -> MaxWindows:
    """The geometry of a max pooling over planes of these sizes."""
    starts = [[i * d for i, d in zip(place, dilation, strict=True)] for place in np.ndindex(*kernel)]
    parts = [
        (..., *(slice(b, b + s * (n - 1) + 1, s) for b, s, n in zip(start, stride, outputs, strict=True))) for start in starts
    ]
    steps = [count(sizes[dim + 1 :]) for dim in range(len(sizes))]
    within = np.array([sum(s * step for s, step in zip(start, steps, strict=True)) for start in starts], np.int64)
    corner: Any = 0
    for dim, step in enumerate(steps):
        along = (np.arange(outputs[dim], dtype=np.int64) * stride[dim] - padding[dim]) * step
        corner = corner + along.reshape(-1, *(1,) * (len(sizes) - 1 - dim))
    return MaxWindows(starts, parts, reach(kernel, stride, dilation, outputs), within, corner)


def max_pool_cpu(
    x: Any, values: Any, indices: Any, *, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> None:
    """The first largest element of each window and its place in the flattened plane. A NaN wins."""
    outputs = values.shape[2:]
    if not values.size:
        return
    plan = max_windows(x.shape[2:], kernel, stride, padding, dilation, outputs)
    source = padded(x, padding, plan.reach, lowest(x.dtype))
    starts = plan.starts
    small = np.uint8 if len(starts) <= 256 else np.int32
    winner = np.zeros(values.shape, small)
    np.copyto(values, source[plan.parts[0]])
    better, number = np.empty(values.shape, bool), np.empty(values.shape, small)
    for i, part in enumerate(plan.parts[1:], 1):
        candidate = source[part]
        np.greater(candidate, values, better)
        np.maximum(values, candidate, out=values)
        np.multiply(better, small(i), number)
        np.maximum(winner, number, out=winner)
    if x.dtype.kind == "f" and np.isnan(values.max()):
        _find_nans(source, values, winner, starts, stride)
    if any(padding) and (values == lowest(x.dtype)).any():
        _avoid_padding(x.shape[2:], values, winner, starts, stride, padding)
    # The place of the window's corner in the plane, plus that of the winner within the window.
    np.take(plan.within, winner, out=indices, mode="clip")
    indices += plan.corner


def _find_nans(source: Any, values: Any, winner: Any, starts: list[list[int]], stride: Sizes) -> None:
    """Where the result is NaN, the first NaN of the window is the winner."""
    for i in reversed(range(len(starts))):
        winner[np.isnan(strided_part(source, starts[i], stride, values.shape[2:]))] = i


def _avoid_padding(sizes: Sizes, values: Any, winner: Any, starts: list[list[int]], stride: Sizes, padding: Sizes) -> None:
    """A window that holds only the lowest number: its first place that is not padding wins."""
    first: Any = np.zeros(values.shape[2:], winner.dtype)
    for i in reversed(range(len(starts))):
        inside: Any = True
        for dim, (size, start, s, p) in enumerate(zip(sizes, starts[i], stride, padding, strict=True)):
            at = np.arange(values.shape[2 + dim]) * s + start - p
            inside = inside & ((at >= 0) & (at < size)).reshape(-1, *(1,) * (len(sizes) - 1 - dim))
        first[inside] = i
    np.copyto(winner, first, where=values == lowest(values.dtype))


def flat_indices(indices: Any, plane: int) -> Any:
    """Indices within planes as indices into the whole flattened array. Raises RuntimeError for one outside the plane."""
    if indices.size and not (0 <= indices.min() and indices.max() < plane):
        raise RuntimeError(f"indices must lie within a plane of {plane} elements, found {indices.min()} to {indices.max()}")
    planes = count(indices.shape[:2])
    return indices.reshape(planes, -1) + np.arange(planes, dtype=np.int64)[:, None] * plane


def max_pool_backward_cpu(dy: Any, indices: Any, y: Any, *, shape: Sizes, overlap: bool) -> None:
    """dy added at its indices; without overlap no index occurs twice and a plain assignment does."""
    if overlap and y.size:
        where = flat_indices(indices, count(shape[2:])).ravel()
        y[...] = np.bincount(where, dy.ravel(), minlength=y.size).reshape(shape)
    else:
        max_unpool_cpu(dy, indices, y, shape=shape)


def max_unpool_cpu(x: Any, indices: Any, y: Any, *, shape: Sizes) -> None:
    y.fill(0)
    if y.size:
        y.reshape(-1)[flat_indices(indices, count(shape[2:])).ravel()] = x.ravel()


def max_pool_gather_cpu(x: Any, indices: Any, y: Any) -> None:
    if y.size:
        np.take(x.reshape(-1), flat_indices(indices, count(x.shape[2:])).reshape(y.shape), out=y, mode="clip")


def adaptive_edges(size: int, out: int) -> list[tuple[int, int]]:
    """The input range of each output of an adaptive pooling."""
    return [(i * size // out, -((i + 1) * size // -out)) for i in range(out)]


def adaptive_max_pool_cpu(x: Any, values: Any, indices: Any, *, size: Sizes) -> None:
    """The first largest element of each cell and its place in the flattened plane: along the last dimension, then along the one before."""
    if not values.size:
        return
    best, places = x, np.broadcast_to(np.arange(count(x.shape[2:]), dtype=indices.dtype).reshape(x.shape[2:]), x.shape)
    for axis in range(x.ndim - 1, 1, -1):
        found: list[tuple[Any, Any]] = []
        for first, last in adaptive_edges(x.shape[axis], size[axis - 2]):
            cut = (slice(None),) * axis + (slice(first, last),)
            where = best[cut].argmax(axis, keepdims=True)
            found.append((np.take_along_axis(best[cut], where, axis), np.take_along_axis(places[cut], where, axis)))
        best, places = (np.concatenate(parts, axis) for parts in zip(*found, strict=True))
    values[...], indices[...] = best, places


# ---------------------------------------------------------------- average


@cached_sizes(256)
def divisors(
    sizes: Sizes, outputs: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, include: bool, divisor: int | None
) -> Any:
    """The number of elements that each window is divided by: a number, or an array of the outputs' shape."""
    if divisor is not None:
        return divisor
    total: Any = 1
    for dim, (size, n, k, s, p) in enumerate(zip(sizes, outputs, kernel, stride, padding, strict=True)):
        start = np.arange(n) * s - p
        if include:
            number = np.minimum(start + k, size + p) - start
        else:
            number = np.minimum(start + k, size) - np.maximum(start, 0)
        total = total * np.maximum(number, 1).reshape(-1, *(1,) * (len(sizes) - 1 - dim))
    first = total.flat[0]
    return int(first) if (total == first).all() else total


def _along(rank: int, dim: int, part: slice) -> tuple[Any, ...]:
    """An index of one spatial dimension."""
    return (..., part, *(slice(None),) * (rank - 1 - dim))


def avg_pool_cpu(
    x: Any, y: Any, *, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool, include: bool, divisor: int | None
) -> None:
    """Sums along one dimension after the other."""
    outputs, rank = y.shape[2:], len(kernel)
    if not y.size:
        return
    if kernel == x.shape[2:] and not any(padding) and all(o == 1 for o in outputs):
        flat = x.reshape(count(x.shape[:2]), -1)
        np.matmul(flat, np.ones((flat.shape[1], 1), x.dtype), out=y.reshape(-1, 1))
    else:
        total = padded(x, padding, reach(kernel, stride, (1,) * rank, outputs), 0)
        for dim, (k, s, n) in enumerate(zip(kernel, stride, outputs, strict=True)):
            parts = [total[_along(rank, dim, slice(i, i + s * (n - 1) + 1, s))] for i in range(k)]
            if k == 1:
                total = parts[0]
                continue
            total = np.add(parts[0], parts[1], y if dim == rank - 1 else None)
            for part in parts[2:]:
                total += part
        if total is not y:
            np.copyto(y, total)
    number = divisors(x.shape[2:], outputs, kernel, stride, padding, include, divisor)
    np.true_divide(y, np.asarray(number, y.dtype), y)


def avg_pool_backward_cpu(
    dy: Any, y: Any, *, shape: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool, include: bool, divisor: int | None
) -> None:
    """Each output's share, spread over its window along one dimension after the other."""
    outputs, sizes, rank = dy.shape[2:], shape[2:], len(kernel)
    if not dy.size:
        y.fill(0)
        return
    number = np.asarray(divisors(sizes, outputs, kernel, stride, padding, include, divisor), dy.dtype)
    share = dy / number
    for dim in reversed(range(rank)):
        k, s, n, p, size = kernel[dim], stride[dim], outputs[dim], padding[dim], sizes[dim]
        wide = max(size + p, s * (n - 1) + k)
        below = (*share.shape[: 2 + dim], wide, *share.shape[3 + dim :])
        spread: Any = np.zeros(below, dy.dtype) if s != k or wide != n * k else np.empty(below, dy.dtype)
        for i in range(k):
            there = spread[_along(rank, dim, slice(i, i + s * (n - 1) + 1, s))]
            if s >= k:
                there[...] = share
            else:
                there += share
        share = spread[_along(rank, dim, slice(p, p + size))]
    np.copyto(y, share)
