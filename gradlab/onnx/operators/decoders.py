"""Operators of ONNX Runtime's own domain in decoders of language models: grouped queries with a cache, gated norms, linear attention."""

from __future__ import annotations

import math
from typing import Any

import gradlab as gl
from gradlab.nn import functional as F
from gradlab.onnx.importing import EXTRA, Node, OnnxLoadError, given, imports, number
from gradlab.onnx.operators import recurrent
from gradlab.onnx.operators.transformers import heads, joined, turned_by

LOWEST = -math.inf


@imports(f"{EXTRA}:GroupQueryAttention", host=(6,))
def group_query(
    node: Node, q: Any, k: Any, v: Any, past_k: Any, past_v: Any, lengths: Any, total: Any, cos: Any = None, sin: Any = None,
    positions: Any = None, bias: Any = None, sink: Any = None, k_scale: Any = None, v_scale: Any = None, q_norm: Any = None,
    k_norm: Any = None, valid: Any = None,
) -> Any:  # fmt: skip
    """Causal attention of several heads of queries to each head of keys and values, which are written into a cache behind those of before.

    lengths [batch]: how many keys there are in the end, less one. total: the most of them; a first prompt has as many as queries. The
    cache has room for as many keys as it had, and for `total`; what is behind an entry's own keys is zero or what was there.
    """
    if any(map(given, (k_scale, v_scale, valid))) or node.get("sliding_window_cache", 0) or not node.get("causal", 1):
        raise _refused(node)
    count, shared = node.get("num_heads"), node.get("kv_num_heads")
    if not given(k):
        width = q.shape[-1] // (count + 2 * shared)
        q, k, v = gl.split(q, [count * width, shared * width, shared * width], -1)
    q, k, v = heads(q, count), heads(k, shared), heads(v, shared)
    if given(q_norm):
        usual = node.get("qk_norm_epsilon", 1e-6)
        q, k = _rms(q, q_norm, node.get("q_norm_epsilon", usual)), _rms(k, k_norm, node.get("k_norm_epsilon", usual))
    steps, device = q.shape[2], q.device
    have = past_k.shape[2] if given(past_k) else 0
    most = have + steps if isinstance(total, gl.Tensor) else number(total)
    before = lengths.to(gl.int64).reshape(-1) + (1 - steps)
    if not isinstance(total, gl.Tensor) and most == steps:  # a first prompt: the shorter ones are filled up behind
        before = before * 0
    places = before.unsqueeze(-1) + gl.arange(steps, device=device)
    if node.get("do_rotary", 0):
        at = positions if given(positions) and positions.numel() == places.numel() else places
        q, k = (turned_by(x, at, cos, sin, bool(node.get("rotary_interleaved", 0))) for x in (q, k))
    size = max(have, most)
    k, v = (_written(new, past if have else None, before, size) for new, past in ((k, past_k), (v, past_v)))
    present = k, v
    k, v = k[:, :, :most], v[:, :, :most]
    if count != shared:
        k, v = k.repeat_interleave(count // shared, 1), v.repeat_interleave(count // shared, 1)
    scores = q @ k.transpose(-1, -2) * (node.get("scale", 0.0) or 1 / math.sqrt(q.shape[-1]))
    cap = node.get("softcap", 0.0)
    scores = cap * gl.tanh(scores / cap) if cap else scores
    scores = scores + bias[..., : k.shape[2]] if given(bias) else scores
    key, row = gl.arange(k.shape[2], device=device), places.unsqueeze(1).unsqueeze(-1)
    seen = key <= row
    if node.get("local_window_size", -1) > 0:
        seen = seen & (key > row - node.get("local_window_size"))
    scores = gl.where(seen, scores, LOWEST)
    weights = _softmax(node, scores, sink)
    return joined(weights @ v), *present, weights if node.get("qk_output", 0) == 2 else scores


def _refused(node: Node) -> OnnxLoadError:
    return node.refuse("quantised and sliding caches, padded chunks and attention to what follows are not supported")


def _rms(x: Any, weight: Any, eps: float) -> Any:
    return x / ((x * x).mean(-1, keepdim=True) + eps).sqrt() * weight


def _written(new: Any, past: Any, before: Any, size: Any) -> Any:
    """The cache with new steps, from each entry's own place on."""
    if past is None and new.shape[2] == size:
        return new
    batch, count, steps, width = new.shape
    slots = gl.arange(size, device=new.device)
    from_new = slots - before.unsqueeze(-1)  # [batch, size]
    taken = new.gather(2, gl.clamp(from_new, 0, steps - 1).reshape(batch, 1, -1, 1).expand(batch, count, slots.shape[0], width))
    if past is None:
        kept = gl.zeros_like(taken)
    else:
        kept = past if past.shape[2] == size else F.pad(past, (0, 0, 0, size - past.shape[2]))
    here = ((from_new >= 0) & (from_new < steps)).reshape(batch, 1, -1, 1)
    return gl.where(here, taken, kept)


def _softmax(node: Node, scores: Any, sink: Any) -> Any:
    """With a further number in the sum below: one for each head, or 0."""
    if given(sink):
        extra = sink.reshape(1, -1, 1, 1).to(scores.dtype).expand(*scores.shape[:3], 1)
    elif node.get("smooth_softmax", 0) == 1:
        extra = gl.zeros((*scores.shape[:3], 1), dtype=scores.dtype, device=scores.device)
    else:
        return F.softmax(scores, -1)
    return F.softmax(gl.cat([scores, extra], -1), -1)[..., : scores.shape[-1]]


@imports(f"{EXTRA}:GatedRMSNorm")
def gated_norm(node: Node, x: Any, scale: Any, gate: Any) -> Any:
    """The norm of each group of as many features as the scale has, times the activation of a gate."""
    parts = x.reshape(*x.shape[:-1], -1, scale.shape[0])
    y = _rms(parts, scale, node.get("epsilon", 1e-5)).reshape(x.shape)
    return y * (gl.sigmoid(gate) if node.get("activation", "silu") == "sigmoid" else F.silu(gate))


@imports(f"{EXTRA}:ScaledSiLU")
def scaled_silu(node: Node, x: Any, scale: Any = None) -> Any:
    return F.silu(x * (scale if given(scale) else node.get("alpha", 1.0)))


@imports(f"{EXTRA}:LinearAttention")
def linear_attention(node: Node, *inputs: Any) -> Any:
    if node.get("state_window", 0):
        raise node.refuse("the states of several steps are not supported")
    return recurrent.linear_attention(node, *inputs)


@imports(f"{EXTRA}:CausalConvWithState")
def causal_conv(node: Node, x: Any, weight: Any, bias: Any = None, past: Any = None) -> Any:
    plain = {"dilation": 1, "ndim": 1, "state_window": 0, "state_length": 0, "channels_last": 0, "input_channels": 0}
    if any(node.get(name, value) != value for name, value in plain.items()):
        raise node.refuse("only one dimension without dilation, channels first, is supported")
    return recurrent.causal_conv(node, x, weight, bias, past)
