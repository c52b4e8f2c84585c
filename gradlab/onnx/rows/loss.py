"""Losses that are rows of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.dtype import INT64
from gradlab.onnx.emitter import Emitter, Wire
from gradlab.onnx.registry import exports
from gradlab.spec import count


def chosen(e: Emitter, target: Wire, ignore_index: int) -> tuple[Wire, Wire]:
    """The classes with 0 for those to ignore, and which count."""
    at = e.cast(target, INT64)
    counts = e("Not", e("Equal", at, ignore_index))
    return e.where(counts, at, 0), counts


def at_class(e: Emitter, x: Wire, at: Wire) -> Wire:
    """Of each target the number of its class."""
    return e.squeeze(e("GatherElements", x, e.unsqueeze(at, 1), axis=1), 1)


@exports("nll")
def nll(e: Emitter, x: Wire, target: Wire, *, ignore_index: int) -> Any:
    """-x[target], 0 for the ignored."""
    at, counts = chosen(e, target, ignore_index)
    return e.where(counts, -at_class(e, x, at), 0)


@exports("cross_entropy")
def cross_entropy(e: Emitter, x: Wire, target: Wire, *, ignore_index: int, reduction: str) -> Any:
    """-log softmax(x)[target], and the probabilities."""
    at, counts = chosen(e, target, ignore_index)
    loss: Any = e.where(counts, -at_class(e, e("LogSoftmax", x, axis=1), at), 0.0)
    if reduction != "none":
        dims = tuple(range(target.rank))
        loss = e.reduce("ReduceSum", loss, dims, False)
        if reduction == "mean":
            loss = loss / e.reduce("ReduceSum", e.cast(counts, x.dtype), dims, False)
    return loss, e("Softmax", x, axis=1)


def classes(e: Emitter, number: int, rank: int) -> Wire:
    """0, 1, … along dimension 1."""
    return e.constant(np.arange(number).reshape(1, -1, *(1,) * (rank - 2)), INT64)


@exports("nll_backward")
def nll_backward(e: Emitter, dy: Wire, target: Wire, *, classes: int, ignore_index: int) -> Any:
    """-dy at each target's class."""
    at, counts = chosen(e, target, ignore_index)
    hit = e("Equal", e.unsqueeze(at, 1), one_of(e, classes, dy.rank + 1))
    return e.where(e("And", hit, e.unsqueeze(counts, 1)), e.unsqueeze(-dy, 1), 0.0)


one_of = classes


@exports("cross_entropy_backward")
def cross_entropy_backward(e: Emitter, dy: Wire, p: Wire, target: Wire, *, ignore_index: int, reduction: str) -> Any:
    """dy·(p - onehot), over the number of targets that count for the mean."""
    at, counts = chosen(e, target, ignore_index)
    rank = p.rank
    hit = e.cast(e("Equal", e.unsqueeze(at, 1), one_of(e, (p.shape or ())[1], rank)), p.dtype)
    factor: Any = dy
    if reduction == "mean":
        number = e.reduce("ReduceSum", e.cast(counts, p.dtype), tuple(range(target.rank)), False)
        factor = dy / e("Max", number, 1.0)
    elif reduction == "none":
        factor = e.unsqueeze(dy, 1)
    return e.where(e.unsqueeze(counts, 1), (p - hit) * factor, 0.0)


@exports("mse")
def mse(e: Emitter, a: Wire, b: Wire, *, mean: bool) -> Any:
    """The sum or mean of (a - b)²."""
    d = a - b
    total = e.reduce("ReduceSum", d * d, tuple(range(a.rank)), False) if a.rank else d * d
    return total / e.number(count(a.shape or ()), a.dtype) if mean else total
