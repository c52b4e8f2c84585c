"""Attention without its matrix of weights: memory is linear in the lengths.

Queries have shape (N, H, L, E), keys (N, H, S, E), values (N, H, S, Ev); N and H are any two batch dimensions. A mask broadcasts against
(N, H, L, S): bool, True where attention is allowed, or numbers to add to the scores. With weights P = exp(scores - lse), where lse is the
logarithm of the sum of exp(scores) over the keys (0 for a query that may look at nothing, so that its weights are 0), gradients make P
again: see Dao and others, "FlashAttention" (2022), appendix B.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from gradlab.dtype import BOOL, FLOAT32, FLOATING, HALF
from gradlab.kernel import Kernel
from gradlab.op import Op
from gradlab.ops.softmax import SURE
from gradlab.spec import ShapeError, Spec, broadcast_shapes

SCORES = 1 << 18  # how many the NumPy side holds at once: 1 MiB in float32, of which there are two in backward
ROWS = 128  # queries of a block under a causal mask: later keys than the block's last query are left out


def attention_rule(q: Spec, k: Spec, v: Spec, mask: Spec | None, *, scale: float, causal: bool) -> tuple[Spec, Spec]:
    """Rule: the output (N, H, L, Ev), and lse (N, H, L) in the accumulator's dtype."""
    if not (len(q.shape) == len(k.shape) == len(v.shape) == 4):
        raise ShapeError(f"query, key and value have four dimensions, not shapes {q.shape}, {k.shape} and {v.shape}")
    if q.dtype not in FLOATING or not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"query, key and value have one floating point dtype, not {q.dtype}, {k.dtype} and {v.dtype}")
    if q.shape[:2] != k.shape[:2] or k.shape[:3] != v.shape[:3] or q.shape[3] != k.shape[3]:
        raise ShapeError(f"query {q.shape}, key {k.shape} and value {v.shape}: expected (N, H, L, E), (N, H, S, E) and (N, H, S, Ev)")
    if mask is not None:
        if mask.dtype not in (BOOL, q.dtype):
            raise TypeError(f"the mask is bool or of the query's dtype {q.dtype}, not {mask.dtype}")
        scores = (*q.shape[:3], k.shape[2])
        if broadcast_shapes(scores, mask.shape) != scores:
            raise ShapeError(f"a mask of shape {mask.shape} does not fit scores of shape {scores}")
    return Spec((*q.shape[:3], v.shape[3]), q.dtype), Spec(q.shape[:3], FLOAT32 if q.dtype in HALF else q.dtype)


def attention_backward_rule(
    g: Spec, g_lse: Spec | None, q: Spec, k: Spec, v: Spec, mask: Spec | None, y: Spec, lse: Spec, *, scale: float, causal: bool
) -> tuple[Spec, Spec, Spec]:
    """Rule: the gradients of query, key and value."""
    expected = attention_rule(q, k, v, mask, scale=scale, causal=causal)
    if (g, y, lse) != (expected[0], expected[0], expected[1]) or g_lse not in (None, lse):
        raise ShapeError(f"gradients {g}, {g_lse} and results {y}, {lse} do not belong to an attention that gives {expected}")
    return q, k, v


# ---------------------------------------------------------------- NumPy


class Block(NamedTuple):
    """Some images, heads and queries, and how many of the keys they may look at."""

    images: slice
    heads: slice
    rows: slice
    keys: int


