"""Matrix products, fully connected layers, attention, normalisation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradlab.dtype import BOOL, INT64
from gradlab.onnx.emitter import Emitter, Wire, is_dynamic
from gradlab.onnx.registry import exports
from gradlab.ops.norm import channels, last_dims

# ---------------------------------------------------------------- products


@exports("matmul", "wide_matmul")
def matmul(e: Emitter, a: Wire, b: Wire) -> Any:
    """MatMul."""
    return e("MatMul", a, b)


@exports("linear")
def linear(e: Emitter, x: Wire, w: Wire, b: Wire | None) -> Any:
    """Gemm for a matrix of inputs; MatMul with the transposed weight for more dimensions, and one dimension."""
    if x.rank == 2 and x.dtype.kind == "f":
        return e("Gemm", x, w, b, transB=1)
    y = e("MatMul", x, e.transpose(w, (1, 0)))
    return y if b is None else y + b


@exports("linear_relu")
def linear_relu(e: Emitter, x: Wire, w: Wire, b: Wire | None) -> Any:
    """A layer and its ReLU."""
    return e("Relu", linear(e, x, w, b))


@exports("linear_gelu_tanh")
def linear_gelu_tanh(e: Emitter, x: Wire, w: Wire, b: Wire | None) -> Any:
    """A layer's GELU, and its sums."""
    sums = linear(e, x, w, b)
    return e("Gelu", sums, approximate="tanh"), sums


def scores(e: Emitter, q: Wire, k: Wire, mask: Wire | None, scale: float, causal: bool) -> Wire:
    """q kᵀ scaled, -inf where attention is not allowed."""
    found: Any = e("MatMul", q * scale, e.transpose(k, (0, 1, 3, 2)))
    if mask is not None:
        found = e.where(mask, found, -math.inf) if mask.dtype == BOOL else found + mask
    if causal:
        length, keys = (q.shape or ())[2], (k.shape or ())[2]
        if is_dynamic(length) or is_dynamic(keys):
            rows, columns = (e("Range", e.number(0, INT64), e.number(n, INT64), e.number(1, INT64)) for n in (length, keys))
            allowed = e("GreaterOrEqual", e.unsqueeze(rows, 1), columns)
        else:
            allowed = e.constant(np.tri(length, keys, dtype=bool))
        found = e.where(allowed, found, -math.inf)
    result: Wire = found
    return result


@exports("scaled_dot_product_attention")
def attention(e: Emitter, q: Wire, k: Wire, v: Wire, mask: Wire | None, *, scale: float, causal: bool) -> Any:
    """softmax(q kᵀ·scale + mask) v, zeros for queries that may look at nothing; and the logarithm of the scores' sum."""
    keys = (k.shape or ())[2]
    if not is_dynamic(keys) and keys == 0:
        return tuple(e.expand(e.number(0.0, spec.dtype), spec.shape) for spec in e.outputs)
    found = scores(e, q, k, mask, scale, causal)
    top = e.reduce("ReduceMax", found, (3,), True)
    if mask is None:  # each query looks at something
        lse = e.squeeze(e.reduce("ReduceLogSumExp", found, (3,), True), 3)
        return e("MatMul", e("Softmax", found, axis=-1), v), lse
    nothing = e("Equal", top, -math.inf)
    weights = e.where(nothing, 0.0, e("Softmax", found, axis=-1))
    safe = e.where(nothing, 0.0, top)
    total = e.reduce("ReduceSum", e("Exp", found - safe), (3,), True)
    lse = e("Log", e.where(nothing, 1.0, total)) + safe
    return e("MatMul", weights, v), e.squeeze(lse, 3)


@exports("scaled_dot_product_attention_backward")
def attention_backward(
    e: Emitter, g: Wire, g_lse: Wire | None, q: Wire, k: Wire, v: Wire, mask: Wire | None, y: Wire, lse: Wire, *, scale: float, causal: bool
) -> Any:
    """With weights P made again: dS = P (g vᵀ - Σ g y), dq = scale dS k, dk = scale dSᵀ q, dv = Pᵀ g."""
    swap = (0, 1, 3, 2)
    p = e("Exp", scores(e, q, k, mask, scale, causal) - e.unsqueeze(lse, 3))
    delta = e.reduce("ReduceSum", g * y, (3,), True)
    if g_lse is not None:
        delta = delta - e.unsqueeze(g_lse, 3)
    ds = p * (e("MatMul", g, e.transpose(v, swap)) - delta) * scale
    return e("MatMul", ds, k), e("MatMul", e.transpose(ds, swap), q), e("MatMul", e.transpose(p, swap), g)


# ---------------------------------------------------------------- normalisation


