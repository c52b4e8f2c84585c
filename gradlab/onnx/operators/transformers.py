"""Operators that ONNX Runtime's optimizer writes into transformers (domain com.microsoft): attention, embeddings, rotations."""

from __future__ import annotations

import math
from typing import Any

import gradlab as gl
from gradlab.nn import functional as F
from gradlab.onnx.importing import EXTRA, Node, given, imports
from gradlab.onnx.operators.quantized import dequantize, product


def heads(x: Any, count: int) -> Any:
    """[batch, length, features] as [batch, heads, length, features of a head]."""
    return x.reshape(*x.shape[:2], count, -1).transpose(1, 2)


def joined(x: Any) -> Any:
    """The reverse of `heads`."""
    x = x.transpose(1, 2)
    return x.reshape(*x.shape[:2], -1)


def allowed(node: Node, mask: Any, batch: int, queries: int, keys: int) -> Any:
    """A mask of any of the forms that the operators take, as truth values that go with [batch, heads, queries, keys]:
    [batch, keys] or [batch, queries, keys] or [batch, 1, longest, longest] of 0 and 1, or lengths [batch] with or without beginnings."""
    if mask.dim() == 1:
        places = gl.arange(keys, device=mask.device)
        found = places < mask[:batch].unsqueeze(-1)
        if mask.shape[0] == 2 * batch:
            found = found & (places >= mask[batch:].unsqueeze(-1))
        elif mask.shape[0] != batch:
            raise node.refuse(f"a mask of {mask.shape[0]} numbers for a batch of {batch} is not supported")
        return found.reshape(batch, 1, 1, keys)
    if mask.dim() == 4:
        return mask[:, :, keys - queries : keys, :keys] != 0
    return mask.reshape(batch, 1, -1, mask.shape[-1]) != 0


def attended(node: Node, q: Any, k: Any, v: Any, mask: Any, bias: Any) -> Any:
    """softmax(q kᵀ · scale + bias, where the mask allows) v, of [batch, heads, length, features]."""
    scores = q @ k.transpose(-1, -2) * (node.get("scale", 0.0) or 1 / math.sqrt(q.shape[-1]))
    filtered = node.get("mask_filter_value", -10000.0)
    if given(bias):
        scores = scores + bias
    if given(mask):
        scores = scores + gl.where(allowed(node, mask, q.shape[0], q.shape[2], k.shape[2]), 0.0, filtered)
    if node.get("unidirectional", 0):
        behind = gl.arange(k.shape[2], device=q.device) <= gl.arange(q.shape[2], device=q.device).unsqueeze(-1) + (k.shape[2] - q.shape[2])
        scores = gl.where(behind, scores, -3.4e38)
    return F.softmax(scores, -1) @ v


