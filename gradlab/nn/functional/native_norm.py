"""Norms with the statistics that they took, and neighbours of theirs that PyTorch keeps at its top under `native_`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.dtype import FLOAT32, HALF
from gradlab.named_errors import named_functions
from gradlab.nn import functional as F
from gradlab.tensor.common_arguments import check_outs, into
from gradlab.tensor.rounding import rounds_once

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor


def _widened(*given: Any) -> list[Any]:
    """Half types as float32, in which the result and its statistics are computed together; what is not given stays None."""
    return [x.to(FLOAT32) if x is not None and x._array.dtype in HALF else x for x in given]


def _statistics(x: Any, dims: tuple[int, ...], keepdim: bool, eps: float) -> tuple[Any, Any]:
    """Means and 1 / √(variance + eps)."""
    return x.mean(dims, keepdim=keepdim), (x.var(dims, correction=0, keepdim=keepdim) + eps).rsqrt()


def _rounded(input: Any, parameters: tuple[Any, ...], found: Any, statistics: Any) -> tuple[Any, Any, Any]:
    """The result in the type of the input; statistics of half types, too, unless a parameter is float32: as PyTorch's on the CPU."""
    dtype = input._array.dtype
    if dtype not in HALF:
        return (found, *statistics)
    mixed = any(x is not None and x._array.dtype != dtype for x in parameters)
    return (found.to(dtype), *(x if mixed else x.to(dtype) for x in statistics))


def native_layer_norm(input: Tensor, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """`nn.functional.layer_norm`, the means and 1 / √(variance + eps), which have sizes of 1 where there was a mean taken.

    As in PyTorch the statistics have no gradients.

    >>> gl.native_layer_norm(gl.tensor([[1.0, 3.0]]), (2,), None, None, 0.0)
    (tensor([[-1.,  1.]]), tensor([[2.]]), tensor([[1.]]))
    """
    x, scale, shift = _widened(input, weight, bias)
    found = F.layer_norm(x, tuple(normalized_shape), scale, shift, eps)
    rank = len(x._array.shape)
    statistics = _statistics(x.detach(), tuple(range(rank - len(tuple(normalized_shape)), rank)), True, eps)
    return _rounded(input, (weight, bias), found, statistics)


def native_group_norm(
    input: Tensor, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`nn.functional.group_norm` of (N, C, …), HxW being the elements of a channel, the means and 1 / √(variance + eps), both (N, group).

    >>> gl.native_group_norm(gl.tensor([[1.0, 3.0]]), None, None, 1, 2, 1, 1, 0.0)
    (tensor([[-1.,  1.]]), tensor([[2.]]), tensor([[1.]]))
    """
    x, scale, shift = _widened(input, weight, bias)
    found = F.group_norm(x, group, scale, shift, eps)
    return _rounded(input, (weight, bias), found, _statistics(x.reshape((N, group, C // group * HxW)), (2,), False, eps))


def native_batch_norm(
    input: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float, *,
    out: Any = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`nn.functional.batch_norm`, the batch's means and 1 / √(variance + eps) if `training`, otherwise two empty tensors.

    As in PyTorch the statistics have no gradients.

    >>> gl.native_batch_norm(gl.tensor([[1.0], [3.0]]), None, None, None, None, True, 0.1, 1e-5)[1:]
    (tensor([2.]), tensor([1.0000]))
    """
    if out is not None:
        check_outs("native_batch_norm", out, 3)
    x, scale, shift = _widened(input, weight, bias)
    dims = (0, *range(2, len(x._array.shape)))
    statistics = _statistics(x.detach(), dims, False, eps) if training else (x.new_zeros((0,)), x.new_zeros((0,)))
    y = F.batch_norm(x, running_mean, running_var, scale, shift, training, momentum, eps)
    found = _rounded(input, (weight, bias, running_mean, running_var), y, statistics)
    return found if out is None else into("native_batch_norm", out, found)


def _native_batch_norm_legit(input: Tensor, weight: Any, bias: Any, *rest: Any, out: Any = None) -> tuple[Tensor, Tensor, Tensor]:
    """As `native_batch_norm`; without running statistics these two arguments are left out."""
    running, options = (rest[:2], rest[2:]) if len(rest) == 5 else ((None, None), rest)
    return native_batch_norm(input, weight, bias, *running, *options, out=out)


@rounds_once
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """`nn.functional.dropout`, and which elements it kept.

    >>> gl.native_dropout(gl.ones(2), 0.5, False)
    (tensor([1., 1.]), tensor([True, True]))
    """
    kept: Any = F.dropout(input.detach().new_ones(input._array.shape), p, train is not False)
    return input * kept, kept != 0


def native_channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """`nn.functional.channel_shuffle`.

    >>> gl.native_channel_shuffle(gl.arange(4.0).reshape(1, 4, 1, 1), 2).flatten()
    tensor([0., 2., 1., 3.])
    """
    return F.channel_shuffle(input, groups)


def native_norm(
    input: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None, *, axis: Any = None,
    keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """The vector norm, as `gl.norm`.

    >>> gl.native_norm(gl.tensor([3.0, 4.0]))
    tensor(5.)
    """
    return input.norm(p, dim, keepdim, dtype=dtype, axis=axis, keepdims=keepdims)


_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def grid_sampler_2d(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """`nn.functional.grid_sample` of images (N, C, H, W), its modes as numbers: bilinear, nearest, bicubic; zeros, border, reflection.

    >>> gl.grid_sampler_2d(gl.ones(1, 1, 2, 2), gl.zeros(1, 1, 1, 2), 0, 0, False)
    tensor([[[[1.]]]])
    """
    return F.grid_sample(input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], align_corners)


def grid_sampler_3d(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """As `grid_sampler_2d`, of volumes (N, C, D, H, W).

    >>> gl.grid_sampler_3d(gl.ones(1, 1, 2, 2, 2), gl.zeros(1, 1, 1, 1, 3), 0, 0, False)
    tensor([[[[[1.]]]]])
    """
    return F.grid_sample(input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], align_corners)


named_functions(__name__)
