"""The partial inverse of max pooling, as in torch.nn.functional."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.record import bind
from gradlab.named_errors import named_functions
from gradlab.nn.functional.conv import Numbers, batched, expect_tensors, spread
from gradlab.spec import ShapeError

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor
from gradlab.nn.functional.pool import renamed, stride_of

__all__ = ["max_unpool1d", "max_unpool2d", "max_unpool3d"]

_max_unpool = bind(ops.pool.max_unpool)


def _unpool(rank: int, input: Tensor, indices: Tensor, kernel_size: Numbers, stride: Numbers, padding: Numbers, output_size: Any) -> Tensor:
    name = f"max_unpool{rank}d"
    expect_tensors(name, input, indices)
    if input._array.shape != indices._array.shape:
        raise ShapeError(f"{name}: input and indices have one shape, not {input._array.shape} and {indices._array.shape}")
    kernel = spread(name, "kernel_size", kernel_size, rank)
    steps, pads = stride_of(name, stride, kernel, rank), spread(name, "padding", padding, rank)
    x, added = batched(name, input, rank)
    usual = tuple((n - 1) * s - 2 * p + k for n, s, p, k in zip(x._array.shape[2:], steps, pads, kernel, strict=True))
    wanted = usual if output_size is None else tuple(output_size)[-rank:]
    if len(wanted) != rank or any(not u - s < w < u + s for w, u, s in zip(wanted, usual, steps, strict=True)):
        raise ValueError(f"{name}: output_size {output_size} must lie within one stride {steps} of {usual}")
    try:
        found = _max_unpool(x, indices.unsqueeze(0) if added else indices, shape=(*x._array.shape[:2], *wanted))
    except ShapeError as error:
        raise ShapeError(renamed(name, error)) from None
    return found.squeeze(0) if added else found


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Numbers,
    stride: Numbers = None,
    padding: Numbers = 0,
    output_size: Any = None,
) -> Tensor:
    """Maxima put back to the places that `max_pool1d` with return_indices found, 0 elsewhere.

    The size is (L - 1)·stride - 2·padding + kernel_size, or output_size, which may differ by less than the stride.

    >>> values, places = F.max_pool1d(gl.tensor([[1.0, 3.0, 7.0, 5.0]]), 2, return_indices=True)
    >>> F.max_unpool1d(values, places, 2)
    tensor([[0., 3., 7., 0.]])
    """
    return _unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Numbers,
    stride: Numbers = None,
    padding: Numbers = 0,
    output_size: Any = None,
) -> Tensor:
    """Maxima put back to the places that `max_pool2d` found, 0 elsewhere; as `max_unpool1d`.

    >>> values, places = F.max_pool2d(gl.arange(4.0).view(1, 1, 2, 2), 2, return_indices=True)
    >>> F.max_unpool2d(values, places, 2)
    tensor([[[[0., 0.],
              [0., 3.]]]])
    """
    return _unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Numbers,
    stride: Numbers = None,
    padding: Numbers = 0,
    output_size: Any = None,
) -> Tensor:
    """Maxima put back to the places that `max_pool3d` found, 0 elsewhere; as `max_unpool1d`.

    >>> values, places = F.max_pool3d(gl.ones(1, 1, 4, 4, 4), 2, return_indices=True)
    >>> F.max_unpool3d(values, places, 2).sum()
    tensor(8.)
    """
    return _unpool(3, input, indices, kernel_size, stride, padding, output_size)


named_functions(__name__)
