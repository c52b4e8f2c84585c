"""Functions that PyTorch has at its top under names with an underscore, and that libraries and its own test databases call all the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradlab.autograd.base import Differentiable
from gradlab.dtype import as_numpy
from gradlab.spec import ShapeError, normalize_dim
from gradlab.tensor.common_arguments import into, only_tensors
from gradlab.tensor.segments import segment_reduce
from gradlab.tensor.shape import cat

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

_segment_reduce = segment_reduce


def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any, *, grad_input: Any = None) -> Tensor:
    """The gradient of softmax along `dim`, given the result's and the result."""
    only_tensors("_softmax_backward_data", grad_output, output)
    product: Any = grad_output * output
    found = (product - output * product.sum(dim, keepdim=True)).to(as_numpy(input_dtype))
    return found if grad_input is None else into("_softmax_backward_data", grad_input, found)


def _log_softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any, *, out: Any = None) -> Tensor:
    """The gradient of log_softmax along `dim`, given the result's and the result."""
    only_tensors("_log_softmax_backward_data", grad_output, output)
    found = (grad_output - output.exp() * grad_output.sum(dim, keepdim=True)).to(as_numpy(input_dtype))
    return found if out is None else into("_log_softmax_backward_data", out, found)


def _safe_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """Softmax, and 0 where a whole row is -inf."""
    only_tensors("_safe_softmax", input)
    return input.softmax(dim, dtype=dtype).masked_fill((input == -math.inf).all(dim, keepdim=True), 0)


def _chunk_cat(tensors: Sequence[Tensor], dim: int, num_chunks: int, *, out: Any = None) -> Tensor:
    """Each tensor in `num_chunks` parts along `dim` (the last filled up with zeros), each part flattened from there on, side by side."""
    if num_chunks < 1 or not tensors:
        raise RuntimeError(f"_chunk_cat: at least one tensor and one chunk, got {len(tensors)} and {num_chunks}")
    ranks = {len(x._array.shape) for x in tensors}
    if dim < 0 and len(ranks) > 1:
        raise RuntimeError(f"_chunk_cat: a dimension counted from the end, {dim}, is not one of tensors of {sorted(ranks)} dimensions")
    at = normalize_dim(dim, min(ranks))
    first, parts = tensors[0]._array.shape[:at], []
    for x in tensors:
        shape = x._array.shape
        if shape[:at] != first:
            raise ShapeError(f"_chunk_cat: sizes in front of dimension {dim} differ: {first} and {shape[:at]}")
        if not x.numel():
            raise ShapeError(f"_chunk_cat: tensors have elements, not shape {shape}")
        missing = -shape[at] % num_chunks
        full: Any = cat([x, x.new_zeros((*shape[:at], missing, *shape[at + 1 :]))], at) if missing else x
        parts.append(full.reshape((*first, num_chunks, -1)))
    found: Any = cat(parts, at + 1)
    return found if out is None else into("_chunk_cat", out, found)


def _within(input: Tensor, indices: Sequence[Any]) -> tuple[Any, ...]:
    """Indices, those outside at the nearest place."""
    sizes = input._array.shape
    return tuple(
        [slice(None) if i is None else i.clamp(-size, size - 1) if isinstance(i, Differentiable) else i  # type: ignore[attr-defined]
         for i, size in zip(indices, sizes, strict=False)]
    )  # fmt: skip


def _unsafe_masked_index(input: Tensor, mask: Tensor, indices: Sequence[Any], fill: Any) -> Tensor:
    """input[indices] where the mask is True, `fill` elsewhere, whatever the indices are there."""
    only_tensors("_unsafe_masked_index", input, mask)
    return input[_within(input, indices)].masked_fill(~mask, fill)


def _unsafe_masked_index_put_accumulate(input: Tensor, mask: Tensor, indices: Sequence[Any], values: Tensor) -> Tensor:
    """A copy of input with the values added at the indices where the mask is True."""
    only_tensors("_unsafe_masked_index_put_accumulate", input, mask, values)
    return input.index_put(_within(input, indices), values.masked_fill(~mask, 0), accumulate=True)
