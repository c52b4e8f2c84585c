"""Pooling of one, two and three dimensions, as in torch.nn.functional."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.one_row import one_row
from gradlab.autograd.record import bind
from gradlab.dtype import COMPLEX, INT64
from gradlab.named_errors import named_functions
from gradlab.nn.functional.conv import Numbers, batched, expect_tensors, spread
from gradlab.ops.pool_cpu import divisors
from gradlab.spec import ShapeError, Spec, count, none, whole
from gradlab.tensor.rounding import rounds_once

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d", "max_pool2d", "max_pool3d",
]  # fmt: skip

MAX, AVERAGE = ({rank: f"{kind}_pool{rank}d" for rank in (1, 2, 3)} for kind in ("max", "avg"))
_max_pool, _avg_pool, _pad = map(bind, (ops.pool.max_pool, ops.pool.avg_pool, ops.vision.pad))


def renamed(name: str, error: Exception) -> str:
    return f"{name}: {str(error).partition(': ')[2]}"


def stride_of(name: str, stride: Numbers, kernel: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """The stride; the kernel's size where none is given."""
    return kernel if stride is None or (type(stride) is not int and none(stride)) else spread(name, "stride", stride, rank)


def _max(
    rank: int,
    input: Tensor,
    kernel_size: Numbers,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    name = MAX[rank]
    if not isinstance(input, Differentiable):
        expect_tensors(name, input)
    kernel = (kernel_size,) * rank if type(kernel_size) is int else spread(name, "kernel_size", kernel_size, rank)
    x, added = (input, False) if len(input._array.shape) == rank + 2 else batched(name, input, rank)
    try:
        values, indices = _max_pool(
            x,
            kernel=kernel,
            stride=kernel if stride is None else stride_of(name, stride, kernel, rank),
            padding=(padding,) * rank if type(padding) is int else spread(name, "padding", padding, rank),
            dilation=(dilation,) * rank if type(dilation) is int else spread(name, "dilation", dilation, rank),
            ceil_mode=bool(ceil_mode),
        )
    except ShapeError as error:
        raise ShapeError(renamed(name, error)) from None
    if added:
        values, indices = values.squeeze(0), indices.squeeze(0) if return_indices else indices
    return (values, indices) if return_indices else values


@one_row
def max_pool1d(
    input: Tensor,
    kernel_size: Numbers,
    stride: Numbers = None,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of an input (N, C, L) or (C, L); NaN wins. The stride is kernel_size unless given.

    Gives L' = (L + 2·padding - dilation·(kernel_size - 1) - 1) // stride + 1 windows; ceil_mode rounds up instead, but no window starts
    in the padding behind the input. With return_indices a pair (values, indices): int64, the first largest element's place along L.

    >>> F.max_pool1d(gl.tensor([[1.0, 3.0, 5.0, 7.0]]), 2)
    tensor([[3., 7.]])
    """
    return _max(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@one_row
def max_pool2d(
    input: Tensor,
    kernel_size: Numbers,
    stride: Numbers = None,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of an input (N, C, H, W) or (C, H, W); sizes as in `max_pool1d`; indices count within H·W.

    >>> F.max_pool2d(gl.arange(16.0).view(1, 1, 4, 4), 2)
    tensor([[[[ 5.,  7.],
              [13., 15.]]]])
    """
    return _max(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@one_row
def max_pool3d(
    input: Tensor,
    kernel_size: Numbers,
    stride: Numbers = None,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of an input (N, C, D, H, W) or (C, D, H, W); indices count within D·H·W.

    >>> F.max_pool3d(gl.ones(1, 1, 4, 4, 4), 2).shape
    (1, 1, 2, 2, 2)
    """
    return _max(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


# ---------------------------------------------------------------- averages


def _whole_average(x: Any, **geometry: Any) -> Any:
    """avg_pool of int64: the sum of each window, divided and cut to integers, as PyTorch does."""
    kernel, stride, padding = (geometry[name] for name in ("kernel", "stride", "padding"))
    outputs = ops.pool.avg_pool_rule(Spec(x._array.shape, np.dtype(np.float64)), **geometry).shape[2:]
    sizes = x._array.shape[2:]
    after = [max(s * (n - 1) + k - size - p, 0) for size, k, s, p, n in zip(sizes, kernel, stride, padding, outputs, strict=True)]
    total = _pad(x, pads=((0, 0), (0, 0), *zip(padding, after, strict=True)), value=0)
    for dim, (k, s, n) in enumerate(zip(kernel, stride, outputs, strict=True), 2):
        total = total.unfold(dim, k, s).narrow(dim, 0, n).sum(-1)
    number = divisors(sizes, outputs, kernel, stride, padding, geometry["include"], geometry["divisor"])
    return total.div(total.new_tensor(np.asarray(number, np.int64), dtype=INT64), rounding_mode="trunc")


def average(
    rank: int,
    input: Tensor,
    kernel_size: Numbers,
    stride: Numbers,
    padding: Numbers,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    name = AVERAGE[rank]
    if not isinstance(input, Differentiable):
        expect_tensors(name, input)
    kernel = (kernel_size,) * rank if type(kernel_size) is int else spread(name, "kernel_size", kernel_size, rank)
    x, added = (input, False) if len(input._array.shape) == rank + 2 else batched(name, input, rank)
    try:
        found = (_whole_average if input._array.dtype == INT64 else _avg_pool)(
            x,
            kernel=kernel,
            stride=kernel if stride is None else stride_of(name, stride, kernel, rank),
            padding=(padding,) * rank if type(padding) is int else spread(name, "padding", padding, rank),
            ceil_mode=bool(ceil_mode),
            include=bool(count_include_pad),
            divisor=None if divisor_override is None else whole(divisor_override),
        )
    except ShapeError as error:
        raise ShapeError(renamed(name, error)) from None
    except TypeError as error:
        way = "" if x._array.dtype in COMPLEX else "; convert with .float()"
        raise NotImplementedError(renamed(name, error) + way) from None
    return found.squeeze(0) if added else found


@one_row
def avg_pool1d(
    input: Tensor,
    kernel_size: Numbers,
    stride: Numbers = None,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of an input (N, C, L) or (C, L), of floating point; sizes as in `max_pool1d`, with dilation 1.

    count_include_pad: padding counts as elements that are 0.

    >>> F.avg_pool1d(gl.tensor([[1.0, 3.0, 5.0, 7.0]]), 2)
    tensor([[2., 6.]])
    """
    return average(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@one_row
def avg_pool2d(
    input: Tensor,
    kernel_size: Numbers,
    stride: Numbers = None,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of an input (N, C, H, W) or (C, H, W). divisor_override: what sums are divided by instead of their number.

    >>> F.avg_pool2d(gl.ones(1, 1, 4, 4), 2).shape
    (1, 1, 2, 2)
    """
    return average(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@one_row
def avg_pool3d(
    input: Tensor,
    kernel_size: Numbers,
    stride: Numbers = None,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of an input (N, C, D, H, W) or (C, D, H, W); as `avg_pool2d`.

    >>> F.avg_pool3d(gl.ones(1, 1, 4, 4, 4), 2).shape
    (1, 1, 2, 2, 2)
    """
    return average(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@rounds_once(autocast="float32")
def _lp(rank: int, input: Tensor, norm_type: float, kernel_size: Numbers, stride: Numbers, ceil_mode: bool) -> Tensor:
    name = f"lp_pool{rank}d"
    expect_tensors(name, input)
    kernel = spread(name, "kernel_size", kernel_size, rank)
    total = average(rank, input.pow(norm_type), kernel, stride, 0, ceil_mode, True, None)
    # The root's infinite slope at 0 must not meet a gradient of 0. The root of a negative sum, or of NaN, is NaN.
    some = total != 0
    safe = total.where(some, 1) * count(kernel)
    return safe.pow(1 / norm_type).where(some, 0)


def lp_pool1d(input: Tensor, norm_type: float, kernel_size: Numbers, stride: Numbers = None, ceil_mode: bool = False) -> Tensor:
    """(sum of x^p over each window)^(1/p), p = norm_type, of an input (N, C, L) or (C, L). Where the sum is 0 the gradient is 0.

    >>> F.lp_pool1d(gl.tensor([[3.0, 4.0]]), 2, 2)
    tensor([[5.]])
    """
    return _lp(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input: Tensor, norm_type: float, kernel_size: Numbers, stride: Numbers = None, ceil_mode: bool = False) -> Tensor:
    """(sum of x^p over each window)^(1/p) of an input (N, C, H, W) or (C, H, W); as `lp_pool1d`.

    >>> F.lp_pool2d(gl.ones(1, 1, 4, 4), 2, 2)
    tensor([[[[2., 2.],
              [2., 2.]]]])
    """
    return _lp(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input: Tensor, norm_type: float, kernel_size: Numbers, stride: Numbers = None, ceil_mode: bool = False) -> Tensor:
    """(sum of x^p over each window)^(1/p) of an input (N, C, D, H, W) or (C, D, H, W); as `lp_pool1d`.

    >>> F.lp_pool3d(gl.ones(1, 1, 4, 4, 4), 2, 2).shape
    (1, 1, 2, 2, 2)
    """
    return _lp(3, input, norm_type, kernel_size, stride, ceil_mode)


named_functions(__name__)
