"""Operators of ONNX Runtime's own domain that are older names of ONNX's, or small: matrices, windows, distances, parts of diffusion."""

from __future__ import annotations

from typing import Any

import numpy as np

import gradlab as gl
from gradlab.nn import functional as F
from gradlab.onnx.importing import EXTRA, Node, given, imports, ints, number, read
from gradlab.onnx.operators import conv, extra, images, indexing, quantized, shapes
from gradlab.onnx.operators.reductions import rooted

imports(f"{EXTRA}:Pad", host=(1, 2))(shapes.pad)
imports(f"{EXTRA}:Trilu", host=(1,))(shapes.trilu)
imports(f"{EXTRA}:GatherND")(indexing.gather_nd)
imports(f"{EXTRA}:GridSample")(images.grid_sample)
imports(f"{EXTRA}:TransposeMatMul")(extra.fused_matmul)


@imports(f"{EXTRA}:Range", host=(0, 1, 2))
def range_(node: Node, start: Any, limit: Any, step: Any = None) -> Any:
    return shapes.range_(node, start, limit, np.ones((), np.asarray(start).dtype) if step is None else step)


@imports(f"{EXTRA}:ExpandDims", host=(1,))
def expand_dims(node: Node, x: Any, axis: Any) -> Any:
    return x.unsqueeze(int(number(axis)))


@imports(f"{EXTRA}:Inverse")
def inverse(node: Node, x: Any) -> Any:
    return gl.linalg.inv(x)


@imports(f"{EXTRA}:CDist")
def distances(node: Node, a: Any, b: Any) -> Any:
    """Of each row of a to each row of b, or their squares."""
    squares = ((a.unsqueeze(1) - b) ** 2).sum(-1)
    return rooted(squares) if node.get("metric", "sqeuclidean") == "euclidean" else squares


@imports(f"{EXTRA}:UnfoldTensor")
def unfold(node: Node, x: Any) -> Any:
    return x.unfold(node.get("dim", -1), node.get("size"), node.get("step", 1))


@imports(f"{EXTRA}:MatMulInteger16")
def whole_product(node: Node, a: Any, b: Any) -> Any:
    return a.to(gl.int32) @ b.to(gl.int32)


@imports(f"{EXTRA}:Unique")
def unique(node: Node, x: Any) -> Any:
    """Values in the order of their first places, the inverse, and counts."""
    ordered = Node("Unique", node.name, node.inputs, ["", "", "", ""], {"sorted": 0}, node.opset).at(node.device, node.scope)
    values, _, back, counts = indexing.unique(ordered, x)
    return values, back, counts


@imports(f"{EXTRA}:NhwcMaxPool")
def channels_last_pool(node: Node, x: Any) -> Any:
    return conv.max_pool(node, x.movedim(-1, 1)).movedim(1, -1)


@imports(f"{EXTRA}:QLinearConv", fixed=(1, 2, 4, 5, 6, 7))
def quantized_conv(node: Node, x: Any, *rest: Any) -> Any:
    """As ONNX's, also with channels last."""
    if not node.get("channels_last", 0):
        return quantized.quantized_conv(node, x, *rest)
    return quantized.quantized_conv(node, x.movedim(-1, 1), *rest).movedim(1, -1)


@imports(f"{EXTRA}:QLinearWhere", fixed=(2, 3, 5, 6, 7, 8))
def quantized_where(
    node: Node, condition: Any, x: Any, x_scale: Any, x_zero: Any, y: Any, y_scale: Any, y_zero: Any, scale: Any, zero: Any
) -> Any:
    wide = gl.where(condition, quantized.dequantize(node, x, x_scale, x_zero), quantized.dequantize(node, y, y_scale, y_zero))
    return quantized.quantize(node, wide, scale, zero)


@imports(f"{EXTRA}:ConvTransposeWithDynamicPads", host=(2,))
def transposed(node: Node, x: Any, weight: Any, pads: Any = None, bias: Any = None) -> Any:
    attributes = node.attributes if pads is None else {**node.attributes, "pads": ints(read(node, pads, "a pad"))}
    return conv.conv_transpose(Node("ConvTranspose", node.name, node.inputs, node.outputs, attributes, node.opset), x, weight, bias)


# ---------------------------------------------------------------- parts of diffusion models, channels last


@imports(f"{EXTRA}:GroupNorm", f"{EXTRA}:SkipGroupNorm")
def group_norm(node: Node, x: Any, scale: Any, shift: Any, skip: Any = None, bias: Any = None) -> Any:
    """The norm of groups of channels, and SiLU behind it where `activation` is 1; of a sum, which is the second result, with a skip."""
    if given(skip):
        x = x + (skip if skip.dim() == 4 else skip.unsqueeze(1).unsqueeze(1))
        x = x + bias if given(bias) else x
    first = x.movedim(-1, 1) if node.get("channels_last", 1) else x
    y = F.group_norm(first, node.get("groups"), scale.to(x.dtype), shift.to(x.dtype), node.get("epsilon", 1e-5))
    y = F.silu(y) if node.get("activation", 0) else y
    return (y.movedim(1, -1) if node.get("channels_last", 1) else y), x


@imports(f"{EXTRA}:BiasAdd")
def bias_add(node: Node, x: Any, bias: Any, skip: Any) -> Any:
    return x + bias + skip


@imports(f"{EXTRA}:BiasSplitGelu")
def bias_split_gelu(node: Node, x: Any, bias: Any) -> Any:
    """The first half of the features times GELU of the second."""
    value, gate = (x + bias).chunk(2, -1)
    return value * F.gelu(gate)
