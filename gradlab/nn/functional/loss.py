"""Losses of regression, as in `torch.nn.functional`; those of classification are in `class_loss.py`.

Each takes `reduction`: "mean", "sum" (a 0-d tensor) or "none" (a loss for each element or target), and PyTorch's older size_average and
reduce, which are deprecated. Raises ValueError for another reduction.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gradlab import ops
from gradlab.advice import BroadcastWarning, warn
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind
from gradlab.dtype import FLOATING, INEXACT, get_default_dtype, needs_floating
from gradlab.named_errors import explain, named_functions
from gradlab.spec import broadcast_shapes
from gradlab.tensor.common_arguments import only_real, only_tensors
from gradlab.tensor.index_parts import known
from gradlab.tensor.rounding import rounds_once

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["gaussian_nll_loss", "huber_loss", "l1_loss", "mse_loss", "poisson_nll_loss", "smooth_l1_loss"]

_mse = bind(ops.loss.mse)
REDUCTIONS = ("mean", "sum", "none")


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str, more: tuple[str, ...] = ()) -> str:
    """The reduction meant by the three arguments. Raises ValueError for one that is not there."""
    if size_average is not None or reduce is not None:
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
        warn(UserWarning, f"size_average and reduce are deprecated; use reduction={reduction!r}")
    if reduction not in REDUCTIONS + more:
        raise ValueError(f"{reduction} is not a valid value for reduction; use one of {', '.join(REDUCTIONS + more)}")
    return reduction


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """A loss for each element, reduced."""
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


# ---------------------------------------------------------------- regression


def _pair(name: str, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Input and target of one shape; broadcast, with a warning, where they differ."""
    for x in (input, target):
        if not isinstance(x, Differentiable):
            raise TypeError(f"{name}: input and target are tensors, not {type(x).__name__}")
    shape, other = input._array.shape, target._array.shape
    if shape == other:
        return input, target
    wide = broadcast_shapes(shape, other)
    warn(
        BroadcastWarning,
        f"{name}: the target's size {other} differs from the input's size {shape}: they are broadcast, which is likely not what you want; "
        "give them the same size",
    )
    return input.expand(wide), target.expand(wide)


def _weighted(loss: Tensor, weight: Tensor, shape: tuple[int, ...], reduction: str, by_weight: bool) -> Tensor:
    if weight._array.shape != shape:
        raise ValueError(f"weight and input must have the same size, got {weight._array.shape} and {shape}")
    loss = loss * weight
    return loss.sum() / weight.sum() if by_weight and reduction == "mean" else reduced(loss, reduction)


@rounds_once(autocast="float32")
def _squares(a: Tensor, b: Tensor, weight: Tensor | None, shape: tuple[int, ...], reduction: str) -> Tensor:
    """The squared differences, one by one or weighted."""
    loss = (a - b).square()
    return loss if weight is None else _weighted(loss, weight, shape, reduction, True)


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """(input - target)². With `weight` (of input's shape) a weighted sum, which the mean divides by the weights' sum.

    >>> F.mse_loss(gl.tensor([1.0, 2.0]), gl.tensor([1.0, 4.0]))
    tensor(2.)
    """
    try:
        reduction = reduction_of(size_average, reduce, reduction)
        a, b = _pair("mse_loss", input, target)
        if reduction == "none" or weight is not None:
            return _squares(a, b, weight, input._array.shape, reduction)
        if a._array.dtype not in FLOATING and b._array.dtype not in FLOATING:
            raise RuntimeError(needs_floating("mse_loss", input.dtype))
        return _mse(a, b, mean=reduction == "mean")
    except Exception as error:
        explain(error, "mse_loss", mse_loss, (input, target, size_average, reduce, reduction, weight))


@rounds_once(autocast="float32")
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """|input - target|. `weight` as in mse_loss.

    >>> F.l1_loss(gl.tensor([1.0, 2.0]), gl.tensor([1.0, 4.0]))
    tensor(1.)
    """
    reduction = reduction_of(size_average, reduce, reduction)
    a, b = _pair("l1_loss", input, target)
    loss = (a - b).abs()
    return reduced(loss, reduction) if weight is None else _weighted(loss, weight, input._array.shape, reduction, True)