@exports("layer_norm")
def layer_norm(e: Emitter, x: Wire, weight: Wire | None, bias: Wire | None, *, k: int, eps: float) -> Any:
    """LayerNormalization with its statistics; a weight of ones where there is none."""
    assert x.shape is not None
    if k and weight is None and not any(map(is_dynamic, x.shape[-k:])):
        weight = e.constant(np.ones(tuple(int(s) for s in x.shape[-k:])), x.dtype)
    if k and weight is not None and e.opset >= 17 and not any(not is_dynamic(s) and s == 0 for s in x.shape):
        y, mean, rstd = e("LayerNormalization", x, weight, bias, outputs=3, axis=-k, epsilon=eps)
        if x.dtype != np.float32:  # the operator's statistics are float32
            mean.dtype = rstd.dtype = np.dtype(np.float32)
        return y, mean, rstd
    dims = tuple(range(x.rank - k, x.rank))
    mean = e.reduce("ReduceMean", x, dims, True) if dims else x
    centred = x - mean
    rstd = e("Reciprocal", e("Sqrt", e.reduce("ReduceMean", centred * centred, dims, True) + eps)) if dims else (x - x) + eps**-0.5
    y = centred * rstd
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias), mean, rstd


@exports("rms_norm")
def rms_norm(e: Emitter, x: Wire, weight: Wire | None, *, k: int, eps: float) -> Any:
    """x / √(mean square + eps): ONNX has an operator from opset 23 on."""
    dims = tuple(range(x.rank - k, x.rank))
    square = x * x
    rstd = e("Reciprocal", e("Sqrt", (e.reduce("ReduceMean", square, dims, True) if dims else square) + eps))
    y = x * rstd
    return (y if weight is None else y * weight), rstd


@exports("batch_norm")
def batch_norm(e: Emitter, x: Wire, weight: Wire | None, bias: Wire | None, *, eps: float) -> Any:
    """With the batch's own statistics."""
    at = channels(x.shape or ())
    mean = e.reduce("ReduceMean", x, at.dims, True)
    centred = x - mean
    var = e.reduce("ReduceMean", centred * centred, at.dims, True)
    rstd = e("Reciprocal", e("Sqrt", var + eps))
    y = centred * rstd
    y = y if weight is None else y * e.reshape(weight, at.parameters)
    y = y if bias is None else y + e.reshape(bias, at.parameters)
    return y, *(flat(e, v, at.stats) for v in (mean, rstd, var))


def flat(e: Emitter, x: Wire, stats: tuple[int, ...]) -> Wire:
    """Statistics of channels as a vector."""
    return e.squeeze(x, *(d for d in range(len(stats)) if d != 1))


def core_backward(e: Emitter, u: Any, n: Any, rstd: Any, dims: tuple[int, ...], centred: bool) -> Any:
    """rstd·(u - mean(u) - n·mean(u·n))"""
    found = u - n * e.reduce("ReduceMean", u * n, dims, True)
    return rstd * (found - e.reduce("ReduceMean", u, dims, True) if centred else found)


def norm_backward(e: Emitter, dy: Any, x: Any, weight: Any, mean: Any, rstd: Any, at: Any, shape: tuple[int, ...]) -> Any:
    """The gradients of a normalisation's input, weight and bias."""
    rstd = e.reshape(rstd, at.stats)
    n = (x if mean is None else x - e.reshape(mean, at.stats)) * rstd
    u = dy if weight is None else dy * e.reshape(weight, at.parameters)
    sums = [e.reshape(e.reduce("ReduceSum", v, at.others, True), shape) if at.others else v for v in (dy * n, dy)]
    return core_backward(e, u, n, rstd, at.dims, mean is not None), sums[0], sums[1]


@exports("layer_norm_backward")
def layer_norm_backward(e: Emitter, dy: Wire, x: Wire, weight: Wire | None, mean: Wire, rstd: Wire, *, k: int) -> Any:
    """See norm_backward."""
    shape = x.shape or ()
    return norm_backward(e, dy, x, weight, mean, rstd, last_dims(shape, k), shape[len(shape) - k :])


@exports("rms_norm_backward")
def rms_norm_backward(e: Emitter, dy: Wire, x: Wire, weight: Wire | None, rstd: Wire, *, k: int) -> Any:
    """See norm_backward."""
    shape = x.shape or ()
    return norm_backward(e, dy, x, weight, None, rstd, last_dims(shape, k), shape[len(shape) - k :])[:2]


@exports("batch_norm_backward")
def batch_norm_backward(e: Emitter, dy: Wire, x: Wire, weight: Wire | None, mean: Wire, rstd: Wire) -> Any:
    """See norm_backward."""
    shape = x.shape or ()
    return norm_backward(e, dy, x, weight, mean, rstd, channels(shape), shape[1:2])
