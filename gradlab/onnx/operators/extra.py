"""Operators of ONNX Runtime's own domain that its optimizer writes into files: fused products, activations and norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradlab as gl
from gradlab.nn import functional as F
from gradlab.onnx.importing import EXTRA, Node, given, imports
from gradlab.onnx.operators import conv as convolutions, elementwise

_AFTER: dict[str, Callable[[Any, list[float]], Any]] = {
    "Relu": lambda x, p: F.relu(x),
    "Tanh": lambda x, p: gl.tanh(x),
    "Sigmoid": lambda x, p: gl.sigmoid(x),
    "LeakyRelu": lambda x, p: F.leaky_relu(x, p[0] if p else 0.01),
    "Clip": lambda x, p: gl.clamp(x, p[0], p[1]),
    "HardSigmoid": lambda x, p: gl.clamp(x * p[0] + p[1], 0, 1),
}  # fmt: skip


def _activated(node: Node, y: Any) -> Any:
    kind = node.get("activation", "")
    if kind and kind not in _AFTER:
        raise node.refuse(f"the activation {kind} is not known")
    return _AFTER[kind](y, node.get("activation_params", [])) if kind else y


@imports(f"{EXTRA}:FusedConv")
def fused_conv(node: Node, x: Any, weight: Any, bias: Any = None, added: Any = None) -> Any:
    """A convolution, what is added to it, and an activation."""
    y = convolutions.conv(node, x, weight, bias)
    return _activated(node, y + added if given(added) else y)


@imports(f"{EXTRA}:FusedGemm")
def fused_gemm(node: Node, a: Any, b: Any, c: Any = None) -> Any:
    y = elementwise.gemm(node, a, b, c)
    parameters = [node.get(n) for n in ("activation_alpha", "activation_beta") if n in node.attributes]
    kind = node.get("activation", "")
    if kind and kind not in _AFTER:
        raise node.refuse(f"the activation {kind} is not known")
    return _AFTER[kind](y, parameters) if kind else y


@imports(f"{EXTRA}:FusedMatMul")
def fused_matmul(node: Node, a: Any, b: Any) -> Any:
    """trans: the last two dimensions are exchanged; transBatch: before that, the first dimension goes behind the batch's."""
    a = a.movedim(0, -2) if node.get("transBatchA", 0) else a
    b = b.movedim(0, -2) if node.get("transBatchB", 0) else b
    a = a.transpose(-1, -2) if node.get("transA", 0) else a
    b = b.transpose(-1, -2) if node.get("transB", 0) else b
    return (a @ b) * node.get("alpha", 1.0)


@imports(f"{EXTRA}:Gelu")
def gelu(node: Node, x: Any) -> Any:
    return F.gelu(x)


@imports(f"{EXTRA}:BiasGelu")
def bias_gelu(node: Node, x: Any, bias: Any) -> Any:
    return F.gelu(x + bias)


@imports(f"{EXTRA}:FastGelu")
def fast_gelu(node: Node, x: Any, bias: Any = None) -> Any:
    return F.gelu(x + bias if given(bias) else x, approximate="tanh")


@imports(f"{EXTRA}:QuickGelu")
def quick_gelu(node: Node, x: Any) -> Any:
    return x * gl.sigmoid(x * node.get("alpha", 1.702))


@imports(f"{EXTRA}:SkipLayerNormalization", f"{EXTRA}:SkipSimplifiedLayerNormalization")
def skip_norm(node: Node, x: Any, skip: Any, scale: Any, *rest: Any) -> Any:
    """A residual sum and its norm; the sum is the fourth result."""
    simple = node.kind.startswith("SkipSimplified")
    shift, bias = (None, rest[0] if rest else None) if simple else (*rest, None, None)[:2]
    total = x + skip
    total = total + bias if given(bias) else total
    eps = node.get("epsilon", 1e-12 if not simple else 1e-5)
    if simple:
        y = total / ((total * total).mean(-1, keepdim=True) + eps).sqrt() * scale
    else:
        y = F.layer_norm(total, total.shape[-1:], scale, shift if given(shift) else None, eps)
    return y, None, None, total


@imports("SimplifiedLayerNormalization")
def simple_norm(node: Node, x: Any, scale: Any) -> Any:
    """Without mean; a name that ONNX Runtime uses in ONNX's own domain."""
    axis = node.get("axis", -1) % x.dim()
    dims = tuple(range(axis, x.dim()))
    return x / ((x * x).mean(dims, keepdim=True) + node.get("epsilon", 1e-5)).sqrt() * scale
