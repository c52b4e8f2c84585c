"""Models of scikit-learn and its kind (domain ai.onnx.ml): linear models, support vectors, and the labels that they choose."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import gradlab as gl
from gradlab.nn import functional as F
from gradlab.onnx.importing import Node, imports, read

LEARNING = "ai.onnx.ml"


def learned(
    *names: str, arrays: Callable[[Node], dict[str, Any]] | None = None, fixed: tuple[int, ...] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register an operator. arrays: what the node's attributes hold as tensors; they become inputs, and parameters of the model."""
    return imports(*(f"{LEARNING}:{name}" for name in names), arrays=arrays, fixed=fixed)


def table(*attributes: str) -> Callable[[Node], dict[str, Any]]:
    """Attributes that are lists of numbers, as arrays."""

    def arrays(node: Node) -> dict[str, Any]:
        return {name: np.asarray(node.get(name), np.float32) for name in attributes if np.size(node.get(name, ()))}

    return arrays


def labels_of(node: Node) -> Any:
    """The classes' labels: whole numbers, or strings; None where the node has none."""
    for name in ("classlabels_int64s", "classlabels_ints"):
        if np.size(node.get(name, ())):
            return np.asarray(node.get(name), np.int64)
    strings = node.get("classlabels_strings", ())
    return np.asarray(strings, str) if len(strings) else None


def chosen(node: Node, labels: Any, index: Any) -> Any:
    """Labels by the classes' numbers: a tensor, or strings on the host."""
    if labels.dtype.kind == "U":
        return labels[read(node, index, "a label that is a string")]
    if (labels == np.arange(len(labels))).all():
        return index
    return gl.tensor(labels, device=node.device)[index]


def probit(x: Any) -> Any:
    """The normal distribution's quantile: sqrt(2) · erfinv(2x - 1)."""
    return gl.erfinv(x * 2 - 1) * math.sqrt(2)


def transformed(scores: Any, kind: str) -> Any:
    """Scores [rows, classes] as the attribute `post_transform` asks; SOFTMAX_ZERO leaves out scores that are zero."""
    if kind == "PROBIT":
        return probit(scores)
    if scores.shape[-1] < 2 or kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return gl.sigmoid(scores)
    if kind == "SOFTMAX":
        return F.softmax(scores, -1)
    zero = scores.abs() <= 1e-7
    powers = gl.where(zero, 0.0, gl.exp(scores - scores.amax(-1, keepdim=True)))
    return powers / gl.clamp(powers.sum(-1, keepdim=True), min=1e-38)


def paired(s: Any, kind: str, opposite: bool = False) -> Any:
    """Both classes' scores by the one score [rows, 1] of the second: its complement, or its opposite."""
    if kind == "PROBIT":
        return gl.cat([1 - s, probit(s)], -1)
    if kind == "LOGISTIC":
        return gl.cat([gl.sigmoid(-s), gl.sigmoid(s)], -1)
    return gl.cat([-s if opposite else 1 - s, s], -1)


def rows_of(x: Any) -> Any:
    """Features [rows, features] as numbers of float32 (float64 stays)."""
    x = x.reshape(1, -1) if x.dim() == 1 else x
    return x if x.dtype in (gl.float32, gl.float64) else x.to(gl.float32)


def affine(node: Node, x: Any, coefficients: Any, intercepts: Any, targets: int) -> Any:
    """x wᵀ + b. Of coefficients for more features than there are the first ones count, one class behind another, as ONNX Runtime has it."""
    x = rows_of(x)
    w = gl.as_tensor(coefficients).to(x.dtype).reshape(-1)
    w = w[: targets * x.shape[-1]] if w.shape[0] > targets * x.shape[-1] else w
    y = x @ w.reshape(targets, -1).t()
    return y if intercepts is None else y + gl.as_tensor(intercepts).to(x.dtype).reshape(1, -1)


@learned("LinearRegressor", arrays=table("coefficients", "intercepts"))
def linear_regressor(node: Node, x: Any, coefficients: Any, intercepts: Any = None) -> Any:
    """x wᵀ + b."""
    return transformed(affine(node, x, coefficients, intercepts, node.get("targets", 1)), node.get("post_transform", "NONE"))


@learned("LinearClassifier", arrays=table("coefficients", "intercepts"))
def linear_classifier(node: Node, x: Any, coefficients: Any, intercepts: Any = None) -> Any:
    """The label of the class of the highest score, and the scores."""
    labels, kind = labels_of(node), node.get("post_transform", "NONE")
    count = intercepts.shape[0] if intercepts is not None else 1 if labels is None else len(labels)
    scores = affine(node, x, coefficients, intercepts, count)
    if count == 1:
        border = 0.5 if kind == "PROBIT" else 0.0
        index = (scores[:, 0] > border).to(gl.int64)
        return (index, transformed(scores, kind)) if labels is None else (chosen(node, labels, index), paired(scores, kind))
    index = scores.argmax(-1)
    return (index if labels is None else chosen(node, labels, index)), transformed(scores, kind)


# ---------------------------------------------------------------- support vectors

SUPPORT = table("support_vectors", "coefficients", "rho")


def kernel(node: Node, x: Any, vectors: Any) -> Any:
    """k(x, v) of rows [n, features] and vectors [m, features]: LINEAR x·v, POLY (γ x·v + c)^d, RBF exp(-γ |x - v|²), SIGMOID."""
    gamma, shift, degree = (*map(float, node.get("kernel_params", ())), 0.0, 0.0, 0.0)[:3]
    kind = node.get("kernel_type", "LINEAR")
    if kind == "RBF":
        difference = x.unsqueeze(1) - vectors.unsqueeze(0)
        return gl.exp((difference * difference).sum(-1) * -gamma)
    product = x @ vectors.t()
    if kind == "POLY":
        return (product * gamma + shift) ** degree
    return gl.tanh(product * gamma + shift) if kind == "SIGMOID" else product


