"""Losses of classification: of classes, of truth values, and between distributions; as in `torch.nn.functional`.

The arguments `reduction`, `size_average` and `reduce` are those of `loss.py`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.advice import warn
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.autograd.one_row import one_row
from gradlab.autograd.record import bind
from gradlab.batched import Batched
from gradlab.dtype import FLOATING, HALF, INT64, needs_floating
from gradlab.named_errors import named_functions
from gradlab.spec import ShapeError, count
from gradlab.tensor import activation
from gradlab.tensor.common_arguments import only_real, only_tensors
from gradlab.tensor.selection import embedding_lookup
from gradlab.tensor.where import filled

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor
from gradlab.nn.functional.loss import reduced, reduction_of
from gradlab.tensor.rounding import once, rounds_once

__all__ = ["binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "kl_div", "linear_cross_entropy", "nll_loss"]

_cross_entropy, _nll, _logsigmoid = map(bind, (ops.loss.cross_entropy, ops.loss.nll, ops.activation.logsigmoid))
_bce, _bce_logits = map(bind, (ops.loss.bce, ops.loss.bce_logits))


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


def _one_type(input: Tensor, weight: Tensor | None) -> bool:
    """Whether the class weights have the input's type, which they must; but for autocast, which widens both."""
    return weight is None or weight._array.dtype == input._array.dtype or current().autocast is not None


def _target_weights(weight: Tensor, target: Tensor, ignore_index: int) -> Tensor:
    """Each target's class weight; 0 for the ignored."""
    ignored = target == ignore_index
    found = embedding_lookup(weight.unsqueeze(1), target.masked_fill(ignored, 0)).squeeze(-1)
    return found.masked_fill(ignored, 0)


def _classes_last(x: Any) -> bool:
    """Whether the classes of logits (N, C, *) lie side by side in memory, as where (N, L, C) was transposed: these are rows."""
    shape = x._array.shape
    if shape[1] == 1 or 0 in shape or type(x._array) is Batched:
        return False
    return bool(x.stride(1) == 1 and x.movedim(1, -1).is_contiguous())


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
    if input._array.dtype in HALF and _one_type(input, weight):
        return once(nll_loss, (input, target, weight, None, ignore_index, None, reduction), autocast="float32")
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


@one_row(left_out="size_average reduce")
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
    if not (isinstance(input, Differentiable) and isinstance(target, Differentiable)):
        raise TypeError(f"cross_entropy: input and target are tensors, not {type(input).__name__} and {type(target).__name__}")
    if input._array.dtype in HALF and _one_type(input, weight):
        return once(cross_entropy, (input, target, weight, None, ignore_index, None, reduction, label_smoothing), autocast="float32")
    shape = input._array.shape
    if target._array.shape == shape and target._array.dtype in FLOATING and shape:
        if ignore_index >= 0:
            raise RuntimeError(f"cross_entropy: ignore_index={ignore_index} is for class indices, not for targets that are probabilities")
        return _of_probabilities(input, target, weight, reduction, label_smoothing)
    if input._array.dtype not in FLOATING:
        raise RuntimeError(needs_floating("cross_entropy", input.dtype, "needs floating point logits, got"))
    x, classes, number = _classes("cross_entropy", input, target, weight)
    if weight is None and label_smoothing == 0:
        rows = len(shape) > 2 and _classes_last(x)
        if rows:
            x, classes = x.movedim(1, -1).flatten(0, -2), classes.flatten()
        loss = _cross_entropy(x, classes, ignore_index=int(ignore_index), reduction=reduction)[0]
        return loss.reshape(target._array.shape) if reduction == "none" and (rows or len(shape) == 1) else loss
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


