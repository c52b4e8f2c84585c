"""Attention with scores and masks that are functions of one's own. Names and meanings follow `torch.nn.attention.flex_attention`.

A function of PyTorch's is of single numbers: a score, and the places in the batch, among the heads, of the query and of the key. Here it is
called once, with all of them, which broadcast against one another; so it has to be made of operations on tensors, as it is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gradlab.dtype import HALF, bool_, float32
from gradlab.nn.functional.attention import _repeated
from gradlab.tensor import Tensor
from gradlab.tensor.creation import arange, full
from gradlab.tensor.where import where

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
_DEFAULT_SPARSE_BLOCK_SIZE = 128


def _places(batch: int, heads: int, queries: int, keys: int, device: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The numbers of the batch, heads, queries and keys, each along a dimension of its own."""
    sizes = (batch, heads, queries, keys)
    return tuple(arange(n, device=device).reshape([n if i == k else 1 for k in range(4)]) for i, n in enumerate(sizes))  # type: ignore[return-value]


def noop_mask(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Tensor:
    """A mask function that lets every query see every key."""
    return full((), True, dtype=bool_, device=token_q.device)


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """A mask function: true where all of these are."""

    def both(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        found = noop_mask(b, h, q_idx, kv_idx)
        for mask_mod in mask_mods:
            found = found & mask_mod(b, h, q_idx, kv_idx)
        return found

    return both


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """A mask function: true where one of these is."""

    def either(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        found = ~noop_mask(b, h, q_idx, kv_idx)
        for mask_mod in mask_mods:
            found = found | mask_mod(b, h, q_idx, kv_idx)
        return found

    return either


def create_mask(mod_fn: MaskMod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None) -> Tensor:
    """The mask (B, H, Q_LEN, KV_LEN) of bool that a mask function makes; B and H are 1 where they are None.

    >>> from gradlab.nn.attention.flex_attention import create_mask
    >>> create_mask(lambda b, h, q, kv: q >= kv, None, None, 2, 2)
    tensor([[[[ True, False],
              [ True,  True]]]])
    """
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    return mod_fn(*_places(*sizes, device)).to(bool_).expand(sizes)


class BlockMask:
    """A mask function with the sizes that it is for. Blocks are PyTorch's way to leave work out; here the mask is applied as a whole."""

    def __init__(self, mask_mod: MaskMod, shape: tuple[int, int, int, int], BLOCK_SIZE: int | tuple[int, int]) -> None:
        self.mask_mod, self.shape = mask_mod, shape
        self.BLOCK_SIZE = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
        self.seq_lengths = shape[2:]

    def to(self, device: Any) -> BlockMask:
        """Itself: the function makes its mask where the query is."""
        return self

    def to_dense(self, device: Any = None) -> Tensor:
        """The mask of bool, of all places."""
        return create_mask(self.mask_mod, *self.shape, device=device)

    def sparsity(self) -> float:
        """The percentage of places that the mask leaves out."""
        return 100 * (1 - self.to_dense().to(float32).mean().item())

    def numel(self) -> int:
        """How many places there are."""
        return math.prod(self.shape)

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, mask_mod={self.mask_mod!r})"


def create_block_mask(
    mask_mod: MaskMod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE, **_: Any,
) -> BlockMask:  # fmt: skip
    """A mask for `flex_attention` of a function `mask_mod(b, h, q_idx, kv_idx)`; B and H are 1 where it does not depend on them."""
    return BlockMask(mask_mod, (B or 1, H or 1, Q_LEN, KV_LEN), BLOCK_SIZE)


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: ScoreMod | None = None, block_mask: BlockMask | None = None,
    scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False, kernel_options: Any = None,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """softmax(score_mod(query @ key.mT · scale)) @ value, of query (B, H, L, E), key (B, H, S, E), value (B, H, S, Ev): (B, H, L, Ev).

    score_mod: a function of (scores, b, h, q_idx, kv_idx); block_mask: `create_block_mask`; what it leaves out counts nothing, and a query
    that sees no key gives zeros. scale: 1/sqrt(E) by default. enable_gqa: heads of keys and values are used several times. return_lse:
    also the logarithm of each query's sum of exponentials (B, H, L). kernel_options: taken for PyTorch's programs. RuntimeError for
    other shapes.

    >>> from gradlab.nn.attention.flex_attention import flex_attention
    >>> q = gl.ones(1, 1, 3, 4)
    >>> flex_attention(q, q, q, score_mod=lambda score, b, h, q_idx, kv_idx: score + (q_idx - kv_idx)).shape
    (1, 1, 3, 4)
    """
    if not query.ndim == key.ndim == value.ndim == 4:
        raise RuntimeError(f"flex_attention: expected (B, H, L, E), got {query.shape}, {key.shape} and {value.shape}")
    batch, heads, queries, width = query.shape
    if enable_gqa:
        key, value = _repeated(key, heads, "key"), _repeated(value, heads, "value")
    if key.shape[1] != heads or key.shape[:3] != value.shape[:3] or key.shape[3] != width or key.shape[0] not in (1, batch):
        hint = "; enable_gqa=True repeats the heads of keys" if heads % key.shape[1] == 0 and key.shape[1] != heads else ""
        raise RuntimeError(f"flex_attention: query {query.shape}, key {key.shape} and value {value.shape} do not fit together{hint}")
    keys, dtype = key.shape[2], query.dtype
    if query._array.dtype in HALF:  # one unit: computed in float32 and rounded once
        query, key, value = query.to(float32), key.to(float32), value.to(float32)
    scores = query @ key.mT * (width**-0.5 if scale is None else scale)
    places = _places(batch, heads, queries, keys, query.device)
    if score_mod is not None:
        scores = score_mod(scores, *places)
    if block_mask is not None:
        if block_mask.shape[0] not in (1, batch) or block_mask.shape[1] not in (1, heads):
            raise RuntimeError(f"flex_attention: a mask of shape {block_mask.shape} for {batch} sequences with {heads} heads")
        if queries > block_mask.shape[2] or keys > block_mask.shape[3]:
            raise RuntimeError(f"flex_attention: {queries} queries and {keys} keys are more than the mask's {block_mask.shape[2:]}")
        scores = where(block_mask.mask_mod(*places), scores, -math.inf)
    lse = scores.logsumexp(-1)
    blind = (lse == -math.inf).unsqueeze(-1)
    weights = (scores - where(blind, 0.0, lse.unsqueeze(-1))).exp()
    result = (weights @ value).to(dtype)
    return (result, lse) if return_lse else result


__all__ = ["BlockMask", "and_masks", "create_block_mask", "create_mask", "flex_attention", "noop_mask", "or_masks"]
