"""Pooling of one, two and three dimensions, as in torch.nn.functional."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.record import bind
from gradlab.dtype import INT64
from gradlab.nn.functional.conv import Numbers, batched, expect_tensors, spread
from gradlab.spec import ShapeError, count

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
]

_max_pool, _adaptive_max_pool, _max_unpool, _avg_pool = map(
    bind, (ops.pool.max_pool, ops.pool.adaptive_max_pool, ops.pool.max_unpool, ops.pool.avg_pool)
)
_resample = bind(ops.vision.resample)


def _renamed(name: str, error: Exception) -> str:
    return f"{name}: {str(error).partition(': ')[2]}"


def _stride(name: str, stride: Numbers, kernel: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """The stride; the kernel's size where none is given."""
    return kernel if stride is None or stride == () or stride == [] else spread(name, "stride", stride, rank)


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
    name = f"max_pool{rank}d"
    expect_tensors(name, input)
    kernel = spread(name, "kernel_size", kernel_size, rank)
    x, added = batched(name, input, rank)
    try:
        values, indices = _max_pool(
            x,
            kernel=kernel,
            stride=_stride(name, stride, kernel, rank),
            padding=spread(name, "padding", padding, rank),
            dilation=spread(name, "dilation", dilation, rank),
            ceil_mode=bool(ceil_mode),
        )
    except ShapeError as error:
        raise ShapeError(_renamed(name, error)) from None
    if added:
        values, indices = values.squeeze(0), indices.squeeze(0) if return_indices else indices
    return (values, indices) if return_indices else values


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