@learned("SVMRegressor", arrays=SUPPORT)
def svm_regressor(node: Node, x: Any, vectors: Any, coefficients: Any = None, rho: Any = None) -> Any:
    """Σ αᵢ k(x, vᵢ) + ρ; without support vectors a linear model. One class: +1 inside, -1 outside."""
    x = rows_of(x)
    if node.get("n_supports", 0):
        y = kernel(node, x, vectors.reshape(node.get("n_supports"), -1)) @ coefficients.reshape(-1, 1) + rho
    else:
        coefficients, rho = vectors, coefficients
        y = kernel(node, x, coefficients.reshape(1, -1)) + rho
    return gl.where(y > 0, 1.0, -1.0) if node.get("one_class", 0) else transformed(y, node.get("post_transform", "NONE"))


@learned("SVMClassifier", arrays=SUPPORT)
def svm_classifier(node: Node, x: Any, vectors: Any, coefficients: Any = None, rho: Any = None) -> Any:
    """One against one: a decision for each pair of classes, and the class with most votes; probabilities where the file has them."""
    x, labels, kind = rows_of(x), labels_of(node), node.get("post_transform", "NONE")
    per_class = [int(n) for n in node.get("vectors_per_class", ())]
    if not per_class:  # linear: a score for each class
        coefficients, rho = vectors, coefficients
        classes = len(labels)
        scores = kernel(node, x, coefficients.reshape(classes, -1)) + rho
        return chosen(node, labels, scores.argmax(-1)), transformed(scores, kind)
    classes, total = len(per_class), sum(per_class)
    values, alpha = kernel(node, x, vectors.reshape(total, -1)), coefficients.reshape(classes - 1, total)
    starts = [sum(per_class[:i]) for i in range(classes)]
    rho = rho.reshape(-1) if rho.dim() else rho.reshape(1)
    decisions, pairs = [], [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    for place, (i, j) in enumerate(pairs):
        of_i, of_j = slice(starts[i], starts[i] + per_class[i]), slice(starts[j], starts[j] + per_class[j])
        decisions.append(values[:, of_i] @ alpha[j - 1, of_i] + values[:, of_j] @ alpha[i, of_j] + rho[place])
    votes = [sum(_vote(decisions[p], i, pair) for p, pair in enumerate(pairs) if i in pair) for i in range(classes)]
    best = gl.stack(votes, -1).argmax(-1)
    if np.size(node.get("prob_a", ())):
        chances = _coupled(decisions, pairs, node, classes)
        return chosen(node, labels, best), transformed(chances, kind)  # the label is that of the votes
    scores = gl.stack(decisions, -1)
    if classes > 2:
        return chosen(node, labels, best), transformed(scores, kind)
    return chosen(node, labels, best), paired(scores, kind, kind == "NONE")


def _vote(decision: Any, which: int, pair: tuple[int, int]) -> Any:
    won = decision > 0 if which == pair[0] else decision <= 0
    return won.to(gl.int64)


TURNS = 100  # of libsvm's own iteration


def _coupled(decisions: list[Any], pairs: list[tuple[int, int]], node: Node, classes: int) -> Any:
    """Probabilities of the classes by those of their pairs (Wu, Lin and Weng 2004, second method), by libsvm's iteration, which ends
    where the largest deviation is below 0.005 / classes."""
    a, b = np.asarray(node.get("prob_a"), np.float32), np.asarray(node.get("prob_b"), np.float32)
    chance: dict[tuple[int, int], Any] = {}
    for p, (i, j) in enumerate(pairs):
        of_first = gl.clamp(gl.sigmoid(-(decisions[p] * float(a[p]) + float(b[p]))), 1e-7, 1 - 1e-7)
        chance[i, j], chance[j, i] = of_first, 1 - of_first
    every = range(classes)
    rows = [[sum(chance[k, i] * chance[k, i] for k in every if k != i) if i == j else -chance[j, i] * chance[i, j] for j in every]
            for i in every]  # fmt: skip
    matrix = gl.stack([gl.stack(row, -1) for row in rows], -2)  # [rows, classes, classes]
    units = gl.eye(classes, device=matrix.device)

    def goes_on(turn: Any, found: Any, running: Any) -> Any:
        return (turn < max(classes, TURNS)) & running.any()

    def turned(turn: Any, found: Any, running: Any) -> Any:
        product = (matrix @ found.unsqueeze(-1)).squeeze(-1)
        energy = (found * product).sum(-1, keepdim=True)
        running = running & ((product - energy).abs().amax(-1, keepdim=True) >= 0.005 / classes)
        fresh = found
        for t in every:
            diagonal, slope = matrix[:, t, t].unsqueeze(-1), product[:, t : t + 1]
            step = (energy - slope) / diagonal
            energy = (energy + step * (step * diagonal + 2 * slope)) / (1 + step) ** 2
            product = (product + step * matrix[:, t]) / (1 + step)
            fresh = (fresh + step * units[t]) / (1 + step)
        return turn + 1, gl.where(running, fresh, found), running

    first = gl.ones_like(matrix[:, 0]) / classes
    return gl.while_loop(goes_on, turned, (gl.zeros((), dtype=gl.int64, device=matrix.device), first, first[:, :1] > 0))[1]
