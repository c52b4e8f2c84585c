"""Convolutions and transposed convolutions of one, two and three dimensions, as in torch.nn.functional."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab import dispatch, ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current, lowered
from gradlab.autograd.one_row import one_row
from gradlab.autograd.record import bind
from gradlab.dtype import HALF
from gradlab.named_errors import named_functions
from gradlab.spec import ShapeError, is_number, whole
from gradlab.tensor.rounding import once

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]

_convolution, _convolution_dx, _pad = map(bind, (ops.conv.convolution, ops.conv.convolution_dx, ops.vision.pad))
_convolution_transpose = bind(ops.conv.convolution_transpose)
NAMES = {rank: f"conv{rank}d" for rank in (1, 2, 3)}
Numbers = Any  # an int, or one for each spatial dimension


def spread(name: str, what: str, value: Numbers, rank: int) -> tuple[int, ...]:
    """A number for each spatial dimension, from one number or a sequence. Raises TypeError or RuntimeError, naming both."""
    if type(value) is int:
        return (value,) * rank
    if is_number(value) and not isinstance(value, bool):
        return (whole(value),) * rank
    try:
        found = tuple(whole(v) for v in value)
    except (AttributeError, TypeError):
        raise TypeError(f"{name}: {what} must be an int or a tuple of {rank} ints, not {value!r}") from None
    if len(found) == 1:
        return found * rank
    if len(found) != rank:
        raise RuntimeError(f"{name}: {what} must be one int or {rank} ints, got {value}")
    return found


def expect_tensors(name: str, *tensors: Any) -> None:
    """Raises TypeError for what is not a tensor."""
    for x in tensors:
        if not isinstance(x, Differentiable):
            raise TypeError(f"{name}: expected a tensor, got {type(x).__name__}")


def batched(name: str, input: Tensor, rank: int) -> tuple[Tensor, bool]:
    """The input with a batch dimension, and whether that was added. Raises ShapeError for another rank."""
    shape = input._array.shape
    if len(shape) == rank + 2:
        return input, False
    if len(shape) == rank + 1:
        return input.unsqueeze(0), True
    raise ShapeError(f"{name}: expected an input of {rank + 2} dimensions (N, C, sizes), or {rank + 1} without a batch, got shape {shape}")


def _renamed(name: str, row: str, error: Exception) -> str:
    return name + str(error).removeprefix("convolution_transpose").removeprefix(f"{row}_act").removeprefix(row)


def _check_weight(name: str, weight: Tensor, rank: int) -> None:
    if len(weight._array.shape) != rank + 2:
        raise ShapeError(f"{name}: expected a weight of {rank + 2} dimensions, got shape {weight._array.shape}")


def _same_padding(
    name: str, input: Tensor, padding: str, stride: tuple[int, ...], dilation: tuple[int, ...], kernel: tuple[int, ...]
) -> tuple[Tensor, tuple[int, ...]]:
    """The padding that a word stands for. Where "same" needs one zero more at the end, the input gets it here."""
    if padding == "valid":
        return input, (0,) * len(kernel)
    if padding != "same":
        raise ValueError(f'{name}: padding must be numbers, "valid" or "same", not {padding!r}')
    if any(s != 1 for s in stride):
        raise RuntimeError(f'{name}: padding="same" needs stride 1, got {stride}; pass the padding as numbers')
    total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    if any(t % 2 for t in total):
        input = _pad(input, pads=((0, 0), (0, 0), *((0, t % 2) for t in total)), value=0)
    return input, tuple(t // 2 for t in total)


def convolve(
    rank: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Numbers, padding: Any, dilation: Numbers, groups: int,
    row: Any = _convolution, **more: Any,
) -> Tensor:  # fmt: skip
    """A convolution of so many spatial dimensions. row: the bound row, with parameters of its own in `more`."""
    name = NAMES[rank]
    if not (isinstance(input, Differentiable) and isinstance(weight, Differentiable)):  # asked here: each call of a function is 0.1 µs
        expect_tensors(name, input, weight)
    if len(weight._array.shape) != rank + 2:
        _check_weight(name, weight, rank)
    stride = (stride,) * rank if type(stride) is int else spread(name, "stride", stride, rank)
    dilation = (dilation,) * rank if type(dilation) is int else spread(name, "dilation", dilation, rank)
    x, added = (input, False) if len(input._array.shape) == rank + 2 else batched(name, input, rank)
    if type(padding) is int:
        padding = (padding,) * rank
    elif isinstance(padding, str):
        x, padding = _same_padding(name, x, padding, stride, dilation, weight._array.shape[2:])
    else:
        padding = spread(name, "padding", padding, rank)
    try:
        found = row(x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=whole(groups), **more)
    except ShapeError as error:
        raise ShapeError(_renamed(name, "convolution", error)) from None
    except TypeError as error:
        raise RuntimeError(_renamed(name, "convolution", error)) from None
    return found.squeeze(0) if added else found


@one_row
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Any = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution (cross-correlation) of an input (N, C, L) or (C, L) with a weight (O, C/groups, K); bias (O,). Gives (N, O, L').

    L' = (L + 2·padding - dilation·(K - 1) - 1) // stride + 1. padding is a number, "valid" (none) or "same" (L' = L; stride 1 only).
    Raises RuntimeError where shapes, groups or dtypes do not fit.

    >>> F.conv1d(gl.ones(1, 1, 4), gl.ones(1, 1, 3))
    tensor([[[3., 3.]]])
    """
    return convolve(1, input, weight, bias, stride, padding, dilation, groups)


