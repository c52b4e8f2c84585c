"""Sums keep their last bits: every row that adds up, on every way of computing it, against float64."""

import numpy as np
import pytest

import gradlab as gl

EPS = float(np.finfo(np.float32).eps)
SHAPES = {(70001, 3): (0, 1, (0, 1)), (3, 70001): (0, 1), (40, 300, 7): (0, 1, (0, 2), (1, 2))}


def around(mean: float, shape: tuple[int, ...]) -> np.ndarray:
    return (np.random.default_rng(len(shape)).standard_normal(shape) + mean).astype(np.float32)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(("shape", "dim"), [(shape, dim) for shape, dims in SHAPES.items() for dim in dims], ids=str)
@pytest.mark.parametrize("name", ["sum", "mean"])
def test_sums(name, shape, dim, device):
    x = around(1e4, shape)
    found = getattr(gl.tensor(x, device=device), name)(dim).cpu().numpy()
    right = getattr(x.astype(np.float64), name)(axis=dim)
    assert np.abs(found / right - 1).max() <= 4 * EPS
