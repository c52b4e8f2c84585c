"""Dropout: random elements, or whole channels, become 0 (or, in the alpha forms, SELU's negative saturation) while training."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind
from gradlab.dispatch import backend_of
from gradlab.dtype import FLOATING, needs_floating
from gradlab.named_errors import explain, flag, named_functions
from gradlab.tensor.generator import draw
from gradlab.tensor.in_place_methods import update
from gradlab.tensor.rounding import rounds_once

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]

_dropout = bind(ops.random.dropout)
SATURATION = -1.7580993408473766  # SELU's value at minus infinity: -scale · alpha (Klambauer et al., 2017)


def _masked(input: Tensor, p: float) -> Tensor:
    """Each element of `input` is 0 with probability p, else divided by 1 - p."""
    array = input._array
    state, offset = draw(None, (prod(array.shape) + 1) // 2, backend_of(array).device_of(array))
    return _dropout(input, state, p=float(p), offset=offset)


@rounds_once
def _channels(input: Tensor, p: float, rank: int) -> Tensor:
    """As `_masked`, one decision for each of the leading `rank` dimensions' entries."""
    shape = input.shape
    return input * _masked(input.new_ones((*shape[:rank], *(1 for _ in shape[rank:]))), p)


@rounds_once
def _alpha(input: Tensor, p: float, rank: int) -> Tensor:
    """Dropped elements become SATURATION; an affine map then restores mean 0 and variance 1."""
    shape = input.shape
    if p == 1:
        return input * 0
    kept = _masked(input.new_ones((*shape[:rank], *(1 for _ in shape[rank:]))), p) > 0
    scale = ((1 - p) * (1 + p * SATURATION**2)) ** -0.5
    return input.where(kept, SATURATION) * scale - scale * p * SATURATION


def _run(name: str, input: Tensor, p: float, training: bool, inplace: bool, function: Any, *args: Any) -> Tensor:
    if not 0 <= p <= 1:
        raise ValueError(f"{name}: p is a probability between 0 and 1, got {p}")
    if not isinstance(input, Differentiable):
        raise TypeError(f"{name}: input is a tensor, not {type(input).__name__}")
    if not training or p == 0:
        return input
    if input._array.dtype not in FLOATING:
        raise RuntimeError(needs_floating(name, input.dtype))
    return update(name, input, function, p, *args) if inplace else function(input, p, *args)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element becomes 0 with probability p; the others are divided by 1 - p. The input itself if not training or p is 0.

    The mask is not kept: backward makes it again from the random state. Raises ValueError unless 0 <= p <= 1.

    >>> F.dropout(gl.ones(3), training=False).shape
    (3,)
    """
    try:
        if training is not True and training is not False:
            training = flag("dropout", "training", training)
        return _run("dropout", input, p, training, inplace, _masked)
    except Exception as error:
        explain(error, "dropout", dropout, (input, p, training, inplace))


def _features(name: str, input: Tensor, p: float, training: bool, inplace: bool, unbatched: int) -> Tensor:
    """Channels of (N, C, …), or (C, …) where the input has `unbatched` dimensions."""
    rank = len(input.shape)
    if rank not in (unbatched, unbatched + 1):
        raise RuntimeError(f"{name}: expects {unbatched} or {unbatched + 1} dimensions, got shape {input.shape}")
    return _run(name, input, p, training, inplace, _channels, 1 if rank == unbatched else 2)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of (N, C, L) or (C, L) become 0 with probability p; the others are divided by 1 - p.

    >>> F.dropout1d(gl.ones(2, 3), training=False).shape
    (2, 3)
    """
    return _features("dropout1d", input, p, training, inplace, 2)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of (N, C, H, W), or of (N, C, L), become 0 with probability p; the others are divided by 1 - p.

    As in PyTorch a tensor of three dimensions is read as (N, C, L), one of two as (N, C).

    >>> F.dropout2d(gl.ones(1, 2, 3, 3), training=False).shape
    (1, 2, 3, 3)
    """
    if len(input.shape) < 2:
        raise RuntimeError(f"dropout2d: expects (N, C, …), got shape {input.shape}")
    return _run("dropout2d", input, p, training, inplace, _channels, 2)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of (N, C, D, H, W) or (C, D, H, W) become 0 with probability p; the others are divided by 1 - p.

    >>> F.dropout3d(gl.ones(1, 2, 3, 3, 3), training=False).shape
    (1, 2, 3, 3, 3)
    """
    return _features("dropout3d", input, p, training, inplace, 4)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout for SELU networks: keeps mean 0 and variance 1 (Klambauer et al., "Self-normalizing neural networks", 2017).

    >>> F.alpha_dropout(gl.ones(3), training=False).shape
    (3,)
    """
    return _run("alpha_dropout", input, p, training, inplace, _alpha, len(input.shape))


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """As `alpha_dropout`, for whole channels of (N, C, …).

    >>> F.feature_alpha_dropout(gl.ones(1, 2, 3), training=False).shape
    (1, 2, 3)
    """
    if len(input.shape) < 2 and training and p:
        raise RuntimeError(f"feature_alpha_dropout: expects (N, C, …), got shape {input.shape}")
    return _run("feature_alpha_dropout", input, p, training, inplace, _alpha, 2)


named_functions(__name__)
