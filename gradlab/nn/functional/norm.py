"""Normalisation: over the batch, over the last dimensions, over groups of channels, over neighbouring channels.

Inputs have the shape (N, C, *) unless said otherwise; weight and bias may be left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.autograd import inplace
from gradlab.autograd.base import Differentiable, version_of
from gradlab.autograd.mode import Mode, current, no_grad, recomputing
from gradlab.autograd.one_row import one_row
from gradlab.autograd.record import bind, unrecorded, wrap
from gradlab.dtype import FLOAT32, FLOAT64, FLOATING, HALF, finfo, wide
from gradlab.named_errors import named_functions
from gradlab.quiet import quietly
from gradlab.spec import ShapeError, count, is_number, whole
from gradlab.tensor.common_arguments import only_real
from gradlab.tensor.in_place_methods import update
from gradlab.tensor.memory_formats import followed
from gradlab.tensor.rounding import rounds_once

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm"]

_layer_norm, _rms_norm, _batch_norm, _running = map(bind, (ops.norm.layer_norm, ops.norm.rms_norm, ops.norm.batch_norm, ops.norm.running))


def _channel_shape(input: Tensor) -> tuple[int, ...]:
    """(1, C, 1, ...), which broadcasts along dimension 1."""
    return (1, input._array.shape[1], *(1 for _ in input._array.shape[2:]))


def _affine(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """y·weight + bias, one of each for a channel."""
    shape = _channel_shape(y)
    if weight is not None:
        y = y * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


def _expect(name: str, what: str, found: Tensor | None, size: int) -> None:
    if found is not None and found._array.shape != (size,):
        raise ShapeError(f"{name}: {what} has shape {found._array.shape}, expected ({size},): one number for each channel")


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / √(var + eps)·weight + bias for each channel of (N, C, *).

    training: mean and var (divided by n) of this batch; running_mean and running_var, if given, move towards them by `momentum`, in place
    (var there divided by n - 1). Else the running ones are used. Raises ValueError in training for a single value in each channel.

    >>> F.batch_norm(gl.tensor([[1.0], [3.0]]), None, None, training=True)
    tensor([[-1.0000],
            [ 1.0000]])
    """
    only_real("batch_norm", input)
    shape = input._array.shape
    if len(shape) < 2:
        if 0 in shape:  # nothing, of which PyTorch does not ask for channels
            return input.clone()
        raise RuntimeError(f"batch_norm: the input has the shape (N, C, *), not {shape}")
    for what, found in (("running_mean", running_mean), ("running_var", running_var), ("weight", weight), ("bias", bias)):
        if found is not None:
            _expect("batch_norm", what, found, shape[1])
    if eps < 0 or (training and eps == 0):
        raise ValueError(f"batch_norm: eps must be {'positive in training' if training else '0 or more'}, got {eps}")
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError("batch_norm: running_mean and running_var are needed unless training=True")
        y = _at_rest(input, running_mean, running_var, weight, bias, eps)
        return y if y._array.dtype == input._array.dtype else y.to(input._array.dtype)
    n = count(shape) // (shape[1] or 1)
    if n == 1:
        raise ValueError(f"batch_norm: expected more than 1 value for each channel in training, got input of shape {shape}")
    y, mean, _, var = _batch_norm(input, weight, bias, eps=float(eps))
    if n > 0:
        _move(running_mean, mean, momentum, 1.0)
        _move(running_var, var, momentum, n / (n - 1))
    return y if y._array.dtype == input._array.dtype else y.to(input._array.dtype)  # halves, with float32 statistics and weights


@rounds_once(autocast="float32")
def _at_rest(x: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float) -> Tensor:
    """Batch norm with given statistics: one factor and one summand for each channel."""
    scale = (var + eps).rsqrt()
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    at = _channel_shape(x)
    return x * scale.reshape(at) + shift.reshape(at)


