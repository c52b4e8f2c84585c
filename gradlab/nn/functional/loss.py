"""Losses of regression and classification, as in `torch.nn.functional`.

Each takes `reduction`: "mean", "sum" (a 0-d tensor) or "none" (a loss for each element or target), and PyTorch's older size_average and
reduce, which are deprecated. Raises ValueError for another reduction.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.autograd.advice import BroadcastWarning, warn
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.autograd.record import bind
from gradlab.dtype import FLOATING, INT64
from gradlab.spec import ShapeError, broadcast_shapes, count
from gradlab.tensor import activation
from gradlab.tensor.gather import embedding_lookup
from gradlab.tensor.index_parts import known

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "gaussian_nll_loss", "huber_loss", "kl_div", "l1_loss",
    "mse_loss", "nll_loss", "poisson_nll_loss", "smooth_l1_loss",
]  # fmt: skip

_cross_entropy, _nll, _mse = map(bind, (ops.loss.cross_entropy, ops.loss.nll, ops.loss.mse))
_bce, _bce_logits, _logsigmoid = map(bind, (ops.loss.bce, ops.loss.bce_logits, ops.activation.logsigmoid))
REDUCTIONS = ("mean", "sum", "none")


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str, more: tuple[str, ...] = ()) -> str:
    """The reduction meant by the three arguments. Raises ValueError for one that is not there."""
    if size_average is not None or reduce is not None:
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
        warnings.warn(f"size_average and reduce are deprecated; use reduction={reduction!r}", UserWarning, stacklevel=3)
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


def _weighted(loss: Tensor, weight: Tensor, input: Tensor, reduction: str, by_weight: bool) -> Tensor:
    if weight._array.shape != input._array.shape:
        raise ValueError(f"weight and input must have the same size, got {weight._array.shape} and {input._array.shape}")
    loss = loss * weight
    return loss.sum() / weight.sum() if by_weight and reduction == "mean" else reduced(loss, reduction)


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
    reduction = reduction_of(size_average, reduce, reduction)
    a, b = _pair("mse_loss", input, target)
    if reduction == "none" or weight is not None:
        loss = (a - b).square()
        return loss if weight is None else _weighted(loss, weight, input, reduction, True)
    if a._array.dtype not in FLOATING and b._array.dtype not in FLOATING:
        raise RuntimeError(f"mse_loss: needs floating point, got {input.dtype}; convert with .float()")
    return _mse(a, b, mean=reduction == "mean")


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
    return reduced(loss, reduction) if weight is None else _weighted(loss, weight, input, reduction, True)


def _bent(input: Tensor, target: Tensor, at: float) -> Tensor:
    """d²/2 for d = |input - target| <= at, continued in a straight line: m·(d - m/2), m the smaller of d and at."""
    d = (input - target).abs()
    m = d.clamp(max=at)
    return m * (d - m * 0.5)


def smooth_l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """d²/(2·beta) for d = |input - target| < beta, else d - beta/2 (Girshick, 2015); l1_loss for beta = 0."""
    reduction = reduction_of(size_average, reduce, reduction)
    if beta < 0:
        raise RuntimeError(f"smooth_l1_loss: beta cannot be negative, got {beta}")
    a, b = _pair("smooth_l1_loss", input, target)
    return reduced((a - b).abs() if beta == 0 else _bent(a, b, beta) / beta, reduction)


def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None) -> Tensor:
    """d²/2 for d = |input - target| <= delta, else delta·(d - delta/2) (Huber, 1964)."""
    reduction = reduction_of(None, None, reduction)
    if delta <= 0:
        raise RuntimeError(f"huber_loss: delta must be positive, got {delta}")
    a, b = _pair("huber_loss", input, target)
    loss = _bent(a, b, delta)
    return reduced(loss, reduction) if weight is None else _weighted(loss, weight, input, reduction, False)


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
    """
    reduction = reduction_of(size_average, reduce, reduction)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        large = target.masked_fill(target <= 1, 1)
        stirling = large * large.log() - large + (large * (2 * math.pi)).log() * 0.5
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return reduced(loss, reduction)


