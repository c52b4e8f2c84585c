"""Autocast and GradScaler in compiled steps: equal to eager's, guarded, and without a look at values."""

import math
import re

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn

F = nn.functional


def data(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((32, 12)).astype(np.float32)
    return gl.tensor(x), gl.tensor((x @ rng.standard_normal((12, 4))).argmax(1))


def training(optimizer, dtype, inside=True, clip=False, **options):
    """A step and what it changes."""
    gl.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 4))
    made = {
        "sgd": lambda p: gl.optim.SGD(p, lr=0.1),
        "momentum": lambda p: gl.optim.SGD(p, lr=0.1, momentum=0.9),
        "adam": lambda p: gl.optim.Adam(p, lr=0.01),
        "rmsprop": lambda p: gl.optim.RMSprop(p, lr=0.001),
        "muon": lambda p: gl.optim.Muon([q for q in p if q.ndim == 2], lr=0.01),
    }[optimizer](list(model.parameters()))
    scaler = gl.amp.GradScaler("cpu", **{"init_scale": 256.0, "growth_interval": 4, **options})

    def forward(x, y):
        return F.cross_entropy(model(x), y)

    def step(x, y):
        made.zero_grad()
        if inside:
            with gl.autocast("cpu", dtype=dtype):
                loss = forward(x, y)
        else:
            loss = forward(x, y)
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(made)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(made)
        scaler.update()
        return loss

    return step, model, made, scaler


def run(step, scaler, dtype, inside=True, steps=14, wrong=(5, 9)):
    x, y = data()
    found = []
    for i in range(steps):
        given = x * math.inf if i in wrong else x
        with gl.autocast("cpu", dtype=dtype, enabled=not inside):
            loss = step(given, y)
        found.append((loss.item(), scaler.get_scale(), scaler.state_dict()["_growth_tracker"]))
    return found


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("dtype", [gl.bfloat16, gl.float16])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "rmsprop", "muon"])
def test_a_step_equals_eagers(optimizer, dtype, inside):
    step, model, made, scaler = training(optimizer, dtype, inside)
    wanted = run(step, scaler, dtype, inside)
    other, twin, twin_made, twin_scaler = training(optimizer, dtype, inside)
    compiled = gl.compile(other, passes={"widen_lowered": False})  # with eager's roundings; else see test_widen_lowered.py
    found = run(compiled, twin_scaler, dtype, inside)
    assert len(compiled.programs) == 1
    assert [f[1:] for f in found] == [w[1:] for w in wanted]  # scale and tracker
    np.testing.assert_allclose([f[0] for f in found], [w[0] for w in wanted], rtol=2e-3)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=2e-2, atol=2e-3)
    for a, b in zip(made.state.values(), twin_made.state.values(), strict=True):
        assert a.keys() == b.keys()
        if "step" in a:
            assert a["step"].item() == b["step"].item()  # a skipped step does not count


def test_a_skipped_step_changes_nothing():
    step, model, made, scaler = training("adam", gl.bfloat16)
    compiled = gl.compile(step)
    run(compiled, scaler, gl.bfloat16, steps=4, wrong=())
    before = [t.detach().clone() for t in (*model.parameters(), *(v for s in made.state.values() for v in s.values()))]
    run(compiled, scaler, gl.bfloat16, steps=2, wrong=(0, 1))
    after = [*model.parameters(), *(v for s in made.state.values() for v in s.values())]
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.detach().numpy())
    assert len(compiled.programs) == 1


def test_first_steps_that_overflow():
    """The scale starts too high: the optimizer's state is made many calls later, and so is the program."""
    step, _, _, scaler = training("momentum", gl.float16, init_scale=2.0**40)
    compiled = gl.compile(step)
    losses = run(compiled, scaler, gl.float16, steps=40, wrong=())
    assert scaler.get_scale() < 2.0**40 and losses[-1][0] < losses[0][0] and len(compiled.programs) == 1


def test_clipping_between_unscale_and_step():
    step, _, _, scaler = training("sgd", gl.bfloat16, clip=True)
    wanted = run(step, scaler, gl.bfloat16)
    other, _, _, twin_scaler = training("sgd", gl.bfloat16, clip=True)
    found = run(gl.compile(other), twin_scaler, gl.bfloat16)
    np.testing.assert_allclose(found, wanted, rtol=1e-3)


def test_the_program_looks_at_no_value():
    step, _, _, scaler = training("adam", gl.bfloat16)
    compiled = gl.compile(step)
    run(compiled, scaler, gl.bfloat16, steps=3, wrong=())
    text = str(compiled.graph)
    assert text.count("adam_update") == 6 and "where" in text and "cond" not in text and "isnan" in text


def test_factors_can_change_without_a_new_trace():
    step, _, _, scaler = training("sgd", gl.bfloat16)
    compiled = gl.compile(step)
    run(compiled, scaler, gl.bfloat16, steps=3, wrong=())
    scaler.set_growth_interval(1)
    scaler.set_growth_factor(4.0)
    before = scaler.get_scale()
    run(compiled, scaler, gl.bfloat16, steps=1, wrong=())
    assert scaler.get_scale() == before * 4
    scaler.set_backoff_factor(0.125)
    run(compiled, scaler, gl.bfloat16, steps=1, wrong=(0,))
    assert scaler.get_scale() == before / 2
    scaler.load_state_dict({**scaler.state_dict(), "scale": 64.0, "growth_interval": 100, "_growth_tracker": 3})
    run(compiled, scaler, gl.bfloat16, steps=1, wrong=())
    assert scaler.state_dict()["scale"] == 64.0 and scaler.state_dict()["_growth_tracker"] == 4
    assert len(compiled.programs) == 1