def _move(average: Tensor | None, value: Tensor, momentum: Any, scale: float) -> None:
    """average = (1 - momentum)·average + momentum·scale·value, in place, outside the graph. momentum: a tensor in a trace that counts."""
    if average is None or recomputing.get():
        return
    if not isinstance(momentum, (int, float)):
        with no_grad():
            own = average.to(value._array.dtype)  # halves are rounded once, at the end
            average.copy_(own * (1 - momentum) + value.detach() * (momentum * scale))
        return
    mode, array, new = current(), average._array, value._array
    if _plain(average, mode) and array.dtype in (FLOAT32, FLOAT64) and array.dtype == new.dtype:
        inplace.check("batch_norm", average, mode)
        quietly(_blend, array, new, array.dtype.type(1 - momentum), array.dtype.type(momentum * scale))
        inplace.written(version_of(average))
    else:
        with no_grad():
            update("batch_norm", average, _running, value.detach(), keep=1 - momentum, take=momentum * scale)


def _plain(tensor: Tensor, mode: Mode) -> bool:
    """Whether nothing but its memory is to be written."""
    meta = tensor._meta
    alone = tensor._edge is None and (meta is None or (meta.base is None and not meta.inference))
    return alone and not mode.special and type(tensor._array) is np.ndarray


def count_batch(batches: Tensor) -> None:
    """One more in a module's count of batches, outside the graph; not where a checkpoint computes again."""
    if recomputing.get():
        return
    mode = current()
    if _plain(batches, mode):
        inplace.check("batch_norm", batches, mode)
        np.add(batches._array, 1, batches._array)
        inplace.written(version_of(batches))
    else:
        with no_grad():
            batches.add_(1)


def _blend(array: Any, new: Any, keep: Any, take: Any) -> None:
    array *= keep
    array += new * take


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """As `batch_norm`, with the statistics of each sample by itself (unless use_input_stats=False: then the running ones).

    >>> F.instance_norm(gl.tensor([[[1.0, 3.0]]]))
    tensor([[[-1.0000,  1.0000]]])
    """
    shape = input._array.shape
    if len(shape) < 2:
        raise RuntimeError(f"instance_norm: the input has the shape (N, C, *), not {shape}")
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if count(shape[2:]) == 1:
        raise ValueError(f"instance_norm: expected more than 1 value for each channel of a sample in training, got input of shape {shape}")
    for what, found in (("running_mean", running_mean), ("running_var", running_var), ("weight", weight), ("bias", bias)):
        _expect("instance_norm", what, found, shape[1])
    wide = input.to(FLOAT32) if input._array.dtype in HALF else input  # the statistics are float32, and the end rounds
    flat = wide.reshape((1, shape[0] * shape[1], *shape[2:]))
    y, mean, _, var = _batch_norm(flat, None, None, eps=float(eps))
    n = count(shape[2:])
    if n and shape[0]:
        _move(running_mean, mean.reshape(shape[:2]).mean(0), momentum, 1.0)
        _move(running_var, var.reshape(shape[:2]).mean(0), momentum, n / (n - 1))
    y = _affine(y.reshape(shape), weight, bias)
    return y if y._array.dtype == input._array.dtype else y.to(input._array.dtype)