def blocks(shape: tuple[int, ...], keys: int, causal: bool) -> Iterator[Block]:
    """Blocks of few scores, in order. `shape`: of the queries."""
    images, heads, rows, _ = shape
    step = min(max(SCORES // max(keys, 1), 16), ROWS if causal else rows, rows) or 1
    several = min(max(SCORES // max(step * keys, 1), 1), heads)
    many = max(SCORES // max(step * keys * heads, 1), 1) if several == heads else 1
    for n in range(0, images, many):
        for h in range(0, heads, several or 1):
            for i in range(0, rows, step):
                end = min(i + step, rows)
                yield Block(slice(n, n + many), slice(h, h + several), slice(i, end), min(end, keys) if causal else keys)


def part(x: Any, block: Block, rows: bool) -> Any:
    """A block's queries, or its keys."""
    return x[block.images, block.heads, block.rows if rows else slice(0, block.keys)]


def scores_of(q: Any, k: Any, mask: Any, block: Block, causal: bool) -> Any:
    """The block's scores; `q` is the block's, already scaled. -inf where attention is not allowed."""
    scores = np.matmul(q, part(k, block, False).swapaxes(-1, -2))
    if mask is not None:
        # A dimension of size 1 is repeated: it is not cut.
        cut = (block.images, block.heads, block.rows, slice(0, block.keys))
        piece = mask[tuple(c if size > 1 else slice(None) for c, size in zip(cut[4 - mask.ndim :], mask.shape, strict=True))]
        if mask.dtype == BOOL:
            np.copyto(scores, -math.inf, where=~piece)
        else:
            scores += piece
    if causal and block.keys > block.rows.start:
        later = np.arange(block.rows.start, block.keys) > np.arange(block.rows.start, block.rows.stop)[:, None]
        np.copyto(scores[..., block.rows.start :], -math.inf, where=later)
    return scores


def attention_cpu(q: Any, k: Any, v: Any, mask: Any, y: Any, lse: Any, *, scale: float, causal: bool) -> None:
    for block in blocks(q.shape, k.shape[2], causal):
        out, logarithms = part(y, block, True), part(lse, block, True)
        if not block.keys:
            out.fill(0)
            logarithms.fill(0)
            continue
        scores = scores_of(part(q, block, True) * q.dtype.type(scale), k, mask, block, causal)
        top = np.maximum.reduce(scores, axis=-1, keepdims=True)
        np.copyto(top, 0, where=np.isneginf(top))
        scores -= top
        np.exp(scores, scores)
        total = np.add.reduce(scores, axis=-1, keepdims=True)
        np.copyto(total, 1, where=total == 0)
        np.matmul(scores, part(v, block, False), out)
        out /= total
        np.add(np.log(total[..., 0]), top[..., 0], logarithms)


def attention_backward_cpu(
    g: Any, g_lse: Any, q: Any, k: Any, v: Any, mask: Any, y: Any, lse: Any, dq: Any, dk: Any, dv: Any, *, scale: float, causal: bool
) -> None:
    whole = next((b.rows.stop == q.shape[2] and b.keys == k.shape[2] for b in blocks(q.shape, k.shape[2], causal)), False)
    if not whole:  # else each block is all there is of some heads
        dk.fill(0)
        dv.fill(0)
    delta = np.vecdot(g, y)
    if g_lse is not None:
        delta -= g_lse
    for block in blocks(q.shape, k.shape[2], causal):
        if not block.keys:
            part(dq, block, True).fill(0)
            continue
        queries, above = part(q, block, True) * q.dtype.type(scale), part(g, block, True)
        weights = scores_of(queries, k, mask, block, causal)
        weights -= part(lse, block, True)[..., None]
        np.exp(weights, weights)
        _add_product(weights.swapaxes(-1, -2), above, part(dv, block, False), whole)
        slopes = np.ascontiguousarray(np.matmul(above, part(v, block, False).swapaxes(-1, -2)))
        slopes -= part(delta, block, True)[..., None]
        slopes *= weights
        _set_sure(slopes, weights, None if g_lse is None else part(g_lse, block, True))
        found = part(dq, block, True)
        np.matmul(slopes, part(k, block, False), found)
        found *= q.dtype.type(scale)
        _add_product(slopes.swapaxes(-1, -2), queries, part(dk, block, False), whole)


def _set_sure(slopes: Any, weights: Any, total: Any) -> None:
    """A query's slopes add up to its gradient of lse (`total`). Where one key has nearly all the weight, weight · (gradient - delta) is all
    rounding: there it becomes what the others' sum lacks."""
    sure = np.flatnonzero(weights > SURE)
    if sure.size:
        flat, rows = slopes.reshape(-1), sure // weights.shape[-1]
        flat[sure] = 0
        others = np.add.reduce(slopes.reshape(-1, weights.shape[-1]).take(rows, axis=0), axis=-1)
        flat[sure] = -others if total is None else total.reshape(-1).take(rows) - others


def _add_product(a: Any, b: Any, total: Any, first: bool) -> None:
    """total += a @ b, or = where it is the first."""
    if first:
        np.matmul(a, b, total)
    else:
        total += np.matmul(a, b)


# ---------------------------------------------------------------- gradients


def _weights(q: Any, k: Any, mask: Any, lse: Any, scale: float, causal: bool) -> Any:
    """P, all of it."""
    scores = (q * scale) @ k.mT
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), -math.inf) if mask._array.dtype == BOOL else scores + mask
    if causal:
        later = scores.new_ones(scores.shape[-2:]).tril() == 0
        scores = scores.masked_fill(later, -math.inf)
    return (scores - lse.unsqueeze(-1)).exp()


def _gradient(g_y: Any, q: Any, k: Any, v: Any, mask: Any, y: Any, lse: Any, scale: float, causal: bool, g_lse: Any = None) -> Any:
    return attention_backward(g_y, g_lse, q, k, v, mask, y, lse, scale=scale, causal=causal)


def _mask_gradient(g_y: Any, q: Any, k: Any, v: Any, mask: Any, y: Any, lse: Any, scale: float, causal: bool, g_lse: Any = None) -> Any:
    """P (g·v - Σ g y + g_lse), as in `_set_sure` where P is nearly 1. Of the scores' size, whatever is done: memory is not linear here."""
    total = 0 if g_lse is None else g_lse.unsqueeze(-1)
    p = _weights(q, k, mask, lse, scale, causal)
    unsure = p <= SURE
    slopes = (p * (g_y @ v.mT - (g_y * y).sum(-1, keepdim=True) + total)).where(unsure, 0)
    return slopes.where(unsure, total - slopes.sum(-1, keepdim=True))


def _second(
    g_dq: Any, g_dk: Any, g_dv: Any, g: Any, q: Any, k: Any, v: Any, mask: Any, y: Any, lse: Any, scale: float, causal: bool,
    g_lse: Any = None,
) -> Any:  # fmt: skip
    """The gradients of `dq = scale dS k`, `dk = scale dSᵀ q`, `dv = Pᵀ g`, where dS = P (g vᵀ - delta), delta = Σ g y - g_lse."""
    p = _weights(q, k, mask, lse, scale, causal)
    delta = (g * y).sum(-1, keepdim=True)
    if g_lse is not None:
        delta = delta - g_lse.unsqueeze(-1)
    slopes = g @ v.mT - delta
    of_ds = (g_dq @ k.mT + q @ g_dk.mT) * scale
    of_slopes = of_ds * p
    of_delta = of_slopes.sum(-1, keepdim=True)  # its negative
    of_scores = (of_ds * slopes + g @ g_dv.mT) * p
    ds = p * slopes
    return (
        of_slopes @ v + p @ g_dv - of_delta * y,
        of_delta.squeeze(-1),
        (ds @ g_dk + of_scores @ k) * scale,
        (ds.mT @ g_dq + of_scores.mT @ q) * scale,
        of_slopes.mT @ g,
        of_scores,
        -of_delta * g,
        -of_scores.sum(-1),
    )


attention: Op = Op(
    "scaled_dot_product_attention", attention_rule, params=("scale", "causal"), outputs=("y", "lse"), cpu=attention_cpu,
    cuda=Kernel("attention.cu", "attention", "attention"), autocast="lower",
    grad={("q", "k", "v"): _gradient, "mask": _mask_gradient},
)  # fmt: skip
attention_backward: Op = Op(
    "scaled_dot_product_attention_backward", attention_backward_rule, params=("scale", "causal"), outputs=("dq", "dk", "dv"),
    cpu=attention_backward_cpu, cuda=Kernel("attention.cu", "attention_backward", "attention"),
    grad={("g", "g_lse", "q", "k", "v", "mask", "y", "lse"): _second},
)  # fmt: skip
