"""Rows that passes alone make: what several rows compute one after the other, in one call. No user calls them, they have no gradients, and
the CPU's executables alone run them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.op import Op
from gradlab.ops import where
from gradlab.ops.conv import GEOMETRY, Sizes, convolution_rule, dw_rule, dx_rule, output_shape
from gradlab.ops.conv_cpu import convolution_cpu, convolution_dw_cpu, convolution_dx_cpu
from gradlab.ops.norm import batch_backward_cpu, batch_backward_rule, batch_cpu, batch_rule, planes
from gradlab.ops.pool import max_pool_rule
from gradlab.ops.pool_cpu import max_pool_backward_cpu, max_pool_cpu
from gradlab.spec import Spec

HALVES: dict[str, Any] = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1), "ceil_mode": False}


def _norm_relu_rule(x: Spec, weight: Spec, bias: Spec, other: Spec | None, *, eps: float) -> tuple[Spec, Spec, Spec, Spec]:
    """Rule: what batch_norm gives."""
    return batch_rule(x, weight, bias, eps=eps)


def _norm_relu(x: Any, weight: Any, bias: Any, other: Any, y: Any, mean: Any, rstd: Any, var: Any, *, eps: float) -> None:
    batch_cpu(x, weight, bias, y, mean, rstd, var, eps=eps)
    if other is not None:
        np.add(y, other, y)
    np.maximum(y, 0, out=y)


def _again_rule(x: Spec, weight: Spec, bias: Spec, mean: Spec, rstd: Spec, other: Spec | None) -> Spec:
    """Rule: the input's shape."""
    return x


def _again(x: Any, weight: Any, bias: Any, mean: Any, rstd: Any, other: Any, y: Any) -> None:
    source, out = planes(x), planes(y)
    np.subtract(source, mean[:, None], out)
    out *= (rstd * weight)[:, None]
    out += bias[:, None]
    if other is not None:
        np.add(y, other, y)
    np.maximum(y, 0, out=y)


def _norm_relu_backward_rule(dy: Spec, x: Spec, weight: Spec, bias: Spec, mean: Spec, rstd: Spec) -> tuple[Spec, Spec, Spec]:
    """Rule: gradients of input, weight and bias."""
    return batch_backward_rule(dy, x, weight, mean, rstd)


def _norm_relu_backward(
    dy: Any, x: Any, weight: Any, bias: Any, mean: Any, rstd: Any, dx: Any, dweight: Any, dbias: Any
) -> None:  # fmt: skip
    result, slope = np.empty(x.shape, x.dtype), np.empty(x.shape, x.dtype)
    _again(x, weight, bias, mean, rstd, None, result)
    where.drop(result <= 0, dy, slope)
    batch_backward_cpu(slope, x, weight, mean, rstd, dx, dweight, dbias)


