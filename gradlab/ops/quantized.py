"""Rows of layers with weights of few bits: inputs are rounded to 8 bits, products are exact in whole numbers, results floating point.

    y = (round(x / x_scale) clamped to [low, high] - x_zero) · weight · x_scale · scale + bias

Without x_scale the range of x makes it, of -128 to 127 (Jacob and others, 2018). The gradient of x passes straight through the rounding
where the range was not left. A row of x (an image) that holds NaN gives NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.op import Op
from gradlab.ops.conv import GEOMETRY, Sizes, convolution_dx, output_shape, same_dtype
from gradlab.ops.conv_cpu import correlate, symmetric
from gradlab.spec import ShapeError, Spec, count

INT8, UINT8 = np.dtype(np.int8), np.dtype(np.uint8)
GROUP = 32  # weights of 4 bits that share a scale
MOST = 1 << 16  # products whose sum fits in 32 bits, as in the kernels (kernels/cpu/integer_products.h)
EXACT = 512  # products of 9 and 8 bits whose sum float32 holds
TINY = 1e-12


def _looked_at(x: Spec, scale: Spec, bias: Spec | None, x_scale: Spec | None, x_zero: Spec | None, outputs: int) -> None:
    same_dtype(x, scale)
    if x.dtype.kind != "f" and x.dtype.name != "bfloat16":
        raise TypeError(f"the input is {x.dtype}, and is floating point")
    if bias is not None:
        same_dtype(x, bias)
        if bias.shape != (outputs,):
            raise ShapeError(f"bias of shape {bias.shape}: expected ({outputs},)")
    if (x_scale is None) != (x_zero is None):
        raise TypeError("x_scale and x_zero are given both or not at all")
    if x_scale is not None and x_zero is not None:
        same_dtype(x, x_scale)
        if x_scale.shape or x_zero.shape or x_zero.dtype.kind not in "iu":
            raise ShapeError(f"x_scale {x_scale.shape} and x_zero {x_zero.shape}, {x_zero.dtype}: one number each, x_zero a whole one")


def linear_rule(
    x: Spec, w: Spec, scale: Spec, b: Spec | None, x_scale: Spec | None, x_zero: Spec | None, *, low: int, high: int
) -> Spec:
    """Rule: x (..., k), w int8 (n, k), scale (n,), b (n,) or None give (..., n)."""
    if len(w.shape) != 2 or not x.shape or x.shape[-1] != w.shape[1]:
        raise ShapeError(f"input of shape {x.shape} and weight of shape {w.shape}: the input's last size must be the weight's last")
    if w.dtype != INT8 or scale.shape != w.shape[:1]:
        raise ShapeError(f"weight {w.dtype} {w.shape} with a scale of shape {scale.shape}: an int8 weight has a scale for each row")
    _looked_at(x, scale, b, x_scale, x_zero, w.shape[0])
    return Spec((*x.shape[:-1], w.shape[0]), x.dtype)


def linear4_rule(
    x: Spec, w: Spec, scale: Spec, b: Spec | None, x_scale: Spec | None, x_zero: Spec | None, *, low: int, high: int,
    rounds: bool,
) -> Spec:  # fmt: skip
    """Rule: x (..., k), w uint8 (n, 16 · groups), scale (n, groups), each group 32 inputs: (..., n)."""
    groups = -(-x.shape[-1] // GROUP) if x.shape else 0
    if not x.shape or len(w.shape) != 2 or w.dtype != UINT8 or w.shape[1] != groups * GROUP // 2 or scale.shape != (w.shape[0], groups):
        raise ShapeError(
            f"input of shape {x.shape}, weight {w.dtype} {w.shape}, scale {scale.shape}: a uint8 weight has 16 bytes and a scale for each "
            f"{GROUP} inputs"
        )
    _looked_at(x, scale, b, x_scale, x_zero, w.shape[0])
    return Spec((*x.shape[:-1], w.shape[0]), x.dtype)


def convolution_rule(
    x: Spec, w: Spec, scale: Spec, b: Spec | None, x_scale: Spec | None, x_zero: Spec | None, *, stride: Sizes,
    padding: Sizes, dilation: Sizes, groups: int, low: int, high: int,
) -> Spec:  # fmt: skip
    """Rule: as `convolution` with an int8 weight (outputs, inputs / groups, ...) and a scale for each output channel."""
    if w.dtype != INT8 or scale.shape != w.shape[:1]:
        raise ShapeError(f"weight {w.dtype} {w.shape} with a scale of shape {scale.shape}: an int8 weight has a scale for each output")
    _looked_at(x, scale, b, x_scale, x_zero, w.shape[0])
    return Spec(output_shape(x.shape, w.shape, stride, padding, dilation, groups), x.dtype)


def grid(x: Any, x_scale: Any, x_zero: Any, low: int, high: int) -> tuple[Any, Any, int, int]:
    """Scale, zero point and limits: what is given, or what the range of x makes."""
    if x_scale is not None:
        return x_scale, x_zero.astype(x.dtype), low, high
    kind = x.dtype.type
    if not x.size:
        return kind(1), kind(0), -128, 127
    least, most = np.minimum(x.min(), kind(0)), np.maximum(x.max(), kind(0))
    scale = np.maximum((most - least) / kind(255), kind(TINY))
    return scale, kind(-128) - np.rint(least / scale), -128, 127


def places(x: Any, x_scale: Any, x_zero: Any, low: int, high: int) -> tuple[Any, Any]:
    """x in steps of its scale, without the zero point, and the scale."""
    scale, zero, low, high = grid(x, x_scale, x_zero, low, high)
    found = np.rint(x * (1 / scale))
    np.clip(found, low - zero, high - zero, out=found)
    return found, scale


def _finished(y: Any, scale: Any, own: Any, b: Any) -> None:
    y *= scale * own
    if b is not None:
        y += b


def _sums(places: Any, w: Any, y: Any) -> None:
    """Products of whole numbers, exact in parts that a float holds."""
    step = EXACT if y.dtype == np.float32 else MOST
    if w.shape[1] <= step:
        np.matmul(places, w.T, out=y)
        return
    total = sum(places[:, i : i + step].astype(np.float64) @ w[:, i : i + step].T for i in range(0, w.shape[1], step))
    y[...] = total


def linear_cpu(x: Any, w: Any, scale: Any, b: Any, x_scale: Any, x_zero: Any, y: Any, *, low: int, high: int) -> None:
    flat, out = x.reshape(count(x.shape[:-1]), x.shape[-1]), y.reshape(count(y.shape[:-1]), y.shape[-1])
    found, own = places(flat, x_scale, x_zero, low, high)
    _sums(found, w.astype(x.dtype), out)
    _finished(out, own, scale, b)


def unpacked(w: Any, scale: Any, k: int) -> Any:
    """The numbers that 4 bits stand for, (n, k)."""
    both = np.empty((*w.shape, 2), scale.dtype)
    both[..., 0], both[..., 1] = w & 15, w >> 4
    return ((both.reshape(*scale.shape, GROUP) - 8) * scale[..., None]).reshape(len(w), -1)[:, :k]


def linear4_cpu(x: Any, w: Any, scale: Any, b: Any, x_scale: Any, x_zero: Any, y: Any, *, low: int, high: int, rounds: bool) -> None:
    flat, out = x.reshape(count(x.shape[:-1]), x.shape[-1]), y.reshape(count(y.shape[:-1]), y.shape[-1])
    found, own = places(flat, x_scale, x_zero, low, high) if rounds else (flat, x.dtype.type(1))
    np.matmul(found, unpacked(w, scale, x.shape[-1]).T, out=out)
    _finished(out, own, x.dtype.type(1), b)


def convolution_cpu(
    x: Any, w: Any, scale: Any, b: Any, x_scale: Any, x_zero: Any, y: Any, *, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int,
    low: int, high: int,
) -> None:  # fmt: skip
    found, own = places(x, x_scale, x_zero, low, high)
    kind = x.dtype if count(w.shape[1:]) <= EXACT else np.dtype(np.float64)
    total = y if kind == y.dtype else np.empty(y.shape, kind)
    correlate(found.astype(kind, copy=False), w.astype(kind), total, stride, symmetric(padding), dilation, groups)
    if total is not y:
        y[...] = total
    lost = np.isnan(x).any(axis=tuple(range(1, x.ndim)))
    if lost.any():
        y[lost] = np.nan
    channels = (-1, *(1,) * len(stride))
    _finished(y, own, scale.reshape(channels), None if b is None else b.reshape(channels))


def _straight(g: Any, x: Any, x_scale: Any, x_zero: Any, low: int, high: int) -> Any:
    """A gradient where the range was not left."""
    if x_scale is None:
        return g
    at = (x / x_scale).round() + x_zero.to(x.dtype)
    return g * ((at >= low) & (at <= high)).to(g.dtype)


def _flat(x: Any) -> Any:
    return x.reshape(count(x.shape[:-1]), x.shape[-1])


def _linear_dx(g: Any, x: Any, w: Any, scale: Any, x_scale: Any, x_zero: Any, low: int, high: int) -> Any:
    wide = w.to(g.dtype) * scale.reshape(-1, 1)
    return _straight((_flat(g) @ wide).reshape(x.shape), x, x_scale, x_zero, low, high)


def halves(w: Any, dtype: Any) -> Any:
    """The two numbers in each byte, 0 to 15, one behind the other."""
    lower, upper = (w % 16).to(dtype).unsqueeze(-1), (w // 16).to(dtype).unsqueeze(-1)
    both = lower.new_zeros((*w.shape, 2))
    return both.slice_scatter(lower, -1, 0, 1).slice_scatter(upper, -1, 1, 2).flatten(-2)


def _linear4_dx(g: Any, x: Any, w: Any, scale: Any, x_scale: Any, x_zero: Any, low: int, high: int, rounds: bool) -> Any:
    wide = ((halves(w, g.dtype).reshape(*scale.shape, GROUP) - 8) * scale.unsqueeze(2)).flatten(1)[:, : x.shape[-1]]
    dx = (_flat(g) @ wide).reshape(x.shape)
    return _straight(dx, x, x_scale, x_zero, low, high) if rounds else dx


def _convolution_dx(
    g: Any, x: Any, w: Any, scale: Any, x_scale: Any, x_zero: Any, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int, low: int,
    high: int,
) -> Any:  # fmt: skip
    wide = w.to(g.dtype) * scale.reshape(-1, *(1,) * (len(stride) + 1))
    dx = convolution_dx(g, wide, shape=tuple(x.shape), stride=stride, padding=padding, dilation=dilation, groups=groups)
    return _straight(dx, x, x_scale, x_zero, low, high)


def _over_channels(g: Any) -> Any:
    return g.sum((0, *range(2, g.ndim)))


quantized_linear = Op(
    "quantized_linear", linear_rule, cpu=linear_cpu, params=("low", "high"), autocast="float32",
    grad={"x": _linear_dx, "b": lambda g: _flat(g).sum(0)},
)  # fmt: skip
quantized_linear4 = Op(
    "quantized_linear4", linear4_rule, cpu=linear4_cpu, params=("low", "high", "rounds"), autocast="float32",
    grad={"x": _linear4_dx, "b": lambda g: _flat(g).sum(0)},
)  # fmt: skip
quantized_convolution = Op(
    "quantized_convolution", convolution_rule, cpu=convolution_cpu, params=(*GEOMETRY, "low", "high"), autocast="float32",
    grad={"x": _convolution_dx, "b": _over_channels},
)  # fmt: skip
