"""Which elements each result of resampling along one dimension is made of, and by which weights.

Interpolation, adaptive averages, reflecting and circular borders: what these taps are follows from a table, a tuple of plain values (kind,
input size, output size, ...). The adjoint's taps are those of the transposed matrix, so both directions gather.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gradlab.spec import cached_sizes

Table = tuple[Any, ...]  # (kind, input size, output size, *what the kind needs)


class Taps(NamedTuple):
    """Of each output the inputs' indices (outputs, T) and their weights (None where there is one tap of weight 1).

    `none` marks outputs without taps, which are 0 (None where there are none). Unused taps repeat a used one with weight 0.
    """

    index: Any
    weight: Any
    none: Any


def _nearest(inputs: int, outputs: int, scale: float, half: float) -> Any:
    """floor((i + half) · scale), in float32 as in PyTorch, so that rounding at the borders between pixels is the same.

    Also as there, equal and doubled sizes repeat pixels evenly, whatever the scale.
    """
    if not half and outputs in (inputs, 2 * inputs):
        return np.arange(outputs) * inputs // outputs
    at = (np.arange(outputs, dtype=np.float32) + np.float32(half)) * np.float32(scale)
    return np.minimum(np.floor(at).astype(np.int64), inputs - 1)


def _sources(outputs: int, scale: float, align_corners: bool) -> Any:
    """Where each output lies among the inputs, as a number."""
    at = np.arange(outputs, dtype=np.float64)
    return at * scale if align_corners else (at + 0.5) * scale - 0.5


def _linear(inputs: int, outputs: int, scale: float, align_corners: bool) -> tuple[Any, Any]:
    at = np.maximum(_sources(outputs, scale, align_corners), 0)
    low = np.minimum(np.floor(at).astype(np.int64), inputs - 1)
    share = np.clip(at - low, 0, 1)
    return np.stack([low, np.minimum(low + 1, inputs - 1)], 1), np.stack([1 - share, share], 1)


def cubic(distance: Any, a: float) -> Any:
    """Keys' cubic convolution kernel (R. Keys, 1981)."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _cubic(inputs: int, outputs: int, scale: float, align_corners: bool) -> tuple[Any, Any]:
    at = _sources(outputs, scale, align_corners)
    low = np.floor(at).astype(np.int64)
    offsets = np.arange(-1, 3)
    return np.clip(low[:, None] + offsets, 0, inputs - 1), cubic((at - low)[:, None] - offsets, -0.75)


def _antialiased(kind: str, inputs: int, outputs: int, scale: float) -> tuple[Any, Any]:
    """The filter stretched over as many inputs as one output covers, its weights normalised."""
    stretch = max(scale, 1.0)
    support = (1 if kind == "linear" else 2) * stretch
    centre = scale * (np.arange(outputs)[:, None] + 0.5)
    first, last = np.maximum((centre - support + 0.5).astype(np.int64), 0), np.minimum((centre + support + 0.5).astype(np.int64), inputs)
    index = first + np.arange(max(int((last - first).max(initial=1)), 1))
    distance = (index - centre + 0.5) / stretch
    share = np.where(index < last, np.maximum(1 - np.abs(distance), 0) if kind == "linear" else cubic(distance, -0.5), 0)
    return np.where(index < last, index, first), share / share.sum(1, keepdims=True)  # unused taps repeat the first with weight 0


def _squared(index: list[list[int]], weight: list[Any]) -> tuple[Any, Any]:
    """Lists of different lengths as arrays; unused taps repeat the first with weight 0."""
    most = max(map(len, index), default=1)
    indices, weights = np.zeros((len(index), max(most, 1)), np.int64), np.zeros((len(index), max(most, 1)))
    for i, (where, share) in enumerate(zip(index, weight, strict=True)):
        if where:
            indices[i] = where[0]
            indices[i, : len(where)], weights[i, : len(where)] = where, share
    return indices, weights


def _area(inputs: int, outputs: int) -> tuple[Any, Any]:
    """Means over the cells of an adaptive pooling."""
    index = [list(range(i * inputs // outputs, -((i + 1) * inputs // -outputs))) for i in range(outputs)]
    return _squared(index, [np.full(len(cell), 1 / len(cell)) for cell in index])


def _border(kind: str, inputs: int, outputs: int, low: int) -> Any:
    """Which input each element of a padded dimension repeats."""
    at = np.arange(outputs) - low
    if kind == "replicate":
        return np.clip(at, 0, inputs - 1)
    if kind == "circular":  # negative padding crops first; what is left goes round
        start, high = max(-low, 0), outputs - inputs - low
        return start + (np.arange(outputs) - max(low, 0)) % (inputs - start - max(-high, 0))
    at = np.abs(at)
    return np.where(at >= inputs, 2 * (inputs - 1) - at, at)


def _matrix(table: Table) -> tuple[Any, Any]:
    kind, inputs, outputs, *rest = table
    if kind in ("reflect", "replicate", "circular"):
        return _border(kind, inputs, outputs, *rest)[:, None], None
    if kind == "nearest":
        return _nearest(inputs, outputs, rest[0], 0)[:, None], None
    if kind == "nearest-exact":
        return _nearest(inputs, outputs, rest[0], 0.5)[:, None], None
    if kind == "area":
        return _area(inputs, outputs)
    if kind == "linear":
        return _linear(inputs, outputs, *rest)
    if kind == "cubic":
        return _cubic(inputs, outputs, *rest)
    return _antialiased(kind.removesuffix("-antialias"), inputs, outputs, rest[0])


@cached_sizes(256)
def taps(table: Table) -> Taps:
    """The taps of a table."""
    return Taps(*_matrix(table), None)


@cached_sizes(256)
def adjoint_taps(table: Table) -> Taps:
    """The taps of the transposed matrix."""
    index, weight = _matrix(table)
    inputs, outputs = table[1], table[2]
    shares = np.ones(index.shape) if weight is None else weight
    source = np.repeat(np.arange(outputs), index.shape[1])
    used = shares.ravel() != 0
    target, source, values = index.ravel()[used], source[used], shares.ravel()[used]
    order = np.argsort(target, kind="stable")
    target, source, values = target[order], source[order], values[order]
    counts = np.bincount(target, minlength=inputs)
    most = max(int(counts.max(initial=0)), 1)
    column = np.arange(len(target)) - np.repeat(np.cumsum(counts) - counts, counts)
    indices, weights = np.zeros((inputs, most), np.int64), np.zeros((inputs, most))
    first = np.flatnonzero(column == 0)
    indices[target[first]] = source[first, None]
    indices[target, column], weights[target, column] = source, values
    none = counts == 0
    single = most == 1 and bool((values == 1).all())
    return Taps(indices, None if single else weights, none if none.any() else None)
