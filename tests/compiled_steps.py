"""A small model and its training step, for the tests of `gl.compile`."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.graph import TraceError
from gradlab.graph.executables.numpy.executable import Line, NumpyExecutable

F = nn.functional


class Net(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.drop = nn.Dropout(dropout)
        self.gain = 1.0

    def forward(self, x):
        return self.b(self.drop(F.relu(self.norm(self.a(x))))) * self.gain


OPTIMIZERS = {
    "SGD": lambda p: gl.optim.SGD(p, lr=0.1),
    "momentum": lambda p: gl.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "Adam": lambda p: gl.optim.Adam(p, lr=0.01, weight_decay=1e-2),
    "AdamW": lambda p: gl.optim.AdamW(p, lr=0.01),
    "RMSprop": lambda p: gl.optim.RMSprop(p, lr=0.01),
}


def batches(count=6, size=10):
    rng = np.random.default_rng(0)
    return [(gl.tensor(rng.normal(size=(size, 6)).astype("f")), gl.tensor(rng.integers(0, 3, size))) for _ in range(count)]


def training(optimizer="SGD", dropout=0.0):
    gl.manual_seed(1)
    model = Net(dropout)
    update = OPTIMIZERS[optimizer](model.parameters())

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        update.zero_grad()
        loss.backward()
        update.step()
        return loss

    return model, update, step


def state_of(model):
    return {k: v.numpy().copy() for k, v in model.state_dict().items()}


def same_state(a, b, tolerance=2e-4):
    for key, value in a.items():
        np.testing.assert_allclose(value, b[key], rtol=tolerance, atol=tolerance, err_msg=key)


def follows(function, changes, make=lambda: (gl.ones(2),), calls=3):
    """After each change three calls give what eager gives."""
    run = gl.compile(function)
    for change in changes:
        change()
        for _ in range(calls):
            np.testing.assert_allclose(np.array(run(*make()).tolist()), np.array(function(*make()).tolist()), rtol=1e-5)
    return run


def refused(function, *args, match, error=TraceError):
    run = gl.compile(function)
    run(*args)
    with pytest.raises(error, match=match):
        run(*args)


def rows(graph):
    """The names of a graph's rows."""
    return [c.op.name for c in graph.calls]


def run(graph, arrays):
    """A graph's results in NumPy, row by row."""
    executable = NumpyExecutable(Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, graph.updates))
    outs = [np.empty(v.spec.shape, v.spec.dtype) for v in graph.outputs]
    executable.run(arrays, outs)
    return outs