def test_autocast_is_guarded():
    said = []
    function = gl.compile(lambda x: x @ x)
    function._tell = said.append
    x = gl.eye(4)
    function(x), function(x)
    with gl.autocast("cpu"):
        assert function(x).dtype == function(x).dtype == gl.bfloat16
    assert "autocast was 'off', is cpu bfloat16" in said[-1]
    with gl.autocast("cpu", dtype=gl.float16):
        assert function(x).dtype == gl.float16
    assert "autocast was cpu bfloat16, is cpu float16" in said[-1]
    for _ in range(2):  # every program is still there
        assert function(x).dtype == gl.float32
        with gl.autocast("cpu"):
            assert function(x).dtype == gl.bfloat16
    assert len(function.programs) == 3 and len(said) == 2
    assert any("autocast" in line for line in function.explain())


def test_a_dtype_that_the_step_reads_is_guarded():
    chosen = {"dtype": gl.bfloat16}

    @gl.compile
    def product(x):
        with gl.autocast("cpu", dtype=chosen["dtype"]):
            return x @ x

    x = gl.eye(4)
    assert [product(x).dtype for _ in range(3)] == [gl.bfloat16] * 3
    chosen["dtype"] = gl.float16
    assert product(x).dtype == gl.float16


def test_a_step_half_in_a_compiled_function_is_an_error():
    w, y = gl.ones(3, requires_grad=True), gl.ones(3)
    optimizer = gl.optim.SGD([w], lr=0.1)
    scaler = gl.amp.GradScaler("cpu")

    @gl.compile
    def step(y):
        scaler.scale((w * y).sum()).backward()
        scaler.step(optimizer)

    step(y)
    scaler.update()
    optimizer.zero_grad()
    step(y)
    with pytest.raises(AssertionError, match="into one compiled function"):
        scaler.update()

    @gl.compile
    def finish(y):
        scaler.step(optimizer)
        scaler.update()
        return y + 1

    optimizer.zero_grad()
    scaler.scale((w * y).sum()).backward()
    finish(y)
    scaler.scale((w * y).sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="into one compiled function"):
        finish(y)


def test_a_value_cannot_be_read_in_a_trace():
    scaler = gl.amp.GradScaler("cpu")

    @gl.compile
    def step(x):
        return scaler.scale(x) * scaler.get_scale()

    step(gl.ones(2))
    with pytest.raises(RuntimeError, match="the scale is read as a number within a compiled function"):
        step(gl.ones(2))


def test_a_weight_is_cast_once_in_a_trace():
    w = gl.eye(4).requires_grad_()

    @gl.compile(passes={"widen_lowered": False})
    def step(x):
        w.grad = None
        with gl.autocast("cpu"):
            for _ in range(3):
                x = x @ w
        x.sum().backward()
        return x

    x = gl.randn(4, 4)
    results = [step(x) for _ in range(3)]
    (weight,) = re.findall(r"(%\d+): \S+ \S+ = state", str(step.graph))
    assert str(step.graph).count(f"cast({weight},") == 1
    assert results[0].dtype == gl.bfloat16
    np.testing.assert_array_equal(*(r.detach().float().numpy() for r in (results[0], results[-1])))


@pytest.mark.parametrize("flow", ["cond", "scan"])
def test_control_flow_in_a_trace(flow):
    w = (gl.eye(4) * 0.7).requires_grad_()

    def function(x):
        with gl.autocast("cpu"):
            if flow == "cond":
                y = gl.cond(x.sum() > 0, lambda x: x @ w, lambda x: x @ w.mT, (x,))
            else:
                y = gl.scan(lambda h, row: ((h @ w).float(), (h * row)), x[0:1], x.unsqueeze(1))[1]
        return y

    x = gl.randn(4, 4)
    compiled = gl.compile(function)
    wanted = function(x)
    wanted.float().sum().backward()
    gradient, w.grad = w.grad, None
    for _ in range(3):
        w.grad = None
        found = compiled(x)
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found.detach().float().numpy(), wanted.detach().float().numpy(), rtol=0.02, atol=0.02)
        found.float().sum().backward()
        assert w.grad.dtype == gl.float32
        np.testing.assert_allclose(w.grad.numpy(), gradient.numpy(), rtol=0.05, atol=0.05)


def test_a_convolutional_network():
    def make():
        gl.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 16, 4)
        )
        optimizer = gl.optim.Adam(model.parameters(), lr=0.01)

        def step(x, y):
            optimizer.zero_grad()
            with gl.autocast("cpu"):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return step, model

    x, y = gl.randn(8, 1, 8, 8), gl.arange(8) % 4
    plain, first = make()
    other, second = make()
    compiled = gl.compile(other)
    for _ in range(6):
        np.testing.assert_allclose(compiled(x, y).item(), plain(x, y).item(), rtol=5e-3)
    assert first[1].running_mean.dtype == second[1].running_mean.dtype == gl.float32
    np.testing.assert_allclose(first[1].running_var.numpy(), second[1].running_var.numpy(), rtol=1e-2)
