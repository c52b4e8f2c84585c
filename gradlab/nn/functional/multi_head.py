"""Multi-head attention as a function of its weights; `nn.MultiheadAttention` calls it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.mode import current
from gradlab.autograd.record import bind
from gradlab.dtype import BOOL, FLOATING, HALF
from gradlab.named_errors import named_functions
from gradlab.nn.functional.attention import scaled_dot_product_attention
from gradlab.nn.functional.dropout import dropout
from gradlab.nn.functional.linear import linear
from gradlab.nn.multi_output_node import parts
from gradlab.spec import ShapeError
from gradlab.tensor.rounding import once
from gradlab.tensor.shape import cat

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["multi_head_attention_forward"]

_softmax = bind(ops.softmax.masked_softmax)
NAME = "multi_head_attention_forward"


def _check_ranks(query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None, heads: int) -> bool:
    """Whether the tensors have a batch dimension. RuntimeError where they do not agree on it."""
    rank = query.ndim
    if rank not in (2, 3):
        raise RuntimeError(f"{NAME}: the query is (L, E) or (L, N, E), not of shape {query.shape}")
    if key.ndim != rank or value.ndim != rank:
        raise RuntimeError(f"{NAME}: query {query.shape}, key {key.shape} and value {value.shape} have the same number of dimensions")
    if padding is not None and padding.ndim != rank - 1:
        raise RuntimeError(f"{NAME}: key_padding_mask has {rank - 1} dimension(s) for this query, not shape {padding.shape}")
    if mask is not None and mask.ndim not in (2, 3):
        raise RuntimeError(f"{NAME}: attn_mask has 2 or 3 dimensions, not shape {mask.shape}")
    if mask is not None and rank == 2 and mask.ndim == 3 and mask.shape != (heads, query.shape[0], key.shape[0]):
        raise RuntimeError(f"{NAME}: attn_mask has shape {(heads, query.shape[0], key.shape[0])}, not {mask.shape}")
    return rank == 3


def _added(mask: Tensor | None, like: Tensor, name: str) -> Tensor | None:
    """A mask as numbers to add to the scores: -inf where a bool mask is True."""
    if mask is None:
        return None
    dtype = mask._array.dtype
    if dtype == BOOL:
        return like.new_zeros(mask.shape).masked_fill(mask, -math.inf)
    if dtype not in FLOATING:
        raise TypeError(f"{NAME}: {name} is bool or floating point, not {mask.dtype}")
    return mask.to(like._array.dtype)


def _projected(query: Tensor, key: Tensor, value: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The three projections by one weight (3 E, E); one product where query, key and value are one tensor."""
    size = query.shape[-1]
    sizes = (size,) * 3
    if query is key and key is value:
        q, k, v = parts(linear(query, weight, bias), sizes, -1)
        return q, k, v
    weights = parts(weight, sizes)
    biases: Any = (None,) * 3 if bias is None else parts(bias, sizes)
    if key is value:
        both = parts(weight, (size, 2 * size))[1]
        k, v = parts(linear(key, both, None if bias is None else parts(bias, (size, 2 * size))[1]), (size, size), -1)
        return linear(query, weights[0], biases[0]), k, v
    return linear(query, weights[0], biases[0]), linear(key, weights[1], biases[1]), linear(value, weights[2], biases[2])


def _longer(mask: Tensor | None) -> Tensor | None:
    """A mask for one more key, which may be attended to."""
    return None if mask is None else cat([mask, mask.new_zeros((*mask.shape[:-1], 1))], -1)


