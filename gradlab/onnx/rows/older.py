"""Operators of opset 20 as older opsets, down to 11, have them: with attributes for inputs, or put together of what there was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab.dtype import BOOL, FLOAT32, INT64
from gradlab.onnx.emitter import Emitter, Unsupported, Wire, before, is_dynamic
from gradlab.onnx.rows.index import fitted
from gradlab.onnx.rows.linalg import loop
from gradlab.onnx.rows.movement import filled

INT32 = np.dtype(np.int32)
REDUCTIONS = ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceLogSumExp")
COMBINES = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}


def numbers(e: Emitter, wire: Wire, kind: str) -> list[int]:
    """An input that is an attribute now."""
    if wire.name not in e.root.constants:
        raise Unsupported(f"{kind} of opset {e.opset} takes these numbers when the file is written alone")
    found: list[int] = e.root.constants[wire.name].tolist()
    return found


# ---------------------------------------------------------------- attributes for inputs


@before(20, *REDUCTIONS)
def reduction(e: Emitter, kind: str, x: Wire, dims: Wire | None = None, *, keepdims: int, noop_with_empty_axes: int = 0) -> Any:
    """Before 20 not of truth values, before 18 with the axes as an attribute."""
    if x.dtype == BOOL:
        return e.cast(e(kind, e.cast(x, INT32), dims, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes), BOOL)
    if e.opset >= 18:
        return e.add(kind, x, dims, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes)
    axes = None if dims is None else numbers(e, dims, kind)
    return x if axes == [] and noop_with_empty_axes else e.add(kind, x, keepdims=keepdims, axes=axes or None)


@before(13, "ReduceSum")
def total(e: Emitter, kind: str, x: Wire, dims: Wire | None = None, *, keepdims: int, noop_with_empty_axes: int = 0) -> Any:
    """The axes as an attribute."""
    return reduction(e, kind, x, dims, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes)


@before(13, "Squeeze", "Unsqueeze")
def ones(e: Emitter, kind: str, x: Wire, dims: Wire) -> Any:
    """The axes as an attribute."""
    return e.add(kind, x, axes=numbers(e, dims, kind))


@before(18, "Split")
def split(e: Emitter, kind: str, x: Wire, *, outputs: int, axis: int, num_outputs: int) -> Any:
    """Into equal parts, as many as there are results."""
    return e.add(kind, x, outputs=outputs, axis=axis)


@before(14, "Reshape")
def reshape(e: Emitter, kind: str, x: Wire, shape: Wire, *, allowzero: int | None = None) -> Any:
    """A 0 is always a size of the input there: without elements it is another tensor without elements."""
    return e("Expand", e.number(0, x.dtype), shape) if allowzero else e.add(kind, x, shape)


@before(15, "Shape")
def shape_of(e: Emitter, kind: str, x: Wire, *, start: int = 0, end: int | None = None) -> Any:
    """All sizes, of which some are cut."""
    every = e.add(kind, x)
    return every if start == 0 and end is None else e.cut(every, start, np.iinfo(np.int64).max if end is None else end, 0)


@before(13, "Resize")
def resize(e: Emitter, kind: str, x: Wire, region: None, scales: None, sizes: Wire, **mode: Any) -> Any:
    """What is not given is empty."""
    nothing = e.constant([], FLOAT32)
    return e.add(kind, x, nothing, nothing, sizes, **mode)


@before(13, "Softmax", "LogSoftmax")
def softmax(e: Emitter, kind: str, x: Wire, *, axis: int) -> Any:
    """Over all dimensions from the axis on there: over the last."""
    if axis == -1 or axis == x.rank - 1:
        return e.add(kind, x, axis=axis)
    assert x.shape is not None
    order = [d for d in range(x.rank) if d != axis % x.rank] + [axis % x.rank]
    return e.transpose(e.add(kind, e.transpose(x, order), axis=x.rank - 1), [order.index(d) for d in range(x.rank)])


# ---------------------------------------------------------------- put together


@before(20, "Gelu")
def gelu(e: Emitter, kind: str, x: Wire, *, approximate: str = "none") -> Any:
    """x times the normal distribution's function, or Hendrycks' approximation of it by a hyperbolic tangent."""
    if approximate == "tanh":
        return x * 0.5 * (e("Tanh", (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1.0)
    return x * 0.5 * (e("Erf", x * math.sqrt(0.5)) + 1.0)


@before(18, "Mish")
def mish(e: Emitter, kind: str, x: Wire) -> Any:
    """x tanh(log(1 + exp x))."""
    return x * e("Tanh", e("Softplus", x))


@before(14, "HardSwish")
def hard_swish(e: Emitter, kind: str, x: Wire) -> Any:
    """x clip(x / 6 + 1/2, 0, 1)."""
    return x * e("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@before(12, "Celu")
def celu(e: Emitter, kind: str, x: Wire, *, alpha: float) -> Any:
    """alpha elu(x / alpha)."""
    return e("Elu", x / alpha, alpha=1.0) * alpha


@before(18, "BitwiseNot")
def bitwise_not(e: Emitter, kind: str, x: Wire) -> Any:
    """-1 - x."""
    return -1 - x


@before(12, "LessOrEqual", "GreaterOrEqual")
def ordered(e: Emitter, kind: str, a: Any, b: Any) -> Any:
    """Less, or equal."""
    return e("Or", e(kind.removesuffix("OrEqual"), a, b), e("Equal", a, b))


@before(12, "Max", "Min")
def extreme(e: Emitter, kind: str, a: Wire, b: Any) -> Any:
    """Of whole numbers by comparison."""
    return e.add(kind, a, b) if a.dtype.kind == "f" else e.where(e("Greater" if kind == "Max" else "Less", a, b), a, b)


@before(12, "Clip")
def clip(e: Emitter, kind: str, x: Wire, low: Wire | None = None, high: Wire | None = None) -> Any:
    """Of whole numbers by comparison."""
    if x.dtype.kind == "f":
        return e.add(kind, x, low, high)
    x = x if low is None else e("Max", x, low)
    return x if high is None else e("Min", x, high)


@before(12, "Pow")
def power(e: Emitter, kind: str, a: Wire, b: Any) -> Any:
    """Of floating-point numbers of one dtype."""
    if a.dtype.kind != "f":
        raise Unsupported(f"{kind} of opset {e.opset} takes floating-point numbers alone")
    return e.add(kind, a, e.cast(b, a.dtype) if isinstance(b, Wire) else b)


@before(14, "Trilu")
def triangle(e: Emitter, kind: str, x: Wire, diagonal: Wire, *, upper: int) -> Any:
    """Zeros elsewhere, by comparing the places."""
    assert x.shape is not None
    rows, columns = x.shape[-2:]
    down, right = (e("Range", e.number(0, INT64), e.number(n, INT64), e.number(1, INT64)) for n in (rows, columns))
    place = right - e.unsqueeze(down, 1)
    return e.where(e("GreaterOrEqual" if upper else "LessOrEqual", place, diagonal), x, filled(e, 0, (), x.dtype))


@before(18, "Col2Im")
def col2im(
    e: Emitter, kind: str, x: Wire, size: Wire, kernel: Wire, *, strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int]
) -> Any:
    """A transposed convolution of each channel with one window for each place of the kernel: all zeros but for a one there."""
    sides, window = numbers(e, size, kind), numbers(e, kernel, kind)
    assert x.shape is not None
    (batch, wide, _), places, half = x.shape, math.prod(window), len(window)
    reach = [d * (k - 1) + 1 for k, d in zip(window, dilations, strict=True)]
    rest = [n + pads[i] + pads[half + i] - reach[i] for i, n in enumerate(sides)]
    windows = [r // s + 1 for r, s in zip(rest, strides, strict=True)]
    planes = e.reshape(x, (-1 if is_dynamic(batch) else batch * wide // places, places, *windows))
    weight = e.constant(np.eye(places).reshape(places, 1, *window), x.dtype)
    y = e("ConvTranspose", planes, weight, strides=list(strides), pads=list(pads), dilations=list(dilations), kernel_shape=window,
          output_padding=[r % s for r, s in zip(rest, strides, strict=True)])  # fmt: skip
    return e.reshape(y, (batch, wide // places, *sides))


# ---------------------------------------------------------------- scattering


def entries(e: Emitter, x: Wire, at: Any, dim: int) -> Wire:
    """Entry number `at` of a dimension, which stays."""
    found: Wire = e("Gather", x, e("Unsqueeze", at, e.constant([0], INT64)), axis=dim)
    return found


def newest(reduction: str | None) -> int:
    """The opset that first has a reduction of the scattering operators."""
    return 11 if reduction in (None, "none") else 16 if reduction in ("add", "mul") else 18


@before(18, "ScatterElements")
def scatter_elements(e: Emitter, kind: str, x: Wire, index: Wire, src: Wire, *, axis: int, reduction: str | None = None) -> Any:
    """One entry of the dimension after the other, within which no place comes twice: what is there is gathered and combined."""
    if e.opset >= newest(reduction):
        return e.add(kind, x, index, src, axis=axis, reduction=reduction if e.opset >= 16 else None)
    combine, shape = COMBINES[reduction or ""], index.shape or ()

    def step(inner: Emitter, number: Wire, held: Wire) -> list[Any]:
        held.shape = x.shape
        at, values = entries(inner, index, number, axis), entries(inner, src, number, axis)
        at.shape = (*shape[:axis], 1, *shape[axis + 1 :])
        there = inner("GatherElements", fitted(inner, held, at, axis), at, axis=axis)
        return [inner.add(kind, held, at, inner(combine, there, values), axis=axis)]

    return loop(e, shape[axis], [x], step)[0]


@before(18, "ScatterND")
def scatter_slices(e: Emitter, kind: str, x: Wire, index: Wire, src: Wire, *, reduction: str | None = None) -> Any:
    """One place after the other: what is there is gathered and combined."""
    if e.opset >= newest(reduction):
        return e.add(kind, x, index, src, reduction=reduction if e.opset >= 16 else None)
    combine = COMBINES[reduction or ""]
    width = e.cut(e("Shape", index), -1, np.iinfo(np.int64).max, 0)
    places = e("Reshape", index, e("Concat", e.constant([-1], INT64), width, axis=0))  # (all, how many dimensions are indexed)
    many = e.cut(e("Shape", places), 0, 1, 0)
    inside = e("Slice", e("Shape", x), width, e.constant([np.iinfo(np.int64).max], INT64))
    values = e("Reshape", src, e("Concat", many, inside, axis=0))

    def step(inner: Emitter, number: Wire, held: Wire) -> list[Any]:
        at, value = entries(inner, places, number, 0), entries(inner, values, number, 0)
        return [inner.add(kind, held, at, inner(combine, inner("GatherND", held, at), value))]

    return loop(e, e("Squeeze", many, e.constant([0], INT64)), [x], step)[0]
