"""Layers with what follows them as one row: what a product's or a convolution's epilogue does on a GPU, and what spares a pass on the CPU.

A row stands here where the activation costs nothing beside the sums: ReLU, whose derivative needs the result alone; GELU by tanh, which
cuBLASLt computes while it also writes what GELU was taken of; and for convolutions, whose kernel is our own, four activations. An embedding
adds the rows of its positions. Gradients are the plain rows', so that they have derivatives of any order. Norms of a sum: `residual.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.dtype import ZERO
from gradlab.kernel import Gemm, Kernel
from gradlab.op import Op
from gradlab.ops import activation as acts, conv, elementwise
from gradlab.ops.conv_cpu import convolution_cpu
from gradlab.ops.indexing import embedding_backward, embedding_cpu, embedding_rule
from gradlab.ops.linear import flat, linear_cpu, linear_rule
from gradlab.ops.movement import slice_backward
from gradlab.spec import ShapeError, Spec

ACTIVATIONS = {"relu": elementwise.relu, "gelu": acts.gelu, "gelu_tanh": acts.gelu_tanh, "silu": acts.silu}  # of convolutions
BACKWARD = {"relu": elementwise.relu_backward, "gelu": acts.gelu_backward, "gelu_tanh": acts.gelu_tanh_backward, "silu": acts.silu_backward}


def _layer_gradients(dz: Any, x: Any, w: Any, b: Any) -> tuple[Any, Any, Any]:
    """Gradients of a layer's input, weight and bias from that of its sums."""
    rows = flat(dz)
    dx = rows @ w
    return dx if len(x.shape) == 2 else dx.reshape(x.shape), rows.t() @ flat(x), None if b is None else rows.sum(0)


# ---------------------------------------------------------------- linear


def linear_relu_cpu(x: Any, w: Any, b: Any, y: Any) -> None:
    linear_cpu(x, w, b, y)
    np.maximum(y, ZERO[y.dtype], out=y)


def linear_gelu_rule(x: Spec, w: Spec, b: Spec | None) -> tuple[Spec, Spec]:
    """Rule: GELU of the layer's sums, and the sums."""
    found = linear_rule(x, w, b)
    return found, found


def linear_gelu_tanh_cpu(x: Any, w: Any, b: Any, y: Any, z: Any) -> None:
    linear_cpu(x, w, b, z)
    acts.gelu_tanh_cpu(z, y)


def _linear_gelu_gradient(g_y: Any, x: Any, w: Any, b: Any, z: Any, g_z: Any = None) -> tuple[Any, Any, Any]:
    dz = acts.gelu_tanh_backward(g_y, z)
    return _layer_gradients(dz if g_z is None else dz + g_z, x, w, b)


linear_relu = Op("linear_relu", linear_rule, cpu=linear_relu_cpu, cuda=Gemm(transpose_b=True), promote="same", autocast="lower",
                 grad={("x", "w", "b"): lambda g, x, w, b, y: _layer_gradients(elementwise.relu_backward(g, y), x, w, b)})  # fmt: skip
linear_gelu_tanh = Op("linear_gelu_tanh", linear_gelu_rule, outputs=("y", "z"), cpu=linear_gelu_tanh_cpu, cuda=Gemm(transpose_b=True),
                      promote="same", autocast="lower", grad={("x", "w", "b"): _linear_gelu_gradient})  # fmt: skip

# ---------------------------------------------------------------- convolution


def convolution_act_rule(
    x: Spec, w: Spec, b: Spec | None, *, stride: conv.Sizes, padding: conv.Sizes, dilation: conv.Sizes, groups: int, activation: str
) -> Spec:
    """Rule: as `convolution`; the activation is one of four."""
    if activation not in ACTIVATIONS:
        raise TypeError(f"no activation {activation!r}: there are {', '.join(ACTIVATIONS)}")
    return conv.convolution_rule(x, w, b, stride=stride, padding=padding, dilation=dilation, groups=groups)


def convolution_act_cpu(x: Any, w: Any, b: Any, y: Any, *, activation: str, **geometry: Any) -> None:
    convolution_cpu(x, w, b, y, **geometry)
    if activation == "relu":
        np.maximum(y, ZERO[y.dtype], out=y)
    else:
        ACTIVATIONS[activation].cpu(y.copy(), y)


