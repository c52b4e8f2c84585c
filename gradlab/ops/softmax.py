"""Softmax, its logarithm and their derivatives, over one dimension."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradlab.kernel import Kernel
from gradlab.op import Op
from gradlab.ops.reduction import most, total_along
from gradlab.spec import Spec, expect_shape

# As values of type Any: NumPy's stubs know `out` and `keepdims` only as keywords, which cost 0.2 µs more.
_add_reduce: Any = np.add.reduce
_maximum_reduce: Any = np.maximum.reduce


def along(x: Spec, *, dim: int) -> Spec:
    """Rule: like the input; `dim` is from 0."""
    return x


def along_two(dy: Spec, r: Spec, *, dim: int) -> Spec:
    """Rule of a derivative: the output's gradient and the output."""
    expect_shape("the gradient", dy, r.shape)
    return dy


def softmax_cpu(x: Any, y: Any, *, dim: int) -> None:
    """e^(x - max) / sum."""
    if x.size:
        np.exp(np.subtract(x, _maximum_reduce(x, dim, None, None, True), y), y)
        y /= _add_reduce(y, dim, None, None, True) if dim >= y.ndim - 1 else total_along(y, dim)


def masked_softmax_cpu(x: Any, y: Any, *, dim: int) -> None:
    """As softmax, but a group of nothing but -inf (all masked) gives zeros."""
    if x.size:
        top = np.maximum.reduce(x, axis=dim, keepdims=True)
        np.copyto(top, 0, where=np.isneginf(top))
        np.exp(np.subtract(x, top, y), y)
        total = np.add.reduce(y, axis=dim, keepdims=True) if dim >= y.ndim - 1 else total_along(y, dim)
        np.copyto(total, 1, where=total == 0)
        y /= total


SURE = 0.9  # a probability from which on 1 minus it is not taken from its rounded value
LOG_SURE = math.log(SURE)
SURE_TOTAL = 1 / SURE  # of exponentials of which the largest is 1


def softmax_backward_cpu(dy: Any, r: Any, y: Any, *, dim: int) -> None:
    """r·(dy - Σ dy·r), in which dy is taken relative to the likeliest element's: there the difference is otherwise all rounding."""
    usual = not r.ndim or most(r) <= SURE  # also no NaN
    if not usual:
        top = np.expand_dims(np.argmax(r, axis=dim), dim)
        base = np.take_along_axis(dy, top, dim)
        base[np.isnan(np.take_along_axis(r, top, dim))] = 0
        dy = dy - base
    if dim == r.ndim - 1:
        dot = np.vecdot(dy, r)[..., None]
    else:
        dot = total_along(np.multiply(dy, r, y), dim)
    np.subtract(dy, dot, y)
    y *= r
    if not usual and np.isnan(dot).any():  # of nothing but -inf: nothing where no gradient comes
        np.copyto(y, 0, where=~np.logical_or.reduce(dy, axis=dim, keepdims=True))


def log_softmax_cpu(x: Any, y: Any, *, dim: int) -> None:
    """x - max - log(sum(e^(x - max)))."""
    if x.size:
        np.subtract(x, _maximum_reduce(x, dim, None, None, True), y)
        e = np.exp(y)
        total = _add_reduce(e, dim, None, None, True) if dim >= y.ndim - 1 else total_along(e, dim)
        y -= np.log(total) if total.item(total.argmin()) >= SURE_TOTAL else log_total(e, total, dim)


def log_total(e: Any, total: Any, dim: int) -> Any:
    """log of the total of `e`, whose largest is 1. Where the others are little beside it, by their own total; `e` is written over then."""
    found = np.log(total)
    if e.ndim:
        sure = total < SURE_TOTAL
        np.put_along_axis(e, np.expand_dims(np.argmax(e, axis=dim), dim), 0, dim)
        np.log1p(np.add.reduce(e, axis=dim, keepdims=True), found, where=sure)
    return found


def log_softmax_backward_cpu(dy: Any, r: Any, y: Any, *, dim: int) -> None:
    """dy - e^r·Σ dy; for the likeliest element dy·(1 - e^r) - e^r·(Σ dy - dy)."""
    total = total_along(dy, dim)
    np.exp(r, y)
    y *= total
    np.subtract(dy, y, y)
    if not most(r) <= LOG_SURE and r.ndim:
        at = np.nonzero(r > LOG_SURE)
        y[at] = -dy[at] * np.expm1(r[at]) - np.exp(r[at]) * (np.broadcast_to(total, r.shape)[at] - dy[at])
        if not total.all():  # also of nothing but -inf, where r is NaN
            np.copyto(y, dy, where=total == 0)


softmax = Op("softmax", along, params=("dim",), cpu=softmax_cpu, cuda=Kernel("softmax.cu", "softmax", "row"), promote="float",
             autocast="float32", sharp=True, grad={"x": lambda g, y, dim: softmax_backward(g, y, dim=dim)})  # fmt: skip
masked_softmax = Op("masked_softmax", along, params=("dim",), cpu=masked_softmax_cpu, cuda=Kernel("softmax.cu", "masked_softmax", "row"),
                    promote="float", autocast="float32", sharp=True,
                    grad={"x": lambda g, y, dim: softmax_backward(g, y, dim=dim)})  # fmt: skip
softmax_backward: Op = Op("softmax_backward", along_two, params=("dim",), cpu=softmax_backward_cpu, promote="same",
                      cuda=Kernel("softmax.cu", "softmax_backward", "row"),
                      grad={"dy": lambda g, r, dim: softmax_backward(g, r, dim=dim),
                            "r": lambda g, dy, r, dim:
                            g * (dy - (dy * r).sum(dim, keepdim=True)) - dy * (g * r).sum(dim, keepdim=True)})  # fmt: skip
log_softmax = Op("log_softmax", along, params=("dim",), cpu=log_softmax_cpu, cuda=Kernel("softmax.cu", "log_softmax", "row"),
                 promote="float", autocast="float32", sharp=True,
                 grad={"x": lambda g, y, dim: log_softmax_backward(g, y, dim=dim)})  # fmt: skip
log_softmax_backward: Op = Op("log_softmax_backward", along_two, params=("dim",), cpu=log_softmax_backward_cpu, promote="same",
                          cuda=Kernel("softmax.cu", "log_softmax_backward", "row"),
                          grad={"dy": lambda g, r, dim: g - (g * r.exp()).sum(dim, keepdim=True),
                                "r": lambda g, dy, r, dim: -(g * r.exp()) * dy.sum(dim, keepdim=True)})  # fmt: skip
