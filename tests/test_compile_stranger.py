"""`gl.compile` as a stranger uses it: what a function reads, however it does so, is followed."""

from __future__ import annotations

import collections
import importlib
import os
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn

from compiled_steps import follows

F = nn.functional


def nothing():
    pass


# ---------------------------------------------------------------- what is read


def test_settings_deep_inside_of_containers_and_objects():
    config = {"a": {"b": {"c": {"d": {"e": {"f": 1.0}}}}}}
    box = SimpleNamespace(options=[SimpleNamespace(), SimpleNamespace(inner=SimpleNamespace(p={"g": [1.0]}))])
    follows(lambda x: x * config["a"]["b"]["c"]["d"]["e"]["f"], [nothing, lambda: config["a"]["b"]["c"]["d"]["e"].update(f=7.0)])
    follows(lambda x: x * box.options[1].inner.p["g"][0], [nothing, lambda: box.options[1].inner.p.update(g=[7.0])])


def test_class_attributes_and_modules_that_are_not_called(monkeypatch):
    class Scaled:
        k = 2.0

        @classmethod
        def apply(cls, x):
            return x * cls.k

    class Model(nn.Module):
        scale = 3.0

        def forward(self, x):
            return x * self.scale

    model, linear = Model(), nn.Linear(2, 2)
    linear.gain = 2.0
    follows(lambda x: Scaled().apply(x), [nothing, lambda: monkeypatch.setattr(Scaled, "k", 5.0)])
    follows(lambda x: model(x), [nothing, lambda: monkeypatch.setattr(Model, "scale", 5.0)])
    follows(lambda x: F.linear(x, linear.weight) * linear.gain, [nothing, lambda: setattr(linear, "gain", 5.0)])


def test_collections_environment_and_large_arrays():
    last, many, array = collections.deque([1.0], maxlen=2), [1.0] * 20000, np.zeros((100, 100), np.float32)
    follows(lambda x: x * last[-1], [nothing, lambda: last.append(5.0)])
    follows(lambda x: x * sum(many), [nothing, lambda: many.__setitem__(-1, 50.0)])
    follows(lambda x: x + gl.tensor(array).sum(), [nothing, lambda: array.__setitem__((99, 99), 7.0)])
    try:
        follows(
            lambda x: x * float(os.environ["GRADLAB_STRANGER"]), [lambda v=v: os.environ.update(GRADLAB_STRANGER=v) for v in ("1", "3")]
        )
    finally:
        os.environ.pop("GRADLAB_STRANGER", None)


def test_other_attributes_of_the_objects_it_uses_do_not_matter():
    class Trainer:
        def __init__(self):
            self.model, self.steps, self.gain = nn.Linear(3, 1), 0, 1.0

        @gl.compile
        def step(self, x):
            return self.model(x) * self.gain

    trainer = Trainer()
    outside = gl.compile(lambda x: trainer.model(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(12):
            trainer.step(gl.ones(2, 3))
            outside(gl.ones(2, 3))
            trainer.steps += 1
    assert len(Trainer.step.programs) == len(outside.programs) == 1
    trainer.gain = 0.0
    for _ in range(3):
        assert trainer.step(gl.ones(2, 3)).abs().sum() == 0


def test_a_learning_rate_that_the_function_reads_itself():
    w = nn.Parameter(gl.ones(2))
    update = gl.optim.SGD([w], lr=0.5)
    schedule = gl.optim.lr_scheduler.ExponentialLR(update, 0.5)
    by_group, by_schedule = gl.compile(lambda x: x * update.param_groups[0]["lr"]), gl.compile(lambda x: x * schedule.get_last_lr()[0])
    for _ in range(4):
        for _ in range(2):
            assert by_group(gl.ones(1)).item() == by_schedule(gl.ones(1)).item() == pytest.approx(update.param_groups[0]["lr"])
        update.step()
        schedule.step()


def test_gradients_in_a_program_and_the_update_outside_need_no_new_trace():
    model = nn.Linear(3, 2)
    update = gl.optim.Adam(model.parameters(), lr=0.1)
    schedule = gl.optim.lr_scheduler.ExponentialLR(update, 0.9)

    @gl.compile
    def gradients(x):
        update.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(12):
            gradients(gl.randn(4, 3))
            update.step()
            schedule.step()
    assert len(gradients.programs) == 1


def test_lbfgs_with_a_compiled_closure_needs_one_program():
    gl.manual_seed(0)
    model, x, y = nn.Linear(3, 1), gl.randn(8, 3), gl.randn(8, 1)
    update = gl.optim.LBFGS(model.parameters(), max_iter=4, line_search_fn="strong_wolfe")

    @gl.compile
    def closure():
        update.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    losses = [update.step(closure).item() for _ in range(4)]
    assert losses[-1] < losses[0] and len(closure.programs) == 1


def test_momentum_that_is_switched_on_and_layers_that_thaw_one_by_one():
    def trained(wrap):
        gl.manual_seed(0)
        model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(6)])
        model[:5].requires_grad_(False)
        update, sgd = gl.optim.Adam(model.parameters(), lr=0.01), gl.optim.SGD(model.parameters(), lr=0.01)

        def step(x):
            loss = model(x).square().mean()
            for optimizer in (update, sgd):
                optimizer.zero_grad()
            loss.backward()
            update.step()
            sgd.step()
            return loss

        run, losses = wrap(step), []
        for i in range(24):
            if i % 4 == 3 and i < 20:
                model[4 - i // 4].requires_grad_(True)
            if i in (6, 14):
                sgd.param_groups[0]["momentum"] = 0.9 if i == 6 else 0.0
            losses.append(run(gl.randn(2, 4)).item())
        return losses

    np.testing.assert_allclose(trained(gl.compile), trained(lambda f: f), rtol=2e-4)


# ---------------------------------------------------------------- gradients and check=True


def test_an_argument_begins_to_require_grad_inside():
    def forward(x):
        return (x.requires_grad_() ** 2).sum()

    def whole(x):
        loss = forward(x)
        loss.backward()
        return loss

    for function in (forward, whole):
        run = gl.compile(function)
        for _ in range(4):
            x = gl.randn(3)
            loss = run(x)
            if function is forward:
                loss.backward()
            assert x.requires_grad and x.is_leaf
            np.testing.assert_allclose(x.grad.numpy(), 2 * x.detach().numpy(), rtol=1e-5)
    stopped = gl.compile(lambda x: x.requires_grad_(False) * 2)
    for _ in range(4):
        x = gl.ones(2, requires_grad=True)
        assert not stopped(x).requires_grad and not x.requires_grad


def test_gradients_by_arguments_that_writing_puts_into_the_graph():
    def function(x, y, w):
        x.add_(w * 2)
        y.mul_(w)
        return (x * x).sum(), (y * w * x).sum()

    def run(wrap):
        w = gl.tensor([1.0, 2.0], requires_grad=True)
        compiled = wrap(lambda x, y: function(x, y, w))
        for _ in range(3):
            x, y = gl.ones(2), gl.full((2,), 3.0)
            first, second = compiled(x, y)
            total = first + second + (x * y).sum()
            found = gl.autograd.grad(total, [x, y, w], retain_graph=True)
            w.grad = None
            total.backward()
        return [g.tolist() for g in (*found, w.grad)]

    assert run(gl.compile) == run(lambda f: gl.compile(f, check=True)) == run(lambda f: f)


def test_a_leaf_made_inside_gets_a_gradient_that_only_its_result_shows():
    critic = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1, bias=False))
    update = gl.optim.Adam(critic.parameters(), lr=0.01)

    @gl.compile(check=True)
    def penalty(real, fake):
        middle = (0.5 * (real + fake)).requires_grad_()
        (slope,) = gl.autograd.grad(critic(middle).sum(), middle, create_graph=True)
        loss = ((slope.norm(2, dim=1) - 1) ** 2).mean()
        update.zero_grad()
        loss.backward()
        update.step()
        return loss, middle.grad

    seen = []
    for _ in range(5):
        _, grad = penalty(gl.randn(4, 2), gl.randn(4, 2))
        seen.append((grad, grad.tolist()))
    assert len(penalty.programs) == 1
    assert all(grad.tolist() == was for grad, was in seen) and len({str(was) for _, was in seen}) == 5


