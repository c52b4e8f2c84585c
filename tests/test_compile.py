"""`gl.compile`: steps equal eager's, guards notice every change, refusals teach and leave everything as it was."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.graph import TraceError

F = nn.functional
SCALE = 2.0


class Net(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.drop = nn.Dropout(dropout)
        self.gain = 1.0

    def forward(self, x):
        return self.b(self.drop(F.relu(self.norm(self.a(x))))) * self.gain


OPTIMIZERS = {
    "SGD": lambda p: gl.optim.SGD(p, lr=0.1),
    "momentum": lambda p: gl.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "Adam": lambda p: gl.optim.Adam(p, lr=0.01, weight_decay=1e-2),
    "AdamW": lambda p: gl.optim.AdamW(p, lr=0.01),
    "RMSprop": lambda p: gl.optim.RMSprop(p, lr=0.01),
}


def batches(count=6, size=10):
    rng = np.random.default_rng(0)
    return [(gl.tensor(rng.normal(size=(size, 6)).astype("f")), gl.tensor(rng.integers(0, 3, size))) for _ in range(count)]


def training(optimizer="SGD", dropout=0.0):
    gl.manual_seed(1)
    model = Net(dropout)
    update = OPTIMIZERS[optimizer](model.parameters())

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        update.zero_grad()
        loss.backward()
        update.step()
        return loss

    return model, update, step


def state_of(model):
    return {k: v.numpy().copy() for k, v in model.state_dict().items()}


def same_state(a, b, tolerance=2e-4):
    for key, value in a.items():
        np.testing.assert_allclose(value, b[key], rtol=tolerance, atol=tolerance, err_msg=key)


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
    assert set(run.state_dict()) == {f"module.{k}" for k in model.state_dict()}


def test_random_numbers_are_fresh_and_a_seed_repeats_them():
    run = gl.compile(lambda x: F.dropout(x, 0.5) + gl.rand(4))
    x = gl.ones(4)
    gl.manual_seed(3)
    first = [run(x).tolist() for _ in range(4)]
    gl.manual_seed(3)
    assert [run(x).tolist() for _ in range(4)] == first
    assert len(set(map(tuple, first))) == 4


# ---------------------------------------------------------------- guards


def follows(function, *calls):
    """Every call gives what eager gives, twice over."""
    run = gl.compile(function)
    for change, args in calls:
        change()
        for _ in range(3):
            np.testing.assert_allclose(np.array(run(*args).tolist()), np.array(function(*args).tolist()), rtol=1e-5)
    return run


def nothing():
    pass


def test_arguments_shapes_and_dtypes_and_numbers():
    x = gl.tensor([1.0, 2.0])
    run = follows(lambda x, s: x * s + 1, (nothing, (x, 2.0)), (nothing, (x, 2)), (nothing, (x, 3.0)), (nothing, (gl.ones(5), 2.0)),
                  (nothing, (x.double(), 2.0)), (nothing, (x, True)), (nothing, (x, -0.0)), (nothing, (x, 0.0)))  # fmt: skip
    assert len(run.programs) == 8


def test_globals_closures_and_attributes(monkeypatch):
    x = gl.ones(3)
    config = {"k": 1.0}

    class Settings:
        gain = 2.0

    settings = Settings()
    module = __import__(__name__)

    def function(x):
        return x * SCALE * settings.gain + config["k"]

    follows(function, (nothing, (x,)), (lambda: monkeypatch.setattr(module, "SCALE", 5.0), (x,)),
            (lambda: config.update(k=7.0), (x,)), (lambda: setattr(settings, "gain", 3.0), (x,)))  # fmt: skip


def test_helpers_behind_the_function_are_seen():
    box = [1.0]

    def helper(x):
        return x + box[0]

    def function(x):
        return helper(x) * 2

    follows(function, (nothing, (gl.ones(2),)), (lambda: box.append(3), (gl.ones(2),)), (lambda: box.__setitem__(0, 9.0), (gl.ones(2),)))


def test_modules_and_their_modes():
    gl.manual_seed(0)
    model = Net(0.5).eval()
    x = batches()[0][0]
    drop = model.drop
    run = follows(
        lambda x: model(x),
        (nothing, (x,)),
        (lambda: setattr(model, "gain", 3.0), (x,)),
        (lambda: setattr(model.norm, "eps", 0.5), (x,)),
        (lambda: setattr(model, "a", nn.Linear(6, 8)), (x,)),
        (lambda: setattr(model.b, "weight", nn.Parameter(gl.ones(3, 8))), (x,)),
        (lambda: model.b.register_forward_hook(lambda m, i, o: o * 2), (x,)),
        (lambda: setattr(model, "drop", nn.Identity()), (x,)),
    )
    assert len(run.programs) == 7
    model.drop = drop
    model.train()
    gl.manual_seed(2)
    first = run(x).tolist()
    assert first != run(x).tolist()


def test_parameters_that_move_or_freeze():
    model, update, step = training("Adam")
    run = gl.compile(step)
    data = batches()
    for x, y in data[:3]:
        run(x, y)
    model.load_state_dict(Net().state_dict())  # in place: the same program
    run(*data[3])
    assert len(run.programs) == 1
    update.load_state_dict(update.state_dict())  # other tensors
    run(*data[3])
    assert len(run.programs) == 2
    model.a.weight.requires_grad_(False)
    before = model.a.weight.numpy().copy()
    update.zero_grad()
    for x, y in data:
        run(x, y)
    np.testing.assert_array_equal(model.a.weight.numpy(), before)


def test_grad_mode_is_guarded():
    w = gl.ones(3, requires_grad=True)
    run = gl.compile(lambda x: w * x)
    x = gl.ones(3)
    for _ in range(3):
        assert run(x).requires_grad
        with gl.no_grad():
            assert not run(x).requires_grad


def test_one_tensor_twice_and_state_as_an_argument():
    total = gl.zeros(3)

    def add(a, b):
        total.add_(a)
        return total + b

    run = gl.compile(add)
    x, y = gl.ones(3), gl.full((3,), 2.0)
    for n in range(1, 4):
        assert run(x, y).tolist() == [n + 2.0] * 3
    assert run(x, x).tolist() == [5.0] * 3
    assert run(x, x).tolist() == [6.0] * 3
    total.zero_()
    for _ in range(3):  # eager would add `total` to itself
        total.fill_(1.0)
        assert run(total, y).tolist() == [4.0] * 3


def test_arguments_written_in_place_and_returned():
    def write(x, n):
        x.add_(n)
        return x, [x * 2, {"n": n}]

    run = gl.compile(write)
    x = gl.zeros(3)
    for i in range(1, 5):
        found, (double, rest) = run(x, 1)
        assert found is x
        assert (x.tolist(), double.tolist(), rest) == ([i] * 3, [2 * i] * 3, {"n": 1})
    view = gl.zeros(4, 2).t()
    for i in range(1, 4):
        run(view, 1)
        assert view[0].tolist() == [i] * 4


def test_keyword_arguments_and_methods():
    class Model:
        def __init__(self, k):
            self.k = k

        @gl.compile
        def run(self, x, *, shift=0.0):
            return x * self.k + shift

    a, b = Model(2.0), Model(3.0)
    for _ in range(3):
        assert a.run(gl.ones(2), shift=1.0).tolist() == [3.0, 3.0]
        assert b.run(gl.ones(2)).tolist() == [3.0, 3.0]
    a.k = 5.0
    assert a.run(gl.ones(2), shift=1.0).tolist() == [6.0, 6.0]


def test_too_many_programs_warn(capsys):
    run = gl.compile(lambda x, s: x * s, explain=True)
    x = gl.ones(2)
    with pytest.warns(UserWarning, match="8 programs already.*argument 1 was"):
        for s in range(12):
            run(x, float(s))
            run(x, float(s))
    assert "is traced again: argument 1 was" in capsys.readouterr().out


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
    refused(lambda x: x * np.random.rand(), gl.ones(2), match="random numbers from Python's")


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
