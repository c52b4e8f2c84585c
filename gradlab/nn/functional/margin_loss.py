"""Losses of ranking, of margins and of several labels at once, as in `torch.nn.functional`; `reduction` as in `loss.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.record import bind
from gradlab.dtype import FLOATING
from gradlab.named_errors import named_functions
from gradlab.nn.functional.linear import pairwise_distance
from gradlab.nn.functional.loss import reduced, reduction_of
from gradlab.spec import ShapeError
from gradlab.tensor.common_arguments import only_tensors
from gradlab.tensor.norms import vector_norm
from gradlab.tensor.rounding import rounds_once
from gradlab.tensor.where import filled

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = [
    "cosine_embedding_loss", "hinge_embedding_loss", "margin_ranking_loss", "multi_margin_loss", "multilabel_margin_loss",
    "multilabel_soft_margin_loss", "soft_margin_loss", "triplet_margin_loss", "triplet_margin_with_distance_loss",
]  # fmt: skip

_logsigmoid = bind(ops.activation.logsigmoid)


@rounds_once(autocast="float32", first=1)
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """input where target is 1, max(0, margin - input) where it is -1.

    >>> F.hinge_embedding_loss(gl.tensor([0.5, 0.25]), gl.tensor([1.0, -1.0]))
    tensor(0.6250)
    """
    reduction = reduction_of(size_average, reduce, reduction)
    far = filled((margin - input).clamp(min=0), target == 1, 0)
    near = filled(input, target == -1, 0)
    return reduced(far + near, reduction)


@rounds_once(autocast="float32")
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, -target·(input1 - input2) + margin); target is 1 where input1 should be the larger, else -1.

    >>> F.margin_ranking_loss(gl.tensor([1.0]), gl.tensor([2.0]), gl.tensor([1.0]))
    tensor(1.)
    """
    reduction = reduction_of(size_average, reduce, reduction)
    a, b, c = (x._array.shape for x in (input1, input2, target))
    if len({len(a), len(b), len(c)}) > 1:
        raise ShapeError(f"margin_ranking_loss: inputs and target have the same number of dimensions, got shapes {a}, {b} and {c}")
    return reduced((-target * (input1 - input2) + float(margin)).clamp(min=0), reduction)


@rounds_once(autocast="float32", first=1)
def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
) -> Tensor:
    """log(1 + e^(-target·input)) for targets 1 and -1, without overflow.

    >>> F.soft_margin_loss(gl.tensor([0.0]), gl.tensor([1.0]))
    tensor(0.6931)
    """
    reduction = reduction_of(size_average, reduce, reduction)
    only_tensors("soft_margin_loss", input, target)
    margin = target * input
    return reduced((-margin).exp().log1p() if margin.is_complex() else -_logsigmoid(margin), reduction)


