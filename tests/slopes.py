"""Finite differences for functions of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradlab as gl


def check_slopes(function: Callable[..., Any], *arrays: Any, step: float = 1e-6) -> None:
    """The gradients of `function` (tensors to one tensor), with float64 arrays, against central differences along a random direction."""
    rng = np.random.default_rng(7)
    directions = [rng.normal(size=np.shape(a)) for a in arrays]
    weights = None

    def value(sign: float) -> float:
        found = function(*(gl.tensor(a + sign * step * d) for a, d in zip(arrays, directions, strict=True)))
        return float((found.detach().numpy() * weights).sum())

    leaves = [gl.tensor(np.asarray(a, float), requires_grad=True) for a in arrays]
    out = function(*leaves)
    weights = rng.normal(size=out.shape)
    (out * gl.tensor(weights)).sum().backward()
    got = sum(float((leaf.grad.numpy() * d).sum()) for leaf, d in zip(leaves, directions, strict=True) if leaf.grad is not None)
    assert got == pytest.approx((value(1) - value(-1)) / (2 * step), rel=1e-5, abs=1e-7)
