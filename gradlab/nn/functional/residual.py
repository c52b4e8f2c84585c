"""Norms of a sum, as residual connections have them, and embeddings with positions, each in one operation. PyTorch has no such functions.

On a GPU eager code saves a launch and a pass over the sum, forward and backward: one kernel reads x and the residual and writes the sum
and its norm; on the way back it adds the gradient that the sum gets elsewhere. On the CPU it saves an operation (bench/fused_rows.py: 0.71
to 1.00 of the time, with the backward 0.86 to 0.92). A trace keeps the plain operations; `gl.compile` fuses those for a GPU by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import dispatch, ops
from gradlab.autograd.mode import current
from gradlab.autograd.record import bind
from gradlab.dtype import FLOATING, HALF, finfo, wide
from gradlab.named_errors import named_functions
from gradlab.nn.functional.linear import embedding
from gradlab.nn.functional.norm import layer_norm, rms_norm
from gradlab.spec import ShapeError, whole
from gradlab.tensor.gather import places
from gradlab.tensor.selection import row_of_padding

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["add_layer_norm", "add_rms_norm", "embedding_add"]

_layer_norm, _rms_norm, _embedding_add = map(
    bind, (ops.residual.layer_norm_residual, ops.residual.rms_norm_residual, ops.fused.embedding_add)
)  # fmt: skip


def at_hand(kind: type) -> bool:
    """Whether arrays of that type have values here and now: no trace, no batch of vmap."""
    return (kind is np.ndarray or kind in dispatch.recalling) and current().tracer is None


def sum_layer_norm(input: Any, residual: Any, shape: tuple[int, ...], weight: Any, bias: Any, eps: float) -> tuple[Tensor, Tensor] | None:
    """`add_layer_norm` in one operation; None where that is not what the two do: something is broadcast or promoted, or wrong."""
    if not _alike(input, residual, shape) or not (_fits(weight, input) and _fits(bias, input)):
        return None
    found = _layer_norm(input, residual, weight, bias, k=len(shape), eps=eps)
    return found[0], found[1]


def sum_rms_norm(input: Any, residual: Any, shape: tuple[int, ...], weight: Any, eps: float | None) -> tuple[Tensor, Tensor] | None:
    """`add_rms_norm` in one operation; None as `sum_layer_norm`."""
    if not _alike(input, residual, shape) or not _fits(weight, input):
        return None
    found = _rms_norm(input, residual, weight, k=len(shape), eps=finfo(wide(input._array.dtype)).eps if eps is None else eps)
    return found[0], found[1]


def _alike(input: Any, residual: Any, shape: tuple[int, ...]) -> bool:
    """Whether both are arrays of one kind, shape and floating dtype, and end in a shape that is not empty."""
    try:
        x, r = input._array, residual._array
    except AttributeError:
        return False
    kind, size = type(x), x.shape
    if type(r) is not kind or r.shape != size or not shape or size[-len(shape) :] != shape:
        return False
    return x.dtype == r.dtype and x.dtype in FLOATING and at_hand(kind)


def _fits(parameter: Any, input: Any) -> bool:
    return parameter is None or (type(parameter._array) is type(input._array) and parameter._array.dtype == input._array.dtype)


def looks_up_in_one(input: Tensor, weight: Tensor, positions: Tensor) -> bool:
    """Whether one operation gives what two embeddings and their sum do. On the CPU not in half types: it would convert the whole tables."""
    kind, dtype = type(weight._array), weight._array.dtype
    if dtype not in FLOATING or positions._array.dtype != dtype or (dtype in HALF and kind is np.ndarray):
        return False
    return type(input._array) is type(positions._array) is kind and at_hand(kind)


def add_layer_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """(layer_norm(s, normalized_shape, weight, bias, eps), s) for the sum s = input + residual: a residual connection and its norm.

    input and residual broadcast and are promoted as in `input + residual`; the other arguments, and the errors, are `layer_norm`'s. One
    operation, on a GPU one kernel, where nothing is broadcast. Gradients of any order. Sources: He et al. (2016); Ba et al. (2016).

    >>> F.add_layer_norm(gl.tensor([1.0, 2.0]), gl.tensor([0.0, 1.0]), (2,))
    (tensor([-1.0000,  1.0000]), tensor([1., 3.]))
    """
    shape = (whole(normalized_shape),) if hasattr(normalized_shape, "__index__") else tuple(normalized_shape)
    found = sum_layer_norm(input, residual, shape, weight, bias, float(eps))
    if found is not None:
        return found
    total = input + residual
    return layer_norm(total, shape, weight, bias, eps), total


def add_rms_norm(
    input: Tensor, residual: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> tuple[Tensor, Tensor]:
    """(rms_norm(s, normalized_shape, weight, eps), s) for the sum s = input + residual: a residual connection and its norm.

    input and residual broadcast and are promoted as in `input + residual`; the other arguments, and the errors, are `rms_norm`'s. One
    operation, on a GPU one kernel, where nothing is broadcast. Gradients of any order. Source: Zhang and Sennrich (2019).

    >>> F.add_rms_norm(gl.tensor([3.0, 3.0]), gl.tensor([0.0, 1.0]), (2,))
    (tensor([0.8485, 1.1314]), tensor([3., 4.]))
    """
    shape = (whole(normalized_shape),) if hasattr(normalized_shape, "__index__") else tuple(normalized_shape)
    found = sum_rms_norm(input, residual, shape, weight, None if eps is None else float(eps))
    if found is not None:
        return found
    total = input + residual
    return rms_norm(total, shape, weight, eps), total


def embedding_add(input: Tensor, weight: Tensor, positions: Tensor, padding_idx: int | None = None) -> Tensor:
    """embedding(input, weight, padding_idx) + positions[:length]: tokens' rows and those of their places in the sequence.

    input: integers of shape (*, length); weight: the table (n, m) of tokens; positions: that of places, (length or more, m). Gives
    (*, length, m). Row padding_idx of weight gets no gradient, places that are not used get one of zeros; both gradients are summed in a
    fixed order. IndexError for a token outside of [0, n), ShapeError for other shapes. On a GPU one kernel. Source: Gehring et al. (2017).

    >>> F.embedding_add(gl.tensor([[1, 0]]), gl.tensor([[1.0, 2.0], [3.0, 4.0]]), gl.tensor([[0.5, 0.5], [0.25, 0.25], [0.0, 0.0]]))
    tensor([[[3.5000, 4.5000],
             [1.2500, 2.2500]]])
    """
    at = places("embedding_add", input)
    shape, table, given = at._array.shape, weight._array.shape, positions._array.shape
    if len(table) != 2:
        raise RuntimeError(f"embedding_add: the table has two dimensions, not shape {table}")
    if not shape or len(given) != 2 or given[1] != table[1] or given[0] < shape[-1]:
        raise ShapeError(
            f"embedding_add: input {shape} and positions {given} do not fit a table of shape {table}: expected (*, length) and "
            f"(length or more, {table[1]})"
        )
    if looks_up_in_one(at, weight, positions):
        return _embedding_add(weight, positions, at, padding_idx=row_of_padding("embedding_add", weight, padding_idx))
    return embedding(at, weight, padding_idx) + positions[: shape[-1]]


named_functions(__name__)
