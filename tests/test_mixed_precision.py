"""Trainings in bfloat16, and in float16 with a GradScaler, reach what float32 reaches: digits, GPT and ResNet-20, eager and compiled.

bench/mixed_precision.py is the same at length, with more seeds.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from model_recipes import RECIPES, Mixed

import gradlab as gl

pytestmark = pytest.mark.long
# Steps, the largest loss to the result in float32, and to the mean of the last ten losses (as a share): twice what seeds change.
CASES = {"digits cnn": (150, 0.015, 0.3), "gpt": (60, 0.06, 0.03), "resnet20": (120, 0.02, 0.6)}


@cache
def trained(name, dtype, way, device="cpu", steps=0):
    recipe = RECIPES[name]
    with gl.random.fork_rng():
        gl.manual_seed(0)
        training = Mixed(recipe, gl, recipe.model(gl.models), dtype, device)
        losses = training.run(steps or CASES[name][0], gl.compile(training.step) if way == "compiled" else None)
    assert all(p.dtype == gl.float32 and (p.grad is None or p.grad.dtype == gl.float32) for p in training.model.parameters())
    training.model.to("cpu")
    return training.result(), np.array([loss.item() for loss in losses])


# Eager trainings are slow in half precision: there the one of each model that has more against it.
@pytest.mark.parametrize(
    ("name", "dtype", "way"),
    [(name, dtype, "compiled") for name in CASES for dtype in ("bfloat16", "float16")]
    + [("digits cnn", "bfloat16", "eager"), ("digits cnn", "float16", "eager"), ("gpt", "bfloat16", "eager")],
)
def test_the_result_is_that_of_float32(name, dtype, way):
    _, far, share = CASES[name]
    (expected, losses), (result, halved) = trained(name, "float32", "compiled"), trained(name, dtype, way)
    assert np.isfinite(halved).all() and halved[-1] < halved[0] / 1.5
    worse = expected - result if np.isfinite(RECIPES[name].least) else result - expected
    assert worse <= far, (expected, result)
    assert halved[-10:].mean() <= losses[-10:].mean() * (1 + share) + 0.01


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_few_steps_on_a_gpu(cuda, dtype):
    """The first steps are those of the CPU as far as the halves go. On the emulated GPU this takes half a minute."""
    here, there = (trained("digits cnn", dtype, "eager", device, 3)[1] for device in ("cpu", "cuda"))
    np.testing.assert_allclose(there, here, rtol=0.02)
    assert there[0] == pytest.approx(trained("digits cnn", "float32", "eager", "cpu", 3)[1][0], rel=0.01)
