"""Reductions, sums along an axis, softmax, sorting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gradlab as gl
from gradlab.dtype import bool_
from gradlab.nn import functional as F
from gradlab.onnx.importing import Node, given, imports, ints, number
from gradlab.onnx.operators.shapes import axes_of


def _empty_max(x: Any, dims: tuple[int, ...], keep: bool) -> Any:
    shape = [1 if d in dims else n for d, n in enumerate(x.shape)] if keep else [n for d, n in enumerate(x.shape) if d not in dims]
    return gl.full(shape, -math.inf if x.is_floating_point() else False, dtype=x.dtype, device=x.device)


def _extreme(x: Any, dims: tuple[int, ...], keep: bool, largest: bool) -> Any:
    if 0 in [x.shape[d] for d in dims]:
        found = _empty_max(x, dims, keep)
        return found if largest else (-found if x.is_floating_point() else ~found)
    if x.dtype == bool_:
        return (x.any if largest else x.all)(dims, keepdim=keep)
    return (x.amax if largest else x.amin)(dims, keepdim=keep)


def _product(x: Any, dims: tuple[int, ...], keep: bool) -> Any:
    for d in sorted(dims, reverse=True):
        x = x.prod(d, keepdim=keep)
    return x


def rooted(total: Any, p: float = 2) -> Any:
    """The p-th root of what is not negative. At 0 its gradient is 0, as that of PyTorch's norms and poolings, not infinite."""
    empty = total == 0
    total = gl.where(empty, 1, total)
    return gl.where(empty, 0, total.sqrt() if p == 2 else total ** (1 / p))


REDUCTIONS: dict[str, Callable[[Any, tuple[int, ...], bool], Any]] = {
    "ReduceSum": lambda x, d, k: x.sum(d, keepdim=k),
    "ReduceMean": lambda x, d, k: x.mean(d, keepdim=k),
    "ReduceMax": lambda x, d, k: _extreme(x, d, k, True),
    "ReduceMin": lambda x, d, k: _extreme(x, d, k, False),
    "ReduceProd": _product,
    "ReduceL1": lambda x, d, k: x.abs().sum(d, keepdim=k),
    "ReduceL2": lambda x, d, k: rooted((x * x).sum(d, keepdim=k)),
    "ReduceSumSquare": lambda x, d, k: (x * x).sum(d, keepdim=k),
    "ReduceLogSum": lambda x, d, k: x.sum(d, keepdim=k).log(),
    "ReduceLogSumExp": lambda x, d, k: gl.logsumexp(x, d, keepdim=k),
}


@imports(*REDUCTIONS, host=(1,))
def reduce(node: Node, x: Any, axes: Any = None) -> Any:
    """Over given axes, or all; no axes at all may mean that nothing is reduced."""
    found = axes_of(node, axes if given(axes) else None)
    if not found and node.get("noop_with_empty_axes", 0):
        return x
    dims = tuple(sorted(a % x.dim() for a in found)) if found else tuple(range(x.dim()))
    kept = x.dtype
    return REDUCTIONS[node.kind](x, dims, bool(node.get("keepdims", 1))).to(kept) if x.dim() else REDUCTIONS[node.kind](x, (), False)


@imports("ArgMax", "ArgMin")
def arg(node: Node, x: Any) -> Any:
    """`select_last_index`: the last of equal ones."""
    axis, keep = node.get("axis", 0) % x.dim(), bool(node.get("keepdims", 1))
    find = gl.argmax if node.kind == "ArgMax" else gl.argmin
    if node.get("select_last_index", 0):
        return x.shape[axis] - 1 - find(x.flip(axis), axis, keepdim=keep)
    return find(x, axis, keepdim=keep)


@imports("CumSum", "CumProd", host=(1,))
def cumulative(node: Node, x: Any, axis: Any) -> Any:
    d = int(number(axis)) % x.dim()
    total, start = (gl.cumsum, 0) if node.kind == "CumSum" else (gl.cumprod, 1)
    x = x.flip(d) if node.get("reverse", 0) else x
    if node.get("exclusive", 0):
        first = gl.full([1 if i == d else n for i, n in enumerate(x.shape)], start, dtype=x.dtype, device=x.device)
        x = gl.cat([first, x.narrow(d, 0, x.shape[d] - 1)], d)
    y = total(x, d).to(x.dtype)
    return y.flip(d) if node.get("reverse", 0) else y


@imports("Softmax", "LogSoftmax", "Hardmax")
def softmax(node: Node, x: Any) -> Any:
    """Before opset 13 over all dimensions from the axis on."""
    functions: dict[str, Callable[[Any, int], Any]] = {"Softmax": F.softmax, "LogSoftmax": F.log_softmax, "Hardmax": _hardmax}
    function = functions[node.kind]
    if node.opset >= 13:
        return function(x, node.get("axis", -1))
    axis = node.get("axis", 1) % x.dim()
    return function(x.reshape(math.prod(x.shape[:axis]), -1), -1).reshape(x.shape)


def _hardmax(x: Any, dim: int) -> Any:
    at = x.argmax(dim, keepdim=True)
    return gl.zeros_like(x).scatter(dim, at, 1.0)


@imports("TopK", host=(1,))
def topk(node: Node, x: Any, k: Any = None) -> Any:
    """Equal ones in the order of their places."""
    (n,), axis, largest = ints(node.get("k") if k is None else k) or [0], node.get("axis", -1), bool(node.get("largest", 1))
    values, at = gl.sort(x, axis, largest, stable=True)
    return values.narrow(axis, 0, n), at.narrow(axis, 0, n)


@imports("LpNormalization")
def lp_normalization(node: Node, x: Any) -> Any:
    p, axis = node.get("p", 2), node.get("axis", -1)
    size = x.abs().sum(axis, keepdim=True) if p == 1 else rooted((x * x).sum(axis, keepdim=True))
    return x / gl.where(size == 0, 1, size)
