"""Rows of losses that deserve a kernel: cross entropy (log-softmax and selection in one), selection by class (nll), squared error."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.dtype import ONE
from gradlab.kernel import Elementwise, Kernel, Reduction
from gradlab.op import Op
from gradlab.ops import where
from gradlab.ops.reduction import has_zero, least, most
from gradlab.ops.softmax import SURE, SURE_TOTAL, log_total
from gradlab.spec import ShapeError, Spec, broadcast, count, expect_shape

_add_reduce: Any = np.add.reduce
_maximum_reduce: Any = np.maximum.reduce

# ---------------------------------------------------------------- classes


def class_rule(x: Spec, target: Spec) -> None:
    """`x` (n, classes, ...), `target` (n, ...) of int64."""
    if len(x.shape) < 2 or target.shape != (x.shape[0], *x.shape[2:]):
        raise ShapeError(f"input of shape {x.shape} and class indices of shape {target.shape}: expected (n, classes, ...) and (n, ...)")
    if target.dtype.kind != "i":
        raise TypeError(f"class indices are integers, not {target.dtype}")


def checked(target: Any, classes: int, ignore_index: int) -> tuple[Any, Any]:
    """Class indices with 0 for the ignored ones, and which count (None: all). Raises IndexError for a class that is not there."""
    quick = target.dtype == np.int64 and not 0 <= ignore_index < classes and target.size
    if quick and most(target.view(np.uint64)) < classes:  # negative ones are huge there: one pass for both limits
        return target, None
    inside = (target >= 0) & (target < classes)
    if inside.all() and not 0 <= ignore_index < classes:
        return target, None
    counts = target != ignore_index
    wrong = counts & ~inside
    if wrong.any():
        raise IndexError(f"class {target[wrong][0]} is not in [0, {classes}); only ignore_index={ignore_index} may lie outside")
    return np.where(counts, target, 0), counts


def places(target: Any) -> tuple[Any, ...]:
    """The index of each target's class in (n, classes, ...)."""
    if target.ndim == 1:
        return np.arange(len(target)), target
    first, *rest = np.ogrid[tuple(slice(s) for s in target.shape)]
    return first, target, *rest


def reduced(name: str) -> Any:
    """Rule: one number, or one for each target where reduction is "none"; and the probabilities."""

    def rule(x: Spec, target: Spec, *, ignore_index: int, reduction: str) -> tuple[Spec, Spec]:
        class_rule(x, target)
        return Spec(target.shape if reduction == "none" else (), x.dtype), x

    return rule


def cross_entropy_cpu(x: Any, target: Any, y: Any, p: Any, *, ignore_index: int, reduction: str) -> None:
    """-log softmax(x)[target]. The mean divides by the targets that count, so that it is NaN where none does, as in PyTorch."""
    target, counts = checked(target, x.shape[1], ignore_index)
    at = places(target)
    np.subtract(x, _maximum_reduce(x, 1, None, None, True) if x.size else x, p)
    loss = p[at]
    np.exp(p, p)
    total = _add_reduce(p, 1, None, None, True)
    logarithm = np.log(total) if least(total) >= SURE_TOTAL else log_total(p.copy(), total, 1)
    p /= total
    np.subtract(logarithm[:, 0], loss, loss)
    if counts is not None:
        np.copyto(loss, 0, where=~counts)
    if reduction == "none":
        y[...] = loss
    else:
        found = _add_reduce(loss, None)
        y[...] = found if reduction == "sum" else found / loss.dtype.type(loss.size if counts is None else counts.sum())


def cross_entropy_backward_rule(dy: Spec, p: Spec, target: Spec, *, ignore_index: int, reduction: str) -> Spec:
    """Rule: the input's gradient, from the loss's and the probabilities."""
    class_rule(p, target)
    expect_shape("the loss's gradient", dy, target.shape if reduction == "none" else ())
    return p


