"""`gl.compile` on the (emulated) GPU: steps equal eager's, one launch of a graph for each, branches in it."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn, ops
from gradlab.graph.executables.cuda.ordering import SMALL
from gradlab.graph.executables.cuda.schedule import line_up, spread
from gradlab.graph.executables.native.fusion import Unit
from gradlab.graph.ir.graph import Call, Value
from gradlab.graph.ir.memory_plan import Moment
from gradlab.spec import Spec

F = nn.functional
pytestmark = pytest.mark.usefixtures("cuda", "single_launches")


@pytest.fixture
def single_launches(monkeypatch):
    """Models this small would be one kernel (see test_compile_mega.py)."""
    monkeypatch.setenv("GRADLAB_MEGA", "0")


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
            nn.Linear(16, 48, bias=False), nn.Linear(16, 16), nn.Linear(16, 64), nn.Linear(64, 16), nn.Linear(16, 4),
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


def test_plain_steps_are_the_same_bits(monkeypatch):
    monkeypatch.setenv("GRADLAB_EPILOGUES", "0")  # with them the biases' gradients are added up in another order
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


@pytest.mark.parametrize("size", [8, SMALL + 4])  # small ones are made last in any case
def test_running_statistics_are_written_where_they_lie(size):
    """A loss may refuse a class behind them, but that stops no kernel: holding them back would only be copies at the end of each step."""
    gl.manual_seed(0)
    layers = [nn.Linear(5, size), nn.BatchNorm1d(size), nn.ReLU(), nn.Linear(size, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)]
    models = [nn.Sequential(*layers).to("cuda")]
    models.append(copy.deepcopy(models[0]))
    steps = [training_step(model) for model in models]
    step = gl.compile(steps[0])
    for x, y in batches("mlp", 3):
        x = x.reshape(len(x), -1)[:, :5].contiguous()
        assert step(x, y).item() == pytest.approx(steps[1](x, y).item(), rel=1e-5)
    same(*({k: v.cpu().numpy() for k, v in model.state_dict().items()} for model in models))
    assert executable(step).why == ""
    assert executable(step).arranged.copies == []


def training_step(model):
    update = gl.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(x, y):
        update.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        update.step()
        return loss

    return step


def test_updates_are_one_launch():
    _, _, step = training("mlp", "momentum")
    for x, y in batches():
        step(x, y)
    updates = [s for s in executable(step).report if "sgd_momentum_update" in s.kernels]
    assert [len(s.calls) for s in updates] == [6]


def test_both_gradients_of_a_layer_are_one_launch(monkeypatch):
    _, _, step = training("mlp", "SGD")
    for x, y in batches():
        step(x, y)
    assert sum(s.kernels == ("matmul_with_sums",) for s in executable(step).report) == 3
    launches = executable(step).launches
    monkeypatch.setenv("GRADLAB_EPILOGUES", "0")
    _, _, step = training("mlp", "SGD")
    for x, y in batches():
        step(x, y)
    assert executable(step).launches == launches + 6  # three sums, two activations, one derivative (dropout lies before the other)


def test_gradients_together_without_the_library(monkeypatch, cuda):
    monkeypatch.setattr(type(cuda), "product_with_sums", lambda self, *arrays: None)
    wanted, state, _ = trained("gpt", "SGD", lambda f: f)
    found, got, _ = trained("gpt", "SGD", gl.compile)
    np.testing.assert_allclose(found, wanted, rtol=2e-5)
    same(got, state)


# ---------------------------------------------------------------- branches


def test_a_schedule_orders_uses_and_lifetimes():
    x, w, g = (Value(i, Spec((64, 64), np.dtype(np.float32))) for i in range(3))
    made = [Value(i, x.spec) for i in range(3, 12)]

    def unit(n, *inputs):
        return Unit([Call(ops.linalg.matmul, inputs, {}, (made[n],))])

    # a chain of products, and beside it two products that only the last units wait for
    units = [unit(0, g, w), unit(1, x, g), unit(2, made[0], w), unit(3, x, made[0]), unit(4, made[2], w), unit(5, made[4], w)]
    units += [unit(6, made[5], made[1]), unit(7, made[6], made[3])]
    reads = [set(u.reads()) for u in units]
    writes = [{v.id for c in u.calls for v in c.outputs} for u in units]
    found = line_up(units, reads, writes, lambda u: True)
    assert found.streams == [0, 1, 0, 1, 0, 0, 0, 0]
    assert found.waits[3] == 0  # the side waits for what it reads
    assert found.waits[6:] == [1, 3]  # and is waited for
    moments = [Moment(sorted(r), sorted(m)) for r, m in zip(reads, writes, strict=True)]
    held = spread(found, moments, [False] * 8)
    assert held[0].makes == [made[0].id, made[1].id]  # the side may run at once
    assert made[0].id in held[6].reads  # and late


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


def test_constants_of_python_data_are_moved_once():
    def function(x):
        return x[[1, 0]] + gl.tensor([1.0, 2.0], device="cuda") * x.new_tensor([3.0])

    run = gl.compile(function)
    for _ in range(3):
        x = gl.randn(3, 2, device="cuda")
        assert run(x).tolist() == function(x).tolist()
    assert len(run.programs) == 1