@one_row
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Any = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution (cross-correlation) of an input (N, C, H, W) or (C, H, W) with a weight (O, C/groups, KH, KW); bias (O,).

    Gives (N, O, H', W'), each size as in `conv1d`; stride, padding and dilation are a number or one for each dimension.

    >>> F.conv2d(gl.ones(1, 1, 3, 3), gl.ones(1, 1, 3, 3), padding=1)
    tensor([[[[4., 6., 4.],
              [6., 9., 6.],
              [4., 6., 4.]]]])
    """
    return convolve(2, input, weight, bias, stride, padding, dilation, groups)


@one_row
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Any = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution of an input (N, C, D, H, W) or (C, D, H, W) with a weight (O, C/groups, KD, KH, KW); as `conv2d`.

    >>> F.conv3d(gl.ones(1, 2, 3, 3, 3), gl.ones(4, 2, 2, 2, 2)).shape
    (1, 4, 2, 2, 2)
    """
    return convolve(3, input, weight, bias, stride, padding, dilation, groups)


def _conv_transpose(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Numbers,
    padding: Numbers,
    output_padding: Numbers,
    groups: int,
    dilation: Numbers,
) -> Tensor:
    name = f"conv_transpose{rank}d"
    expect_tensors(name, input, weight)
    _check_weight(name, weight, rank)
    stride, dilation = spread(name, "stride", stride, rank), spread(name, "dilation", dilation, rank)
    padding, output_padding = spread(name, "padding", padding, rank), spread(name, "output_padding", output_padding, rank)
    x, added, groups = *batched(name, input, rank), whole(groups)
    shape, kernel = x._array.shape, weight._array.shape[2:]
    ops.conv.check_transposed(name, shape, weight._array.shape, stride, padding, output_padding, dilation, groups)
    sizes = [
        (n - 1) * s - 2 * p + d * (k - 1) + extra + 1
        for n, s, p, d, k, extra in zip(shape[2:], stride, padding, dilation, kernel, output_padding, strict=True)
    ]
    if any(size < 1 for size in sizes):
        raise ShapeError(
            f"{name}: an input of shape {shape} with stride {stride}, padding {padding}, kernel {kernel} gives no output: sizes {sizes}"
        )
    target = (shape[0], weight._array.shape[1] * groups, *sizes)
    if bias is not None and bias._array.shape != (target[1],):
        raise ShapeError(f"{name}: the bias has shape ({target[1]},), one number for each output channel, not {bias._array.shape}")
    try:
        found = _transposed(x, weight, bias, target, stride, padding, dilation, groups)
    except ShapeError as error:
        raise ShapeError(_renamed(name, "convolution_dx", error)) from None
    except TypeError as error:
        raise RuntimeError(_renamed(name, "convolution_dx", error)) from None
    return found.squeeze(0) if added else found


