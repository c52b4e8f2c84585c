"""Batch rules of norms of a sum, and of rows of a table plus those of positions."""

from __future__ import annotations

from typing import Any

from gradlab.op import Op
from gradlab.ops.batching.common import Flags, Params, Values, front, padded, rounds_once, sample_shape
from gradlab.ops.batching.indexing import embedding
from gradlab.ops.batching.layers import last_norm_backward
from gradlab.ops.indexing import embedding as embedding_row
from gradlab.ops.norm import layer_norm_backward, rms_norm_backward


def sum_norm(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """A weight or bias of each sample is applied after a norm without."""
    values = [front(values[0], mapped[0], size), front(values[1], mapped[1], size), *values[2:]]
    return own_parameters(op, size, mapped, values, params) if any(mapped[2:]) else op(*values, **params)


@rounds_once
def own_parameters(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """The norm of a sum without weight and bias, and those of each sample."""
    x, residual, *rest = values
    wanted = len(x.shape) - 1
    y, *others = op(x, residual, *[None] * len(rest), **params)
    weight, bias = rest[0], rest[1] if len(rest) > 1 else None
    if weight is not None:
        y = y * padded(weight, mapped[2], wanted)
    if bias is not None:
        y = y + padded(bias, mapped[3], wanted)
    return (y, *others)


@rounds_once
def sum_norm_backward(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """The norm's derivative, then the rest of the gradient."""
    dy, ds, *rest = values
    plain = layer_norm_backward if op.name.startswith("layer") else rms_norm_backward
    dx, *parameters = last_norm_backward(plain, size, [mapped[0], *mapped[2:]], [dy, *rest], params)
    return (dx + front(ds, mapped[1], size), *parameters)


def embedding_add(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Samples' indices side by side, as a batch; tables of each sample's own one after the other."""
    weight, positions, at = values
    if not any(mapped[:2]):
        return op(weight, positions, at, **params)
    found = embedding(embedding_row, size, [mapped[0], mapped[2]], [weight, at], params)
    if not mapped[0] and not mapped[2]:
        found = front(found, False, size)
    length = sample_shape(at, mapped[2])[-1]
    used = positions.narrow(int(mapped[1]), 0, length)
    return found + padded(used, mapped[1], len(found.shape) - 1)


RESIDUAL = {
    "layer_norm_residual": sum_norm, "rms_norm_residual": sum_norm, "layer_norm_residual_backward": sum_norm_backward,
    "rms_norm_residual_backward": sum_norm_backward, "embedding_add": embedding_add,
}  # fmt: skip
