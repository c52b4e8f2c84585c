"""Sums, means and maxima of bags of embeddings."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from gradlab.dtype import HALF
from gradlab.named_errors import named_functions
from gradlab.nn.functional.linear import embedding
from gradlab.tensor.creation import arange
from gradlab.tensor.index_parts import at_hand
from gradlab.tensor.rounding import rounds_once
from gradlab.tensor.sort import searchsorted

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["embedding_bag"]

NAME = "embedding_bag"


def _bags(input: Tensor, offsets: Tensor | None, include_last_offset: bool) -> tuple[Tensor, Tensor, int]:
    """The indices in a row, the number of each one's bag (what lies behind the last bag has the number after it), and how many bags
    there are. RuntimeError for offsets that do not begin at 0, decrease, or lie beyond the input, where they can be looked at."""
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError(f"{NAME}: offsets are only for input of one dimension, not {input.shape}; its rows are the bags")
        bags, size = input.shape
        numbers = arange(bags, device=input.device).unsqueeze(1).expand(bags, size).reshape(-1)
        return input.reshape(-1), numbers, bags
    if input.ndim != 1:
        raise ValueError(f"{NAME}: input has one dimension (with offsets) or two, not shape {input.shape}")
    if offsets is None:
        raise ValueError(f"{NAME}: input of one dimension needs offsets, where its bags begin")
    if offsets.ndim != 1:
        raise ValueError(f"{NAME}: offsets have one dimension, not shape {offsets.shape}")
    bags = offsets.shape[0] - (1 if include_last_offset else 0)
    if bags < 0:
        raise RuntimeError(f"{NAME}: with include_last_offset there is at least one offset")
    length = input.shape[0]
    if at_hand(offsets) and offsets.shape[0]:
        at = offsets.tolist()
        if at[0] or at[-1] > length or any(a > b for a, b in pairwise(at)):
            told = str(at) if len(at) < 9 else f"{at[:4]} … {at[-4:]}"
            raise RuntimeError(f"{NAME}: offsets begin at 0, do not decrease and end at most at {length}, the input's length, not {told}")
    return input, searchsorted(offsets, arange(length, device=input.device), right=True) - 1, bags


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Rows of the table `weight` (n, m) at integers, reduced bag by bag: (bags, m). An empty bag gives zeros.

    input: (bags, size), or in one row, with offsets (bags,) that say where each bag begins (and a last one, if include_last_offset).
    mode: "sum", "mean" or "max". per_sample_weights: factors, shaped as input, for "sum". Row padding_idx is passed over.

    >>> F.embedding_bag(gl.tensor([[0, 1]]), gl.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[2., 3.]])
    """
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f'{NAME}: mode is "sum", "mean" or "max", not {mode!r}')
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(f'{NAME}: per_sample_weights are for mode="sum"; for {mode!r} multiply the embeddings yourself')
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise ValueError(f"{NAME}: per_sample_weights {per_sample_weights.shape} are shaped as the input {input.shape}")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError(f'{NAME}: mode="max" does not scale gradients by frequency')
    rows, dtype = weight.shape[0] if weight.ndim == 2 else 0, weight.dtype
    flat, numbers, bags = _bags(input, offsets, include_last_offset)
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise ValueError(f"{NAME}: padding_idx {padding_idx} is not a row of the table of shape {tuple(weight.shape)}")
    skipped = None if padding_idx is None else padding_idx % rows
    if per_sample_weights is not None and weight._array.dtype in HALF and max_norm is None and not sparse:  # one unit, its gradients too
        weight = weight.float()
    found = embedding(flat, weight, skipped, max_norm, norm_type, scale_grad_by_freq, sparse)
    kept = None if skipped is None else flat != skipped
    if include_last_offset and offsets is not None:
        inside = numbers < bags
        numbers, kept = numbers.clamp(max=max(bags - 1, 0)), inside if kept is None else kept & inside
    size = input.shape[1] if input.ndim == 2 else None
    return _reduced(found, numbers, bags, size, kept, per_sample_weights, mode).to(dtype)


@rounds_once(first=1)
def _reduced(
    found: Tensor, numbers: Tensor, bags: int, size: int | None, kept: Tensor | None, per_sample_weights: Tensor | None, mode: str
) -> Tensor:
    """The rows that were found, reduced bag by bag. numbers: each row's bag. size: of all bags, if they are equal. kept: which rows count,
    None for all."""
    if kept is not None and mode != "max":
        found = found.where(kept.unsqueeze(1), 0)  # whatever stands in the row of padding
    if per_sample_weights is not None:
        found = found * per_sample_weights.reshape(-1, 1)
    if mode == "max":
        # padding goes to a bag of its own, which is cut off
        target = numbers if kept is None else numbers.where(kept, bags)
        room = found.new_zeros((bags + 1, found.shape[1]))
        places = target.unsqueeze(1).expand(found.shape)
        return room.scatter_reduce(0, places, found, "amax", include_self=False)[:bags]

    def summed(rows: Tensor) -> Tensor:
        if size is not None:
            return rows.reshape(bags, size, *rows.shape[1:]).sum(1)
        return rows.new_zeros((bags, *rows.shape[1:])).index_add(0, numbers, rows)

    if mode == "sum":
        return summed(found)
    counts = summed(found.new_ones(numbers.shape) if kept is None else kept.to(found._array.dtype))
    return summed(found) / counts.clamp(min=1).unsqueeze(1)


named_functions(__name__)