@rounds_once(autocast="float32")
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

    >>> F.binary_cross_entropy(gl.tensor([0.9, 0.2]), gl.tensor([1.0, 0.0]))
    tensor(0.1643)
    """
    reduction = reduction_of(size_average, reduce, reduction)
    _same_size("binary_cross_entropy", input, target)
    loss = _bce(input, target)
    return reduced(loss if weight is None else loss * weight.expand(target._array.shape), reduction)


@rounds_once(autocast="float32")
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

    >>> F.binary_cross_entropy_with_logits(gl.zeros(2), gl.tensor([1.0, 0.0]))
    tensor(0.6931)
    """
    reduction = reduction_of(size_average, reduce, reduction)
    _same_size("binary_cross_entropy_with_logits", input, target)
    if weight is not None or pos_weight is not None:
        only_tensors("binary_cross_entropy_with_logits", *(w for w in (weight, pos_weight) if w is not None))
    if pos_weight is None:
        loss = _bce_logits(input, target)
    else:
        loss = (1 - target) * input - ((pos_weight - 1) * target + 1) * _logsigmoid(input)
    return reduced(loss if weight is None else loss * weight, reduction)


@rounds_once(autocast="float32")
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

    >>> F.kl_div(gl.tensor([[0.5, 0.5]]).log(), gl.tensor([[0.9, 0.1]]), reduction="batchmean")
    tensor(0.3681)
    """
    only_tensors("kl_div", input, target)
    only_real("kl_div", input, target)
    legacy = size_average is not None or reduce is not None
    reduction = reduction_of(size_average, reduce, reduction, ("batchmean",))
    if reduction == "mean" and not legacy:
        warn(UserWarning, "kl_div: reduction 'mean' divides by all elements; 'batchmean' gives the divergence")
    if log_target:
        loss = target.exp() * (target - input)
    else:
        nothing = target == 0
        loss = filled(target * (filled(target, nothing, 1).log() - input), nothing, 0)
    if reduction != "batchmean":
        return reduced(loss, reduction)
    return loss.sum() / input._array.shape[0] if input._array.shape else loss.sum()


def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None, weight: Tensor | None = None,
    reduction: str = "mean", ignore_index: int | None = None, label_smoothing: float = 0.0, options: Any = None,
) -> Tensor:  # fmt: skip
    """`cross_entropy(linear(input, linear_weight, linear_bias), target, …)`: input (N, features) or (features), linear_weight
    (classes, *d, features), linear_bias (classes, *d), target (N, *d) of classes or (N, classes, *d) of probabilities.

    options: how PyTorch divides the work into chunks; None here, NotImplementedError for others (a compiled function needs none).

    >>> gl.nn.functional.linear_cross_entropy(gl.ones(1, 2), gl.zeros(2, 2), gl.tensor([1]))
    tensor(0.6931)
    """
    if options is not None:
        raise NotImplementedError("linear_cross_entropy: options of chunks are not offered; leave them out, or split the batch")
    rank, shape = len(input._array.shape), linear_weight._array.shape
    if rank not in (1, 2) or len(shape) < 2 or input._array.shape[-1] != shape[-1]:
        raise ShapeError(f"linear_cross_entropy: input (N, features) and weights (classes, …, features), not {input.shape} and {shape}")
    if linear_bias is not None and linear_bias._array.shape != shape[:-1]:
        raise ShapeError(f"linear_cross_entropy: a bias of shape {shape[:-1]}, not {linear_bias.shape}")
    if len(shape) > 2 and rank == 1:
        raise ShapeError(f"linear_cross_entropy: weights of shape {shape} take a batch of inputs, not {input.shape}")
    wanted = (*input._array.shape[:-1], *shape[:-1])
    if target._array.shape == wanted and ignore_index is not None:
        raise RuntimeError("linear_cross_entropy: ignore_index is for targets that are classes, and these are probabilities")
    if input._array.dtype in HALF and _one_type(input, weight):
        named = {"linear_bias": linear_bias, "weight": weight, "reduction": reduction, "ignore_index": ignore_index,
                 "label_smoothing": label_smoothing}  # fmt: skip
        return once(linear_cross_entropy, (input, linear_weight, target), named, autocast="float32")
    logits: Any = input @ linear_weight.reshape((-1, shape[-1])).mT
    if linear_bias is not None:
        logits = logits + linear_bias.reshape((-1,))
    index = -100 if ignore_index is None else ignore_index
    return cross_entropy(logits.reshape(wanted), target, weight, ignore_index=index, reduction=reduction, label_smoothing=label_smoothing)


named_functions(__name__)