def _attended(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, average: bool) -> tuple[Tensor, Tensor]:
    """Attention, and its weights."""
    if q._array.dtype in HALF and current().autocast is None:
        return once(_attended, (q, k, v, mask, p, average))
    scores = (q * (1 / math.sqrt(q.shape[-1]))).matmul(k.mT)
    weights: Any = _softmax(scores if mask is None else scores + mask, dim=3)
    weights = dropout(weights, p) if p > 0 else weights
    return weights.matmul(v), weights.mean(1) if average else weights


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of query (L, N, E) to key and value (S, N, ·), or without N: the output, shaped as the query, and the weights.

    The arguments are those of `nn.MultiheadAttention`; static_k, static_v (N num_heads, S, E / num_heads) take the projections' place.
    The weights are (N, L, S), or (N, num_heads, L, S) if not average_attn_weights, or None if not need_weights.
    A query that may attend to nothing gets zeros. RuntimeError for shapes that do not fit.

    >>> x, weight = gl.ones(3, 1, 4), gl.ones(12, 4)  # 3 places of one sequence, 4 features, of which each of 2 heads sees 2
    >>> out, attention = F.multi_head_attention_forward(x, x, x, 4, 2, weight, None, None, None, False, 0.0, gl.ones(4, 4), None)
    >>> out.shape, attention.shape
    ((3, 1, 4), (1, 3, 3))
    """
    batched = _check_ranks(query, key, value, key_padding_mask, attn_mask, num_heads)
    if is_causal and attn_mask is None:
        raise RuntimeError(f"{NAME}: is_causal is a hint about attn_mask, which must be given too")
    length, size = query.shape[0], query.shape[-1]
    if size != embed_dim_to_check or size % num_heads:
        raise ShapeError(f"{NAME}: the query {query.shape} has {embed_dim_to_check} features, divisible into {num_heads} heads")
    if key.shape[:-1] != value.shape[:-1]:
        raise ShapeError(f"{NAME}: key {key.shape} and value {value.shape} differ in length or batch size")
    if batched and key.shape[1] != query.shape[1]:
        raise ShapeError(f"{NAME}: query {query.shape} and key {key.shape} have different batch sizes")
    batch, head = (query.shape[1] if batched else 1), size // num_heads
    padding = _added(key_padding_mask, query, "key_padding_mask")
    mask = _added(attn_mask, query, "attn_mask")

    if use_separate_proj_weight:
        if q_proj_weight is None or k_proj_weight is None or v_proj_weight is None:
            raise ValueError(f"{NAME}: use_separate_proj_weight needs q_proj_weight, k_proj_weight and v_proj_weight")
        biases: Any = (None,) * 3 if in_proj_bias is None else parts(in_proj_bias, (size,) * 3)
        sources = ((query, q_proj_weight), (key, k_proj_weight), (value, v_proj_weight))
        q, k, v = (linear(x, w, b) for (x, w), b in zip(sources, biases))
    elif in_proj_weight is None:
        raise ValueError(f"{NAME}: in_proj_weight is missing")
    else:
        q, k, v = _projected(query, key, value, in_proj_weight, in_proj_bias)
    if not batched:
        q, k, v = (x.unsqueeze(1) for x in (q, k, v))
        padding = None if padding is None else padding.unsqueeze(0)
    if mask is not None:
        expected = (batch * num_heads, length, key.shape[0])
        if mask.shape != (expected if mask.ndim == 3 else expected[1:]):
            raise RuntimeError(f"{NAME}: attn_mask has shape {expected[1:]} or {expected}, not {attn_mask.shape}")  # type: ignore[union-attr]
    if (bias_k is None) != (bias_v is None):
        raise ValueError(f"{NAME}: bias_k and bias_v are given together")
    if bias_k is not None and bias_v is not None:
        if static_k is not None or static_v is not None:
            raise ValueError(f"{NAME}: bias_k and bias_v cannot be added to static_k and static_v")
        k, v = (cat([x, bias.expand(1, batch, size)]) for x, bias in ((k, bias_k), (v, bias_v)))
        mask, padding = _longer(mask), _longer(padding)

    def heads(x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], batch, num_heads, head).permute(1, 2, 0, 3)  # (N, heads, length, head)

    q = heads(q)
    k, v = (
        heads(x) if static is None else static.reshape(batch, num_heads, static.shape[1], head)
        for x, static in ((k, static_k), (v, static_v))
    )
    if add_zero_attn:
        k, v = (cat([x, x.new_zeros((batch, num_heads, 1, head))], 2) for x in (k, v))
        mask, padding = _longer(mask), _longer(padding)
    keys = k.shape[2]
    if padding is not None and padding.shape != (batch, keys):
        raise RuntimeError(f"{NAME}: key_padding_mask has shape {padding.shape} for {batch} sequences of {keys} keys")
    if mask is not None and mask.ndim == 3:
        mask = mask.reshape(batch, num_heads, length, keys)
    if padding is not None:
        wide = padding.reshape(batch, 1, 1, keys)
        mask = wide if mask is None else mask + wide

    p = dropout_p if training else 0.0
    weights: Any = None
    if need_weights:
        out, weights = _attended(q, k, v, mask, p, average_attn_weights)
    elif is_causal and mask is not None and padding is None and keys == key.shape[0]:  # the hint says what the mask says
        out = scaled_dot_product_attention(q, k, v, None, p, is_causal=True)
    else:
        out = scaled_dot_product_attention(q, k, v, mask, p)
    out = linear(out.permute(2, 0, 1, 3).reshape(length, batch, size), out_proj_weight, out_proj_bias)
    if batched:
        return out, weights
    return out.squeeze(1), None if weights is None else weights.squeeze(0)


named_functions(__name__)
