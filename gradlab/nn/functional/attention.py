"""Scaled dot product attention (Vaswani and others, "Attention is all you need", 2017)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current, lowered
from gradlab.autograd.one_row import one_row
from gradlab.autograd.record import bind
from gradlab.dtype import BOOL, FLOAT64, FLOATING, HALF
from gradlab.named_errors import named_functions
from gradlab.nn.functional.dropout import dropout
from gradlab.spec import ShapeError, broadcast_shapes
from gradlab.tensor.creation import arange
from gradlab.tensor.memory_formats import copied
from gradlab.tensor.rounding import once
from gradlab.tensor.where import filled

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["scaled_dot_product_attention"]

_softmax, _attention = map(bind, (ops.softmax.masked_softmax, ops.attention.attention))
_HEADS_WITHIN = (0, 2, 1, 3)
NAME = "scaled_dot_product_attention"
MOST, MOST_DOUBLE = 128, 64  # numbers in a head that the GPU's kernels take, in float64 the second


def _checked(query: Tensor, key: Tensor, value: Tensor) -> None:
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not isinstance(x, Differentiable):
            raise TypeError(f"{NAME}: {name} is a tensor, not {type(x).__name__}")
        if x._array.dtype not in FLOATING or x._array.dtype != query._array.dtype:
            dtypes = f"{query.dtype}, {key.dtype} and {value.dtype}"
            raise RuntimeError(f"{NAME}: query, key and value have one floating point dtype, not {dtypes}")
        if len(x._array.shape) < 2:
            raise ShapeError(f"{NAME}: {name} has at least two dimensions (…, length, size), not shape {x._array.shape}")
    q, k, v = query._array.shape, key._array.shape, value._array.shape
    if q[-1] != k[-1] or k[-2] != v[-2]:
        raise ShapeError(f"{NAME}: query {q}, key {k} and value {v}: expected (…, L, E), (…, S, E) and (…, S, Ev)")


def _repeated(x: Tensor, heads: int, name: str) -> Tensor:
    """Each head of `x` (dimension -3) as often as it takes to make `heads`."""
    shape = x._array.shape
    if len(shape) < 3 or not shape[-3] or heads % shape[-3]:
        raise RuntimeError(f"{NAME}: enable_gqa needs {name}'s heads (dimension -3 of {shape}) to divide the query's {heads}")
    times = heads // shape[-3]
    if times == 1:
        return x
    return x.unsqueeze(-3).expand((*shape[:-2], times, *shape[-2:])).reshape((*shape[:-3], heads, *shape[-2:]))


@one_row
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ keyᵀ·scale + mask) @ value: (…, L, E), (…, S, E) and (…, S, Ev) give (…, L, Ev).

    attn_mask broadcasts against (…, L, S): bool, True where attention is allowed, or floating point, added to the scores. A query that may
    look at nothing gets zeros. is_causal: query i looks at keys up to i (not together with attn_mask: RuntimeError). dropout_p: of the
    attention weights, whenever above 0. scale: 1/√E if left out. enable_gqa: fewer key and value heads (dimension -3), each for several
    query heads. Without dropout the weights are never in memory, which is linear in L and S (but for the gradient of attn_mask).

    >>> F.scaled_dot_product_attention(gl.zeros(1, 2, 4), gl.zeros(1, 2, 4), gl.ones(1, 2, 4), is_causal=True).shape
    (1, 2, 4)
    """
    if current().autocast is not None:
        query, key, value, attn_mask = lowered(query, key, value, attn_mask)
    _checked(query, key, value)
    if is_causal and attn_mask is not None:
        raise RuntimeError(f"{NAME}: give attn_mask or is_causal=True, not both")
    if enable_gqa:
        if len(query._array.shape) < 3:
            raise RuntimeError(f"{NAME}: enable_gqa needs a dimension of heads, got a query of shape {query._array.shape}")
        heads = query._array.shape[-3]
        key, value = _repeated(key, heads, "key"), _repeated(value, heads, "value")
    size = query._array.shape[-1]
    factor = (1 / math.sqrt(size) if size else 1.0) if scale is None else float(scale)
    fits = attn_mask is None or attn_mask._array.dtype in (BOOL, query._array.dtype)
    if dropout_p <= 0 and _has_kernels(query, key, value):
        if query._array.dtype in HALF and query.device.type == "cpu" and current().autocast is None and fits:
            found = once(_fused, (query, key, value, attn_mask, is_causal, factor))  # its gradient needs the result unrounded
        else:
            found = _fused(query, key, value, attn_mask, is_causal, factor)
        return copied(found, _HEADS_WITHIN) if _heads_within(query._array) else found
    if query._array.dtype in HALF and current().autocast is None and fits:
        return once(_composed, (query, key, value, attn_mask, dropout_p, is_causal, factor))
    return _composed(query, key, value, attn_mask, dropout_p, is_causal, factor)


