"""Batch norm whose statistics are those of the batches of all processes in a group."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from gradlab.autograd.mode import no_grad
from gradlab.autograd.record import bind
from gradlab.distributed.groups import ProcessGroup
from gradlab.dtype import HALF
from gradlab.nn.functional.norm import _move
from gradlab.ops import collective as rows
from gradlab.spec import count
from gradlab.tensor import Tensor
from gradlab.tensor.shape import stack

# Whether all processes are given the same batch, whose statistics each has alone.
same_batch: ContextVar[bool] = ContextVar("same_batch", default=False)


def sync_batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None, bias: Tensor | None, momentum: Any,
    eps: float, group: ProcessGroup,
) -> Tensor:  # fmt: skip
    """`F.batch_norm` in training for (N, C, *), N being different from process to process if it is.

    Each process gives its mean, its sum of squares about that mean and its number of values; those of all follow from them without the
    cancellation that sums of squares have (Chan, Golub and LeVeque, 1983).
    """
    dtype = input.dtype
    x = input.float() if input._array.dtype in HALF else input
    channels = x.shape[1]
    n = count(x.shape) // (channels or 1)
    dims = [0, *range(2, x.ndim)]
    shape = [1, channels, *[1] * (x.ndim - 2)]
    own = x.sum(dims) / max(n, 1)
    away = x - own.reshape(shape)
    squares = (away * away).sum(dims)
    every = bind(rows.all_gather)(stack([own, squares, own.new_full((channels,), float(n)).detach()]), by=group.transport)
    means, sums, counts = every[:, 0], every[:, 1], every[:, 2].detach()
    total = counts.sum(0)
    mean = (means * counts).sum(0) / total
    var = (sums.sum(0) + (counts * (means - mean) ** 2).sum(0)) / total
    with no_grad():
        _move(running_mean, mean.detach(), momentum, 1.0)
        _move(running_var, (var * (total / (total - 1))).detach(), momentum, 1.0)
    scale = (var + eps).rsqrt()
    if weight is not None:
        scale = scale * weight
    y = (x - mean.reshape(shape)) * scale.reshape(shape)
    if bias is not None:
        y = y + bias.reshape(shape)
    return y.to(dtype)