def _convolution_relu_rule(
    x: Spec, w: Spec, b: Spec | None, *, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> Spec:  # fmt: skip
    """Rule: what convolution gives."""
    return convolution_rule(x, w, b, stride=stride, padding=padding, dilation=dilation, groups=groups)


def _convolution_relu(x: Any, w: Any, b: Any, y: Any, *, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> None:
    convolution_cpu(x, w, b, y, stride=stride, padding=padding, dilation=dilation, groups=groups)
    np.maximum(y, 0, out=y)


def _relu_pool_rule(
    x: Spec, w: Spec, b: Spec | None, *, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> tuple[Spec, Spec]:  # fmt: skip
    """Rule: half the rows and columns of what convolution gives, and their indices."""
    y = convolution_rule(x, w, b, stride=stride, padding=padding, dilation=dilation, groups=groups)
    return max_pool_rule(y, **HALVES)


def _relu_pool(x: Any, w: Any, b: Any, values: Any, indices: Any, **geometry: Any) -> None:
    sizes = output_shape(x.shape, w.shape, *(geometry[name] for name in ("stride", "padding", "dilation", "groups")))
    whole = np.empty(sizes, x.dtype)
    _convolution_relu(x, w, b, whole, **geometry)
    max_pool_cpu(whole, values, indices, **HALVES)


def _convolution_norm_rule(
    x: Spec, w: Spec, b: Spec | None, weight: Spec | None, bias: Spec | None, other: Spec | None, *,
    stride: Sizes, padding: Sizes, dilation: Sizes, groups: int, eps: float,
) -> tuple[Spec, Spec, Spec, Spec, Spec]:  # fmt: skip
    """Rule: what convolution gives, and what batch_norm makes of it."""
    y = convolution_rule(x, w, b, stride=stride, padding=padding, dilation=dilation, groups=groups)
    return y, *batch_rule(y, weight, bias, eps=eps)


def _convolution_norm(
    x: Any, w: Any, b: Any, weight: Any, bias: Any, other: Any, y: Any, normal: Any, mean: Any, rstd: Any, var: Any, *, eps: float,
    **geometry: Any,
) -> None:  # fmt: skip
    convolution_cpu(x, w, b, y, **geometry)
    batch_cpu(y, weight, bias, normal, mean, rstd, var, eps=eps)
    if other is not None:
        np.add(normal, other, normal)


def _convolution_norm_relu(*operands: Any, **params: Any) -> None:
    _convolution_norm(*operands, **params)
    normal = operands[7]
    np.maximum(normal, 0, out=normal)


def _dx_pooled_rule(
    g: Spec, indices: Spec, w: Spec, *, result: Sizes, shape: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> Spec:  # fmt: skip
    """Rule: the shape of the convolution's input."""
    return dx_rule(Spec(result, g.dtype), w, shape=shape, stride=stride, padding=padding, dilation=dilation, groups=groups)


def _dw_pooled_rule(
    x: Spec, g: Spec, indices: Spec, *, result: Sizes, shape: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> Spec:  # fmt: skip
    """Rule: the shape of the convolution's weight."""
    return dw_rule(x, Spec(result, g.dtype), shape=shape, stride=stride, padding=padding, dilation=dilation, groups=groups)


def _spread_out(g: Any, indices: Any, result: Sizes) -> Any:
    dy = np.empty(result, g.dtype)
    max_pool_backward_cpu(g, indices, dy, shape=result, overlap=False)
    return dy


def _dx_pooled(g: Any, indices: Any, w: Any, dx: Any, *, result: Sizes, **geometry: Any) -> None:
    convolution_dx_cpu(_spread_out(g, indices, result), w, dx, **geometry)


def _dw_pooled(x: Any, g: Any, indices: Any, dw: Any, *, result: Sizes, **geometry: Any) -> None:
    convolution_dw_cpu(x, _spread_out(g, indices, result), dw, **geometry)


convolution_relu_pool = Op("convolution_relu_pool", _relu_pool_rule, params=GEOMETRY, outputs=("y", "indices"), cpu=_relu_pool)
convolution_dx_pooled = Op("convolution_dx_pooled", _dx_pooled_rule, params=("result", "shape", *GEOMETRY), cpu=_dx_pooled)
convolution_dw_pooled = Op("convolution_dw_pooled", _dw_pooled_rule, params=("result", "shape", *GEOMETRY), cpu=_dw_pooled)
convolution_relu = Op("convolution_relu", _convolution_relu_rule, params=GEOMETRY, cpu=_convolution_relu)
batch_norm_relu = Op("batch_norm_relu", _norm_relu_rule, params=("eps",), outputs=("y", "mean", "rstd", "var"), cpu=_norm_relu)
batch_norm_relu_again = Op("batch_norm_relu_again", _again_rule, cpu=_again)
batch_norm_relu_backward = Op(
    "batch_norm_relu_backward", _norm_relu_backward_rule, outputs=("dx", "dweight", "dbias"), cpu=_norm_relu_backward
)
NORMAL = ("y", "normal", "mean", "rstd", "var")
convolution_batch_norm = Op(
    "convolution_batch_norm", _convolution_norm_rule, params=(*GEOMETRY, "eps"), outputs=NORMAL, cpu=_convolution_norm
)
convolution_batch_norm_relu = Op(
    "convolution_batch_norm_relu", _convolution_norm_rule, params=(*GEOMETRY, "eps"), outputs=NORMAL, cpu=_convolution_norm_relu
)
