"""Compiled programs of one launch on a GPU take the caller's memory as it lies; where that would be wrong they copy."""

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn

pytestmark = [pytest.mark.usefixtures("cuda")]


def single(run):
    """The executable, and how often it has launched on the caller's memory."""
    executable, taken = run.programs[0].runner.executable, []
    inner = executable._single
    executable._single = lambda arrays, outs: taken.append(inner(arrays, outs)) or taken[-1]
    return taken


def test_a_step_is_one_launch_on_the_callers_memory():
    def training(wrap, device):
        gl.manual_seed(1)
        model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
        optimizer = gl.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return wrap(step)

    eager, run = training(lambda f: f, "cpu"), training(gl.compile, "cuda")
    rng = np.random.default_rng(2)
    taken = None
    for i in range(8):
        x, y = (gl.tensor(rng.normal(size=(8, n)).astype("f")) for n in (2, 1))
        given = [x.cuda(), y.cuda()]
        if i == 5:  # with steps of its own, and then at another alignment: copied
            given[0] = x.t().contiguous().cuda().t()
        if i == 6:
            given[0] = gl.cat([gl.zeros(1), x.flatten()]).cuda()[1:].view(8, 2)
        np.testing.assert_allclose(float(run(*given)), float(eager(x, y)), rtol=1e-5)
        if i == 2:
            taken = single(run)
    assert taken == [True, True, False, False, True]


def test_results_are_the_callers_own():
    run = gl.compile(lambda x, y: x * y + x)
    kept = []
    for i in range(5):
        x, y = gl.randn(300).cuda(), gl.randn(300).cuda()
        kept.append((run(x, y), (x * y + x).cpu()))
        if i == 1:
            taken = single(run)
    assert taken == [True] * 3
    for found, wanted in kept:  # each result has memory of its own
        np.testing.assert_allclose(found.cpu().numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)


def test_an_input_that_is_what_the_program_writes():
    state = gl.ones(64).cuda()

    def step(x):
        state.add_(x.flip(0))
        return x * 2

    run, wanted = gl.compile(step), np.ones(64, "f")
    for _ in range(5):
        given = gl.arange(64.0).cuda()
        found = run(given)
        wanted += np.arange(64.0, dtype="f")[::-1]
        np.testing.assert_array_equal(found.cpu().numpy(), np.arange(64.0) * 2)
        np.testing.assert_array_equal(state.cpu().numpy(), wanted)
    for _ in range(2):
        wanted = wanted + wanted[::-1]
        np.testing.assert_array_equal(run(state).cpu().numpy(), wanted * 2)  # x is the state by then, as in eager code
        np.testing.assert_array_equal(state.cpu().numpy(), wanted)