def _heads_within(array: Any) -> bool:
    """Whether a query's heads lie side by side, as projections leave them: the result lies as it does, so that they are one by a view."""
    flags = getattr(array, "flags", None)  # under vmap there are none
    if flags is None or flags.c_contiguous or len(array.shape) != 4:
        return False
    return min(array.shape[1:3]) > 1 and bool(array.strides[3] <= array.strides[1] < array.strides[2])


def _composed(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, dropout_p: float, is_causal: bool, factor: float
) -> Tensor:
    """Attention whose weights are in memory."""
    scores = (query * factor).matmul(key.mT)
    if is_causal:
        length, keys = scores._array.shape[-2:]
        allowed = arange(length, device=query.device).unsqueeze(1) >= arange(keys, device=query.device)
        scores = filled(scores, allowed.logical_not(), -math.inf)
    elif attn_mask is not None:
        scores = _masked(scores, attn_mask)
    weights: Any = _softmax(scores, dim=len(scores._array.shape) - 1)
    if dropout_p > 0:
        weights = dropout(weights, dropout_p)
    return weights.matmul(value)


def _has_kernels(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the row that never makes the weights takes the tensors: the same one or two batch dimensions or none, heads as its kernels
    have them."""
    q, k, v = query._array.shape, key._array.shape, value._array.shape
    if len(q) > 4 or not q[:-2] == k[:-2] == v[:-2]:
        return False
    most = MOST_DOUBLE if query._array.dtype == FLOAT64 else MOST
    return query.device.type != "cuda" or max(q[-1], v[-1]) <= most


def _four(x: Tensor) -> Tensor:
    """With dimensions of size 1 in front, so that there are four."""
    while len(x._array.shape) < 4:
        x = x.unsqueeze(0)
    return x


def _fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, factor: float) -> Tensor:
    shape = query._array.shape
    if mask is not None:
        _check_mask(mask, (*shape[:-1], key._array.shape[-2]), query)
        mask = _four(mask)
    result: Any = _attention(_four(query), _four(key), _four(value), mask, scale=factor, causal=causal)
    found: Tensor = result.y
    return found if len(shape) == 4 else found.reshape((*shape[:-1], value._array.shape[-1]))


def _check_mask(mask: Tensor, shape: tuple[int, ...], like: Tensor) -> None:
    """Raises for a mask that does not fit scores of a shape and of the dtype of `like`."""
    if mask._array.dtype not in (BOOL, like._array.dtype):
        raise RuntimeError(f"{NAME}: attn_mask is bool or of the query's dtype {like.dtype}, not {mask.dtype}")
    try:
        wide = broadcast_shapes(shape, mask._array.shape)
    except ShapeError as error:
        raise ShapeError(f"{NAME}: attn_mask does not fit the scores: {error}") from None
    if wide != shape:
        raise ShapeError(f"{NAME}: attn_mask of shape {mask._array.shape} does not fit scores of shape {shape}")


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    _check_mask(mask, scores._array.shape, scores)
    dtype = mask._array.dtype
    return filled(scores, mask.logical_not(), -math.inf) if dtype == BOOL else scores + mask


named_functions(__name__)
