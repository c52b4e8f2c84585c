"""Every model of gradlab.models trains as the same model in PyTorch: the same weights and batches, 20 steps, losses within 1e-4."""

from __future__ import annotations

import in_pytorch
import numpy as np
import pytest
from model_recipes import RECIPES, Training

import gradlab as gl
from gradlab import models, nn

STEPS = 20
PARTS = {"GATConv", "GCNConv", "NoisePredictor"}  # of a model that has a recipe
SIZES = {"resnet32": "resnet20", "resnet34": "resnet18", "resnet56": "resnet20", "resnet20": "resnet20", "resnet18": "resnet18"}


def made(recipe):
    with gl.random.fork_rng():
        gl.manual_seed(0)
        return recipe.model(models)


def doubles(lib, training):
    """The step with its floats in float64."""
    training.model.to(lib.float64)
    return lambda *batch: training.step(*(x.to(lib.float64) if x.is_floating_point() else x for x in batch))


@pytest.mark.torch
@pytest.mark.parametrize("name", RECIPES)
def test_losses_are_pytorchs(name):
    torch = pytest.importorskip("torch")
    recipe = RECIPES[name]

    def losses(lib, way, pace, steps=STEPS):
        model = made(recipe)
        if lib is torch:
            twin = recipe.model(in_pytorch.models())
            in_pytorch.load(twin, model)
            model = twin
        training = Training(recipe, lib, model, pace)
        step = doubles(lib, training) if way == "float64" else gl.compile(training.step) if way == "compiled" else None
        return [float(loss) for loss in training.run(steps, step)]

    theirs = losses(torch, "eager", recipe.pace)
    assert len(set(theirs)) == STEPS
    for way in ("eager", "compiled"):
        np.testing.assert_allclose(losses(gl, way, recipe.pace), theirs, rtol=1e-4, err_msg=way)
    if recipe.pace != 1.0:
        np.testing.assert_allclose(losses(gl, "float64", 1.0, 8), losses(torch, "float64", 1.0, 8), rtol=1e-9)


def test_every_model_has_a_recipe():
    known = {type(recipe.model(models)).__name__ for recipe in RECIPES.values()}
    public = {name: getattr(models, name) for name in models.__all__}
    assert {name for name, value in public.items() if isinstance(value, type) and issubclass(value, nn.Module)} == known | PARTS
    assert {name for name in public if name.startswith("resnet")} == set(SIZES) and set(SIZES.values()) <= set(RECIPES)
