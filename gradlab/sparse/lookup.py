"""Embeddings whose gradient is sparse: the rows that were looked up, and no others."""

from __future__ import annotations

from typing import Any

from gradlab.autograd.function import Function
from gradlab.sparse.array import Pattern, sparse
from gradlab.spec import count
from gradlab.tensor import Tensor
from gradlab.tensor.selection import embedding_lookup, index_select, row_of_padding


class Embedding(Function):
    """Rows of a table, with the gradient as a sparse tensor: a row for each place, those of the padding left out."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, at: Tensor, padding: int | None) -> Tensor:
        ctx.save_for_backward(at)
        ctx.shape, ctx.padding = weight._array.shape, padding
        return embedding_lookup(weight, at)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (at,) = ctx.saved_tensors
        size, width = ctx.shape
        at, values = at.reshape((count(at._array.shape),)).long(), g.reshape((count(at._array.shape), width))
        if ctx.padding is not None:
            kept = (at != ctx.padding).nonzero().flatten()
            at, values = at[kept], index_select(values, 0, kept)
        return sparse(Pattern(at.unsqueeze(0), (size,)), values), None, None


def looked_up(weight: Tensor, at: Tensor, padding_idx: int | None) -> Tensor:
    """`embedding_lookup` with a sparse gradient."""
    found: Tensor = Embedding.apply(weight, at, row_of_padding("embedding", weight, padding_idx))
    return found