@rounds_once(autocast="float32", first=2)
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos where target is 1, max(0, cos - margin) where it is -1, of vectors (D) with target () or (N, D) with target (N).

    >>> F.cosine_embedding_loss(gl.tensor([[1.0, 0.0]]), gl.tensor([[0.0, 1.0]]), gl.tensor([1.0]))
    tensor(1.)
    """
    reduction = reduction_of(size_average, reduce, reduction)
    a, b, rank = input1._array.shape, input2._array.shape, len(target._array.shape)
    if rank > 1 or len(a) != rank + 1 or len(b) != rank + 1:
        raise ShapeError(f"cosine_embedding_loss: expected (D), (D), () or (N, D), (N, D), (N), got {a}, {b} and {target._array.shape}")
    floats = (x if x._array.dtype in FLOATING else x * 1.0 for x in (input1, input2))
    first, second = (x / vector_norm(x, 2.0, (rank,), True).hypot(x.new_full((), 1e-6)) for x in floats)  # √(|x|² + 1e-12)
    cosine = (first * second).sum(rank)
    near = (1 - cosine).masked_fill(target != 1, 0)
    far = (cosine - margin).clamp(min=0).masked_fill(target != -1, 0)
    return reduced(near + far, reduction)


@rounds_once(autocast="float32")
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, |anchor - positive| - |anchor - negative| + margin) with p-norms along the last dimension.

    swap: the positive takes the anchor's place where it is nearer to the negative (Balntas and others, 2016).

    >>> F.triplet_margin_loss(gl.zeros(1, 2), gl.zeros(1, 2), gl.tensor([[0.5, 0.0]]))
    tensor(0.5000)
    """
    reduction = reduction_of(size_average, reduce, reduction)

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return pairwise_distance(a, b, p, eps)

    return _triplet("triplet_margin_loss", anchor, positive, negative, distance, margin, swap, reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` with any distance of two tensors (pairwise_distance if left out).

    >>> F.triplet_margin_with_distance_loss(gl.zeros(1, 2), gl.zeros(1, 2), gl.tensor([[0.5, 0.0]]))
    tensor(0.5000)
    """
    reduction = reduction_of(None, None, reduction)
    name = "triplet_margin_with_distance_loss"
    return _triplet(name, anchor, positive, negative, distance_function or pairwise_distance, margin, swap, reduction)


@rounds_once(autocast="float32")
def _triplet(
    name: str, anchor: Tensor, positive: Tensor, negative: Tensor, distance: Any, margin: float, swap: bool, reduction: str
) -> Tensor:
    if margin <= 0:
        raise ValueError(f"{name}: margin must be positive, got {margin}")
    shapes = [x._array.shape for x in (anchor, positive, negative)]
    if len({len(s) for s in shapes}) > 1:
        raise ShapeError(f"{name}: anchor, positive and negative have the same number of dimensions, got shapes {shapes}")
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduced((near - far + margin).clamp(min=0), reduction)


# ---------------------------------------------------------------- several classes


@rounds_once(autocast="float32")
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Σ over the wrong classes i of weight[target]·max(0, margin - input[target] + input[i])^p, divided by the number of classes.

    input (N, C) and target (N) of classes, or (C) and ().

    >>> F.multi_margin_loss(gl.tensor([[0.1, 0.2]]), gl.tensor([1]))
    tensor(0.4500)
    """
    reduction = reduction_of(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ValueError(f"multi_margin_loss: p is 1 or 2, got {p}")
    shape = input._array.shape or (1,)
    if len(shape) not in (1, 2) or not shape[-1] or target._array.shape not in (shape[:-1], (1,) if len(shape) == 1 else shape[:-1]):
        raise ShapeError(f"multi_margin_loss: expected (N, C) and (N), or (C) and (), got {shape} and {target._array.shape}")
    if weight is not None and weight._array.shape != shape[-1:]:
        raise RuntimeError(f"multi_margin_loss: weight has one number for each of the {shape[-1]} classes, not shape {weight._array.shape}")
    x, at = input.reshape(-1, shape[-1]), target.reshape(-1, 1)
    gap = (x - x.gather(1, at) + margin).relu()  # no gradient on the margin itself
    gap = gap * gap if p == 2 else gap
    if weight is not None:
        gap = gap * weight.gather(0, target.reshape(-1)).unsqueeze(1)
    right = x.new_zeros(x._array.shape).scatter(1, at, 1.0) == 1
    loss = gap.masked_fill(right, 0).sum(1) / shape[-1]
    return reduced(loss if len(shape) == 2 else loss.reshape(target._array.shape), reduction)


@rounds_once(autocast="float32")
def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
) -> Tensor:
    """Σ over each label j and each class i that is no label of max(0, 1 - input[j] + input[i]), divided by the number of classes.

    target, of input's shape (N, C) or (C): the labels' numbers, ended by the first -1.

    >>> F.multilabel_margin_loss(gl.tensor([[0.1, 0.2]]), gl.tensor([[1, -1]]))
    tensor(0.4500)
    """
    reduction = reduction_of(size_average, reduce, reduction)
    shape = input._array.shape or (1,)
    if len(shape) not in (1, 2) or (target._array.shape or (1,)) != shape or not shape[-1]:
        raise ShapeError(f"multilabel_margin_loss: input and target have one shape (N, C) or (C), got {shape} and {target._array.shape}")
    classes = shape[-1]
    x, labels = input.reshape(-1, classes), target.reshape(-1, classes)
    listed = (labels < 0).to(x.dtype).cumsum(1) == 0
    labels = labels.masked_fill(listed.logical_not(), 0)
    is_label = x.new_zeros(x._array.shape).scatter_add(1, labels, listed.to(x.dtype)) > 0
    gap = (1 - x.gather(1, labels).unsqueeze(2) + x.unsqueeze(1)).relu()
    counts = listed.unsqueeze(2) & is_label.logical_not().unsqueeze(1)
    loss = gap.masked_fill(counts.logical_not(), 0).sum((1, 2)) / classes
    return reduced(loss if len(shape) == 2 else loss.reshape(()), reduction)


@rounds_once(autocast="float32")
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Binary cross entropy with logits of each class (targets 0 and 1), averaged over the classes in the last dimension.

    >>> F.multilabel_soft_margin_loss(gl.zeros(1, 2), gl.tensor([[1.0, 0.0]]))
    tensor(0.6931)
    """
    reduction = reduction_of(size_average, reduce, reduction)
    loss = -(target * _logsigmoid(input) + (1 - target) * _logsigmoid(-input))
    return reduced((loss if weight is None else loss * weight).mean(-1), reduction)


named_functions(__name__)
