"""What tasks of classes share: weights of rare classes, and the linear model that stands beside."""

from __future__ import annotations

from collections.abc import Sequence
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


def linear_classifier(x: Tensor, y: Tensor, x_new: Tensor, classes: int, weights: Sequence[float] | None = None) -> Tensor:
    """Logits (n, classes) for `x_new` of a linear model fitted to all of `x`, float32 (m, features), and classes `y`, int64 (m,), by LBFGS.

    The penalty is half the squared factors, as scikit-learn's C=1, of features with their mean taken away and scaled by their largest
    deviation.
    """
    mean, scale = x.mean(0), x.std(0).max() + 1e-6
    x, x_new = (x - mean) / scale, (x_new - mean) / scale
    factors, offset = gl.zeros(x.shape[1], classes, requires_grad=True), gl.zeros(classes, requires_grad=True)
    balance = None if weights is None else gl.tensor(weights)
    optimizer = gl.optim.LBFGS([factors, offset], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(x @ factors + offset, y, weight=balance) + factors.square().sum() / (2 * len(y))
        loss.backward()
        return loss

    optimizer.step(closure)
    return (x_new @ factors + offset).detach()
