"""`gl.compile`: steps equal eager's; refusals teach and leave everything as it was."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.graph import TraceError

from compiled_steps import OPTIMIZERS, F, Net, batches, same_state, state_of, training

# ---------------------------------------------------------------- training


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_compiled_step_trains_as_eager_does(optimizer):
    results = []
    for wrap in (lambda f: f, gl.compile):
        model, update, step = training(optimizer, 0.3)
        run = wrap(step)
        gl.manual_seed(5)
        losses = []
        for x, y in batches():
            losses.append(run(x, y).item())
            update.param_groups[0]["lr"] *= 0.7  # a schedule needs no new trace
        results.append((losses, state_of(model), gl.get_rng_state().tolist()))
        if wrap is gl.compile:
            assert len(run.programs) == 1
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-4)
    same_state(results[0][1], results[1][1])
    assert results[0][2] == results[1][2]


def test_a_scheduler_outside_the_step_needs_no_new_trace():
    _, update, step = training("momentum")
    scheduler = gl.optim.lr_scheduler.CosineAnnealingLR(update, 10)
    run = gl.compile(step)
    for x, y in batches():
        run(x, y)
        scheduler.step()
    assert len(run.programs) == 1


def test_gradients_accumulate_and_are_cleared():
    w = nn.Parameter(gl.tensor([1.0, 2.0]))

    def add(x):
        loss = (w * x).sum()
        loss.backward()
        return loss

    run = gl.compile(add)
    x = gl.tensor([3.0, 4.0])
    for n in range(1, 6):
        run(x)
        assert w.grad.tolist() == [3.0 * n, 4.0 * n]
    w.grad = None
    run(x)
    assert w.grad.tolist() == [3.0, 4.0]


def test_a_gradient_that_somebody_holds_is_not_overwritten():
    model, _, step = training()
    run = gl.compile(step)
    data = batches()
    run(*data[0])
    run(*data[1])
    held = model.a.weight.grad
    before = held.numpy().copy()
    results = [run(x, y) for x, y in data[2:]]
    np.testing.assert_array_equal(held.numpy(), before)
    assert len({r.item() for r in results}) == len(results)  # nor are results


def test_a_module_is_differentiated_from_outside():
    model = Net()
    run = gl.compile(model)
    for x, _ in batches(4):
        x.requires_grad_(True)
        found = []
        for f in (model, run):
            saved = state_of(model)
            for t in (x, *model.parameters()):
                t.grad = None
            f(x).square().sum().backward()
            found.append([t.grad.numpy().copy() for t in (x, *model.parameters())])
            if f is model:
                model.load_state_dict({k: gl.from_numpy(v) for k, v in saved.items()})
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert set(run.state_dict()) == {f"_orig_mod.{k}" for k in model.state_dict()}
    assert run._orig_mod is run.module is model


def test_random_numbers_are_fresh_and_a_seed_repeats_them():
    run = gl.compile(lambda x: F.dropout(x, 0.5) + gl.rand(4))
    x = gl.ones(4)
    gl.manual_seed(3)
    first = [run(x).tolist() for _ in range(4)]
    gl.manual_seed(3)
    assert [run(x).tolist() for _ in range(4)] == first
    assert len(set(map(tuple, first))) == 4


# ---------------------------------------------------------------- refusals


def refused(function, *args, match):
    run = gl.compile(function)
    run(*args)
    with pytest.raises(TraceError, match=match):
        run(*args)


def test_reading_a_value_names_the_line():
    def decide(x):
        if x.sum() > 0:
            return x
        return -x

    refused(decide, gl.ones(3), match=r"a value was read while tracing[\s\S]*decide")
    refused(lambda x: x * x.sum().item(), gl.ones(3), match="a value was read")
    refused(lambda x: x * float(x.sum()), gl.ones(3), match="a value was read")
    refused(lambda x: x[x > 0], gl.ones(3), match="size of the result depends on values")


def test_python_side_effects_are_refused_and_undone():
    history, counter = [], {"n": 0}

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * 2

    def remember(x):
        history.append((x * 2).sum())
        return x

    def count(x):
        counter["n"] += 1
        return x * counter["n"]

    model = Model()
    refused(remember, gl.ones(2), match="changes history")
    assert len(history) == 1
    refused(count, gl.ones(2), match="changes counter")
    assert counter == {"n": 1}
    refused(lambda x: model(x), gl.ones(2), match=r"changes Model\.calls")
    assert model.calls == 1
    refused(lambda x: x * random.random(), gl.ones(2), match="random numbers from Python's")
    refused(lambda x: x * np.random.rand(), gl.ones(2), match="random numbers from Python's")  # noqa: NPY002 - what a user may write


def test_a_failing_trace_leaves_everything_as_it_was():
    model, update, step = training("Adam")

    def fails(x, y):
        loss = step(x, y)
        model.norm.running_mean.mul_(2)
        if loss.item() > -1:
            return loss
        return loss * 2

    run = gl.compile(fails)
    x, y = batches()[0]
    run(x, y)
    before, moments, rng = state_of(model), update.state_dict(), gl.get_rng_state().tolist()
    grads = [p.grad for p in model.parameters()]
    with pytest.raises(TraceError):
        run(x, y)
    for key, value in state_of(model).items():
        np.testing.assert_array_equal(value, before[key])
    for p, saved in update.state_dict()["state"].items():
        np.testing.assert_array_equal(saved["exp_avg"].numpy(), moments["state"][p]["exp_avg"].numpy())
    assert all(p.grad is g for p, g in zip(model.parameters(), grads, strict=True))
    assert gl.get_rng_state().tolist() == rng
    step(x, y)  # and eager goes on


def test_a_failing_run_leaves_the_state_as_it_was():
    model, _, step = training("momentum")
    run = gl.compile(step)
    x, y = batches()[0]
    run(x, y)
    run(x, y)
    before = state_of(model)
    bad = y.clone()
    bad[0] = 99
    with pytest.raises(IndexError, match="99"):
        run(x, bad)
    for key, value in state_of(model).items():
        if "running" not in key and "num_batches" not in key:
            np.testing.assert_array_equal(value, before[key], err_msg=key)
    assert np.isfinite(run(x, y).item())


def test_a_saved_tensor_changed_before_backward_is_an_error():
    w = gl.ones(3, requires_grad=True)
    run = gl.compile(lambda x: (w * x * w).sum())
    x = gl.ones(3)
    run(x)
    loss = run(x)
    with gl.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="changed in place after its forward"):
        loss.backward()


def test_check_compares_the_first_run_with_eager():
    model, _, step = training("AdamW", 0.2)
    run = gl.compile(step, check=True)
    plain_model, _, plain = training("AdamW", 0.2)
    gl.manual_seed(4)
    losses = [run(x, y).item() for x, y in batches()]
    gl.manual_seed(4)
    np.testing.assert_allclose(losses, [plain(x, y).item() for x, y in batches()], rtol=1e-4)
    same_state(state_of(model), state_of(plain_model))


def test_switched_off_by_the_environment(monkeypatch):
    monkeypatch.setenv("GRADLAB_COMPILE", "0")

    def function(x):
        return x * x.sum().item()

    assert gl.compile(function) is function


def test_an_unknown_pass_is_named():
    run = gl.compile(lambda x: x + 1, passes={"no_such_pass": False})
    run(gl.ones(2))
    with pytest.raises(ValueError, match="no_such_pass"):
        run(gl.ones(2))


def test_compiled_calls_inside_a_trace_are_part_of_it():
    inner = gl.compile(lambda x: x * 2)
    outer = gl.compile(lambda x: inner(x) + 1)
    for _ in range(3):
        assert outer(gl.ones(2)).tolist() == [3.0, 3.0]


def test_state_made_late_is_made_by_one_more_eager_run():
    model, update, _ = training("Adam")

    def step(x, y, train):
        loss = F.cross_entropy(model(x), y)
        if train:
            update.zero_grad()
            loss.backward()
            update.step()
        return loss

    run = gl.compile(step)
    data = batches()
    for x, y in data:
        run(x, y, False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x, y in data:
            run(x, y, True)
    assert float(update.state[model.a.weight]["step"]) == len(data)


def test_tracing_stays_linear_in_the_number_of_layers():
    def deep(x):
        for _ in range(1000):
            x = x * 1.01 + 0.1
        return x

    run = gl.compile(deep)
    x = gl.ones(4)
    for _ in range(3):
        np.testing.assert_allclose(run(x).numpy(), deep(x).numpy(), rtol=1e-4)


KEPT = [
    lambda s, x: (s[:4].clone(), s.add_(x))[0],
    lambda s, x: (s.clone(), s.add_(x))[0],
    lambda s, x: (s[2:].clone().reshape(2, 3), s.mul_(2))[0],
    lambda s, x: (s.view(4, 2).t().clone(), s.copy_(x))[0],
    lambda s, x: (s.flip(0), s[:4].add_(1))[0],
]


@pytest.mark.parametrize("place", range(len(KEPT)))
def test_what_state_was_leaves_the_program_before_the_state_is_written(place):
    def run(wrap):
        state = gl.arange(8).to(gl.float32)
        f = wrap(lambda x: KEPT[place](state, x))
        return [(f(gl.full((8,), i + 1.0)).tolist(), state.tolist()) for i in range(5)]

    assert run(gl.compile) == run(lambda f: f)


def test_a_parameters_hook_runs_once_where_the_backward_is_outside():
    w = gl.tensor([1.0, 2.0], requires_grad=True)
    w.register_hook(lambda g: g * 0.5)
    f = gl.compile(lambda x: (w * x).sum())
    for _ in range(3):
        w.grad = None
        loss = f(gl.tensor([2.0, 4.0]))
        loss.backward()
        assert w.grad.tolist() == [1.0, 2.0]


def test_a_parameters_hook_runs_once_for_the_branches_of_cond():
    w = gl.tensor([1.0, 2.0], requires_grad=True)
    w.register_hook(lambda g: g * 0.5)

    @gl.compile
    def step(x):
        w.grad = None
        loss = gl.cond(x.sum() > 0, lambda x: (w * x).sum(), lambda x: (w * x * 2).sum(), (x,))
        loss.backward()
        return loss

    for _ in range(3):
        step(gl.tensor([2.0, 4.0]))
        assert w.grad.tolist() == [1.0, 2.0]


def test_running_statistics_added_to_a_norms_result():
    def trained(wrap):
        gl.manual_seed(0)
        norm = gl.nn.BatchNorm2d(3)
        f = wrap(lambda x: (norm(x) + norm.running_mean.view(1, 3, 1, 1) * gl.ones_like(x)).relu())
        return [f(gl.randn(2, 3, 4, 4)).detach().numpy() for _ in range(3)]

    for a, b in zip(trained(gl.compile), trained(lambda f: f), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_products_that_share_a_factor_which_is_joined_elsewhere():
    def f(a, b, c, x, y):
        return a @ x + b @ x + c @ y, gl.cat([x, x, y])

    gl.manual_seed(0)
    given = [gl.randn(3, 4), gl.randn(3, 4), gl.randn(3, 4), gl.randn(4, 5), gl.randn(4, 5)]
    compiled = gl.compile(f)
    compiled(*given)
    np.testing.assert_allclose(compiled(*given)[0].numpy(), f(*given)[0].numpy(), rtol=1e-5, atol=1e-5)


def test_batch_norm_that_averages_over_all_batches():
    def run(wrap):
        gl.manual_seed(0)
        norm = nn.BatchNorm1d(3, momentum=None)
        f = wrap(lambda x: norm(x))
        outs = [f(gl.randn(8, 3)).tolist() for _ in range(5)]
        return outs, norm.running_mean.numpy(), norm.running_var.numpy(), norm.num_batches_tracked.item()

    for a, b in zip(run(gl.compile), run(lambda f: f), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_arguments_of_torch_compile():
    for mode in ("default", "reduce-overhead", "max-autotune"):
        run = gl.compile(lambda x: x + 1, fullgraph=True, dynamic=False, mode=mode)
        assert [run(gl.ones(2)).tolist() for _ in range(3)] == [[2, 2]] * 3 and len(run.programs) == 1

    def function(x):
        return x

    assert gl.compile(function, disable=True) is function and gl.compile(disable=True)(function) is function
    with pytest.raises(ValueError, match="mode is one of"):
        gl.compile(function, mode="fast")
    with pytest.raises(NotImplementedError, match="Pad to a few shapes"):
        gl.compile(function, dynamic=True)