def max_pool3d(
    input: Tensor,
    kernel_size: Numbers,
    stride: Numbers = None,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of an input (N, C, D, H, W) or (C, D, H, W); indices count within D·H·W."""
    return _max(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


# ---------------------------------------------------------------- averages


def _avg(
    rank: int,
    input: Tensor,
    kernel_size: Numbers,
    stride: Numbers,
    padding: Numbers,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    name = f"avg_pool{rank}d"
    expect_tensors(name, input)
    if input._array.dtype == INT64:  # cut to integers, as PyTorch does: the quotient of two exact numbers
        wide: Any = _avg(rank, input.double(), kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return wide.trunc().long()
    kernel = spread(name, "kernel_size", kernel_size, rank)
    x, added = batched(name, input, rank)
    try:
        found = _avg_pool(
            x,
            kernel=kernel,
            stride=_stride(name, stride, kernel, rank),
            padding=spread(name, "padding", padding, rank),
            ceil_mode=bool(ceil_mode),
            include=bool(count_include_pad),
            divisor=divisor_override,
        )
    except ShapeError as error:
        raise ShapeError(_renamed(name, error)) from None
    except TypeError as error:
        raise NotImplementedError(_renamed(name, error) + "; convert with .float()") from None
    return found.squeeze(0) if added else found


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
    return _avg(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


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
    return _avg(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    input: Tensor,
    kernel_size: Numbers,
    stride: Numbers = None,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of an input (N, C, D, H, W) or (C, D, H, W); as `avg_pool2d`."""
    return _avg(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _lp(rank: int, input: Tensor, norm_type: float, kernel_size: Numbers, stride: Numbers, ceil_mode: bool) -> Tensor:
    name = f"lp_pool{rank}d"
    expect_tensors(name, input)
    kernel = spread(name, "kernel_size", kernel_size, rank)
    total = _avg(rank, input.pow(norm_type), kernel, stride, 0, ceil_mode, True, None)
    # A negative sum (of an odd power) counts as 0; the root's infinite slope at 0 must not meet a gradient of 0.
    positive = total > 0
    safe = total.where(positive, 1) * count(kernel)
    return safe.pow(1 / norm_type).where(positive, 0)


def lp_pool1d(input: Tensor, norm_type: float, kernel_size: Numbers, stride: Numbers = None, ceil_mode: bool = False) -> Tensor:
    """(sum of x^p over each window)^(1/p), p = norm_type, of an input (N, C, L) or (C, L). Where the sum is 0 the gradient is 0."""
    return _lp(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input: Tensor, norm_type: float, kernel_size: Numbers, stride: Numbers = None, ceil_mode: bool = False) -> Tensor:
    """(sum of x^p over each window)^(1/p) of an input (N, C, H, W) or (C, H, W); as `lp_pool1d`."""
    return _lp(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input: Tensor, norm_type: float, kernel_size: Numbers, stride: Numbers = None, ceil_mode: bool = False) -> Tensor:
    """(sum of x^p over each window)^(1/p) of an input (N, C, D, H, W) or (C, D, H, W); as `lp_pool1d`."""
    return _lp(3, input, norm_type, kernel_size, stride, ceil_mode)


# ---------------------------------------------------------------- adaptive: the output's size is given


def _output_size(name: str, output_size: Any, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The output's sizes; None keeps the input's."""
    given = (output_size,) * len(sizes) if output_size is None or isinstance(output_size, int) else tuple(output_size)
    if len(given) == 1:
        given *= len(sizes)
    if len(given) != len(sizes):
        raise RuntimeError(f"{name}: output_size must be one int or {len(sizes)} ints or None, got {output_size}")
    found = tuple(size if g is None else g.__index__() for g, size in zip(given, sizes, strict=True))
    if any(f < 0 for f in found):
        raise ShapeError(f"{name}: output_size must not be negative, got {output_size}")
    return found


def _adaptive_avg(rank: int, input: Tensor, output_size: Any) -> Tensor:
    name = f"adaptive_avg_pool{rank}d"
    expect_tensors(name, input)
    x, added = batched(name, input, rank)
    sizes = x._array.shape[2:]
    wanted = _output_size(name, output_size, sizes)
    if 0 in x._array.shape[1:]:
        raise ShapeError(f"{name}: the input of shape {input._array.shape} has no elements to average")
    if 0 in wanted:
        found = x.new_zeros((*x._array.shape[:2], *wanted))
    elif all(s % w == 0 for s, w in zip(sizes, wanted, strict=True)):
        kernel = tuple(s // w for s, w in zip(sizes, wanted, strict=True))
        found = _avg(rank, x, kernel, kernel, 0, False, True, None)
    else:
        found = x
        for dim, (size, want) in enumerate(zip(sizes, wanted, strict=True), 2):
            if size != want:
                found = _resample(found, dim=dim, table=("area", size, want))
    return found.squeeze(0) if added else found


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Means over `output_size` cells of an input (N, C, L) or (C, L): cell i reaches from floor(i·L/n) to ceil((i+1)·L/n)."""
    return _adaptive_avg(1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Means over a grid of `output_size` cells of an input (N, C, H, W) or (C, H, W); None keeps a dimension.

    >>> F.adaptive_avg_pool2d(gl.ones(1, 1, 4, 4), 1)
    tensor([[[[1.]]]])
    """
    return _adaptive_avg(2, input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Means over a grid of `output_size` cells of an input (N, C, D, H, W) or (C, D, H, W); None keeps a dimension."""
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
        raise ShapeError(_renamed(name, error)) from None
    if added:
        values, indices = values.squeeze(0), indices.squeeze(0)
    return (values, indices) if return_indices else values


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maxima over `output_size` cells, which are those of `adaptive_avg_pool1d`; with return_indices a pair (values, indices)."""
    return _adaptive_max(1, input, output_size, return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maxima over a grid of `output_size` cells of an input (N, C, H, W) or (C, H, W); indices count within H·W."""
    return _adaptive_max(2, input, output_size, return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maxima over a grid of `output_size` cells of an input (N, C, D, H, W) or (C, D, H, W); indices count within D·H·W."""
    return _adaptive_max(3, input, output_size, return_indices)


# ---------------------------------------------------------------- the partial inverse of max pooling


def _unpool(rank: int, input: Tensor, indices: Tensor, kernel_size: Numbers, stride: Numbers, padding: Numbers, output_size: Any) -> Tensor:
    name = f"max_unpool{rank}d"
    expect_tensors(name, input, indices)
    if input._array.shape != indices._array.shape:
        raise ShapeError(f"{name}: input and indices have one shape, not {input._array.shape} and {indices._array.shape}")
    kernel = spread(name, "kernel_size", kernel_size, rank)
    steps, pads = _stride(name, stride, kernel, rank), spread(name, "padding", padding, rank)
    x, added = batched(name, input, rank)
    usual = tuple((n - 1) * s - 2 * p + k for n, s, p, k in zip(x._array.shape[2:], steps, pads, kernel, strict=True))
    wanted = usual if output_size is None else tuple(output_size)[-rank:]
    if len(wanted) != rank or any(not u - s < w < u + s for w, u, s in zip(wanted, usual, steps, strict=True)):
        raise ValueError(f"{name}: output_size {output_size} must lie within one stride {steps} of {usual}")
    try:
        found = _max_unpool(x, indices.unsqueeze(0) if added else indices, shape=(*x._array.shape[:2], *wanted))
    except ShapeError as error:
        raise ShapeError(_renamed(name, error)) from None
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
    """Maxima put back to the places that `max_pool2d` found, 0 elsewhere; as `max_unpool1d`."""
    return _unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Numbers,
    stride: Numbers = None,
    padding: Numbers = 0,
    output_size: Any = None,
) -> Tensor:
    """Maxima put back to the places that `max_pool3d` found, 0 elsewhere; as `max_unpool1d`."""
    return _unpool(3, input, indices, kernel_size, stride, padding, output_size)
