"""Numbers that stand for others by a scale and a zero point."""

from __future__ import annotations

from typing import Any

import gradlab as gl
from gradlab.onnx.importing import Node, given, imports

_LIMITS = {gl.int8: (-128, 127), gl.uint8: (0, 255)}


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


@imports("DequantizeLinear")
def dequantize(node: Node, x: Any, scale: Any, zero: Any = None) -> Any:
    """(x - zero) · scale."""
    y = x.to(scale.dtype)
    if given(zero):
        y = y - _along(node, x, zero.to(scale.dtype))
    return y * _along(node, x, scale)


@imports("QuantizeLinear")
def quantize(node: Node, x: Any, scale: Any, zero: Any = None) -> Any:
    """round(x / scale) + zero, within the limits of the type."""
    dtype = zero.dtype if given(zero) else gl.uint8
    if dtype not in _LIMITS:
        raise node.refuse(f"results of {dtype} are not supported")
    y = gl.round(x / _along(node, x, scale))
    if given(zero):
        y = y + _along(node, x, zero.to(y.dtype))
    return gl.clamp(y, *_LIMITS[dtype]).to(dtype)


@imports("DynamicQuantizeLinear")
def dynamic_quantize(node: Node, x: Any) -> Any:
    """To uint8 by the range of the data, which is stretched to hold 0; with scale and zero point."""
    low, high = gl.clamp(x.amin(), max=0), gl.clamp(x.amax(), min=0)
    scale = (high - low) / 255
    zero = gl.clamp(gl.round(-low / scale), 0, 255)
    return gl.clamp(gl.round(x / scale) + zero, 0, 255).to(gl.uint8), scale, zero.to(gl.uint8)


@imports("MatMulInteger")
def matmul_integer(node: Node, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    """Products of small integers, exact in int32."""
    a, b = a.to(gl.int32), b.to(gl.int32)
    if given(a_zero):
        zero = a_zero.to(gl.int32)
        a = a - (zero.unsqueeze(-1) if zero.dim() == 1 and zero.shape[0] > 1 else zero)
    return a @ (b - b_zero.to(gl.int32) if given(b_zero) else b)


@imports("QLinearMatMul")
def quantized_matmul(node: Node, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any) -> Any:
    """The product of what the numbers stand for."""
    axes = Node(node.kind, node.name, node.inputs, node.outputs, {"axis": -2}, node.opset), Node(
        node.kind, node.name, node.inputs, node.outputs, {"axis": -1}, node.opset
    )
    product = dequantize(axes[0], a, a_scale.to(gl.float32), a_zero) @ dequantize(axes[1], b, b_scale.to(gl.float32), b_zero)
    return quantize(axes[0], product, y_scale.to(gl.float32), y_zero)