def _bent(input: Tensor, target: Tensor, at: float) -> Tensor:
    """d²/2 for d = |input - target| <= at, continued in a straight line: m·(d - m/2), m the smaller of d and at."""
    d = (input - target).abs()
    m = d.clamp(max=at)
    return m * (d - m * 0.5)


@rounds_once(autocast="float32")
def smooth_l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """d²/(2·beta) for d = |input - target| < beta, else d - beta/2 (Girshick, 2015); l1_loss for beta = 0.

    >>> F.smooth_l1_loss(gl.tensor([1.0, 2.0]), gl.tensor([1.0, 4.0]))
    tensor(0.7500)
    """
    reduction = reduction_of(size_average, reduce, reduction)
    if beta < 0:
        raise RuntimeError(f"smooth_l1_loss: beta cannot be negative, got {beta}")
    only_real("smooth_l1_loss", input, target)
    a, b = _pair("smooth_l1_loss", input, target)
    return reduced((a - b).abs() if beta == 0 else _bent(a, b, beta) / beta, reduction)


@rounds_once(autocast="float32", first=1)
def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None) -> Tensor:
    """d²/2 for d = |input - target| <= delta, else delta·(d - delta/2) (Huber, 1964).

    >>> F.huber_loss(gl.tensor([1.0, 2.0]), gl.tensor([1.0, 4.0]))
    tensor(0.7500)
    """
    reduction = reduction_of(None, None, reduction)
    if delta <= 0:
        raise RuntimeError(f"huber_loss: delta must be positive, got {delta}")
    only_real("huber_loss", input, target)
    a, b = _pair("huber_loss", input, target)
    loss = _bent(a, b, delta)
    return reduced(loss, reduction) if weight is None else _weighted(loss, weight, input._array.shape, reduction, False)


@rounds_once(autocast="float32")
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-log likelihood of counts `target` under Poisson distributions of mean e^input (or `input`, with log_input=False).

    full adds Stirling's approximation of log(target!) where target > 1.

    >>> F.poisson_nll_loss(gl.zeros(2), gl.tensor([1.0, 2.0]))
    tensor(1.)
    """
    only_tensors("poisson_nll_loss", input, target)
    reduction = reduction_of(size_average, reduce, reduction)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        large = target.masked_fill(target <= 1, 1)
        stirling = large * large.log() - large + (large * (2 * math.pi)).log() * 0.5
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return reduced(loss, reduction)


@rounds_once(autocast="float32")
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """-log likelihood of `target` under normal distributions of mean `input` and variance `var` (at least eps; input's shape, or one number
    for each row of the last dimension, or a float). full adds log(2π)/2.

    >>> F.gaussian_nll_loss(gl.tensor([1.0, 2.0]), gl.tensor([1.0, 4.0]), 1.0)
    tensor(1.)
    """
    shape = input._array.shape
    if not isinstance(var, Differentiable):
        if float(var) < 0:
            raise ValueError(f"gaussian_nll_loss: var cannot be negative, got {var}")
        var = input.new_full(shape, float(var), dtype=None if input._array.dtype in INEXACT else get_default_dtype())
    elif known(var) and bool((var < 0).any()):
        raise ValueError("gaussian_nll_loss: var has negative elements")
    if var._array.shape != shape:
        own = var._array.shape
        if own == shape[:-1]:
            var = var.unsqueeze(-1)
        elif len(own) != len(shape) or sum(b for a, b in zip(shape, own, strict=True) if a != b) != 1:
            raise ValueError(f"gaussian_nll_loss: var of shape {own} does not fit an input of shape {shape}")
    reduction = reduction_of(None, None, reduction)
    at_least = var + (var.clamp(min=eps) - var).detach()  # the limit does not stop the gradient, as in PyTorch
    loss = (at_least.log() + (input - target).square() / at_least) * 0.5
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


named_functions(__name__)
