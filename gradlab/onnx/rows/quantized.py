"""Layers with weights of few bits: QuantizeLinear and DequantizeLinear around the operator (QDQ), or products of integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.dtype import FLOAT32, INT64
from gradlab.onnx.emitter import Emitter, Unsupported, Wire
from gradlab.onnx.registry import exports
from gradlab.ops.quantized import GROUP, TINY

INT8, UINT8, INT32 = np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int32)


def _zero(e: Emitter, zero: Wire, kind: np.dtype[Any]) -> Wire:
    """The zero point in the type of the places; a constant where it is one."""
    known = e.root.constants.get(zero.name)
    return e.constant(np.asarray(known).astype(kind)) if known is not None else e.cast(zero, kind)


def rounded(e: Emitter, x: Wire, scale: Wire, zero: Wire, low: int, high: int) -> Any:
    """x on the grid of its places."""
    if x.dtype != FLOAT32:  # QuantizeLinear takes no double
        middle = e.cast(zero, x.dtype)
        places = e("Round", e("Mul", x, e("Reciprocal", scale))) + middle
        return (e("Min", e("Max", places, float(low)), float(high)) - middle) * scale
    kind = INT8 if low >= -128 and high <= 127 else UINT8
    if kind == UINT8 and not 0 <= low < high <= 255:
        raise Unsupported(f"inputs of places {low} to {high}: ONNX has -128 to 127 and 0 to 255")
    middle = _zero(e, zero, kind)
    if (low, high) not in ((-128, 127), (0, 255)):
        whole = e.cast(zero, FLOAT32)
        x = e("Min", e("Max", x, (e.number(low, FLOAT32) - whole) * scale), (e.number(high, FLOAT32) - whole) * scale)
    places = e("QuantizeLinear", x, scale, middle, dtype=kind)
    return e("DequantizeLinear", places, scale, middle, dtype=FLOAT32)


def _by_range(e: Emitter, x: Wire) -> Any:
    """x on the grid that its range makes."""
    if x.dtype == FLOAT32:
        places, own, zero = _dynamic(e, x)
        return e("DequantizeLinear", places, own, zero, dtype=FLOAT32)
    low, high = (e(f"Reduce{kind}", x, keepdims=0) for kind in ("Min", "Max"))
    low, high = e("Min", low, 0.0), e("Max", high, 0.0)
    scale = e("Max", (high - low) / 255.0, TINY)
    return rounded(e, x, scale, -128.0 - e("Round", low / scale), -128, 127)


def _dynamic(e: Emitter, x: Wire) -> Any:
    places, own, zero = e("DynamicQuantizeLinear", x, outputs=3)
    places.dtype = zero.dtype = UINT8
    places.shape, own.shape, zero.shape = x.shape, (), ()
    return places, own, zero


def _wide(e: Emitter, w: Wire, scale: Wire, rank: int) -> Any:
    """An int8 weight as floats."""
    if scale.dtype == FLOAT32:
        return e("DequantizeLinear", w, scale, axis=0, dtype=FLOAT32)
    return e.cast(w, scale.dtype) * e.unsqueeze(scale, *range(1, rank))


@exports("quantized_linear", wide=False)
def linear(
    e: Emitter, x: Wire, w: Wire, scale: Wire, b: Wire | None, x_scale: Wire | None, x_zero: Wire | None, *, low: int, high: int
) -> Any:
    """Gemm or MatMul between DequantizeLinear; with the range of each call DynamicQuantizeLinear and MatMulInteger."""
    if (x_scale is None or x_zero is None) and x.dtype == FLOAT32:
        places, own, zero = _dynamic(e, x)
        # Weights around 128: with signed ones ONNX Runtime's sums of pairs overflow on processors that have AVX2 alone.
        known = e.root.constants.get(w.name)
        turned = e.constant((np.asarray(known).T.astype(np.int32) + 128).astype(np.uint8)) if known is not None else _unsigned(e, w)
        y = e.cast(e("MatMulInteger", places, turned, zero, e.constant(np.array(128, np.uint8))), FLOAT32) * (own * scale)
        return y if b is None else y + b
    at = _by_range(e, x) if x_scale is None or x_zero is None else rounded(e, x, x_scale, x_zero, low, high)
    return _product(e, at, _wide(e, w, scale, 2), b, x.rank)


def _unsigned(e: Emitter, w: Wire) -> Any:
    """An int8 matrix turned, with 128 added."""
    return e.cast(e.cast(e.transpose(w, (1, 0)), INT32) + e.constant(np.array(128, np.int32)), UINT8)


def _product(e: Emitter, x: Any, w: Any, b: Wire | None, rank: int) -> Any:
    if rank == 2:
        return e("Gemm", x, w, b, transB=1)
    y = e("MatMul", x, e.transpose(w, (1, 0)))
    return y if b is None else y + b


@exports("quantized_linear4", wide=False)
def linear4(
    e: Emitter, x: Wire, w: Wire, scale: Wire, b: Wire | None, x_scale: Wire | None, x_zero: Wire | None, *, low: int, high: int,
    rounds: bool,
) -> Any:  # fmt: skip
    """The file holds two weights in a byte; they are taken apart by arithmetic, which ONNX Runtime does once."""
    k = (x.shape or ())[-1]
    at: Any = x
    if rounds:
        at = _by_range(e, x) if x_scale is None or x_zero is None else rounded(e, x, x_scale, x_zero, low, high)
    n, groups = (int(s) for s in scale.shape or ())
    whole = e.cast(w, x.dtype)
    upper = e("Floor", whole * (1 / 16))
    both = e("Concat", e.unsqueeze(whole - upper * 16.0, 2), e.unsqueeze(upper, 2), axis=2)
    both.shape = (n, groups * GROUP // 2, 2)
    wide = (e.reshape(both, (n, groups, GROUP)) - 8.0) * e.unsqueeze(scale, 2)
    return _product(e, at, e.cut(e("Reshape", wide, e.constant([n, groups * GROUP], INT64)), 0, k, 1), b, x.rank)


@exports("quantized_convolution", wide=False)
def convolution(
    e: Emitter, x: Wire, w: Wire, scale: Wire, b: Wire | None, x_scale: Wire | None, x_zero: Wire | None, *, stride: Any, padding: Any,
    dilation: Any, groups: int, low: int, high: int,
) -> Any:  # fmt: skip
    """Conv between DequantizeLinear, also with the range of each call (ONNX Runtime has no ConvInteger of signed weights)."""
    at = _by_range(e, x) if x_scale is None or x_zero is None else rounded(e, x, x_scale, x_zero, low, high)
    shape = w.shape or ()
    return e(
        "Conv", at, _wide(e, w, scale, len(shape)), b, kernel_shape=list(shape[2:]), strides=list(stride), pads=[*padding, *padding],
        dilations=list(dilation), group=groups,
    )  # fmt: skip
