"""Optimizers: saving and resuming, static programs; `-m torch` compares trajectories and signatures with PyTorch."""

from __future__ import annotations

import inspect
import io

import numpy as np
import pytest
from optimizers import CASES, each_case, each_optimizer, equal, gradients, run, start

import gradlab as gl
from gradlab import optim
from gradlab.graph import trace

# ---------------------------------------------------------------- saving


@each_case
def test_resume_is_bit_identical(name, number):
    options, steps = CASES[name][number], gradients(10, "float32")
    params = start("float32")
    opt = getattr(optim, name)(params, **options)
    run(opt, params, steps[:5])
    file = io.BytesIO()
    gl.save({"params": [p.detach() for p in params], "optimizer": opt.state_dict()}, file)
    file.seek(0)
    wanted = run(opt, params, steps[5:])
    found = gl.load(file)
    others = [p.clone().requires_grad_() for p in found["params"]]
    twin = getattr(optim, name)(others, **options)
    twin.load_state_dict(found["optimizer"])
    equal(run(twin, others, steps[5:]), wanted)
    assert twin.state_dict()["param_groups"] == opt.state_dict()["param_groups"]


def test_saved_state_shares_no_memory():
    params = start("float32")
    opt = optim.Adam(params)
    run(opt, params, gradients(2, "float32"))
    saved = opt.state_dict()
    before = saved["state"][0]["exp_avg"].numpy().copy()
    twin = optim.Adam(start("float32"))
    twin.load_state_dict(saved)
    run(opt, params, gradients(2, "float32", seed=5))
    run(twin, twin.param_groups[0]["params"], gradients(2, "float32", seed=6))
    np.testing.assert_array_equal(saved["state"][0]["exp_avg"].numpy(), before)
    assert saved["state"][0]["step"].item() == 2


def test_loading_checks_and_leaves_alone():
    params = start()
    opt = optim.Adam(params, lr=0.5)
    run(opt, params, gradients(1))
    other = optim.Adam(params[:1])
    with pytest.raises(ValueError, match="doesn't match the size of optimizer's group"):
        other.load_state_dict(opt.state_dict())
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optim.Adam([{"params": p} for p in params]).load_state_dict(opt.state_dict())
    with pytest.raises(KeyError, match="param_groups"):
        other.load_state_dict({"state": {}})
    assert not other.state and other.param_groups[0]["lr"] == 1e-3


def test_loading_takes_the_parameters_dtype():
    params = start("float32")
    opt = optim.Adam(params)
    run(opt, params, gradients(1, "float32"))
    twin = optim.Adam(start("float64"))
    twin.load_state_dict(opt.state_dict())
    state = twin.state[twin.param_groups[0]["params"][0]]
    assert state["exp_avg"].dtype == gl.float64 and state["step"].dtype == gl.float32


# ---------------------------------------------------------------- static programs


@each_case
def test_a_traced_step_gives_the_same_bits(name, number):
    """Nothing in a step reads a value, and bias corrections are computed inside the rows: a replay is the eager step."""
    rng = np.random.default_rng(4)
    batches = [gl.tensor(rng.normal(size=(8, 4)).astype("float32")) for _ in range(6)]

    def made():
        params = start("float32")
        opt = getattr(optim, name)(params, **CASES[name][number])

        def step(x):
            opt.zero_grad()
            loss = ((x @ params[0] + params[1]) ** 2).mean()
            loss.backward()
            opt.step()
            return loss

        return params, step

    eager, step = made()
    wanted = [step(x).item() for x in batches]
    params, step = made()
    step(batches[0])  # makes the state
    program = trace(step, batches[1])
    assert [program(x).item() for x in batches[1:]] == wanted[1:]
    equal([[p.detach().numpy() for p in params]], [[p.detach().numpy() for p in eager]])


# ---------------------------------------------------------------- PyTorch


@pytest.mark.torch
@each_case
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_twenty_steps_as_in_torch(name, number, dtype):
    torch = pytest.importorskip("torch")
    options, steps, params = CASES[name][number], gradients(20, dtype), start(dtype)
    theirs = [torch.nn.Parameter(torch.from_numpy(p.detach().numpy().copy())) for p in params]
    opt, other = getattr(optim, name)(params, **options), getattr(torch.optim, name)(theirs, **options)
    got = run(opt, params, steps)
    tolerance = 2e-6 if dtype == "float32" else 1e-9 if name == "NAdam" else 1e-12  # NAdam: a float32 product of momenta
    for arrays, ours in zip(steps, got, strict=True):
        for p, g in zip(theirs, arrays, strict=True):
            p.grad = torch.from_numpy(g.copy())
        other.step()
        for a, b in zip(ours, theirs, strict=True):
            b = b.detach().numpy()
            np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max())
    ours, wanted = opt.state_dict(), other.state_dict()
    kept = {k: sorted(name for name in v if v[name] is not None) for k, v in wanted["state"].items()}
    assert {k: sorted(v) for k, v in ours["state"].items()} == kept
    assert [set(g) for g in ours["param_groups"]] == [set(g) for g in wanted["param_groups"]]


@pytest.mark.torch
@each_optimizer
def test_same_arguments_as_in_torch(name):
    torch = pytest.importorskip("torch")
    ours, theirs = (inspect.signature(getattr(m, name).__init__).parameters for m in (optim, torch.optim))
    assert [(k, v.kind) for k, v in ours.items()] == [(k, v.kind) for k, v in theirs.items()]
    assert {k: v.default for k, v in ours.items()} == {k: v.default for k, v in theirs.items()}
