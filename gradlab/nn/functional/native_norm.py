"""Norms with the statistics that they took, and neighbours of theirs that PyTorch keeps at its top under `native_`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.dtype import FLOAT32, HALF
from gradlab.nn import functional as F
from gradlab.tensor.common_arguments import into

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor


def _of_statistics(x: Any, *beside: Any) -> Any:
    """The dtype of statistics: the input's, but float32 for a half type where the parameters `beside` are of another."""
    dtype = x._array.dtype
    return FLOAT32 if dtype in HALF and any(t is not None and t._array.dtype != dtype for t in beside) else dtype


def _statistics(x: Any, dims: tuple[int, ...], keepdim: bool, eps: float, *beside: Any) -> tuple[Any, Any]:
    """Means and 1 / √(variance + eps), computed in float32 for half types."""
    dtype = _of_statistics(x, *beside)
    wide = x.to(FLOAT32) if x._array.dtype in HALF else x
    return wide.mean(dims, keepdim=keepdim).to(dtype), (wide.var(dims, correction=0, keepdim=keepdim) + eps).rsqrt().to(dtype)


def native_layer_norm(input: Tensor, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """`nn.functional.layer_norm`, the means and 1 / √(variance + eps), which have sizes of 1 where there was a mean taken.

    As in PyTorch the statistics have no gradients.

    >>> gl.native_layer_norm(gl.tensor([[1.0, 3.0]]), (2,), None, None, 0.0)
    (tensor([[-1.,  1.]]), tensor([[2.]]), tensor([[1.]]))
    """
    found = F.layer_norm(input, tuple(normalized_shape), weight, bias, eps)
    rank = len(input._array.shape)
    return (found, *_statistics(input.detach(), tuple(range(rank - len(tuple(normalized_shape)), rank)), True, eps, weight, bias))


def native_group_norm(
    input: Tensor, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`nn.functional.group_norm` of (N, C, …), HxW being the elements of a channel, the means and 1 / √(variance + eps), both (N, group).

    >>> gl.native_group_norm(gl.tensor([[1.0, 3.0]]), None, None, 1, 2, 1, 1, 0.0)
    (tensor([[-1.,  1.]]), tensor([[2.]]), tensor([[1.]]))
    """
    found = F.group_norm(input, group, weight, bias, eps)
    return (found, *_statistics(input.reshape((N, group, C // group * HxW)), (2,), False, eps, weight, bias))


def native_batch_norm(
    input: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float, *,
    out: Any = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`nn.functional.batch_norm`, the batch's means and 1 / √(variance + eps) if `training`, otherwise two empty tensors.

    As in PyTorch the statistics have no gradients.

    >>> gl.native_batch_norm(gl.tensor([[1.0], [3.0]]), None, None, None, None, True, 0.1, 1e-5)[1:]
    (tensor([2.]), tensor([1.0000]))
    """
    dims = (0, *range(2, len(input._array.shape)))
    beside = (weight, bias, running_mean, running_var)
    empty = input.new_zeros((0,), dtype=_of_statistics(input, *beside))
    statistics = _statistics(input.detach(), dims, False, eps, *beside) if training else (empty, empty.clone())
    found = (F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps), *statistics)
    return found if out is None else into("native_batch_norm", out, found)


def _native_batch_norm_legit(input: Tensor, weight: Any, bias: Any, *rest: Any, out: Any = None) -> tuple[Tensor, Tensor, Tensor]:
    """As `native_batch_norm`; without running statistics these two arguments are left out."""
    running, options = (rest[:2], rest[2:]) if len(rest) == 5 else ((None, None), rest)
    return native_batch_norm(input, weight, bias, *running, *options, out=out)


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
