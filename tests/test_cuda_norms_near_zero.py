"""Norms on the (emulated) GPU are as exact as their mean, which loses no bits to an element far from the others, nor far from zero."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

F = gl.nn.functional


def channels(x):
    return F.batch_norm(x, None, None, training=True)


def of_a_sum(x):
    return F.add_layer_norm(x * 0.5, x * 0.5, x.shape[1:])[0]  # halves are exact


NORMS = {
    "layer": (lambda x: F.layer_norm(x, x.shape[1:]), (1,)),
    "sum": (of_a_sum, (1,)),
    "batch": (channels, (0, 2, 3)),
    "columns": (channels, (0,)),
    "group": (lambda x: F.group_norm(x, 1), (1, 2, 3)),
    "instance": (F.instance_norm, (2, 3)),
}
# Rows of each form in registers, looped by one block, and shared by several; channels and columns of one block and of several.
CASES = [
    *[("layer", s) for s in ((90, 10), (30, 100), (9, 700), (4, 3001), (2, 9000), (1, 20000), (1, 40001))],
    *[("sum", s) for s in ((30, 100), (9, 700), (2, 5001), (1, 20000))],
    ("batch", (3, 5, 7, 9)), ("batch", (4, 3, 40, 40)), ("columns", (100, 33)), ("columns", (700, 33)),
    ("group", (3, 4, 31, 33)), ("instance", (2, 5, 31, 33)),
]  # fmt: skip


def error(name, x, reach=0.05, compiled=False):
    """Root mean square of what results near zero lack, in standard deviations."""
    norm, axes = NORMS[name]
    exact = x.astype(np.float64)
    exact = (exact - exact.mean(axes, keepdims=True)) / np.sqrt(exact.var(axes, keepdims=True) + 1e-5)
    found = (gl.compile(norm) if compiled else norm)(gl.tensor(x, device="cuda")).cpu().numpy()
    near = np.abs(exact) < reach
    assert near.any()
    return np.sqrt(np.mean((found - exact)[near] ** 2))


@pytest.mark.parametrize(("name", "shape"), CASES, ids=str)
def test_results_near_zero_are_exact(cuda, name, shape):
    for middle in (0, 3, -1000):
        x = np.random.default_rng(4).normal(size=shape).astype(np.float32) + np.float32(middle)
        assert error(name, x) < 2e-8, middle
    x -= x.mean()
    first = (slice(None), *(0,) * (x.ndim - 1)) if 1 in NORMS[name][1] or name == "layer" else (0, slice(None), *(0,) * (x.ndim - 2))
    x[first] = 1000  # far from all others
    assert error(name, x, reach=0.5) < 4e-8


def test_a_small_programs_norm_too(cuda):
    for middle in (0, 3, -1000):
        x = np.random.default_rng(4).normal(size=(6, 200)).astype(np.float32) + np.float32(middle)
        assert error("layer", x, compiled=True) < 2e-8, middle
    x += 1000
    x[:, 0] = 1000
    assert error("layer", x, reach=0.5, compiled=True) < 4e-8