def _convolution_gradient(
    g: Any, x: Any, w: Any, b: Any, y: Any, stride: Any, padding: Any, dilation: Any, groups: int, activation: str
) -> tuple[Any, Any, Any]:
    """ReLU's derivative comes from the result; for the others the sums, which nobody kept, are computed again."""
    at = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    z = y if activation == "relu" else conv.convolution(x, w, b, **at)
    dz = BACKWARD[activation](g, z)
    dx = conv.convolution_dx(dz, w, shape=x.shape, **at)
    dw = conv.convolution_dw(x, dz, shape=w.shape, **at)
    return dx, dw, None if b is None else dz.sum((0, *range(2, len(dz.shape))))


def convolution_sums_rule(x: Spec, w: Spec, b: Spec | None, **params: Any) -> tuple[Spec, Spec]:
    """Rule: the activation of a convolution, and its sums."""
    found = convolution_act_rule(x, w, b, **params)
    return found, found


def convolution_sums_cpu(x: Any, w: Any, b: Any, y: Any, z: Any, *, activation: str, **geometry: Any) -> None:
    convolution_cpu(x, w, b, z, **geometry)
    ACTIVATIONS[activation].cpu(z, y)


def _convolution_sums_gradient(
    g_y: Any, x: Any, w: Any, b: Any, z: Any, stride: Any, padding: Any, dilation: Any, groups: int, activation: str, g_z: Any = None
) -> tuple[Any, Any, Any]:
    at = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    dz = BACKWARD[activation](g_y, elementwise.relu(z) if activation == "relu" else z)
    dz = dz if g_z is None else dz + g_z
    dx = conv.convolution_dx(dz, w, shape=x.shape, **at)
    dw = conv.convolution_dw(x, dz, shape=w.shape, **at)
    return dx, dw, None if b is None else dz.sum((0, *range(2, len(dz.shape))))


convolution_act = Op(
    "convolution_act", convolution_act_rule, params=(*conv.GEOMETRY, "activation"), autocast="lower", cpu=convolution_act_cpu,
    cuda=Kernel("conv.cu", "convolution_act", "convolution"), grad={("x", "w", "b"): _convolution_gradient},
)  # fmt: skip
convolution_act_sums = Op(
    "convolution_act_sums", convolution_sums_rule, params=(*conv.GEOMETRY, "activation"), outputs=("y", "z"), autocast="lower",
    cpu=convolution_sums_cpu, cuda=Kernel("conv.cu", "convolution_act_sums", "convolution"),
    grad={("x", "w", "b"): _convolution_sums_gradient},
)  # fmt: skip

# ---------------------------------------------------------------- embedding


def embedding_add_rule(weight: Spec, positions: Spec, at: Spec, *, padding_idx: int | None) -> Spec:
    """Rule: as `embedding`; the last dimension of the indices counts positions, of which there are at least as many."""
    found = embedding_rule(weight, at, padding_idx=padding_idx)
    if positions.dtype != weight.dtype:
        raise TypeError(f"a table of {weight.dtype} and positions of {positions.dtype}")
    if not at.shape or len(positions.shape) != 2 or positions.shape[1] != weight.shape[1] or positions.shape[0] < at.shape[-1]:
        expected = f"(*, length) and (length or more, {weight.shape[1]})"
        raise ShapeError(f"indices of shape {at.shape} and positions of shape {positions.shape}: expected {expected}")
    return found


def embedding_add_cpu(weight: Any, positions: Any, at: Any, y: Any, *, padding_idx: int | None) -> None:
    embedding_cpu(weight, at, y, padding_idx=padding_idx)
    np.add(y, positions[: at.shape[-1]], y)


def _positions_gradient(g: Any, positions_spec: Spec) -> Any:
    """Sums over the batch; zeros for the positions that were not used."""
    used = g.shape[-2]
    found = g.sum(tuple(range(len(g.shape) - 2))) if len(g.shape) > 2 else g
    return found if used == positions_spec.shape[0] else slice_backward(found, shape=positions_spec.shape, index=((0, used, 1),))


embedding_add = Op("embedding_add", embedding_add_rule, params=("padding_idx",), cpu=embedding_add_cpu,
                   cuda=Kernel("embedding.cu", "embedding_add", "embedding"), roundings=1,
                   grad={"weight": lambda g, at, weight_spec, padding_idx:
                         embedding_backward(g, at, rows=weight_spec.shape[0], padding_idx=padding_idx),
                         "positions": _positions_gradient})  # fmt: skip
