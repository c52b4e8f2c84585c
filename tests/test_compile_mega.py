"""Mega-kernels: small programs as one kernel of one block, on the (emulated) GPU."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.backends.cuda.catalogue import Program
from gradlab.backends.cuda.compiler import inlined, program
from gradlab.graph.executables.cuda import mega
from gradlab.testing import kernels, nvrtc

F = nn.functional
pytestmark = pytest.mark.usefixtures("cuda")


@pytest.fixture(autouse=True)
def switched_on(monkeypatch):
    monkeypatch.setenv("GRADLAB_MEGA", "1")


def regression():
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))


def classifier():
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 16, bias=False), nn.GELU(), nn.Linear(16, 10))


def attention():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))

        def forward(self, x):
            scores = self.q(x) @ self.k(x).t() / 8**0.5
            return self.out(F.softmax(scores, -1) @ self.v(x)).log_softmax(-1)

    return Attention()


def squared(y, target):
    return F.mse_loss(y, target)


CASES = {
    "regression": (regression, (32, 2), lambda r: r.normal(size=(32, 1)).astype("f"), squared),
    "classifier": (classifier, (24, 8), lambda r: r.integers(0, 10, 24), F.cross_entropy),
    "attention": (attention, (12, 8), lambda r: r.normal(size=(12, 8)).astype("f"), lambda y, t: ((y - t).abs() * y.exp()).sum()),
}
OPTIMIZERS = {
    "SGD": lambda p: gl.optim.SGD(p, lr=0.1),
    "nesterov": lambda p: gl.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "AdamW": lambda p: gl.optim.AdamW(p, lr=0.01),
    "NAdam": lambda p: gl.optim.NAdam(p, lr=0.01),
    "RMSprop": lambda p: gl.optim.RMSprop(p, lr=0.01, centered=True),
    "Lion": lambda p: gl.optim.Lion(p, lr=0.01),
}


def trained(case, optimizer, wrap, steps=5, dtype=gl.float32):
    make, shape, target, criterion = CASES[case]
    gl.manual_seed(0)
    model = make().to("cuda", dtype)
    update = OPTIMIZERS[optimizer](model.parameters())

    def step(x, y):
        loss = criterion(model(x), y)
        update.zero_grad()
        loss.backward()
        update.step()
        return loss

    step = wrap(step)
    r = np.random.default_rng(0)
    losses = []
    for _ in range(steps):
        x, y = gl.tensor(r.normal(size=shape), dtype=dtype, device="cuda"), gl.tensor(target(r), device="cuda")
        losses.append(step(x, y.to(dtype) if y.is_floating_point() else y).item())
        update.param_groups[0]["lr"] *= 0.9
    state = {k: v.cpu().numpy() for k, v in model.state_dict().items()}
    return losses, state | {f"{k}.grad": p.grad.cpu().numpy() for k, p in model.named_parameters()}, step


def executable(step):
    return step.programs[0].runner.executable


def same(got, want, tolerance):
    np.testing.assert_allclose(got[0], want[0], rtol=tolerance)
    for key, value in want[1].items():
        np.testing.assert_allclose(got[1][key], value, rtol=tolerance, atol=tolerance, err_msg=key)


@pytest.mark.parametrize(  # each case and each optimizer always, all pairs with --full
    ("case", "optimizer"),
    [
        pytest.param(case, name, marks=() if name == "SGD" or (i + j) % 3 == 0 else pytest.mark.whole)
        for i, case in enumerate(CASES) for j, name in enumerate(OPTIMIZERS)
    ],
)  # fmt: skip
def test_a_small_step_is_one_kernel_and_eagers(case, optimizer):
    if optimizer in ("NAdam", "RMSprop", "Lion") and case != "regression":
        pytest.skip("the updates are the same")
    # In double: RMSprop and Lion divide by, or take the sign of, gradients that rounding makes.
    found = trained(case, optimizer, gl.compile, dtype=gl.float64)
    same(found, trained(case, optimizer, lambda f: f, dtype=gl.float64), 1e-9)
    kinds = [s.kind for s in executable(found[2]).report]
    assert kinds.count("mega") == 1
    assert set(kinds) <= {"mega", "copy"}
    assert executable(found[2]).why == ""


@pytest.mark.parametrize("optimizer", [gl.optim.AdamW, gl.optim.NAdam, gl.optim.SGD])
def test_groups_with_hyper_parameters_of_their_own(optimizer):
    def run(wrap):
        gl.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2)).to("cuda", gl.float64)
        groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": [model[2].weight], "weight_decay": 0.5}]
        update = optimizer([*groups, {"params": [model[2].bias]}], lr=0.01)

        def step(x):
            loss = model(x).square().mean()
            update.zero_grad()
            loss.backward()
            update.step()
            return loss

        step = wrap(step)
        return [step(gl.randn(8, 4, dtype=gl.float64, device="cuda")).item() for _ in range(4)], step

    losses, step = run(gl.compile)
    np.testing.assert_allclose(losses, run(lambda f: f)[0], rtol=1e-9)
    assert [s.kind for s in executable(step).report].count("mega") == 1


@pytest.mark.parametrize("order", ["reverse", "random", "warps"])
def test_in_every_order_of_threads(cuda, order):
    if cuda.driver.name != "emulated":
        pytest.skip("a GPU has its own order")
    want = trained("classifier", "AdamW", gl.compile, 3)
    cuda.driver.order = order
    try:
        found = trained("classifier", "AdamW", gl.compile, 3)
    finally:
        cuda.driver.order = "forward"
    assert found[0] == want[0]
    assert all(np.array_equal(found[1][k], want[1][k]) for k in want[1])


def test_a_missing_barrier_would_be_found(cuda, monkeypatch):
    if cuda.driver.name != "emulated":
        pytest.skip("a GPU may be lucky")
    want = trained("classifier", "AdamW", gl.compile, 3)
    monkeypatch.setattr(mega._Barriers, "before", lambda self, units: [])
    cuda.driver.order = "warps"
    try:
        found = trained("classifier", "AdamW", gl.compile, 3)
    finally:
        cuda.driver.order = "forward"
    assert found[0] != want[0]


def test_large_tensors_keep_their_launches():
    gl.manual_seed(0)
    x = gl.randn(300, 300, device="cuda")
    step = gl.compile(lambda x: F.relu(x @ x).sum())
    for _ in range(2):
        step(x)
    assert "mega" not in [s.kind for s in executable(step).report]


def test_the_small_end_of_a_large_program_is_one_kernel():
    gl.manual_seed(0)
    w, v = gl.randn(512, 256, device="cuda"), gl.randn(10, 256, device="cuda")
    x, y = gl.randn(8, 512, device="cuda"), gl.randint(0, 10, (8,), device="cuda")

    def f(x, y):
        return F.cross_entropy(F.relu(x @ w) @ v.t(), y, reduction="sum")

    step = gl.compile(f)
    for _ in range(3):
        np.testing.assert_allclose(step(x, y).item(), f(x, y).item(), rtol=1e-5)
    steps = executable(step).report
    assert steps[0].kind == "kernel"
    assert "mega" in [s.kind for s in steps]
    (name,) = next(s.kernels for s in steps if s.kind == "mega")
    assert "__syncthreads" in step.kernels()[name]


def test_programs_too_long_for_one_kernel_are_several():
    def f(x):
        for i in range(mega.MOST_STAGES):
            x = (x * 0.5).sum(0, keepdim=True) + x * (1 + i % 2)
        return x

    x = gl.randn(3, 5, device="cuda")
    step = gl.compile(f)
    for _ in range(2):
        np.testing.assert_allclose(step(x).cpu().numpy(), f(x).cpu().numpy(), rtol=1e-4)
    kinds = [s.kind for s in executable(step).report]
    assert 1 < kinds.count("mega") < 8


def test_wrong_classes_are_reported_as_eagers_are(cuda):
    model = nn.Linear(4, 3).cuda()
    x = gl.ones(5, 4, device="cuda")

    def f(x, y):
        return F.cross_entropy(F.relu(model(x)), y)

    step = gl.compile(f)
    good, bad = gl.tensor([0, 1, 2, 0, 1], device="cuda"), gl.tensor([0, 1, 7, 0, 1], device="cuda")
    for _ in range(3):
        step(x, good)
    with pytest.raises(IndexError) as eager:
        f(x, bad)
        gl.cuda.synchronize()
    with pytest.raises(IndexError) as compiled:
        step(x, bad)
        gl.cuda.synchronize()
    assert str(compiled.value) == str(eager.value)
    assert np.isfinite(step(x, good).item())


def test_broadcast_strided_and_transposed_operands():
    def f(x, y):
        a = x.t()[1:] * y[:, None] + 2
        b = a.reshape(-1)[::3].sum()
        return (a @ x).softmax(-1), a.amax(0), a.mean((0, 1)), b, (a > 1).any(1)

    gl.manual_seed(0)
    x, y = gl.randn(6, 5, device="cuda"), gl.randn(4, device="cuda")
    step = gl.compile(f)
    for _ in range(3):
        for got, want in zip(step(x, y), f(x, y), strict=True):
            np.testing.assert_allclose(got.cpu().numpy(), want.cpu().numpy(), rtol=1e-5, atol=1e-6)
    assert "mega" in [s.kind for s in executable(step).report]


def test_nvidias_compiler_takes_the_text(cuda):
    try:
        compiler = nvrtc.load()
    except nvrtc.NvrtcMissing as error:
        pytest.skip(str(error))
    _, _, step = trained("classifier", "nesterov", gl.compile, 2)
    ((name, text),) = step.kernels().items()
    source = inlined(program("stages.cuh", text))
    for architecture in (75, 90):
        found = kernels.check(Program(name, source, [f"gradlab::{name}"], 75), architecture, compiler)
        assert found.problem is None
