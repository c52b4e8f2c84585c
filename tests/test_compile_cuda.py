"""`gl.compile` on the (emulated) GPU: steps equal eager's, one launch of a graph for each, buffers, branches, refusals, guards."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from test_ops import leaves
from test_trace import outputs_and_gradients, shuffled

import gradlab as gl
from gradlab import nn, ops
from gradlab.graph import TraceError, trace
from gradlab.graph.device.executable import CudaExecutable
from gradlab.graph.execute import Line
from gradlab.graph.passes import optimize

from samples import SAMPLES

F = nn.functional
pytestmark = pytest.mark.usefixtures("cuda")


class Mlp(nn.Module):
    def __init__(self, dropout=0.25):
        super().__init__()
        self.a, self.b, self.c, self.drop = nn.Linear(12, 16), nn.Linear(16, 16), nn.Linear(16, 4), nn.Dropout(dropout)

    def forward(self, x):
        return self.c(self.drop(F.relu(self.b(F.relu(self.a(x))))))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.pool, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.Linear(36, 4)

    def forward(self, x):
        return self.head(self.pool(F.relu(self.norm(self.conv(x)))).flatten(1))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.head = nn.Embedding(11, 6), nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.rnn(self.table(x))[0][:, -1])


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.first, self.second = nn.Embedding(11, 16), nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out, self.up, self.down, self.head = (
            nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 64), nn.Linear(64, 16), nn.Linear(16, 4),
        )  # fmt: skip

    def forward(self, x):
        x = self.table(x)
        q, k, v = (t.reshape(*t.shape[:2], 2, 8).transpose(1, 2) for t in self.qkv(self.first(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))
        return self.head((x + self.down(F.gelu(self.up(self.second(x))))).mean(1))


def floats(*shape):
    return lambda rng: rng.normal(size=shape).astype(np.float32)


def tokens(*shape):
    return lambda rng: rng.integers(0, 11, shape)


MODELS = {
    "mlp": (Mlp, floats(8, 12)),
    "cnn": (Cnn, floats(3, 1, 6, 6)),
    "lstm": (Lstm, tokens(4, 5)),
    "gpt": (Gpt, tokens(2, 6)),
}
OPTIMIZERS = {
    "SGD": lambda p: gl.optim.SGD(p, lr=0.1),
    "momentum": lambda p: gl.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-2),
    "Adam": lambda p: gl.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: gl.optim.AdamW(p, lr=0.01),
}


def training(model="mlp", optimizer="SGD", wrap=gl.compile):
    """A model on the GPU, its optimizer, and its step."""
    gl.manual_seed(1)
    made, _ = MODELS[model]
    model = made().cuda()
    update = OPTIMIZERS[optimizer](model.parameters())

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        update.zero_grad()
        loss.backward()
        update.step()
        return loss

    return model, update, wrap(step)


def batches(model="mlp", count=7, device="cuda"):
    rng = np.random.default_rng(0)
    draw = MODELS[model][1]
    found = []
    for _ in range(count):
        x = draw(rng)
        found.append((gl.tensor(x, device=device), gl.tensor(rng.integers(0, 4, len(x)), device=device)))
    return found


def trained(model, optimizer, wrap, schedule=True):
    """Losses and the state after some steps, with a learning rate that changes."""
    module, update, step = training(model, optimizer, wrap)
    gl.manual_seed(5)
    decay = gl.optim.lr_scheduler.StepLR(update, 2, 0.5)
    losses = []
    for x, y in batches(model):
        losses.append(step(x, y).item())
        decay.step()
    state = {k: v.cpu().numpy() for k, v in module.state_dict().items()}
    grads = {f"{k}.grad": p.grad.cpu().numpy() for k, p in module.named_parameters()}
    return losses, state | grads, step


def same(got, want, tolerance=2e-5):
    for key, value in want.items():
        np.testing.assert_allclose(got[key], value, rtol=tolerance, atol=tolerance, err_msg=key)


def executable(step):
    return step.programs[0].runner.executable


@pytest.mark.parametrize(("model", "optimizer"), [
    ("mlp", "SGD"), ("mlp", "momentum"), ("mlp", "Adam"), ("mlp", "AdamW"), ("cnn", "SGD"),
    ("cnn", "AdamW"), ("lstm", "Adam"), ("gpt", "AdamW"),
])  # fmt: skip
def test_a_step_is_eagers(model, optimizer):
    wanted, state, _ = trained(model, optimizer, lambda f: f)
    found, got, step = trained(model, optimizer, gl.compile)
    np.testing.assert_allclose(found, wanted, rtol=2e-5)
    same(got, state)
    assert len(step.programs) == 1  # the schedule needs no new trace
    assert executable(step).why == ""


def test_plain_steps_are_the_same_bits():
    wanted, state, _ = trained("mlp", "Adam", lambda f: f)
    found, got, _ = trained("mlp", "Adam", gl.compile)
    assert found == wanted
    assert all(np.array_equal(got[k], state[k]) for k in state)


def test_one_launch_for_each_step(cuda):
    driver = cuda.driver
    if driver.name != "emulated":
        pytest.skip("the emulated GPU counts launches")
    _, _, step = training("mlp", "AdamW")
    counts = []
    for x, y in batches():
        before = driver.launches, driver.replays
        step(x, y)
        counts.append((driver.launches - before[0], driver.replays - before[1]))
    assert counts[2:] == [(0, 1)] * 5
    assert executable(step).launches < counts[0][0]


def test_updates_are_one_launch():
    _, _, step = training("mlp", "momentum")
    for x, y in batches():
        step(x, y)
    updates = [s for s in executable(step).report if "sgd_momentum_update" in s.kernels]
    assert [len(s.calls) for s in updates] == [6]


# ---------------------------------------------------------------- buffers


def test_results_are_not_overwritten():
    _, _, step = training()
    pairs = batches()
    kept = [step(x, y) for x, y in pairs]
    values = [loss.item() for loss in kept]
    _, _, eager = training(wrap=lambda f: f)
    gl.manual_seed(1)
    assert len(set(values)) == len(values)
    del eager


def test_gradients_that_are_kept_keep_their_values():
    model, _, step = training()
    pairs = batches(count=9)
    for x, y in pairs[:3]:
        step(x, y)
    first = model.a.weight.grad
    seen = first.cpu().numpy()
    part = model.b.weight.grad[0]
    seen_part = part.cpu().numpy()
    for x, y in pairs[3:6]:
        step(x, y)
    np.testing.assert_array_equal(first.cpu().numpy(), seen)
    np.testing.assert_array_equal(part.cpu().numpy(), seen_part)
    assert not np.array_equal(model.a.weight.grad.cpu().numpy(), seen)
    assert executable(step).why == ""
    lasting = model.c.weight.grad  # one that nobody kept is written in place
    step(*pairs[6])
    assert model.c.weight.grad is not lasting or lasting is None


def test_gradients_add_up():
    results = []
    for wrap in (lambda f: f, gl.compile):
        gl.manual_seed(1)
        model = Mlp(0).cuda()

        @wrap
        def step(x, y, model=model):
            F.cross_entropy(model(x), y).backward()

        for x, y in batches():
            step(x, y)
        results.append({k: p.grad.cpu().numpy() for k, p in model.named_parameters()})
    same(results[1], results[0])


def test_inputs_from_the_host():
    results = []
    for wrap in (lambda f: f, gl.compile):
        model, update, _ = training()

        @wrap
        def step(x, y, model=model, update=update):
            x, y = x.to("cuda"), y.cuda()
            loss = F.cross_entropy(model(x), y)
            update.zero_grad()
            loss.backward()
            update.step()
            return loss

        gl.manual_seed(3)
        results.append([step(x, y).item() for x, y in batches(device="cpu")])
    assert results[0] == results[1]


def test_strided_arguments_and_written_ones():
    @gl.compile
    def double(x):
        x.mul_(2)
        return x + 1

    for _ in range(4):
        x = gl.arange(6, dtype=gl.float32, device="cuda").reshape(2, 3).t()
        y = double(x)
        np.testing.assert_array_equal(x.cpu().numpy(), np.arange(6).reshape(2, 3).T * 2)
        np.testing.assert_array_equal(y.cpu().numpy(), np.arange(6).reshape(2, 3).T * 2 + 1)


def test_random_numbers_go_on_and_repeat():
    @gl.compile
    def draw():
        return gl.rand(4, device="cuda") + 1

    gl.manual_seed(0)
    found = [draw().cpu().numpy() for _ in range(5)]
    gl.manual_seed(0)
    for one in found:
        np.testing.assert_array_equal((gl.rand(4, device="cuda") + 1).cpu().numpy(), one)
    assert draw.programs[0].staged.graph.device.type == "cuda"


def test_state_alone_says_where():
    model, update, _ = training("mlp", "AdamW")
    x, y = batches()[0]
    F.cross_entropy(model(x), y).backward()
    step = gl.compile(lambda: update.step())
    before = model.a.weight.cpu().detach().numpy().copy()
    for _ in range(4):
        step()
    assert isinstance(executable(step), CudaExecutable)
    assert not np.array_equal(model.a.weight.cpu().detach().numpy(), before)


def test_a_forward_is_differentiated_outside():
    results = []
    for wrap in (lambda f: f, gl.compile):
        gl.manual_seed(1)
        model = Mlp(0).cuda()
        forward = wrap(model)
        for x, y in batches():
            model.zero_grad()
            F.cross_entropy(forward(x), y).backward()
        results.append({k: p.grad.cpu().numpy() for k, p in model.named_parameters()})
    same(results[1], results[0])


def test_check_compares_with_eager():
    _, _, step = training("mlp", "AdamW", wrap=lambda f: gl.compile(f, check=True))
    for x, y in batches():
        step(x, y)


# ---------------------------------------------------------------- branches


@pytest.mark.parametrize("order", ["random", "late", "eager"])
@pytest.mark.parametrize("model", ["mlp", "gpt"])
def test_branches_under_any_schedule(cuda, model, order, monkeypatch):
    if cuda.driver.name != "emulated":
        pytest.skip("the emulated GPU's schedules")
    wanted, state, _ = trained(model, "AdamW", lambda f: f)
    monkeypatch.setattr(cuda.driver.engine, "schedule", order)
    found, got, step = trained(model, "AdamW", gl.compile)
    np.testing.assert_allclose(found, wanted, rtol=2e-5)
    same(got, state)
    assert executable(step).schedule.parallel


def test_branches_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("GRADLAB_PARALLEL", "0")
    _, _, step = training()
    for x, y in batches():
        step(x, y)
    assert not executable(step).schedule.parallel
    assert executable(step).why == ""


# ---------------------------------------------------------------- what is not captured, refused, guarded


def test_rows_on_the_host_run_uncaptured(caplog, monkeypatch, cuda):
    monkeypatch.setattr(type(cuda), "why_on_host", lambda self, op, arrays, params: "it has no kernel" if op.name == "softmax" else "")

    def f(x):
        return F.softmax(x * 2, -1) + 1

    step = gl.compile(f)
    with caplog.at_level(logging.INFO, "gradlab.compile"):
        for x, _ in batches():
            np.testing.assert_allclose(step(x).cpu().numpy(), f(x).cpu().numpy(), rtol=1e-6)
    assert executable(step).why == "softmax runs on the host: it has no kernel"


def test_a_capture_that_fails_says_why(caplog, monkeypatch, cuda):
    def refused(self, stream, side):
        raise RuntimeError("not in a capture")

    monkeypatch.setattr(CudaExecutable, "_submit", refused)
    step = gl.compile(lambda x: x.exp() * 2)
    with caplog.at_level(logging.INFO, "gradlab.compile"):
        for x, _ in batches():
            np.testing.assert_allclose(step(x).cpu().numpy(), np.exp(x.cpu().numpy()) * 2, rtol=1e-5)
    assert "is not captured" in caplog.text
    assert "not in a capture" in caplog.text


def test_several_devices_are_refused():
    weight = gl.ones(3, device="cuda")
    here = gl.ones(3)

    def mixed(x):
        return (x.cuda() * weight).cpu()

    def from_outside(x):
        return x * here.cuda()

    def made_elsewhere(x):
        return x * gl.zeros(3).exp().cuda()

    for function, x in ((mixed, gl.ones(3)), (from_outside, gl.ones(3, device="cuda")), (made_elsewhere, gl.ones(3, device="cuda"))):
        step = gl.compile(function)
        step(x)
        with pytest.raises(TraceError, match=r"uses several devices"):
            step(x)
    if gl.cuda.device_count() > 1:
        far = gl.ones(3, device="cuda:1")
        step = gl.compile(lambda x, y: (x + 1, y + 1))
        step(gl.ones(3, device="cuda:0"), far)
        with pytest.raises(TraceError, match=r"several devices"):
            step(gl.ones(3, device="cuda:0"), far)


def test_devices_are_guarded():
    step = gl.compile(lambda x: x * 2 + 1)
    places = ["cpu", "cuda:0", "cuda:1"] if gl.cuda.device_count() > 1 else ["cpu", "cuda:0"]
    for _ in range(3):
        for place in places:
            y = step(gl.ones(3, device=place))
            assert str(y.device) == place
            np.testing.assert_array_equal(y.cpu().numpy(), [3, 3, 3])
    assert len(step.programs) == len(places)


def test_settings_are_followed():
    step = gl.compile(lambda x: x @ x.t())
    x = batches()[0][0]
    for _ in range(3):
        step(x)
    captured = executable(step)._graph
    before = gl.get_float32_matmul_precision()
    try:
        gl.set_float32_matmul_precision("high")
        step(x)
        assert executable(step)._graph is not captured
    finally:
        gl.set_float32_matmul_precision(before)


# ---------------------------------------------------------------- rows


def check_row(name):
    cases = []
    for sample in SAMPLES[name]:
        if any(isinstance(x, np.ndarray) for x in sample.inputs) and "float32" in sample.dtypes:
            parts = []
            for inputs in (sample.inputs, shuffled(sample)):
                narrow = [x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype == np.float64 else x for x in inputs]
                parts.append([t.detach().cuda().requires_grad_(t.requires_grad) for t in leaves(narrow) if isinstance(t, gl.Tensor)])
            cases.append((outputs_and_gradients(name, sample), *parts))
    if not cases:
        pytest.skip("no inputs")

    def everything(*tensors):
        waiting = iter(tensors)
        return [compute(*[next(waiting) for _ in example]) for compute, example, _ in cases]

    with gl.device("cuda"):
        program = trace(everything, *[t for _, example, _ in cases for t in example])
    graph = optimize(program.graph)
    runner = CudaExecutable(Line(graph.calls, graph.inputs, dict(graph.state), graph.outputs, [], graph.device))
    given = [t for _, _, fresh in cases for t in fresh]
    with gl.device("cuda"):
        wanted = [t.detach().cpu().numpy() for outs_, gradients in everything(*given) for t in (*outs_, *gradients)]
    for _ in range(3):
        outs = [runner.driver.empty(v.spec.shape, v.spec.dtype) for v in graph.outputs]
        runner.run([t._array for t in given], outs)
    for got, want in zip(outs, wanted, strict=True):
        found = runner.driver.download(got)
        scale = 1 + np.nanmax(np.abs(np.where(np.isfinite(want), want, 0)), initial=0) if want.dtype.kind == "f" else 1
        np.testing.assert_allclose(found.astype(np.float64), want.astype(np.float64), rtol=2e-5, atol=2e-6 * scale)


SOME = (
    "add", "exp", "cast", "where", "sum", "matmul", "linear", "softmax", "layer_norm", "gather", "cat", "slice_backward", "cumsum", "sort",
)  # fmt: skip


@pytest.mark.parametrize("name", SOME)
def test_some_rows(name):
    check_row(name)


@pytest.mark.whole
@pytest.mark.parametrize("name", [n for n in SAMPLES if not ops.ROWS[n].dynamic and n not in SOME])
def test_rows(name):
    check_row(name)
