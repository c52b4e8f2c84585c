"""Softmax, its logarithm and their derivatives, over one dimension."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.kernel import Kernel
from gradlab.op import Op
from gradlab.ops.reduce import total_along
from gradlab.spec import Spec


def along(x: Spec, *, dim: int) -> Spec:
    """Rule: like the input; `dim` is from 0."""
    return x


def along_two(dy: Spec, r: Spec, *, dim: int) -> Spec:
    """Rule of a derivative: the output's gradient and the output."""
    return dy


def softmax_cpu(x: Any, y: Any, *, dim: int) -> None:
    """e^(x - max) / sum."""
    if x.size:
        np.exp(np.subtract(x, np.maximum.reduce(x, axis=dim, keepdims=True), y), y)
        y /= np.add.reduce(y, axis=dim, keepdims=True) if dim >= y.ndim - 1 else total_along(y, dim)


def masked_softmax_cpu(x: Any, y: Any, *, dim: int) -> None:
    """As softmax, but a group of nothing but -inf (all masked) gives zeros."""
    if x.size:
        top = np.maximum.reduce(x, axis=dim, keepdims=True)
        np.copyto(top, 0, where=np.isneginf(top))
        np.exp(np.subtract(x, top, y), y)
        total = np.add.reduce(y, axis=dim, keepdims=True) if dim >= y.ndim - 1 else total_along(y, dim)
        np.copyto(total, 1, where=total == 0)
        y /= total


def softmax_backward_cpu(dy: Any, r: Any, y: Any, *, dim: int) -> None:
    if dim == r.ndim - 1:
        np.subtract(dy, np.vecdot(dy, r)[..., None], y)
        y *= r
    else:
        np.multiply(dy, r, y)
        y -= r * total_along(y, dim)


def log_softmax_cpu(x: Any, y: Any, *, dim: int) -> None:
    """x - max - log(sum(e^(x - max)))."""
    if x.size:
        np.subtract(x, np.maximum.reduce(x, axis=dim, keepdims=True), y)
        y -= np.log(np.add.reduce(np.exp(y), axis=dim, keepdims=True) if dim >= y.ndim - 1 else total_along(np.exp(y), dim))


def log_softmax_backward_cpu(dy: Any, r: Any, y: Any, *, dim: int) -> None:
    np.exp(r, y)
    y *= total_along(dy, dim)
    np.subtract(dy, y, y)


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
