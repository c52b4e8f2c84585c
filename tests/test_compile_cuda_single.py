"""Compiled programs of one launch on a GPU take the caller's memory as it lies; where that would be wrong they copy."""

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.graph.executables.cuda.single_launch import Single

pytestmark = [pytest.mark.usefixtures("cuda")]


def single(run):
    """Where it is written down for each call whether it has launched on the caller's memory: by the short way, by the long one, or not."""
    program = run.programs[0]
    quick, executable, taken = program.run.__self__, program.runner.executable, []
    inner = executable._single

    def long(arrays, outs):
        taken.append("long" if inner.run(arrays, outs) else False)
        return taken[-1]

    def again(lasting):
        launch = inner.again(lasting)

        def short(arrays, fresh):
            found = launch(arrays, fresh)
            if found:
                taken.append("short")
            return found

        return short

    executable._single = Single(long, again)
    quick.armed = False  # so that it asks again
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
    for i in range(10):
        x, y = (gl.tensor(rng.normal(size=(8, n)).astype("f")) for n in (2, 1))
        given = [x.cuda(), y.cuda()]
        if i == 5:  # with steps of its own, and then at another alignment: copied
            given[0] = x.t().contiguous().cuda().t()
        if i == 6:
            given[0] = gl.cat([gl.zeros(1), x.flatten()]).cuda()[1:].view(8, 2)
        np.testing.assert_allclose(float(run(*given)), float(eager(x, y)), rtol=1e-5)
        if i == 2:
            taken = single(run)
    assert taken == ["long", "short", False, False, "short", "short", "short"]


def test_results_are_the_callers_own():
    run = gl.compile(lambda x, y: x * y + x)
    kept = []
    for i in range(5):
        x, y = gl.randn(300).cuda(), gl.randn(300).cuda()
        kept.append((run(x, y), (x * y + x).cpu()))
        if i == 1:
            taken = single(run)
    assert taken == ["long", "short", "short"]
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


def test_gradients_that_somebody_keeps_are_not_written_again():
    layer = nn.Linear(3, 2).to("cuda")

    def step(x):
        layer.zero_grad()
        (layer(x) * x.sum()).sum().backward()

    run, kept = gl.compile(step), []
    for i in range(9):
        x = gl.full((4, 3), float(i + 1)).cuda()
        run(x)
        if i >= 5:
            kept.append((layer.weight.grad, 48.0 * (i + 1) ** 2))
        if i == 6:
            layer.bias.grad = None
        if i == 7:
            layer.weight.grad.zero_()  # the caller's own: the next run makes another
            kept[-1] = kept[-1][0], 0.0
    for found, wanted in kept:
        np.testing.assert_allclose(found.cpu().numpy(), np.full((2, 3), wanted), rtol=1e-5)
    np.testing.assert_allclose(layer.bias.grad.cpu().numpy(), np.full(2, 432.0), rtol=1e-5)


def test_settings_and_devices_are_asked_for_each_time():
    run = gl.compile(lambda x: x * 3 + 1)
    x = gl.ones(40).cuda()
    for _ in range(4):
        run(x)
    taken = single(run)
    run(x), run(x)
    with gl.backends.cudnn.flags(enabled=not gl.backends.cudnn.enabled):
        np.testing.assert_array_equal(run(x).cpu().numpy(), np.full(40, 4.0))
    stream = gl.cuda.Stream()
    with gl.cuda.stream(stream):
        found = run(x)
    stream.synchronize()
    np.testing.assert_array_equal(found.cpu().numpy(), np.full(40, 4.0))
    assert taken[:2] == ["long", "short"]