def self_attention(node: Node, projected: Any, mask: Any, past: Any, bias: Any) -> Any:
    """Attention of the projections of queries, keys and values, which lie behind each other; with keys and values of before."""
    if node.get("do_rotary", 0) or node.get("past_present_share_buffer", 0):
        raise node.refuse("rotations, and past and present in one buffer, are not supported")
    count = node.get("num_heads")
    sizes = list(node.get("qkv_hidden_sizes", ())) or [projected.shape[-1] // 3] * 3
    q, k, v = (heads(part, count) for part in gl.split(projected, sizes, -1))
    if given(past):
        k, v = gl.cat([past[0], k], 2), gl.cat([past[1], v], 2)
    y = joined(attended(node, q, k, v, mask, bias))
    return (y, gl.stack([k, v])) if len(node.outputs) > 1 else y


@imports(f"{EXTRA}:Attention")
def attention(node: Node, x: Any, weights: Any, b: Any = None, mask: Any = None, past: Any = None, bias: Any = None, _: Any = None) -> Any:
    projected = x @ weights
    return self_attention(node, projected + b if given(b) else projected, mask, past, bias)


@imports(f"{EXTRA}:QAttention", fixed=(3, 4, 6, 7))
def quantized_attention(
    node: Node, x: Any, weights: Any, b: Any, x_scale: Any, w_scale: Any, mask: Any = None, x_zero: Any = None, w_zero: Any = None,
    past: Any = None,
) -> Any:  # fmt: skip
    """The projection in whole numbers."""
    projected = product(x, weights, x_zero, w_zero).to(gl.float32) * (x_scale * w_scale) + b
    return self_attention(node, projected, mask, past, None)


@imports(f"{EXTRA}:MultiHeadAttention")
def multi_head(
    node: Node, q: Any, k: Any = None, v: Any = None, b: Any = None, mask: Any = None, bias: Any = None, past_k: Any = None,
    past_v: Any = None, *rest: Any,
) -> Any:  # fmt: skip
    """Attention of projected queries, keys and values, also where they lie together as [batch, length, heads, 3 (or 2), features]."""
    if any(given(r) for r in rest) or len([n for n in node.outputs if n]) > 3:
        raise node.refuse("a shared cache, and the products of queries and keys as a result, are not supported")
    count = node.get("num_heads")
    if q.dim() == 5:
        q, k, v = (part.squeeze(3) for part in gl.split(q, 1, 3))
        q, k, v = (part.reshape(*part.shape[:2], -1) for part in (q, k, v))
    elif k is not None and k.dim() == 5:
        k, v = (part.squeeze(3).reshape(*part.shape[:2], -1) for part in gl.split(k, 1, 3))
    ready = k.dim() == 4  # of another run: by heads
    parts = [q, k, v] if not ready else [q]
    if given(b):
        sizes = [q.shape[-1], *([k.shape[-1], v.shape[-1]] if not ready else [b.shape[0] - q.shape[-1]])]
        parts = [part + shift for part, shift in zip(parts, gl.split(b, sizes, 0), strict=False)]
    parts = [heads(part, count) for part in parts]
    q, k, v = parts if not ready else (parts[0], k, v)
    if given(past_k):
        k, v = gl.cat([past_k, k], 2), gl.cat([past_v, v], 2)
    y = joined(attended(node, q, k, v, mask, bias))
    return (y, k, v) if len(node.outputs) > 1 else y


# ---------------------------------------------------------------- embeddings


def embedded(node: Node, ids: Any, segments: Any, tables: tuple[Any, Any, Any], norm: tuple[Any, Any], mask: Any, positions: Any) -> Any:
    """Words, places and segments added up, and their norm; the mask's lengths; the sum."""
    words, places, kinds = tables
    total = words[ids.to(gl.int64)]
    total = total + (places[positions.to(gl.int64)] if given(positions) else places[: ids.shape[1]])
    if given(segments):
        total = total + kinds[segments.to(gl.int64)]
    y = F.layer_norm(total, total.shape[-1:], *norm, node.get("epsilon", 1e-12))
    lengths = mask.sum(-1).to(gl.int32) if given(mask) else gl.zeros(ids.shape[:1], dtype=gl.int32, device=ids.device)
    return y, lengths, total


@imports(f"{EXTRA}:EmbedLayerNormalization")
def embed_norm(
    node: Node, ids: Any, segments: Any, words: Any, places: Any, kinds: Any, gamma: Any, beta: Any, mask: Any = None, positions: Any = None
) -> Any:
    return embedded(node, ids, segments, (words, places, kinds), (gamma, beta), mask, positions)


@imports(f"{EXTRA}:QEmbedLayerNormalization", fixed=tuple(range(8, 18)))
def quantized_embed_norm(node: Node, ids: Any, segments: Any, *rest: Any) -> Any:
    """Tables, scale and shift of 8 bits."""
    stored, mask, scales, zeros = rest[:5], rest[5], rest[6:11], rest[11:16]
    plain = Node(node.kind, node.name, node.inputs, node.outputs, {}, node.opset)
    words, places, kinds, gamma, beta = (
        dequantize(plain, s, scale, zero) if given(s) else None for s, scale, zero in zip(stored, scales, zeros, strict=True)
    )
    return embedded(node, ids, segments, (words, places, kinds), (gamma, beta), mask, None)[:2]


@imports(f"{EXTRA}:RotaryEmbedding")
def rotary(node: Node, x: Any, positions: Any, cos: Any, sin: Any) -> Any:
    """Pairs of features turned by their position's angles: the first half with the second, or neighbours (`interleaved`)."""
    flat = x.dim() == 3
    size = node.get("rotary_embedding_dim", 0) or 2 * cos.shape[-1]
    count = node.get("num_heads", 0) or x.shape[-1] // size
    y = heads(x, count) if flat else x  # [batch, heads, length, features]
    length = y.shape[2]
    if positions.dim() == 1:  # where the first place stands
        positions = positions + gl.arange(length, device=x.device)
    y = turned_by(y, positions, cos, sin, bool(node.get("interleaved", 0))) * node.get("scale", 1.0)
    return joined(y) if flat else y


def turned_by(x: Any, positions: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
    """x [batch, heads, length, features], whose first features are turned as far as the tables [places, half of them] say."""
    size = 2 * cos.shape[-1]
    c, s = (table[positions.to(gl.int64)].reshape(-1, 1, x.shape[2], size // 2) for table in (cos, sin))
    turned, rest = x[..., :size], x[..., size:]
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
        turned = gl.stack([a * c - b * s, a * s + b * c], -1).reshape(turned.shape)
    else:
        a, b = turned[..., : size // 2], turned[..., size // 2 :]
        turned = gl.cat([a * c - b * s, a * s + b * c], -1)
    return gl.cat([turned, rest], -1) if rest.shape[-1] else turned