def test_the_check_restores_arguments_and_data_that_the_function_writes():
    w = nn.Parameter(gl.ones(3))

    @gl.compile(check=True)
    def step(x):
        x.add_(1)
        (w * x).sum().backward()
        w.data = w.data - 0.1 * w.grad
        w.grad = None
        return x * 2

    for i in range(5):
        x = gl.full((3,), float(i))
        assert step(x).tolist() == [2 * (i + 1.0)] * 3 and x.tolist() == [i + 1.0] * 3
    np.testing.assert_allclose(w.detach().numpy(), 1 - 0.1 * 15, rtol=1e-5)


def test_the_check_knows_that_adam_makes_steps_of_rounding():
    gl.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)  # the keys' biases have no gradient
    update = gl.optim.AdamW(layer.parameters(), lr=1e-3)

    @gl.compile(check=True)
    def step(x):
        loss = layer(x).square().mean()
        update.zero_grad()
        loss.backward()
        update.step()
        return loss

    for _ in range(3):
        step(gl.randn(2, 5, 8))


def test_transforms_of_compiled_functions():
    w = gl.randn(3, 3)

    def function(x):
        return ((x @ w).tanh() ** 2).sum()

    run, x = gl.compile(function), gl.randn(4, 3)
    for _ in range(3):
        np.testing.assert_allclose(run(x[0]).item(), function(x[0]).item(), rtol=1e-5)
        for transformed in (gl.func.grad, gl.func.vmap):
            given = x if transformed is gl.func.vmap else x[0]
            np.testing.assert_allclose(transformed(run)(given).tolist(), transformed(function)(given).tolist(), rtol=1e-4, atol=1e-6)
    whole = gl.compile(gl.func.hessian(function))
    for _ in range(3):
        np.testing.assert_allclose(whole(x[0]).numpy(), gl.func.hessian(function)(x[0]).numpy(), rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- imports


def test_what_import_hooks_read_is_no_condition(monkeypatch, tmp_path):
    """A hook such as pytest's holds all there is: 20 s went by while a trace looked at it."""
    calls = []

    class Hook:
        def __init__(self):
            self.settings = [0]

        def find_spec(self, name, path=None, target=None):
            calls.append((name, self.settings[0]))

    hook = Hook()
    monkeypatch.setattr(sys, "meta_path", [hook, *sys.meta_path])
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def function(x):
        try:
            import not_there_yet
        except ImportError:
            return x
        return x * not_there_yet.K

    step = gl.compile(function)
    found = []
    for i in range(6):
        hook.settings[0] = i
        if i == 4:  # what is imported is one, as ever
            (tmp_path / "not_there_yet.py").write_text("K = 3.0")
            importlib.invalidate_caches()
            import not_there_yet as made  # noqa: F401
        found.append(step(gl.ones(1)).item())
    monkeypatch.delitem(sys.modules, "not_there_yet")
    assert found == [1, 1, 1, 1, 3, 3] and calls and len(step.programs) == 2
