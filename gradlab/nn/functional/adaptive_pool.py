"""Adaptive pooling, where the output's size is given, as in torch.nn.functional."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.autograd.one_row import one_row
from gradlab.autograd.record import bind
from gradlab.dtype import INT64
from gradlab.named_errors import named_functions
from gradlab.nn.functional.conv import batched, expect_tensors
from gradlab.spec import ShapeError, is_number, whole
from gradlab.tensor.shape import stack

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor
from gradlab.nn.functional.pool import average, renamed
from gradlab.nn.functional.vision import resampled

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d",
]  # fmt: skip

_max_pool, _adaptive_max_pool = map(bind, (ops.pool.max_pool, ops.pool.adaptive_max_pool))


def _output_size(name: str, output_size: Any, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The output's sizes; None keeps the input's."""
    if output_size is None:  # within a tuple it keeps a size; by itself it is nothing
        raise TypeError(f"{name}: output_size is one int or {len(sizes)}, of which None keeps the input's, not None")
    given = (output_size,) * len(sizes) if is_number(output_size) else tuple(output_size)
    if len(given) == 1:
        given *= len(sizes)
    if len(given) != len(sizes):
        raise RuntimeError(f"{name}: output_size must be one int or {len(sizes)} ints, got {output_size}")
    found = tuple(size if g is None else whole(g) for g, size in zip(given, sizes, strict=True))
    if any(f < 0 for f in found):
        raise ShapeError(f"{name}: output_size must not be negative, got {output_size}")
    return found


def _adaptive_avg(rank: int, input: Tensor, output_size: Any) -> Tensor:
    name = f"adaptive_avg_pool{rank}d"
    expect_tensors(name, input)
    x, added = batched(name, input, rank)
    sizes = x._array.shape[2:]
    wanted = _output_size(name, output_size, sizes)
    if 0 in sizes:
        raise ShapeError(f"{name}: the input of shape {input._array.shape} has no elements to average")
    if 0 in wanted:
        found = x.new_zeros((*x._array.shape[:2], *wanted))
    elif x._array.shape[1] and all(s % w == 0 for s, w in zip(sizes, wanted, strict=True)):
        kernel = tuple(s // w for s, w in zip(sizes, wanted, strict=True))
        found = average(rank, x, kernel, kernel, 0, False, True, None)
    elif x._array.dtype == INT64:
        found = _whole_means(x, sizes, wanted)
    else:
        pairs = enumerate(zip(sizes, wanted, strict=True), 2)
        tables = [(dim, ("area", size, want)) for dim, (size, want) in pairs if size != want]
        found = resampled(x, tables) if tables else x.clone()
    return found.squeeze(0) if added else found


def _whole_means(x: Any, sizes: tuple[int, ...], wanted: tuple[int, ...]) -> Any:
    """Means of cells of int64, cut to integers as average pooling's."""
    number: Any = 1
    for dim, (size, want) in enumerate(zip(sizes, wanted, strict=True), 2):
        cells = [(i * size // want, -(-(i + 1) * size // want)) for i in range(want)]
        x = stack([x.narrow(dim, start, end - start).sum(dim) for start, end in cells], dim)
        number = np.multiply.outer(number, [end - start for start, end in cells])
    return x.div(x.new_tensor(np.asarray(number, np.int64), dtype=INT64), rounding_mode="trunc")


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Means over `output_size` cells of an input (N, C, L) or (C, L): cell i reaches from floor(i·L/n) to ceil((i+1)·L/n).

    >>> F.adaptive_avg_pool1d(gl.tensor([[1.0, 3.0, 5.0, 7.0]]), 2)
    tensor([[2., 6.]])
    """
    return _adaptive_avg(1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Means over a grid of `output_size` cells of an input (N, C, H, W) or (C, H, W); None keeps a dimension.

    >>> F.adaptive_avg_pool2d(gl.ones(1, 1, 4, 4), 1)
    tensor([[[[1.]]]])
    """
    return _adaptive_avg(2, input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Means over a grid of `output_size` cells of an input (N, C, D, H, W) or (C, D, H, W); None keeps a dimension.

    >>> F.adaptive_avg_pool3d(gl.ones(1, 1, 4, 4, 4), 2).shape
    (1, 1, 2, 2, 2)
    """
    return _adaptive_avg(3, input, output_size)


def _adaptive_max(rank: int, input: Tensor, output_size: Any, return_indices: bool) -> Any:
    name = f"adaptive_max_pool{rank}d"
    expect_tensors(name, input)
    x, added = batched(name, input, rank)
    sizes = x._array.shape[2:]
    wanted = _output_size(name, output_size, sizes)
    try:
        if 0 not in wanted and 0 not in sizes and all(s % w == 0 for s, w in zip(sizes, wanted, strict=True)):
            kernel = tuple(s // w for s, w in zip(sizes, wanted, strict=True))
            none, ones = (0,) * rank, (1,) * rank
            values, indices = _max_pool(x, kernel=kernel, stride=kernel, padding=none, dilation=ones, ceil_mode=False)
        else:
            values, indices = _adaptive_max_pool(x, size=wanted)
    except ShapeError as error:
        raise ShapeError(renamed(name, error)) from None
    if added:
        values, indices = values.squeeze(0), indices.squeeze(0)
    return (values, indices) if return_indices else values


@one_row
def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maxima over `output_size` cells, which are those of `adaptive_avg_pool1d`; with return_indices a pair (values, indices).

    >>> F.adaptive_max_pool1d(gl.tensor([[1.0, 3.0, 5.0, 7.0]]), 2)
    tensor([[3., 7.]])
    """
    return _adaptive_max(1, input, output_size, return_indices)


@one_row
def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maxima over a grid of `output_size` cells of an input (N, C, H, W) or (C, H, W); indices count within H·W.

    >>> F.adaptive_max_pool2d(gl.arange(16.0).view(1, 1, 4, 4), 1)
    tensor([[[[15.]]]])
    """
    return _adaptive_max(2, input, output_size, return_indices)


@one_row
def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maxima over a grid of `output_size` cells of an input (N, C, D, H, W) or (C, D, H, W); indices count within D·H·W.

    >>> F.adaptive_max_pool3d(gl.ones(1, 1, 4, 4, 4), (2, 1, None)).shape
    (1, 1, 2, 1, 4)
    """
    return _adaptive_max(3, input, output_size, return_indices)


named_functions(__name__)
