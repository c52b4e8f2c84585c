"""Padding and resampling."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.dtype import INT64
from gradlab.onnx.emitter import Emitter, Unsupported, Wire, is_dynamic
from gradlab.onnx.registry import exports
from gradlab.onnx.rows.pool import padable
from gradlab.spec import count
from gradlab.taps import Table, adjoint_taps, taps

BORDERS = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
SAMPLES = {"linear": "linear", "cubic": "cubic", "linear-antialias": "linear", "cubic-antialias": "cubic"}


@exports("pad", wide=False)
def pad(e: Emitter, x: Wire, *, pads: tuple[tuple[int, int], ...], value: float) -> Any:
    """Pad; negative numbers crop there as here."""
    wide = padable(e, x)
    if not pads:
        return x
    return e("Pad", wide, e.ints([*(low for low, _ in pads), *(high for _, high in pads)]), e.number(value, wide.dtype))


def border(e: Emitter, x: Wire, dim: int, table: Table) -> Any:
    """A repeating or mirrored border of one dimension: Pad in another mode; where it crops or goes round more than once, Gather."""
    kind, inputs, outputs, low, *_ = table
    high = outputs - inputs - low
    numbers = (low, high) if not is_dynamic(high) else (low,)
    if not is_dynamic(low) and all(not is_dynamic(n) and n >= 0 for n in numbers) and (
        kind == "replicate" or is_dynamic(inputs) or max(low, high) < inputs
    ):
        if kind == "circular" and e.opset < 19:
            last = np.iinfo(np.int64).max
            return e("Concat", *[e.cut(x, -low, last, dim)] * (low > 0), x, *[e.cut(x, 0, high, dim)] * (high > 0), axis=dim)
        pads = [n if d == dim else 0 for n in (low, high) for d in range(x.rank)]
        return e("Pad", padable(e, x), e.ints(pads), None, mode=BORDERS[kind])
    return gathered(e, x, dim, table)


def gathered(e: Emitter, x: Wire, dim: int, table: Table) -> Any:
    """The one input that each output repeats."""
    known(table)
    return e("Gather", x, e.constant(taps(table).index[:, 0], INT64), axis=dim)


def known(table: Table) -> None:
    """Unsupported where the sizes are dynamic."""
    if any(map(is_dynamic, table)):
        raise Unsupported(f"resampling ({table[0]}) between dynamic sizes")


@exports("resample")
def resample(e: Emitter, x: Wire, *, dim: int, table: Table) -> Any:
    """One dimension: Pad for borders, ReduceMean and Resize where they say the same, else by the weights of the few inputs that each output
    is a mean of."""
    kind, inputs, outputs, *_ = table
    if kind in BORDERS:
        return border(e, x, dim, table)
    if not is_dynamic(outputs) and outputs == 1 and kind == "area":
        return e.reduce("ReduceMean", x, (dim,), True)
    if kind == "area" and is_dynamic(inputs) and not is_dynamic(outputs):
        return cells(e, x, dim, inputs, outputs)
    if any(map(is_dynamic, table)):
        return resized(e, x, dim, table)
    found = taps(table)
    if found.weight is None:
        return gathered(e, x, dim, table)
    if kind == "area" and inputs % outputs == 0:
        shape = x.shape or ()
        parts = e.reshape(x, (*shape[:dim], outputs, inputs // outputs, *shape[dim + 1 :]))
        return e.reduce("ReduceMean", parts, (dim + 1,), False)
    return weighted(e, x, dim, found)


def weighted(e: Emitter, x: Wire, dim: int, found: Any) -> Any:
    """Sums of a few inputs with weights: each tap gathered, or, where taps are many, a matrix product with all weights."""
    shape = x.shape or ()
    if found.weight is None:
        y = e("Gather", x, e.constant(found.index[:, 0], INT64), axis=dim)
    elif found.weight.shape[1] <= 4:
        around = (-1, *(1,) * (len(shape) - 1 - dim))
        y = None
        for t in range(found.weight.shape[1]):
            weight = e.constant(found.weight[:, t].reshape(around), x.dtype)
            part = e("Gather", x, e.constant(found.index[:, t], INT64), axis=dim) * weight
            y = part if y is None else y + part
    else:
        matrix = np.zeros((shape[dim], len(found.index)))
        np.add.at(matrix, (found.index, np.arange(len(found.index))[:, None]), found.weight)
        last = len(shape) - 1
        order = [*(d for d in range(len(shape)) if d != dim), dim]
        y = e("MatMul", e.transpose(x, order), e.constant(matrix, x.dtype))
        y = e.transpose(y, [*range(dim), last, *range(dim, last)])
    if found.none is not None:
        kept = ~found.none
        y = e.where(e.constant(kept.reshape(-1, *(1,) * (len(shape) - 1 - dim))), y, 0.0)
    return y


def cells(e: Emitter, x: Wire, dim: int, inputs: Any, outputs: int) -> Any:
    """Means over the cells of an adaptive pooling of a dynamic size: cell i is from floor(i n / m) to ceil((i + 1) n / m)."""
    n, m = e.number(inputs, INT64), e.number(outputs, INT64)
    number = e.constant(np.arange(outputs), INT64)
    first, last = e("Div", number * n, m), e("Div", (number + 1) * n + (outputs - 1), m)
    places = e.unsqueeze(e("Range", e.number(0, INT64), n, e.number(1, INT64)), 1)
    inside = e("And", e("GreaterOrEqual", places, first), e("Less", places, last))
    matrix = e.cast(inside, x.dtype) / e.cast(last - first, x.dtype)
    final = x.rank - 1
    y = e("MatMul", e.transpose(x, [*(d for d in range(x.rank) if d != dim), dim]), matrix)
    return e.transpose(y, [*range(dim), final, *range(dim, final)])


def resized(e: Emitter, x: Wire, dim: int, table: Table) -> Any:
    """Resize of one dimension of dynamic size, as the third of four; the others are put together before and after it."""
    kind, inputs, outputs, *rest = table
    shape = x.shape or ()
    mode: dict[str, Any]
    if kind == "nearest":
        mode = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    elif kind == "nearest-exact":
        mode = {"mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}
    elif kind in ("linear", "cubic"):
        mode = {"mode": kind, "coordinate_transformation_mode": "align_corners" if rest[1] else "half_pixel", "cubic_coeff_a": -0.75}
    else:
        raise Unsupported(f"resampling ({kind}) between dynamic sizes")
    flat = e.reshape(x, (1, count(shape[:dim]), inputs, count(shape[dim + 1 :])))
    sizes = e.ints([1, count(shape[:dim]), outputs, count(shape[dim + 1 :])])
    y = e("Resize", flat, None, None, sizes, **mode)
    y.shape = None
    return e.reshape(y, e.outputs[0].shape)


@exports("resample_backward")
def resample_backward(e: Emitter, dy: Wire, *, dim: int, table: Table) -> Any:
    """The transposed matrix of weights."""
    known(table)
    return weighted(e, dy, dim, adjoint_taps(table))
