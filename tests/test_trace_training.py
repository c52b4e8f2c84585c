"""A whole training step with modules, normalisation, dropout and an optimizer, traced and replayed bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.graph import trace

OPTIMIZERS = {
    "SGD": lambda p: gl.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "Adam": lambda p: gl.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: gl.optim.AdamW(p, lr=0.01),
}


def training(optimizer):
    gl.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 10)
    )
    update = OPTIMIZERS[optimizer](model.parameters())

    def step(x, y):
        loss = nn.functional.cross_entropy(model(x), y)
        update.zero_grad()
        loss.backward()
        update.step()
        return loss

    return model, step


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_training_step_replays_bit_for_bit(optimizer):
    rng = np.random.default_rng(0)
    batches = [
        (gl.from_numpy(rng.normal(size=(16, 1, 8, 8)).astype("float32")), gl.from_numpy(rng.integers(0, 10, 16))) for _ in range(4)
    ]
    model, step = training(optimizer)
    gl.manual_seed(7)
    eager = [step(x, y).item() for x, y in batches]
    state = {k: v.numpy().copy() for k, v in model.state_dict().items()}

    model, step = training(optimizer)
    gl.manual_seed(7)
    losses = [step(*batches[0]).item()]  # the first step makes the optimizer's state
    program = trace(step, *batches[1])
    losses += [program(x, y).item() for x, y in batches[1:]]
    assert losses == eager
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), state[name], err_msg=name)
