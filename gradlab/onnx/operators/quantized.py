"""Numbers that stand for others by a scale and a zero point, and products of them.

Sums of products of 8-bit numbers are computed on whole float32 numbers where they stay below 2^24, in float64 otherwise: exact in both.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import gradlab as gl
from gradlab.nn import functional as F
from gradlab.onnx.holders import GRIDS, LIMITS, NAMES, WHOLE, on_grid
from gradlab.onnx.hosts import Array, NotHere, hosted
from gradlab.onnx.importing import DATA_TYPES, EXTRA, Node, given, imports
from gradlab.onnx.operators import conv as convolutions, recurrent
from gradlab.quiet import quietly

KINDS = {gl.uint8: 2, gl.int8: 3, gl.int16: 5, gl.int32: 6}
EXACT = 1 << 24  # whole numbers that float32 holds
WIDEST = 1 << 16  # the largest product of two 8-bit numbers, at most


def _along(node: Node, x: Any, value: Any) -> Any:
    """A scale or zero point: one number, one for each place of an axis, or one for each block of one."""
    axis, block = node.get("axis", 1), node.get("block_size", 0)
    if block:
        return value.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])
    if value.dim() == 1 and (value.shape[0] > 1 or (x.dim() > 1 and x.shape[axis] == value.shape[0])):
        shape = [1] * x.dim()
        shape[axis] = value.shape[0]
        return value.reshape(shape)
    return value.reshape(()) if value.dim() <= 1 else value


@hosted("DequantizeLinear", open_sizes=False)
def dequantize_host(node: Node, x: Array, scale: Array, zero: Array | None = None) -> Any:
    """Also of types that there are no tensors of, such as int4: weights that a file stores."""
    axis, block = node.get("axis", 1), node.get("block_size", 0)

    def along(value: Array) -> Array:
        value = value.astype(scale.dtype)
        if block:
            return value.repeat(block, axis).take(range(x.shape[axis]), axis)
        if value.ndim == 1 and (value.shape[0] > 1 or (x.ndim > 1 and x.shape[axis] == value.shape[0])):
            return value.reshape([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)])
        return value.reshape(()) if value.ndim <= 1 else value

    if scale.dtype.name not in ("float32", "float64", "float16"):
        raise NotHere
    y = x.astype(scale.dtype)
    return quietly(lambda: (y - along(zero) if zero is not None and zero.size else y) * along(scale))


@imports("DequantizeLinear", f"{EXTRA}:DequantizeLinear", fixed=(1, 2))
def dequantize(node: Node, x: Any, scale: Any, zero: Any = None) -> Any:
    """(x - zero) · scale."""
    y = x.to(scale.dtype)
    if given(zero):
        y = y - _along(node, x, zero.to(scale.dtype))
    return y * _along(node, x, scale)


@imports("QuantizeLinear", f"{EXTRA}:QuantizeLinear", fixed=(1, 2))
def quantize(node: Node, x: Any, scale: Any, zero: Any = None) -> Any:
    """round(x / scale) + zero, within the limits of the type."""
    kind = node.get("output_dtype", 0) or (KINDS.get(zero.dtype, 0) if given(zero) else 2)
    if kind not in WHOLE and kind not in GRIDS:
        raise node.refuse(f"results of {NAMES.get(kind, DATA_TYPES.get(kind, kind))} are not supported")
    y = x / _along(node, x, scale.to(x.dtype))
    if kind in GRIDS:
        return on_grid(y, kind, bool(node.get("saturate", 1)))
    y = gl.round(y)
    if given(zero):
        y = y + _along(node, x, zero.to(y.dtype))
    return gl.clamp(y, *LIMITS[kind]).to(WHOLE[kind])


@imports("DynamicQuantizeLinear")
def dynamic_quantize(node: Node, x: Any) -> Any:
    """To uint8 by the range of the data, which is stretched to hold 0; with scale and zero point."""
    low, high = gl.clamp(x.amin(), max=0), gl.clamp(x.amax(), min=0)
    scale = (high - low) / 255
    safe = gl.where(scale == 0, 1.0, scale)
    zero = gl.clamp(gl.round(-low / safe), 0, 255)
    return gl.clamp(gl.round(x / safe) + zero, 0, 255).to(gl.uint8), scale, zero.to(gl.uint8)


# ---------------------------------------------------------------- products in whole numbers


def _whole(depth: int) -> Any:
    """The floating-point type in which sums of so many products are exact."""
    return gl.float32 if depth * WIDEST < EXACT else gl.float64


def _centred(x: Any, zero: Any, dtype: Any, dim: int | None = None) -> Any:
    """Without the zero point, which may be one for each place of a dimension."""
    y = x.to(dtype)
    if not given(zero):
        return y
    zero = zero.to(dtype)
    if zero.dim() == 1 and zero.shape[0] > 1 and dim is not None:
        zero = zero.reshape([-1 if d == dim % x.dim() else 1 for d in range(x.dim())])
    return y - (zero.reshape(()) if zero.dim() == 1 and zero.shape[0] == 1 else zero)


def product(a: Any, b: Any, a_zero: Any, b_zero: Any) -> Any:
    """a @ b of whole numbers, without their zero points: exact, in a floating-point type."""
    dtype = _whole(a.shape[-1])
    return _centred(a, a_zero, dtype, -2 if a.dim() > 1 else None) @ _centred(b, b_zero, dtype, -1)


@imports("MatMulInteger", fixed=(2, 3))
def matmul_integer(node: Node, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    """Products of small integers, exact in int32."""
    return product(a, b, a_zero, b_zero).to(gl.int32)


def _convolved(node: Node, x: Any, weight: Any, x_zero: Any, weight_zero: Any) -> Any:
    """Convolution of whole numbers; what is padded stands for zero. Sums that float32 might round are made in parts, of fewer channels."""
    window = math.prod(weight.shape[2:])
    channels = weight.shape[1]
    part = channels if node.get("group", 1) > 1 or _whole(window) is gl.float64 else max(1, min(channels, (EXACT - 1) // (WIDEST * window)))
    dtype = _whole(window * part)
    x, weight = _centred(x, x_zero, dtype), _centred(weight, weight_zero, dtype, 0)
    if part == channels:
        return convolutions.conv(node, x, weight)
    ends = [(at, min(part, channels - at)) for at in range(0, channels, part)]
    found = [convolutions.conv(node, x.narrow(1, *end), weight.narrow(1, *end)).to(gl.int32) for end in ends]
    return functools.reduce(operator.add, found)


@imports("ConvInteger", fixed=(2, 3))
def conv_integer(node: Node, x: Any, weight: Any, x_zero: Any = None, weight_zero: Any = None) -> Any:
    return _convolved(node, x, weight, x_zero, weight_zero).to(gl.int32)


def _channels(value: Any, rank: int) -> Any:
    """One number, or one for each channel of a result."""
    return value.reshape(()) if value.dim() == 0 or value.shape[0] == 1 else value.reshape(-1, *[1] * (rank - 2))


@imports("QLinearConv", fixed=(1, 2, 4, 5, 6, 7))
def quantized_conv(
    node: Node, x: Any, x_scale: Any, x_zero: Any, w: Any, w_scale: Any, w_zero: Any, y_scale: Any, y_zero: Any, bias: Any = None
) -> Any:
    total = _convolved(node, x, w, x_zero, w_zero)
    if given(bias):
        total = total + _channels(bias.to(total.dtype), total.dim())
    y = total.to(gl.float32) * _channels(x_scale * w_scale / y_scale, total.dim())
    return _stored(y, y_zero)


def _stored(y: Any, zero: Any) -> Any:
    """Numbers in units of the scale, as the type of their zero point."""
    dtype = zero.dtype if given(zero) else gl.uint8
    y = gl.round(y) + (zero.to(y.dtype).reshape(()) if given(zero) else 0)
    return gl.clamp(y, *LIMITS[KINDS[dtype]]).to(dtype)


def _axis(node: Node, axis: int) -> Node:
    return Node(node.kind, node.name, node.inputs, node.outputs, {"axis": axis}, node.opset)


@imports("QLinearMatMul", fixed=(1, 2, 4, 5, 6, 7))
def quantized_matmul(node: Node, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any) -> Any:
    """The product of what the numbers stand for."""
    rows, columns = _axis(node, -2), _axis(node, -1)
    product = dequantize(rows, a, a_scale.to(gl.float32), a_zero) @ dequantize(columns, b, b_scale.to(gl.float32), b_zero)
    return quantize(rows, product, y_scale.to(gl.float32), y_zero)


# ---------------------------------------------------------------- ONNX Runtime's own


def _extra(name: str, fixed: tuple[int, ...] = ()) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return imports(f"{EXTRA}:{name}", fixed=fixed)


_PAIRS: dict[str, Callable[[Any, Any], Any]] = {"QLinearAdd": gl.add, "QLinearMul": gl.mul}


@imports(*(f"{EXTRA}:{name}" for name in _PAIRS), fixed=(1, 2, 4, 5, 6, 7))
def quantized_pair(
    node: Node, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any = None
) -> Any:
    y = _PAIRS[node.kind](dequantize(node, a, a_scale, a_zero), dequantize(node, b, b_scale, b_zero))
    return quantize(node, y, y_scale, y_zero)


_ALONE: dict[str, Callable[[Node, Any], Any]] = {
    "QLinearSigmoid": lambda node, x: gl.sigmoid(x),
    "QLinearLeakyRelu": lambda node, x: F.leaky_relu(x, node.get("alpha", 0.01)),
    "QLinearSoftmax": lambda node, x: F.softmax(x, node.get("axis", -1)),
    "QLinearGlobalAveragePool": lambda node, x: x.mean(
        tuple(range(1, x.dim() - 1)) if node.get("channels_last", 0) else tuple(range(2, x.dim())), keepdim=True
    ),
    "QLinearAveragePool": lambda node, x: convolutions.average_pool(node, x.movedim(-1, 1)).movedim(1, -1)
    if node.get("channels_last", 0)
    else convolutions.average_pool(node, x),
}


@imports(*(f"{EXTRA}:{name}" for name in _ALONE), fixed=(1, 2, 3, 4))
def quantized_alone(node: Node, x: Any, x_scale: Any, x_zero: Any, y_scale: Any, y_zero: Any = None) -> Any:
    return quantize(node, _ALONE[node.kind](node, dequantize(node, x, x_scale, x_zero)), y_scale, y_zero)


@imports(f"{EXTRA}:QLinearConcat", fixed=tuple(i for i in range(64) if i % 3 != 2))
def quantized_concat(node: Node, y_scale: Any, y_zero: Any, *parts: Any) -> Any:
    wide = [dequantize(node, parts[i], parts[i + 1], parts[i + 2]) for i in range(0, len(parts), 3)]
    return quantize(_axis(node, 1), gl.cat(wide, node.get("axis", 0)), y_scale, y_zero)


@_extra("QGemm", fixed=(1, 2, 4, 5, 7, 8))
def quantized_gemm(
    node: Node, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, c: Any = None, y_scale: Any = None, y_zero: Any = None
) -> Any:
    """α·a·b + c with c in units of α and both scales; in float32 where there is no scale of the result."""
    a, b = (a.t() if node.get("transA", 0) else a), (b.t() if node.get("transB", 0) else b)
    total = product(a, b, a_zero, b_zero)
    total = total + c.to(total.dtype) if given(c) else total
    y = total.to(gl.float32) * (a_scale * b_scale * node.get("alpha", 1.0))
    return quantize(node, y, y_scale, y_zero) if given(y_scale) else y


@_extra("MatMulIntegerToFloat", fixed=(2, 3, 4, 5))
def matmul_to_float(
    node: Node, a: Any, b: Any, a_scale: Any, b_scale: Any, a_zero: Any = None, b_zero: Any = None, bias: Any = None
) -> Any:
    y = product(a, b, a_zero, b_zero).to(gl.float32) * (a_scale * b_scale)
    return y + bias if given(bias) else y


@_extra("DynamicQuantizeMatMul", fixed=(2, 3))
def dynamic_matmul(node: Node, a: Any, b: Any, b_scale: Any, b_zero: Any = None, bias: Any = None) -> Any:
    quantised, scale, zero = dynamic_quantize(node, a)
    return matmul_to_float(node, quantised, b, scale, b_scale, zero, b_zero, bias)


@_extra("DynamicQuantizeLSTM", fixed=(8, 9, 10, 11))
def dynamic_lstm(
    node: Node, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, c: Any = None, peepholes: Any = None,
    w_scale: Any = None, w_zero: Any = None, r_scale: Any = None, r_zero: Any = None,
) -> Any:  # fmt: skip
    """Weights [directions, inputs, gates] of 8 bits, with a scale for each direction, or for each gate's unit, too; inputs and states are
    quantised by their own ranges in each step."""
    plain = Node("LSTM", node.name, node.inputs[:8], node.outputs, node.attributes, node.opset).at(node.device, node.scope)
    return recurrent.quantized_lstm(plain, x, (w, w_scale, w_zero), (r, r_scale, r_zero), b, lengths, h, c, peepholes, _quantised_product)


def _quantised_product(x: Any, weight: Any, scale: Any, zero: Any) -> Any:
    """x @ weight with x rounded to 8 bits by its range. weight: [inputs, gates]."""
    rounded, x_scale, x_zero = dynamic_quantize(Node("DynamicQuantizeLinear", "", [], [], {}, 1), x)
    return product(rounded, weight, x_zero, zero).to(gl.float32) * (x_scale * scale)
