"""An LSTM's steps as machine code (`graph/executables/native/recurrent.py`): the product, the look-up and the cell in one kernel."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn, ops
from gradlab.autograd.record import bind
from gradlab.backends.native import compiler
from gradlab.graph import trace
from gradlab.graph.executables.native.executable import NativeExecutable
from gradlab.graph.executables.numpy.executable import Line
from gradlab.graph.passes import optimize

pytestmark = pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")
lstm_cell = bind(ops.recurrent.lstm_cell)
STEP = "gradlab_lstm_step"


def tensor(*shape, seed=0, scale=1.0):
    return gl.from_numpy((scale * np.random.default_rng(seed).normal(size=shape)).astype(np.float32))


def kernels(executable):
    return [name for step in executable.report for name in step.kernels]


def check(function, *inputs, tolerance=2e-5):
    """The function as machine code gives what eager mode gives, the same on any number of threads; the kernels."""
    graph = optimize(trace(function, *inputs).graph)
    executable = NativeExecutable(Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, []))
    wanted = function(*inputs)
    results = []
    for threads in (1, 2, 3):
        executable._threads = threads
        outs = [np.full(v.spec.shape, 77, v.spec.dtype) for v in graph.outputs]
        executable.run([t._array for t in inputs], outs)
        results.append(outs)
    for got, want in zip(results[0], wanted, strict=True):
        expected = want.detach().numpy()
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max(initial=1))
    for other in results[1:]:
        for got, want in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(got, want)
    return kernels(executable)


def with_gradients(lstm, table=None):
    """Outputs and last states of a network, and all gradients for fixed gradients of the outputs."""
    parameters = [*lstm.parameters(), *(() if table is None else table.parameters())]

    def compute(x):
        y, states = lstm(x if table is None else table(x))
        g = gl.from_numpy(np.random.default_rng(9).normal(size=y.shape).astype(np.float32))
        return [y, *states, *gl.autograd.grad(y, parameters, g)]

    return compute


@pytest.mark.parametrize(
    "batch, steps, inputs, units",
    [
        (1, 4, 1, 1), (3, 5, 4, 7), (2, 6, 8, 32), (13, 5, 3, 33), (50, 4, 16, 64), (32, 4, 16, 100), (5, 4, 8, 136), (97, 3, 2, 24),
        (4, 4, 8, 520),
    ],
)  # fmt: skip
def test_sizes(batch, steps, inputs, units):
    gl.manual_seed(0)
    found = check(with_gradients(nn.LSTM(inputs, units)), tensor(steps, batch, inputs))
    assert found.count(STEP) == steps


@pytest.mark.parametrize("kind", ["two layers", "both ways", "batch first", "projection", "no bias"])
def test_forms(kind):
    gl.manual_seed(0)
    extra = {
        "two layers": {"num_layers": 2}, "both ways": {"bidirectional": True}, "batch first": {"batch_first": True},
        "projection": {"proj_size": 5}, "no bias": {"bias": False},
    }[kind]  # fmt: skip
    found = check(with_gradients(nn.LSTM(6, 24, **extra)), tensor(5, 5, 6))
    assert found.count(STEP) == (10 if kind in ("two layers", "both ways") else 5)


@pytest.mark.parametrize("batch, units", [(3, 8), (32, 40)])
def test_a_table_in_place_of_inputs(batch, units):
    gl.manual_seed(0)
    table, lstm = nn.Embedding(11, 6), nn.LSTM(6, units, batch_first=True)
    tokens = gl.from_numpy(np.random.default_rng(0).integers(0, 11, (batch, 60 if units == 40 else 5)))
    found = check(with_gradients(lstm, table), tokens, tolerance=1e-4)
    assert STEP in found
    assert ("gradlab_embedding" in found) == (units == 8)  # of small slices all rows are looked up at once


def test_few_steps_are_as_they_were():
    found = check(with_gradients(nn.LSTM(6, 24)), tensor(2, 5, 6))
    assert STEP not in found and found.count("gradlab_lstm_cell") == 2


def test_what_is_needed_besides():
    """A step's product that is asked for stays a product."""
    w, x = tensor(8, 32, scale=0.3), tensor(4, 3, 32)

    def function(w, x):
        h = c = gl.zeros(3, 8)
        own = []
        for t in range(4):
            own.append(h @ w)
            h, c, _ = lstm_cell(x[t], own[-1], c)
        return [h, c, own[2]]

    found = check(function, w, x)
    assert found.count(STEP) == 3 and found.count("gradlab_lstm_cell") == 1


def test_no_number_stays_none_and_the_largest_are_no_danger():
    lstm = nn.LSTM(3, 40)
    x = tensor(4, 6, 3)
    x[0, 1, 0], x[1, 2, 1], x[2, 3, 2], x[1, 4], x[2, 5] = np.nan, np.inf, -np.inf, 1e30, -1e30
    graph = optimize(trace(lambda x: lstm(x)[0], x).graph)
    executable = NativeExecutable(Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, []))
    out = np.empty((4, 6, 40), np.float32)
    executable.run([x._array], [out])
    want = lstm(x)[0].detach().numpy()
    np.testing.assert_array_equal(np.isnan(out), np.isnan(want))
    np.testing.assert_allclose(out, want, rtol=2e-5, atol=2e-6)
    assert np.isnan(want[0, 1]).all() and not np.isnan(want[:, 4:]).any() and STEP in kernels(executable)


def test_an_index_outside_is_refused_before_anything_is_written():
    gl.manual_seed(0)
    table, lstm = nn.Embedding(11, 6), nn.LSTM(6, 40, batch_first=True)
    optimizer = gl.optim.SGD([*table.parameters(), *lstm.parameters()], lr=0.1)

    @gl.compile
    def step(tokens):
        loss = lstm(table(tokens))[0].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    tokens = np.random.default_rng(0).integers(0, 11, (32, 60))
    for _ in range(3):
        step(gl.from_numpy(tokens))
    assert "gradlab_embedding" not in kernels(step.programs[0].runner.executable)
    before = [p.detach().numpy().copy() for p in lstm.parameters()]
    bad = tokens.copy()
    bad[3, 40] = 11
    with pytest.raises(IndexError):
        step(gl.from_numpy(bad))
    for p, kept in zip(lstm.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), kept)
    step(gl.from_numpy(tokens))


def test_a_weight_that_changes_within_a_program():
    """Two training steps in one program: the second one's products take the new weight."""

    def run(compiled):
        gl.manual_seed(0)
        lstm, x = nn.LSTM(4, 16), tensor(5, 6, 4)
        optimizer = gl.optim.SGD(lstm.parameters(), lr=0.5)

        def steps(x):
            losses = []
            for _ in range(2):
                loss = lstm(x)[0].square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss)
            return losses

        function = gl.compile(steps) if compiled else steps
        return [loss.item() for _ in range(4) for loss in function(x)]

    np.testing.assert_allclose(run(True), run(False), rtol=1e-5)
