"""Masks of causal attention for queries and keys of different numbers, as in torch.nn.attention.bias: `attn_mask` of
`nn.functional.scaled_dot_product_attention`."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from gradlab.tensor.creation import ones
from gradlab.tensor.subclasses import disabled
from gradlab.tensor.tensor import Tensor

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(IntEnum):
    """Which ends of queries and keys belong together: the first ones (UPPER_LEFT) or the last ones (LOWER_RIGHT)."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """A mask (queries, keys) of bool, True where attention is allowed: what is computed of it is a plain tensor."""

    __torch_function__ = disabled
    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> Any:
        if not isinstance(variant, CausalVariant):
            raise TypeError(f"CausalBias: variant is of CausalVariant, not {variant!r}")
        shift = seq_len_kv - seq_len_q if variant is CausalVariant.LOWER_RIGHT else 0
        made: Any = ones(seq_len_q, seq_len_kv).tril(shift).bool().as_subclass(cls)
        made.variant, made.seq_len_q, made.seq_len_kv = variant, seq_len_q, seq_len_kv
        return made

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        pass


def _of_size(name: str, variant: CausalVariant, size: tuple[int, ...]) -> CausalBias:
    if len(size) != 2:
        raise ValueError(f"{name} takes the numbers of queries and keys, not {size}")
    return CausalBias(variant, *size)


def causal_upper_left(*size: int) -> CausalBias:
    """Query i looks at keys up to i. size: the numbers of queries and keys; ValueError for another number of numbers.

    >>> from gradlab.nn.attention.bias import causal_upper_left
    >>> causal_upper_left(2, 3).int().tolist()
    [[1, 0, 0], [1, 1, 0]]
    """
    return _of_size("causal_upper_left", CausalVariant.UPPER_LEFT, size)


def causal_lower_right(*size: int) -> CausalBias:
    """The last query looks at all keys, the one before it at all but the last one, and so on.

    size: the numbers of queries and keys; ValueError for another number of numbers.

    >>> from gradlab.nn.attention.bias import causal_lower_right
    >>> causal_lower_right(2, 3).int().tolist()
    [[1, 1, 0], [1, 1, 1]]
    """
    return _of_size("causal_lower_right", CausalVariant.LOWER_RIGHT, size)
