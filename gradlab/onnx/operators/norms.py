"""Normalisation and attention."""

from __future__ import annotations

import math
from typing import Any

import gradlab as gl
from gradlab.dtype import bool_
from gradlab.nn import functional as F
from gradlab.onnx.importing import Node, given, imports
from gradlab.onnx.operators.reductions import rooted


@imports("BatchNormalization", fixed=(3, 4))
def batch_norm(node: Node, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    """With `training_mode` by the batch's own statistics, with the new running ones as further outputs."""
    eps, share = node.get("epsilon", 1e-5), node.get("momentum", 0.9)
    shape = (-1, *[1] * (x.dim() - 2))
    if node.opset < 9 and not node.get("spatial", 1) and x.dim() > 2:  # statistics of each element, not of channels
        flat = x.reshape(x.shape[0], -1)
        a, b, c, d = (v.reshape(-1) for v in (mean, var, scale, bias))
        return F.batch_norm(flat, a, b, c, d, False, 0.0, eps).reshape(x.shape)
    if node.get("training_mode", 0) or (node.opset < 7 and len(node.outputs) > 1 and not node.get("is_test", 0)):
        dims = (0, *range(2, x.dim()))
        own, spread = x.mean(dims), x.var(dims, correction=0)
        y = (x - own.reshape(shape)) / (spread.reshape(shape) + eps).sqrt() * scale.reshape(shape) + bias.reshape(shape)
        return y.to(x.dtype), mean * share + own * (1 - share), var * share + spread * (1 - share)
    return F.batch_norm(x, mean.to(x.dtype), var.to(x.dtype), scale.to(x.dtype), bias.to(x.dtype), False, 0.0, eps)


@imports("InstanceNormalization")
def instance_norm(node: Node, x: Any, scale: Any, bias: Any) -> Any:
    return F.instance_norm(x, None, None, scale, bias, True, 0.0, node.get("epsilon", 1e-5))


@imports("GroupNormalization")
def group_norm(node: Node, x: Any, scale: Any, bias: Any) -> Any:
    """Before opset 21 scale and bias are those of groups, then of channels."""
    groups = node.get("num_groups")
    if node.opset < 21:
        each = x.shape[1] // groups
        scale, bias = scale.repeat_interleave(each), bias.repeat_interleave(each)
    return F.group_norm(x, groups, scale, bias, node.get("epsilon", 1e-5))


@imports("LayerNormalization", "RMSNormalization")
def layer_norm(node: Node, x: Any, scale: Any, bias: Any = None) -> Any:
    """Over all dimensions from the axis on; a layer norm's mean and 1/√(variance + epsilon) are further outputs."""
    axis = node.get("axis", -1) % x.dim()
    dims, eps = tuple(range(axis, x.dim())), node.get("epsilon", 1e-5)
    if node.kind == "LayerNormalization" and len(node.outputs) == 1 and tuple(scale.shape) == tuple(x.shape[axis:]):
        same = not given(bias) or tuple(bias.shape) == tuple(x.shape[axis:])
        if same:
            return F.layer_norm(x, x.shape[axis:], scale, bias if given(bias) else None, eps)
    if node.kind == "RMSNormalization":
        return x / ((x * x).mean(dims, keepdim=True) + eps).sqrt() * scale
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    inverse = 1 / ((centred * centred).mean(dims, keepdim=True) + eps).sqrt()
    y = centred * inverse * scale
    return (y + bias if given(bias) else y), mean, inverse


@imports("MeanVarianceNormalization")
def mean_variance(node: Node, x: Any) -> Any:
    dims = tuple(node.get("axes", [0, 2, 3]))
    centred = x - x.mean(dims, keepdim=True)
    return centred / (rooted((centred * centred).mean(dims, keepdim=True)) + 1e-9)


@imports("LRN")
def local_response(node: Node, x: Any) -> Any:
    """Over neighbouring channels: of an even number one more behind than before."""
    size, alpha, beta, bias = node.get("size"), node.get("alpha", 1e-4), node.get("beta", 0.75), node.get("bias", 1.0)
    before = (size - 1) // 2
    lead = F.pad((x * x).movedim(1, -1), (before, size - 1 - before)).movedim(-1, 1)
    total = sum(lead.narrow(1, k, x.shape[1]) for k in range(size))
    return x / (bias + alpha / size * total) ** beta


@imports("RotaryEmbedding")
def rotary(node: Node, x: Any, cosine: Any, sine: Any, places: Any = None) -> Any:
    """Pairs of features are turned by angles that depend on the place."""
    heads, partial, interleaved = node.get("num_heads", 0), node.get("rotary_embedding_dim", 0), node.get("interleaved", 0)
    flat = x.dim() == 3
    if flat:
        b, n, width = x.shape
        x = x.reshape(b, n, heads, width // heads).transpose(1, 2)
    width = partial or x.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    if given(places):
        cosine, sine = cosine[places.to(gl.int64)], sine[places.to(gl.int64)]
    cosine, sine = cosine.unsqueeze(1), sine.unsqueeze(1)
    a, b_ = (turned[..., 0::2], turned[..., 1::2]) if interleaved else turned.chunk(2, -1)
    real, imaginary = a * cosine - b_ * sine, a * sine + b_ * cosine
    if interleaved:
        turned = gl.stack([real, imaginary], -1).reshape(turned.shape)
    else:
        turned = gl.cat([real, imaginary], -1)
    y = gl.cat([turned, rest], -1) if rest.shape[-1] else turned
    return y.transpose(1, 2).reshape(y.shape[0], y.shape[2], -1) if flat else y


def _bias(node: Node, scores: Any, mask: Any, past: int, lengths: Any) -> Any:
    """What is added to the scores: minus infinity where a query may not look."""
    rows, columns = scores.shape[-2:]
    dtype, device = scores.dtype, scores.device
    bias = gl.zeros((1, 1, rows, columns), dtype=dtype, device=device)
    if given(mask):
        extra = gl.where(mask, 0.0, -math.inf).to(dtype) if mask.dtype == bool_ else mask
        if extra.shape[-1] < columns:
            extra = F.pad(extra, (0, columns - extra.shape[-1]), value=-math.inf)
        bias = bias + extra
    key = gl.arange(columns, device=device)
    row: Any = gl.arange(rows, device=device)[:, None] + past
    if given(lengths):
        count = lengths.reshape(-1, 1, 1, 1).to(gl.int64)
        bias = bias + gl.where(key < count, 0.0, -math.inf).to(dtype)
        row = row + (0 if past else count - rows)
    last = [row] if node.get("is_causal", 0) else []
    last += [row + node.get("right_window_size")] if node.get("right_window_size", -1) >= 0 else []
    for edge in last:
        bias = bias + gl.where(key <= edge, 0.0, -math.inf).to(dtype)
    if node.get("left_window_size", -1) >= 0:
        bias = bias + gl.where(key >= row - node.get("left_window_size"), 0.0, -math.inf).to(dtype)
    return bias


@imports("Attention")
def attention(
    node: Node, q: Any, k: Any, v: Any, mask: Any = None, past_key: Any = None, past_value: Any = None, lengths: Any = None
) -> Any:
    """Scaled dot products; heads of keys that several heads of queries share; a cache of earlier keys; capped scores.

    Outputs: the result, all keys, all values, and on request the scores at a chosen stage.
    """
    flat = q.dim() == 3
    if flat:
        q, k, v = (
            t.reshape(t.shape[0], t.shape[1], n, -1).transpose(1, 2)
            for t, n in zip((q, k, v), (node.get("q_num_heads"), *[node.get("kv_num_heads")] * 2), strict=True)
        )
    if given(past_key):
        k, v = gl.cat([past_key, k], 2), gl.cat([past_value, v], 2)
    present = (k, v)
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scale = node.get("scale") or 1 / math.sqrt(q.shape[-1])
    root = math.sqrt(scale)
    scores = (q * root) @ (k * root).transpose(-1, -2)
    stage, cap = node.get("qk_matmul_output_mode", 0), node.get("softcap", 0.0)
    shown = {0: scores}
    if cap:
        scores = cap * gl.tanh(scores / cap)
    shown[1] = scores
    scores = scores + _bias(node, scores, mask, 0 if not given(past_key) else past_key.shape[2], lengths)
    shown[2] = scores
    weights = F.softmax(scores, -1)
    weights = gl.where(gl.isnan(weights), 0, weights)
    shown[3] = weights
    y = weights @ v
    if flat:
        y = y.transpose(1, 2).reshape(y.shape[0], y.shape[2], -1)
    return y, *present, shown[stage]
