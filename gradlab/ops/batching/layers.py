"""Batch rules of normalisations and losses."""

from __future__ import annotations

from typing import Any

from gradlab.op import Op
from gradlab.ops.batching.common import Flags, Params, Values, front, fronts, numbers, padded, rounds_once, sample_shape, total
from gradlab.ops.batching.products import apart, folded, groups, unfolded


def last_norm(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Over the last dimensions: a weight or bias of each sample is applied after a norm without."""
    return own_parameters(op, size, mapped, values, params) if any(mapped[1:]) else op(*values, **params)


@rounds_once
def own_parameters(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """A norm without weight and bias, and those of each sample."""
    x, *rest = values
    wanted = len(sample_shape(x, mapped[0]))
    y, *statistics = op(front(x, mapped[0], size), *[None] * len(rest), **params)
    weight, bias = rest[0], rest[1] if len(rest) > 1 else None
    if weight is not None:
        y = y * padded(weight, mapped[1], wanted)
    if bias is not None:
        y = y + padded(bias, mapped[2], wanted)
    return (y, *statistics)


@rounds_once
def last_norm_backward(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """The input's gradient by the row; the parameters' gradients of each sample, which the row would add up."""
    dy, x, weight, *statistics = values
    shape = sample_shape(x, mapped[1])
    dy, x = front(dy, mapped[0], size), front(x, mapped[1], size)
    statistics = fronts(statistics, mapped[3:], size)
    if mapped[2]:
        dx = op(dy * padded(weight, True, len(shape)), x, None, *statistics, **params)[0]
    else:
        dx = op(dy, x, weight, *statistics, **params)[0]
    others = tuple(range(1, 1 + len(shape) - params["k"]))
    normal = (x - statistics[0] if len(statistics) == 2 else x) * statistics[-1]
    dweight = dy * normal
    found = [dweight.sum(others) if others else dweight]
    if len(statistics) == 2:
        found.append(dy.sum(others) if others else dy.clone())
    return (dx, *found)


def channel_norm(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Over the batch: the samples' channels one after the other."""
    given = fronts(values, mapped, size)
    pictures = 1 if op.name == "batch_norm" else 2
    ready = [groups(v, size) if i < pictures else None if v is None else v.reshape((size * v.shape[1],)) for i, v in enumerate(given)]
    y, *channels = op(*ready, **params)
    return (apart(y, size), *(c.reshape((size, c.shape[0] // size if size else 0)) for c in channels))


def counted(target: Any, ignore_index: int, dtype: Any) -> Any:
    """For each sample the number of targets that count."""
    return (target != ignore_index).reshape((target.shape[0], total(target.shape[1:]))).sum(1).to(dtype)


@rounds_once
def cross_entropy(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """The losses of all samples' rows, then each sample's sum or mean."""
    x, target = fronts(values, mapped, size)
    n = x.shape[1]
    y, p = op(folded(x), folded(target), **{**params, "reduction": "none"})
    y, p = unfolded(y, size, n), unfolded(p, size, n)
    if params["reduction"] == "none":
        return y, p
    y = y.reshape((size, total(y.shape[1:]))).sum(1)
    return (y if params["reduction"] == "sum" else y / counted(target, params["ignore_index"], y.dtype)), p


@rounds_once
def cross_entropy_backward(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """As the forward: each sample's gradient is divided by its own number of targets."""
    dy, p, target = fronts(values, mapped, size)
    if params["reduction"] == "mean":
        dy = dy / counted(target, params["ignore_index"], dy.dtype).clamp(min=1)
    if params["reduction"] != "none":
        dy = dy.reshape((size, *(1,) * (len(target.shape) - 1))).expand(target.shape)
    n = p.shape[1]
    return unfolded(op(folded(dy), folded(p), folded(target), **{**params, "reduction": "none"}), size, n)


def by_class(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Samples join the batch."""
    x, target = fronts(values, mapped, size)
    return unfolded(op(folded(x), folded(target), **params), size, target.shape[1])


@rounds_once
def squared_error(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Each sample's sum or mean."""
    n = total(sample_shape(values[0], mapped[0]))
    a, b = values
    d = (a - b).reshape((size, n))
    found = (d * d).sum(1)
    return found / n if params["mean"] else found


def sequences(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """Samples join the batch. Targets that lie in one row are taken apart first, each sequence's from where its own begin."""
    *above, x, targets, inputs, labels = fronts(values, mapped, size)
    _, steps, batch, classes = x.shape
    many = size * batch
    if len(targets.shape) == 2:
        places, most = numbers(targets.shape[1], targets), max(targets.shape[1] - 1, 0)
        at = ((labels.cumsum(1) - labels).unsqueeze(2) + places).clamp(max=most)
        targets = targets.unsqueeze(1).expand(at.shape).gather(2, at)
    given = [t.reshape((many, *t.shape[2:])) for t in (targets, inputs, labels)]
    found = op(*[g.reshape((many,)) for g in above], x.permute((1, 0, 2, 3)).reshape((steps, many, classes)), *given, **params)
    return found.reshape((steps, size, batch, classes)).permute((1, 0, 2, 3)) if above else found.reshape((size, batch))


LAYERS = {
    "layer_norm": last_norm, "rms_norm": last_norm, "layer_norm_backward": last_norm_backward, "rms_norm_backward": last_norm_backward,
    "batch_norm": channel_norm, "batch_norm_backward": channel_norm, "cross_entropy": cross_entropy,
    "cross_entropy_backward": cross_entropy_backward, "nll": by_class, "nll_backward": by_class, "mse": squared_error,
    "ctc_loss": sequences, "ctc_loss_backward": sequences,
}  # fmt: skip