def _transposed(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Any:
    """The input of this shape whose convolution has `x` as its gradient.

    Output padding that is not smaller than the stride (but than the dilation) would leave room for one window more than `x` has: then all
    that the windows reach is computed, and the shape cut out of it. The bias is part of the kernel on a GPU; a trace finds that by itself.
    """
    counts, kernel, sizes = x._array.shape[2:], weight._array.shape[2:], shape[2:]
    x, weight, bias = lowered(x, weight, bias)
    reach = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(counts, stride, dilation, kernel, strict=True)]
    half = x._array.dtype in HALF  # whose sums are not rounded before the bias is added
    if all(size + 2 * p - r < s for size, p, r, s in zip(sizes, padding, reach, stride, strict=True)):
        geometry: dict[str, Any] = {"shape": shape, "stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        if bias is not None and (half or type(x._array) in dispatch.recalling) and bias._array.dtype == x._array.dtype:
            return _convolution_transpose(x, weight, bias, **geometry)
        return _with_bias(_convolution_dx(x, weight, **geometry), bias)
    if half and bias is not None and current().autocast is None:
        return once(_transposed, (x, weight, bias, shape, stride, padding, dilation, groups))
    none = (0,) * len(kernel)
    whole = _convolution_dx(x, weight, shape=(*shape[:2], *reach), stride=stride, padding=none, dilation=dilation, groups=groups)
    pads = [(-p, size + p - r) for p, size, r in zip(padding, sizes, reach, strict=True)]
    return _with_bias(_pad(whole, pads=((0, 0), (0, 0), *pads), value=0), bias)


def _with_bias(y: Any, bias: Tensor | None) -> Any:
    if bias is None:
        return y
    if bias._array.dtype != y._array.dtype and current().autocast is not None:
        bias = bias.to(y._array.dtype)
    return y + bias.reshape(-1, *(1,) * (len(y._array.shape) - 2))


@one_row
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    output_padding: Numbers = 0,
    groups: int = 1,
    dilation: Numbers = 1,
) -> Tensor:
    """Transposed convolution: an input (N, C, L) or (C, L) with a weight (C, O/groups, K); bias (O,). Gives (N, O, L').

    L' = (L - 1)·stride - 2·padding + dilation·(K - 1) + output_padding + 1: the gradient of `conv1d` for its input. output_padding is
    smaller than stride or dilation; it chooses among the sizes that `conv1d` would make into L.

    >>> F.conv_transpose1d(gl.ones(1, 1, 2), gl.ones(1, 1, 3))
    tensor([[[1., 2., 2., 1.]]])
    """
    return _conv_transpose(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@one_row
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    output_padding: Numbers = 0,
    groups: int = 1,
    dilation: Numbers = 1,
) -> Tensor:
    """Transposed convolution: an input (N, C, H, W) or (C, H, W) with a weight (C, O/groups, KH, KW); sizes as in `conv_transpose1d`.

    >>> F.conv_transpose2d(gl.ones(1, 1, 2, 2), gl.ones(1, 3, 2, 2), stride=2).shape
    (1, 3, 4, 4)
    """
    return _conv_transpose(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@one_row
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    output_padding: Numbers = 0,
    groups: int = 1,
    dilation: Numbers = 1,
) -> Tensor:
    """Transposed convolution of three spatial dimensions; as `conv_transpose2d`.

    >>> F.conv_transpose3d(gl.ones(1, 1, 2, 2, 2), gl.ones(1, 3, 2, 2, 2), stride=2).shape
    (1, 3, 4, 4, 4)
    """
    return _conv_transpose(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


named_functions(__name__)
