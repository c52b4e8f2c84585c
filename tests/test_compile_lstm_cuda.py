"""Layers of LSTM units in compiled programs on the (emulated) GPU: all steps in one launch where there can be, and the CPU's results."""

import numpy as np
import pytest
from test_compile_cuda import executable

import gradlab as gl
from gradlab import nn

TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "float16": 4e-3, "bfloat16": 3e-2}


@pytest.fixture(autouse=True)
def few_texts(cuda, monkeypatch):
    """No kernels of many small stages: a C++ compiler takes seconds for each."""
    monkeypatch.setenv("GRADLAB_MEGA", "0")


def problem(device, dtype="float32", steps=3, batch=5, inputs=3, units=6, given=False, last=False, seed=0, **options):
    """A function that takes x and two states to a loss, results and gradients, and its arguments."""
    gl.manual_seed(seed)
    rng, kind = np.random.default_rng(seed), getattr(gl, dtype)
    net = nn.LSTM(inputs, units, **options).to(kind).to(device)
    ways = net.num_layers * (2 if net.bidirectional else 1)
    shape = (batch, steps, inputs) if net.batch_first else (steps, batch, inputs)
    size = net.proj_size or units
    shapes = shape, (ways, batch, size), (ways, batch, units), (size * (2 if net.bidirectional else 1),)
    x, h, c, w = (gl.tensor(rng.normal(size=s), dtype=kind, device=device) for s in shapes)
    for t in (x, h, c):
        t.requires_grad_()

    def step(x, h, c):
        y, (h_n, c_n) = net(x, (h, c)) if given else net(x)
        loss = (y[-1] * w).sum() if last else (y.square() * w).sum()
        if given:
            loss = loss + h_n.square().sum() + c_n.sin().sum()
        wanted = [x, *([h, c] if given else []), *net.parameters()]
        return loss.detach(), y.detach(), h_n.detach(), c_n.detach(), *gl.autograd.grad(loss, wanted)

    return step, (x, h, c)


def compared(joined, **options):
    """Run on both devices; `joined`: how many ways of all steps there are in each direction."""
    step, arguments = problem("cuda", **options)
    run = gl.compile(step)
    for _ in range(3):
        found = run(*arguments)
    names = [c.op.name for c in executable(run).line.calls]
    assert (names.count("lstm_steps"), names.count("lstm_steps_backward")) == (joined, joined)
    assert not joined or not {"lstm_cell", "lstm_cell_backward"} & set(names)
    assert executable(run).why == ""
    step, arguments = problem("cpu", **options)
    for a, b in zip(found, step(*arguments), strict=True):
        a, b = (t.double().numpy(force=True) for t in (a, b))
        np.testing.assert_allclose(a, b, atol=TOLERANCE[options.get("dtype", "float32")] * max(np.abs(b).max(), 1e-3), rtol=0)


def test_a_layer_with_states():
    compared(1, given=True)


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    {"batch_first": True}, {"bias": False}, {"last": True}, {"bidirectional": True, "given": True}, {"num_layers": 2, "given": True},
    {"units": 66, "steps": 2}, {"batch": 1}, {"batch": 65, "units": 9}, {"steps": 7, "units": 70},
    {"num_layers": 3, "bidirectional": True},
], ids=str)  # fmt: skip
def test_layers(options):
    compared(options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1), **options)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("given", [False, True])
def test_types(dtype, given):
    compared(1, dtype=dtype, given=given)
    compared(1, dtype=dtype, given=given, units=67, bias=False)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"steps": 1}, {"proj_size": 4, "given": True}, {"units": 330, "steps": 2}], ids=str)
def test_layers_that_go_step_by_step(options):
    compared(0, **options)


@pytest.mark.slow
def test_a_model_whose_loss_is_outside_of_the_program():
    def trained(device, wrap):
        gl.manual_seed(1)
        net = nn.LSTM(3, 6).to(device)
        run, x = wrap(lambda x: net(x)[0]), gl.tensor(np.random.default_rng(0).normal(size=(4, 5, 3)), dtype=gl.float32, device=device)
        for _ in range(3):
            net.zero_grad()
            run(x).square().sum().backward()
        return [p.grad.numpy(force=True) for p in net.parameters()], run

    found, run = trained("cuda", gl.compile)
    names = [c.op.name for c in executable(run).line.calls]
    assert "lstm_steps" in names and "lstm_cell" not in names
    for a, b in zip(found, trained("cpu", lambda f: f)[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dim", [0, 1])
def test_a_loop_of_ones_own_and_a_stack(dim):
    def made(device):
        gl.manual_seed(1)
        cell, head = nn.LSTMCell(3, 6).to(device), nn.Linear(6, 2).to(device)
        x = gl.tensor(np.random.default_rng(0).normal(size=(4, 5, 3)), dtype=gl.float32, device=device)

        def step(x):
            h, c, states = x.new_zeros(5, 6), x.new_zeros(5, 6), []
            for t in range(4):
                h, c = cell(x[t], (h, c))
                states.append(h)
            loss = head(gl.stack(states, dim)).square().sum()
            return loss.detach(), *gl.autograd.grad(loss, [*cell.parameters(), *head.parameters()])

        return step, x

    step, x = made("cuda")
    run = gl.compile(step)
    for _ in range(3):
        found = run(x)
    step, x = made("cpu")
    for a, b in zip(found, step(x), strict=True):
        np.testing.assert_allclose(a.numpy(force=True), b.numpy(force=True), rtol=2e-4, atol=2e-5)


@pytest.mark.slow
def test_a_decoder_that_reads_its_own_results_goes_step_by_step():
    gl.manual_seed(1)
    cell = nn.LSTMCell(6, 6).to("cuda")

    @gl.compile
    def run(h, c):
        for _ in range(3):
            h, c = cell(h, (h, c))
        return h

    h = gl.ones(2, 6, device="cuda")
    with gl.no_grad():
        for _ in range(3):
            found = run(h, h)
        assert "lstm_steps" not in [c.op.name for c in executable(run).line.calls]
        wanted, c = h, h
        for _ in range(3):
            wanted, c = cell(wanted, (wanted, c))
    np.testing.assert_allclose(found.numpy(force=True), wanted.numpy(force=True), rtol=2e-5)
