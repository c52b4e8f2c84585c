"""Reductions of neighbouring parts of different lengths along one dimension."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gradlab.autograd.base import Differentiable
from gradlab.dtype import FLOATING, INT64, needs_floating
from gradlab.named_errors import named_functions
from gradlab.spec import ShapeError, normalize_dim
from gradlab.tensor.common_arguments import only_tensors
from gradlab.tensor.creation import arange
from gradlab.tensor.index_parts import at_hand

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["segment_reduce"]

_STARTS = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


def segment_reduce(
    data: Tensor, reduce: str, *, lengths: Any = None, indices: Any = None, offsets: Any = None, axis: int = 0, unsafe: bool = False,
    initial: Any = None,
) -> Tensor:  # fmt: skip
    """The sum, mean, max, min or prod (`reduce`) of each segment along `axis`, whose size becomes their number.

    lengths: of the segments, integers of shape (*data.shape[:axis], n), which add up to the axis's size (`unsafe` skips that check).
    offsets: in their place where segments begin and the last one ends, (*data.shape[:axis], n + 1). initial: what a reduction starts from;
    without it an empty segment has the sum 0, the product 1, the maximum -inf, the minimum inf and the mean NaN. `axis` is the last
    dimension of lengths.

    >>> gl.segment_reduce(gl.tensor([1.0, 2.0, 4.0]), "sum", lengths=gl.tensor([1, 2]))
    tensor([1., 6.])
    """
    only_tensors("segment_reduce", data)
    if reduce not in _STARTS:
        raise RuntimeError(f"segment_reduce: reduce is one of {', '.join(_STARTS)}, not {reduce!r}")
    if indices is not None:
        raise NotImplementedError("segment_reduce: indices are not offered (nor are they in PyTorch); give lengths or offsets")
    if (lengths is None) == (offsets is None):
        raise RuntimeError("segment_reduce: give either lengths or offsets")
    if data._array.dtype not in FLOATING:
        raise RuntimeError(needs_floating("segment_reduce", data.dtype))
    at = normalize_dim(axis, len(data._array.shape))
    given = lengths if offsets is None else offsets
    if not isinstance(given, Differentiable) or given._array.dtype.kind not in "iu":
        raise RuntimeError("segment_reduce: lengths and offsets are integer tensors")
    front, size = data._array.shape[:at], data._array.shape[at]
    if given._array.shape[:-1] != front:
        raise ShapeError(f"segment_reduce: lengths along axis {axis} of {data.shape} have the shape {front} in front, not {given.shape}")  # type: ignore[attr-defined]
    table: Any = given.to(INT64)  # type: ignore[attr-defined]
    if offsets is None:
        if not unsafe and at_hand(table) and (bool((table < 0).any()) or bool((table.sum(-1) != size).any())):
            raise RuntimeError(f"segment_reduce: lengths are not negative and add up to {size}, the size of axis {axis}")
        ends = table.cumsum(-1)
        begins = ends - table
    else:
        begins, ends = table[..., :-1], table[..., 1:]
        if not unsafe and at_hand(table) and bool((begins > ends).any() | (table < 0).any() | (table > size).any()):
            raise RuntimeError(f"segment_reduce: offsets are from 0 to {size}, the size of axis {axis}, and do not decrease")
    number = begins._array.shape[-1]
    places = arange(size, device=data.device).unsqueeze(-1)
    # the segment that each element lies in; what lies in none goes to one more
    inside = (places >= begins.unsqueeze(-2)) & (places < ends.unsqueeze(-2))
    which = (inside.to(INT64) * arange(number, device=data.device)).sum(-1).masked_fill(~inside.any(-1), number)
    rest = data._array.shape[at + 1 :]
    index = which.reshape((*front, size, *(1,) * len(rest))).expand(data._array.shape)
    start = _STARTS[reduce] if initial is None else float(initial)
    base = data.new_full((*front, number + 1, *rest), start)
    how = {"sum": "sum", "mean": "sum", "prod": "prod", "max": "amax", "min": "amin"}[reduce]
    found: Any = base.scatter_reduce(at, index, data, how, include_self=True).narrow(at, 0, number)
    if reduce == "mean":
        sizes = (ends - begins).reshape((*front, number, *(1,) * len(rest))).to(data._array.dtype)
        empty = sizes == 0
        found = found / sizes.masked_fill(empty, 1)
        found = found.masked_fill(empty, math.nan) if initial is None else found
    return found


named_functions(__name__)