def cross_entropy_backward_cpu(dy: Any, p: Any, target: Any, y: Any, *, ignore_index: int, reduction: str) -> None:
    """dy·(p - onehot), over the number of targets that count for the mean; exact zeros for the ignored ones."""
    target, counts = checked(target, p.shape[1], ignore_index)
    if reduction == "mean":
        dy = dy / p.dtype.type(max(target.size if counts is None else counts.sum(), 1))
    at = places(target)
    if reduction == "none":
        np.multiply(p, dy[:, None], y)
    else:
        np.multiply(p, dy, y)
    hit = p[at]
    found = hit - ONE[hit.dtype]
    found *= dy
    if not most(hit) <= SURE:  # what p lacks to 1 is what the others have
        y[at] = 0
        np.negative(np.add.reduce(y, axis=1), found, where=hit > SURE)
    y[at] = found
    if reduction == "none" and has_zero(dy):  # also of nothing but -inf
        np.copyto(y, 0, where=(dy == 0)[:, None])
    if counts is not None:
        where.keep(counts[:, None], y.copy(), y)


def class_weights(dy: Any, target: Any, ignore_index: int, reduction: str) -> Any:
    """What each target's (p - onehot) is multiplied with."""
    counts = (target != ignore_index).to(dy.dtype)
    if reduction == "mean":
        counts = counts / counts.sum().clamp(min=1)
    return (dy * counts).unsqueeze(1)


def _cross_entropy_linear(g: Any, dy: Any, p: Any, target: Any, ignore_index: int, reduction: str) -> Any:
    """The derivative is linear in dy: the gradient of dy is g times the derivative for dy = 1."""
    along = g * cross_entropy_backward(dy.new_ones(dy.shape), p, target, ignore_index=ignore_index, reduction=reduction)
    return along.sum(1) if reduction == "none" else along.sum()


def _cross_entropy_gradient(g_y: Any, p: Any, target: Any, ignore_index: int, reduction: str, g_p: Any = None) -> Any:
    dx = cross_entropy_backward(g_y, p, target, ignore_index=ignore_index, reduction=reduction)
    return dx if g_p is None else dx + p * (g_p - (g_p * p).sum(1, keepdim=True))


cross_entropy = Op("cross_entropy", reduced("cross_entropy"), params=("ignore_index", "reduction"), outputs=("y", "p"), autocast="float32",
                   cpu=cross_entropy_cpu, cuda=Kernel("loss.cu", "cross_entropy", "row"), grad={"x": _cross_entropy_gradient})  # fmt: skip
cross_entropy_backward: Op = Op("cross_entropy_backward", cross_entropy_backward_rule, params=("ignore_index", "reduction"),
                            cpu=cross_entropy_backward_cpu, cuda=Kernel("loss.cu", "cross_entropy_backward", "row"),
                            grad={"dy": _cross_entropy_linear,
                                  "p": lambda g, dy, target, ignore_index, reduction:
                                  g * class_weights(dy, target, ignore_index, reduction)})  # fmt: skip


def nll_rule(x: Spec, target: Spec, *, ignore_index: int) -> Spec:
    """Rule: of each target the loss."""
    class_rule(x, target)
    return Spec(target.shape, x.dtype)


def nll_cpu(x: Any, target: Any, y: Any, *, ignore_index: int) -> None:
    """-x[target]; 0 for the ignored, whatever x is there."""
    target, counts = checked(target, x.shape[1], ignore_index)
    np.negative(x[places(target)], y)
    if counts is not None:
        np.copyto(y, 0, where=~counts)


def nll_backward_rule(dy: Spec, target: Spec, *, classes: int, ignore_index: int) -> Spec:
    """Rule: the input's gradient."""
    expect_shape("the gradient", dy, target.shape)
    return Spec((target.shape[0], classes, *target.shape[1:]), dy.dtype)


def nll_backward_cpu(dy: Any, target: Any, y: Any, *, classes: int, ignore_index: int) -> None:
    target, counts = checked(target, classes, ignore_index)
    y.fill(0)
    y[places(target)] = -dy if counts is None else np.where(counts, -dy, 0)