def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """-log likelihood of `target` under normal distributions of mean `input` and variance `var` (at least eps; input's shape, or one number
    for each row of the last dimension, or a float). full adds log(2π)/2."""
    shape = input._array.shape
    if not isinstance(var, Differentiable):
        if float(var) < 0:
            raise ValueError(f"gaussian_nll_loss: var cannot be negative, got {var}")
        var = input.new_full(shape, float(var))
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


# ---------------------------------------------------------------- classes


def _classes(name: str, input: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, int]:
    """Input (N, C, *) and int64 target (N, *), from what may lack N; and the number of classes. Errors as PyTorch's."""
    shape, other = input._array.shape, target._array.shape
    if not shape:
        raise ShapeError(f"{name}: the input has the shape (C), (N, C) or (N, C, *), not ()")
    if target._array.dtype.kind not in "iu":
        raise RuntimeError(f"{name}: class indices are integers, not {target.dtype}; convert with .long()")
    wanted = () if len(shape) == 1 else (shape[0], *shape[2:])
    if other != wanted:
        raise ShapeError(f"{name}: an input of shape {shape} needs class indices of shape {wanted}, not {other}")
    if len(shape) == 1:
        input, target = input.unsqueeze(0), target.unsqueeze(0)
        shape = input._array.shape
    if weight is not None and weight._array.shape != shape[1:2]:
        raise ShapeError(f"{name}: weight has one number for each of the {shape[1]} classes, not shape {weight._array.shape}")
    if weight is not None and weight._array.dtype != input._array.dtype:
        raise RuntimeError(f"{name}: weight has the input's dtype {input.dtype}, not {weight.dtype}; convert it with .to()")
    return input, target if target._array.dtype == INT64 else target.to(INT64), shape[1]


def _target_weights(weight: Tensor, target: Tensor, ignore_index: int) -> Tensor:
    """Each target's class weight; 0 for the ignored."""
    ignored = target == ignore_index
    found = embedding_lookup(weight.unsqueeze(1), target.masked_fill(ignored, 0)).squeeze(-1)
    return found.masked_fill(ignored, 0)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-input[target]·weight[target]: `input` (C), (N, C) or (N, C, *) holds log-probabilities, `target` the class of each.

    The mean divides by the weights of the targets that count. IndexError for a class that is not there (but ignore_index).

    >>> F.nll_loss(gl.zeros(1, 2), gl.tensor([0]))
    tensor(0.)
    """
    reduction = reduction_of(size_average, reduce, reduction)
    single = len(input._array.shape) == 1
    x, classes, _ = _classes("nll_loss", input, target, weight)
    loss: Any = _nll(x, classes, ignore_index=int(ignore_index))
    if weight is not None:
        weights = _target_weights(weight, classes, ignore_index)
        loss = loss * weights
    if reduction == "none":
        return loss.reshape(target._array.shape) if single else loss
    if reduction == "sum":
        return loss.sum()
    if weight is None and type(classes._array) is np.ndarray and not current().special:
        return loss.sum() / float(np.count_nonzero(classes._array != ignore_index))
    total = (classes != ignore_index).to(loss.dtype).sum() if weight is None else weights.sum()
    return loss.sum() / total


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log softmax(input)[target]: `input` (C), (N, C) or (N, C, *) holds logits.

    target: classes (integers; (), (N) or (N, *)), of which ignore_index does not count, or probabilities (of input's shape, floating
    point). label_smoothing in [0, 1] mixes the target with the uniform distribution. weight: one number for each class. The mean divides
    by the number (with `weight`: the weights) of the targets that count, so that it is NaN where none does.

    >>> F.cross_entropy(gl.zeros(1, 2), gl.tensor([0]))
    tensor(0.6931)
    """
    reduction = reduction_of(size_average, reduce, reduction)
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError(f"cross_entropy: label_smoothing lies in [0, 1], got {label_smoothing}")
    shape = input._array.shape
    if target._array.shape == shape and target._array.dtype in FLOATING and shape:
        if ignore_index >= 0:
            raise RuntimeError(f"cross_entropy: ignore_index={ignore_index} is for class indices, not for targets that are probabilities")
        return _of_probabilities(input, target, weight, reduction, label_smoothing)
    if input._array.dtype not in FLOATING:
        raise RuntimeError(f"cross_entropy: needs floating point logits, got {input.dtype}; convert with .float()")
    x, classes, number = _classes("cross_entropy", input, target, weight)
    if weight is None and label_smoothing == 0:
        loss = _cross_entropy(x, classes, ignore_index=int(ignore_index), reduction=reduction)[0]
        return loss if len(shape) > 1 or reduction != "none" else loss.reshape(target._array.shape)
    logs = activation.log_softmax(x, 1)
    exact = nll_loss(logs, classes, weight, None, ignore_index, None, reduction)
    if label_smoothing > 0:
        ignored = classes == ignore_index
        scaled = logs if weight is None else logs * weight.reshape((number, *(1 for _ in x._array.shape[2:])))
        smooth = -scaled.sum(1).masked_fill(ignored, 0)
        if reduction != "none":
            smooth = smooth.sum()
        if reduction == "mean":
            counts = ignored.logical_not().to(smooth.dtype) if weight is None else _target_weights(weight, classes, ignore_index)
            smooth = smooth / counts.sum()
        exact = exact * (1 - label_smoothing) + smooth * (label_smoothing / number)
    return exact if len(shape) > 1 or reduction != "none" else exact.reshape(target._array.shape)


