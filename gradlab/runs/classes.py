"""What tasks of classes share: weights of rare classes, and the simpler models that stand beside; numbers are fitted as classes are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gradlab as gl
from gradlab import Tensor
from gradlab.nn import functional as F

RARE = 3.0  # so many times rarer than the commonest class, a class makes the loss weigh classes alike


def class_weights(labels: NDArray[Any], classes: int) -> list[float] | None:
    """n / (classes · count) for each class where one is more than three times as rare as another; None where classes are alike."""
    counts = np.maximum(np.bincount(labels, minlength=classes), 1)
    return (len(labels) / (classes * counts)).tolist() if counts.max() > RARE * counts.min() else None


def commonest(labels: Tensor, many: int, classes: int) -> Tensor:
    """What a model of the commonest class alone gives for `many` samples: (many, classes)."""
    return F.one_hot(gl.full((many,), int(np.bincount(labels.numpy()).argmax())), classes).float()


def fit_at_once(loss: Callable[[], Tensor], summands: Sequence[Tensor], factors: Sequence[Tensor], rows: int) -> None:
    """Fit a linear model to all of `rows` samples by LBFGS. The penalty is half the squared factors (scikit-learn's C=1 and alpha=1)."""
    optimizer = gl.optim.LBFGS([*summands, *factors], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        whole = loss() + sum((f.square().sum() for f in factors), gl.tensor(0.0)) / (2 * rows)
        whole.backward()
        return whole

    optimizer.step(closure)
    optimizer.zero_grad()


def linear_classifier(x: Tensor, y: Tensor, x_new: Tensor, classes: int, weights: Sequence[float] | None = None) -> Tensor:
    """Logits (n, classes) for `x_new` of a linear model fitted at once to `x`, float32 (m, features), and classes `y`, int64 (m,).

    Features have their mean taken away, and are scaled by their largest deviation.
    """
    mean, scale = x.mean(0), x.std(0).max() + 1e-6
    x, x_new = (x - mean) / scale, (x_new - mean) / scale
    factors, offset = gl.zeros(x.shape[1], classes, requires_grad=True), gl.zeros(classes, requires_grad=True)
    balance = None if weights is None else gl.tensor(weights)
    fit_at_once(lambda: F.cross_entropy(x @ factors + offset, y, weight=balance), [offset], [factors], len(y))
    return (x_new @ factors + offset).detach()