nll: Op = Op("nll", nll_rule, params=("ignore_index",), cpu=nll_cpu, cuda=Kernel("loss.cu", "nll", "element"), exact=True,
             autocast="float32",
         grad={"x": lambda g, target, x_spec, ignore_index:
               nll_backward(g, target, classes=x_spec.shape[1], ignore_index=ignore_index)})  # fmt: skip
nll_backward: Op = Op("nll_backward", nll_backward_rule, params=("classes", "ignore_index"), cpu=nll_backward_cpu, exact=True,
                  cuda=Kernel("loss.cu", "nll_backward", "element"),
                  grad={"dy": lambda g, target, ignore_index: nll(g, target, ignore_index=ignore_index)})  # fmt: skip

# ---------------------------------------------------------------- squared error


def mse_rule(a: Spec, b: Spec, *, mean: bool) -> Spec:
    """Rule: one number."""
    if a.shape != b.shape:
        raise ShapeError(f"shapes {a.shape} and {b.shape} differ")
    return Spec((), a.dtype)


def mse_cpu(a: Any, b: Any, y: Any, *, mean: bool) -> None:
    """Σ (a - b)², divided by the number of elements for the mean."""
    d = np.subtract(a, b).ravel()
    if d.size > 128:  # a dot product of float32 adds up less exactly, which only many notice
        d *= d
        total = np.add.reduce(d)
    else:
        total = d.dot(d)
    y[...] = total / d.size if mean else total


def _mse_gradient(g: Any, a: Any, b: Any, mean: bool) -> Any:
    return (a - b) * (g * (2 / max(count(a.shape), 1) if mean else 2))


mse = Op("mse", mse_rule, params=("mean",), cpu=mse_cpu, promote="float", autocast="float32",
         cuda=Reduction("square(a - b)", "a + b", "T(0)", "mean ? a / T(n) : a"),
         grad={"a": _mse_gradient, "b": lambda g, a, b, mean: _mse_gradient(g, b, a, mean)})  # fmt: skip

# ---------------------------------------------------------------- two classes


def probability_rule(x: Spec, target: Spec) -> Spec:
    """Rule: two inputs of one dtype, broadcast."""
    return broadcast(x, target)


def bce_cpu(x: Any, target: Any, y: Any) -> None:
    """-(t·max(log x, -100) + (1 - t)·max(log(1 - x), -100))."""
    if not ((x >= 0) & (x <= 1)).all():
        raise RuntimeError("binary_cross_entropy: all inputs must lie in [0, 1]; use binary_cross_entropy_with_logits for logits")
    np.multiply(np.maximum(np.log1p(-x), -100), np.subtract(target, 1), y)
    y -= np.maximum(np.log(x), -100) * target


bce: Op = Op("bce", probability_rule, cpu=bce_cpu, promote="float", autocast="refused",
             cuda=Elementwise("(target - T(1)) * maximum(log1p(-x), T(-100)) - target * maximum(log(x), T(-100))"),
             grad={"x": lambda g, x, target: g * ((x - target) / ((1 - x) * x).clamp(min=1e-12)),
                   "target": lambda g, x: g * ((-x).log1p().clamp(min=-100) - x.log().clamp(min=-100))})  # fmt: skip


def bce_logits_cpu(x: Any, target: Any, y: Any) -> None:
    """max(x, 0) - x·t + log(1 + e^-|x|)."""
    np.abs(x, y)
    np.negative(y, y)
    np.log1p(np.exp(y, y), y)
    y += np.maximum(x, 0)
    y -= x * target


bce_logits: Op = Op("bce_logits", probability_rule, cpu=bce_logits_cpu, promote="float", autocast="float32",
                    cuda=Elementwise("maximum(x, T(0)) - x * target + log1p(exp(-abs(x)))"),
                    grad={"x": lambda g, x, target: g * (x.sigmoid() - target), "target": lambda g, x: -g * x})  # fmt: skip
