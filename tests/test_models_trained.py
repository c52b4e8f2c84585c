"""Models of gradlab.models, trained on real data to the results of docs/models.md, and beside simpler ways."""

from __future__ import annotations

import importlib.util

import model_data
import numpy as np
import pytest
from model_recipes import RECIPES, Training, semi_supervised

import gradlab as gl

pytestmark = pytest.mark.long
GENERATING = {"vae", "dcgan", "ddpm"}


def trained(recipe, seed=0):
    with gl.random.fork_rng():
        gl.manual_seed(seed)
        training = Training(recipe, gl, recipe.model(gl.models))
        losses = training.run(recipe.steps, gl.compile(training.step))
    assert all(np.isfinite(loss.item()) for loss in losses)
    return training


@pytest.mark.parametrize("name", [name for name in RECIPES if name not in GENERATING])
def test_it_reaches_its_result(name):
    recipe = RECIPES[name]
    result = trained(recipe).result()
    assert recipe.least <= result <= recipe.most, f"{recipe.what}: {result}"


def test_the_results_are_better_than_simpler_ones():
    """A table of letter pairs, a mean of words, the same layers without a graph."""
    assert RECIPES["gpt"].most < model_data.bigram()
    assert RECIPES["encoder"].least > model_data.naive_bayes() - 0.1
    alone = semi_supervised(lambda m: m.MLP(64, (32,), 10), 0.0, RECIPES["gcn"].steps, edges=False)
    assert trained(alone).result() < min(RECIPES["gcn"].least, RECIPES["gat"].least) - 0.03


@pytest.mark.parametrize(("name", "least"), [("wine", 0.95), ("breast_cancer", 0.95), ("diabetes", 0.4)])
def test_tables_of_scikit_learn(name, least):
    """Accuracy, or R², of the MLP on every fifth row, which it has not seen."""
    if importlib.util.find_spec("sklearn") is None:
        pytest.skip("scikit-learn has the tables")
    from sklearn import datasets

    table = getattr(datasets, f"load_{name}")()
    held = np.arange(len(table.data)) % 5 == 4
    x = ((table.data - table.data[~held].mean(0)) / table.data[~held].std(0)).astype("f4")
    classes = name != "diabetes"
    y = table.target if classes else ((table.target - table.target[~held].mean()) / table.target[~held].std()).astype("f4")[:, None]
    with gl.random.fork_rng():
        gl.manual_seed(0)
        net = gl.models.MLP(x.shape[1], (16,), int(y.max()) + 1 if classes else 1, dropout=0.2)
        optimizer = gl.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.3)
        loss = gl.nn.functional.cross_entropy if classes else gl.nn.functional.mse_loss
        loader = gl.utils.data.DataLoader(
            gl.utils.data.TensorDataset(gl.from_numpy(x[~held]), gl.from_numpy(y[~held])), batch_size=32, shuffle=True
        )
        gl.train.fit(net, loader, loss, optimizer, epochs=40, compile=True)
    with gl.no_grad():
        found = net.eval()(gl.from_numpy(x[held])).numpy()
    result = (found.argmax(1) == y[held]).mean() if classes else 1 - ((found - y[held]) ** 2).mean() / y[held].var()
    assert result >= least