@one_row
@rounds_once(autocast="float32", first=1)
def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Channels in `num_groups` groups of neighbours, each normalised over its channels and places, for each sample by itself.

    >>> F.group_norm(gl.tensor([[1.0, 3.0, 5.0, 7.0]]), 2)
    tensor([[-1.0000,  1.0000, -1.0000,  1.0000]])
    """
    shape = input._array.shape
    if len(shape) < 2:
        raise RuntimeError(f"group_norm: the input has the shape (N, C, *), not {shape}")
    if num_groups <= 0 or shape[1] % num_groups:
        raise RuntimeError(f"group_norm: the {shape[1]} channels of shape {shape} do not divide into {num_groups} groups")
    if weight is not None or bias is not None:
        _expect("group_norm", "weight", weight, shape[1])
        _expect("group_norm", "bias", bias, shape[1])
    size = count(shape[1:]) // num_groups
    if shape[0] * size == 1:
        raise ValueError(f"group_norm: expected more than 1 value for each group, got input of shape {shape} in {num_groups} groups")
    rows = (shape[0] * num_groups, size)
    array = unrecorded(input)
    if array is not None and array.flags.c_contiguous:
        y: Tensor = _layer_norm(wrap(array.reshape(rows)), None, None, k=1, eps=float(eps))[0]
        y._array = y._array.reshape(shape)
        return y if weight is None and bias is None else _affine(y, weight, bias)
    y = _layer_norm(input.reshape(rows), None, None, k=1, eps=float(eps))[0]
    return _affine(followed(y.reshape(shape), input), weight, bias)


def _normalized(name: str, input: Tensor, normalized_shape: Any) -> int:
    """The number of last dimensions to normalise over; raises RuntimeError where the input does not end in that shape."""
    last = (whole(normalized_shape),) if type(normalized_shape) is not tuple and is_number(normalized_shape) else tuple(normalized_shape)
    try:
        shape = input._array.shape
    except AttributeError:
        raise TypeError(f"{name}: input is a tensor, not {type(input).__name__}") from None
    if not last or shape[len(shape) - len(last) :] != last or len(last) > len(shape):
        raise RuntimeError(f"{name}: normalized_shape {last} is not what the input's shape {shape} ends in")
    return len(last)


@one_row
def layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """(x - mean) / √(var + eps)·weight + bias over the last dimensions, whose shape (also weight's and bias's) is `normalized_shape`.

    >>> F.layer_norm(gl.tensor([1.0, 3.0]), (2,))
    tensor([-1.0000,  1.0000])
    """
    k = _normalized("layer_norm", input, normalized_shape)
    y: Tensor = _layer_norm(input, weight, bias, k=k, eps=float(eps))[0]
    return _halved(y, input) if input._array.dtype in HALF else y


def _halved(y: Tensor, input: Tensor) -> Tensor:
    """The result in the input's type, also with weights of a wider one; under autocast as it is."""
    same = y._array.dtype == input._array.dtype
    return y if same or current().autocast is not None else y.to(input._array.dtype)


@one_row
def rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """x / √(mean(x²) + eps)·weight over the last dimensions; eps is the spacing at 1 of the type that is computed in (float32 for half
    types) where it is left out.

    >>> F.rms_norm(gl.tensor([3.0, 4.0]), (2,))
    tensor([0.8485, 1.1314])
    """
    k = _normalized("rms_norm", input, normalized_shape)
    y: Tensor = _rms_norm(input, weight, k=k, eps=finfo(wide(input._array.dtype)).eps if eps is None else float(eps))[0]
    return y if y._array.dtype == input._array.dtype else _halved(y, input)


@rounds_once(autocast="float32")
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x / (k + alpha·mean of the squares of `size` neighbouring channels)^beta (Krizhevsky, Sutskever and Hinton, 2012).

    >>> F.local_response_norm(gl.ones(1, 2, 1), 2)
    tensor([[[1.0000],
             [0.9999]]])
    """
    shape = input._array.shape
    if len(shape) < 3:
        raise ValueError(f"local_response_norm: expected 3 or more dimensions, got shape {shape}")
    if not isinstance(input, Differentiable):
        raise TypeError("local_response_norm: input is a tensor")
    if input.numel() == 0:
        return input
    eager = type(input._array) is np.ndarray and current().tracer is None
    squares: Any = _squared(input, wide=not eager)
    if eager and not np.isfinite(squares._array).all():
        squares = _squared(input, wide=True)
    before, after = whole(size) // 2, (whole(size) - 1) // 2
    channels = shape[1]
    total: Any = None
    for offset in range(max(-before, 1 - channels), min(after, channels - 1) + 1):  # neighbours are copies, shifted
        part = squares.narrow(1, max(offset, 0), channels - abs(offset))
        if offset:
            edge = squares.new_zeros((shape[0], abs(offset), *shape[2:]))
            part = _joined(edge, part) if offset < 0 else _joined(part, edge)
        total = part if total is None else total + part
    mean = total / size if input._array.dtype in FLOATING else total // size  # of integers whole, as PyTorch's pooling
    y = input / (mean * alpha + k) ** beta
    return y.to(FLOAT32) if y._array.dtype == FLOAT64 and input._array.dtype == FLOAT32 else y


def _squared(x: Tensor, wide: bool) -> Tensor:
    """x²; wide: of float32 in float64, where none overflows."""
    x = x.to(FLOAT64) if wide and x._array.dtype == FLOAT32 else x
    return x * x


def _joined(a: Tensor, b: Tensor) -> Tensor:
    return bind(ops.movement.cat)(a, b, dim=1)


named_functions(__name__)
