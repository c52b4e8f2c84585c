"""Layers of recurrent units in compiled programs on the (emulated) GPU: all steps in one launch where it can be, the CPU's results."""

import numpy as np
import pytest
from test_compile_cuda import executable

import gradlab as gl
from gradlab import nn
from gradlab.graph.passes.join_steps import LARGE, Joining

ROWS = {"LSTM": "lstm_steps", "GRU": "gru_steps", "RNN": "rnn_steps", "relu": "rnn_steps"}
TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "float16": 4e-3, "bfloat16": 3e-2}


@pytest.fixture(autouse=True)
def few_texts(cuda, monkeypatch):
    """No kernels of many small stages: a C++ compiler takes seconds for each."""
    monkeypatch.setenv("GRADLAB_MEGA", "0")


def problem(device, kind="LSTM", dtype="float32", steps=3, batch=5, inputs=3, units=6, given=False, last=False, seed=0, **options):
    """A function that takes x and two states to a loss, results and gradients, and its arguments. kind: a layer, "relu" for RNN of that."""
    gl.manual_seed(seed)
    rng, type_ = np.random.default_rng(seed), getattr(gl, dtype)
    options |= {"nonlinearity": "relu"} if kind == "relu" else {}
    net = getattr(nn, "RNN" if kind == "relu" else kind)(inputs, units, **options).to(type_).to(device)
    ways = net.num_layers * (2 if net.bidirectional else 1)
    shape = (batch, steps, inputs) if net.batch_first else (steps, batch, inputs)
    size = net.proj_size or units
    shapes = shape, (ways, batch, size), (ways, batch, units), (size * (2 if net.bidirectional else 1),)
    x, h, c, w = (gl.tensor(rng.normal(size=s), dtype=type_, device=device) for s in shapes)
    for t in (x, h, c):
        t.requires_grad_()

    def step(x, h, c):
        states = (h, c) if kind == "LSTM" else h
        y, final = net(x, states) if given else net(x)
        h_n, c_n = final if kind == "LSTM" else (final, final)
        loss = (y[-1] * w).sum() if last else (y.square() * w).sum()
        if given:
            loss = loss + h_n.square().sum() + c_n.sin().sum()
        wanted = [x, *([] if not given else [h, c] if kind == "LSTM" else [h]), *net.parameters()]
        return loss.detach(), y.detach(), h_n.detach(), c_n.detach(), *gl.autograd.grad(loss, wanted)

    return step, (x, h, c)


def compared(joined, **options):
    """Run on both devices; `joined`: how many ways of all steps there are in each direction."""
    step, arguments = problem("cuda", **options)
    run = gl.compile(step)
    for _ in range(3):
        found = run(*arguments)
    names = [c.op.name for c in executable(run).line.calls]
    row = ROWS[options.get("kind", "LSTM")]
    assert (names.count(row), names.count(f"{row}_backward")) == (joined, joined)
    assert not joined or not {f"{of}{way}" for of in ("lstm_cell", "gru_cell", "tanh", "relu") for way in ("", "_backward")} & set(names)
    assert executable(run).why == ""
    step, arguments = problem("cpu", **options)
    for a, b in zip(found, step(*arguments), strict=True):
        a, b = (t.double().numpy(force=True) for t in (a, b))
        np.testing.assert_allclose(a, b, atol=TOLERANCE[options.get("dtype", "float32")] * max(np.abs(b).max(), 1e-3), rtol=0)


@pytest.mark.parametrize("kind", ROWS)
def test_a_layer_with_states(kind):
    compared(1, kind=kind, given=True)


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    {"batch_first": True}, {"bias": False}, {"last": True}, {"bidirectional": True, "given": True}, {"num_layers": 2, "given": True},
    {"units": 66, "steps": 2}, {"batch": 1}, {"batch": 65, "units": 9}, {"steps": 7, "units": 70},
    {"num_layers": 3, "bidirectional": True},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("kind", ROWS)
def test_layers(kind, options):
    compared(options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1), kind=kind, **options)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("kind", ROWS)
def test_types(kind, dtype, given):
    compared(1, kind=kind, dtype=dtype, given=given)
    compared(1, kind=kind, dtype=dtype, given=given, units=67, bias=False)


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    {"steps": 1}, {"proj_size": 4, "given": True}, {"units": 330, "steps": 2}, {"kind": "GRU", "steps": 1}, {"kind": "RNN", "steps": 1},
    {"kind": "GRU", "units": 390, "steps": 2},
], ids=str)  # fmt: skip
def test_layers_that_go_step_by_step(options):
    compared(0, **options)


@pytest.mark.parametrize("kind", ROWS)
def test_the_program_says_why_steps_go_one_by_one(kind, monkeypatch):
    """It is looked for once in each program: what was not joined comes along with the graph."""
    joined, turns = Joining.joined, []
    monkeypatch.setattr(Joining, "joined", lambda self: turns.append(kind) or joined(self))
    step, arguments = problem("cuda", kind=kind, steps=2)
    run = gl.compile(step)
    for _ in range(2):
        run(*arguments)
    assert not any("one by one" in text for text in run.stats().epilogues)
    step, arguments = problem("cuda", kind=kind, steps=2, batch=2200)  # more sequences than a launch is better for
    run = gl.compile(step)
    for _ in range(2):
        run(*arguments)
    found = [text for text in run.stats().epilogues if "one by one" in text]
    assert found and all(text.startswith("2 steps of ") and text.endswith(LARGE) for text in found)
    assert turns == [kind] * 2


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