def _of_probabilities(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, label_smoothing: float) -> Tensor:
    """Cross entropy with a distribution over the classes as the target."""
    dim = 0 if len(input._array.shape) == 1 else 1
    classes = input._array.shape[dim]
    if weight is not None and weight._array.shape != (classes,):
        raise ShapeError(f"cross_entropy: weight has one number for each of the {classes} classes, not shape {weight._array.shape}")
    if label_smoothing > 0:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    logs = activation.log_softmax(input, dim)
    product = logs.masked_fill((target == 0) & (logs == -math.inf), 0) * target  # 0·log 0 is 0
    if weight is not None:
        product = product * weight.reshape((classes, *(1 for _ in input._array.shape[dim + 1 :])))
    if reduction == "mean":
        return -product.sum() / (count(input._array.shape) / classes if classes else 0.0)
    return -(product.sum() if reduction == "sum" else product.sum(dim))


def _same_size(name: str, input: Tensor, target: Tensor) -> None:
    if input._array.shape != target._array.shape:
        raise ValueError(f"{name}: target of size {target._array.shape} and input of size {input._array.shape} must have the same size")


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-(t·log x + (1 - t)·log(1 - x)) of probabilities x, the logarithms at least -100. `weight` broadcasts against the target.

    RuntimeError for an x outside [0, 1]: use binary_cross_entropy_with_logits for logits.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    _same_size("binary_cross_entropy", input, target)
    loss = _bce(input, target)
    return reduced(loss if weight is None else loss * weight.expand(target._array.shape), reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """binary_cross_entropy(sigmoid(input), target) without the rounding of the two steps; finite for any finite logits.

    pos_weight multiplies the loss of the positive part; it and `weight` broadcast against the target.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    _same_size("binary_cross_entropy_with_logits", input, target)
    if pos_weight is None:
        loss = _bce_logits(input, target)
    else:
        loss = (1 - target) * input - ((pos_weight - 1) * target + 1) * _logsigmoid(input)
    return reduced(loss if weight is None else loss * weight, reduction)


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """target·(log target - input), where `input` holds log-probabilities (`target` too with log_target=True); 0 where target is 0.

    reduction "batchmean" divides the sum by the first size: that is the Kullback-Leibler divergence; "mean" divides by all elements.
    """
    legacy = size_average is not None or reduce is not None
    reduction = reduction_of(size_average, reduce, reduction, ("batchmean",))
    if reduction == "mean" and not legacy:
        warnings.warn("kl_div: reduction 'mean' divides by all elements; 'batchmean' gives the divergence", UserWarning, stacklevel=2)
    if log_target:
        loss = target.exp() * (target - input)
    else:
        nothing = target == 0
        loss = (target * (target.masked_fill(nothing, 1).log() - input)).masked_fill(nothing, 0)
    if reduction != "batchmean":
        return reduced(loss, reduction)
    return loss.sum() / input._array.shape[0] if input._array.shape else loss.sum()
