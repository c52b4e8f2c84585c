"""The short way of a compiled call: conditions tested in machine code, gradients that stay where they are, and what has to stop both."""

from __future__ import annotations

import copy
import cProfile
import sys

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn, optim
from gradlab.backends.native import compiler
from gradlab.graph.calls.fast_call import Quick
from gradlab.graph.guards.guards import Guards
from gradlab.graph.guards.machine_guards import Found, can_watch, path, watcher

machine_code = pytest.mark.skipif(not compiler.available(), reason="needs a C++ compiler")
X = gl.tensor(np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4))


def network():
    gl.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))


def step_of(model, opt):
    def step(x):
        loss = model(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return step


def pair(make=lambda p: optim.SGD(p, lr=0.1, momentum=0.9)):
    """A compiled step that has its program, with its network and optimizer, and the same left eager."""
    found = []
    for wrap in (gl.compile, lambda f: f):
        model = network()
        opt = make(model.parameters())
        step = wrap(step_of(model, opt))
        for _ in range(4):
            step(X)
        found.append((step, model, opt))
    return found


def agree(*pairs):
    """Both steps go on alike."""
    (step, model, _), (eager, other, _) = pairs
    for _ in range(3):
        assert step(X).item() == pytest.approx(eager(X).item(), rel=1e-5)
    for p, q in zip(model.parameters(), other.parameters()):
        np.testing.assert_allclose(p.numpy(force=True), q.numpy(force=True), rtol=1e-5, atol=1e-6)
        assert (p.grad is None) == (q.grad is None)
        if p.grad is not None:
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-4, atol=1e-6)


def ways(step):
    """How often the short way is taken in three calls."""
    quick = step.programs[0].run.__self__
    assert isinstance(quick, Quick)
    runner, long = quick.runner, []
    whole = runner.run
    runner.run = lambda *a: (long.append(1), whole(*a))[1]
    try:
        for _ in range(3):
            step(X)
    finally:
        del runner.run
    return 3 - len(long)


@machine_code
def test_most_calls_take_the_short_way():
    step = pair()[0][0]
    assert ways(step) == 3


@machine_code
def test_gradients_that_somebody_holds_are_left_alone():
    (step, model, opt), other = pair()
    held = [p.grad for p in model.parameters()]
    was = [g.numpy().copy() for g in held]
    assert ways(step) == 2  # the first makes new ones
    assert all(np.array_equal(g.numpy(), w) for g, w in zip(held, was))
    for _ in range(3):
        other[0](X)
    # Held through the array alone, and by somebody else than the leaf.
    arrays = [p.grad.numpy() for p in model.parameters()]
    was = [a.copy() for a in arrays]
    step(X), other[0](X)
    assert all(np.array_equal(a, w) for a, w in zip(arrays, was))
    held = [p.grad for p in model.parameters()]
    was = [g.numpy().copy() for g in held]
    opt.zero_grad()
    step(X), other[0](X)
    assert all(np.array_equal(g.numpy(), w) for g, w in zip(held, was))
    agree((step, model, opt), other)


@machine_code
def test_gradients_that_were_replaced():
    (step, model, opt), other = pair()
    for m in (model, other[1]):
        for p in m.parameters():
            p.grad = gl.ones_like(p)
    agree((step, model, opt), other)
    model[0].weight.grad.add_(1)  # its own memory: the program writes it anew
    agree((step, model, opt), other)


def changed(change):
    pairs = pair()
    for _, model, opt in pairs:
        change(model, opt)
    agree(*pairs)
    return pairs[0][0]


CHANGES = {
    "a parameter's memory": lambda m, o: setattr(m[0].weight, "data", m[0].weight.detach() * 2),
    "a layer": lambda m, o: m.__setitem__(1, nn.ReLU()),
    "a table of layers": lambda m, o: m.__dict__.update(_modules={**m._modules, "1": nn.ReLU()}),
    "a layer more": lambda m, o: m.append(nn.Tanh()),
    "training": lambda m, o: m.eval(),
    "a frozen parameter": lambda m, o: m[0].bias.requires_grad_(False),
    "a group's number": lambda m, o: o.param_groups[0].update(lr=0.01),
    "a group's switch": lambda m, o: o.param_groups[0].update(nesterov=True),
    "the parameters of a group": lambda m, o: o.param_groups[0]["params"].pop(),
    "one more group": lambda m, o: o.add_param_group({"params": [nn.Parameter(gl.ones(2))], "lr": 0.5}),
    "a hook of a parameter": lambda m, o: m[2].weight.register_hook(lambda g: g * 0.5),
    "a hook of a layer": lambda m, o: m[0].register_forward_hook(lambda m, a, y: y * 2),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_changes_is_seen(what):
    changed(CHANGES[what])


@machine_code
def test_an_equal_number_that_is_another_object_needs_no_new_trace():
    model = network()
    model.scale = 1000

    def forward(x):
        return model(x) * model.scale

    run = gl.compile(forward)
    for _ in range(3):
        run(X)
    model.scale = int("1000")
    np.testing.assert_allclose(run(X).numpy(force=True), forward(X).numpy(force=True), rtol=1e-5)
    assert len(run.programs) == 1
    model.scale = 1000.0
    run(X)
    assert len(run.programs) == 2


@machine_code
@pytest.mark.parametrize(
    "result", [lambda y: None, lambda y: (y, [y * 2]), lambda y: {"a": y, "b": y + 1}, lambda y: (y, y), lambda y: (y, 3, "s")]
)
def test_results_of_every_structure(result):
    def function(x):
        return result(x.tanh())

    run = gl.compile(function)
    outs = [run(X) for _ in range(5)]
    want = function(X)
    first = copy.deepcopy(outs[-1])
    run(-X)
    for got in (outs[-1], first):  # a later call leaves them alone
        assert repr(got) == repr(want) or str(got) == str(want)
    if want is not None and not isinstance(want, dict):
        assert (outs[-1][0] is outs[-1][1]) == (want[0] is want[1])


def test_path():
    names = {"o1": {"k": [1]}, "o22": "q"}
    assert path("o1['k'][0]", names) == (names["o1"], [(True, "k"), (True, 0)])
    assert path("o22.a.b", names) == ("q", [(False, "a"), (False, "b")])
    assert path("o1[o22]", names) == (names["o1"], [(True, "q")])
    for text in ("o1", "args[0]", "o1['a'] is o2", "o1.a()", "len(o1.a)", 'o1["it\'s"]', "o1[-1]"):
        assert path(text, names) is None


class Thing:
    def __init__(self):
        self.table, self.list, self.name = {"k": "v", 3: "w"}, ["e"], "n"

    @property
    def broken(self):
        raise AttributeError("gone")


@pytest.mark.skipif(not can_watch(), reason="needs a C++ compiler and CPython")
@pytest.mark.parametrize(
    ("expression", "change"),
    [
        ("o0.name", lambda t: setattr(t, "name", "m")), ("o0.name", lambda t: delattr(t, "name")),
        ("o0.table['k']", lambda t: t.table.update(k="z")), ("o0.table['k']", lambda t: t.table.clear()),
        ("o0.table['k']", lambda t: setattr(t, "table", None)), ("o0.table[3]", lambda t: t.table.update({3: 4})),
        ("o0.list[0]", lambda t: t.list.clear()), ("o0.list[0]", lambda t: t.list.__setitem__(0, "f")),
    ],
)  # fmt: skip
def test_watcher_sees_changes(expression, change):
    thing = Thing()
    names = {"o0": thing}
    table, _kept = watcher([Found(expression, eval(expression, names))], names)
    assert table.test(table.at) == 1
    change(thing)
    assert table.test(table.at) == 0
    gl.ones(1) + 1  # no exception is left behind


@pytest.mark.skipif(not can_watch(), reason="needs a C++ compiler and CPython")
def test_watcher_of_sizes_and_of_what_is_not_there():
    thing = Thing()
    names = {"o0": thing}
    table, _kept = watcher([Found("o0.list", None, 1), Found("o0.table", None, 2)], names)
    assert table.test(table.at) == 1
    thing.list.append(1)
    assert table.test(table.at) == 0
    assert watcher([Found("o0.broken", None)], names) is None
    assert watcher([Found("o0.name", "other")], names) is None


def test_guards_without_machine_code(monkeypatch):
    monkeypatch.setattr("gradlab.graph.guards.guards.can_watch", lambda: False)
    thing = Thing()
    guards = Guards()
    guards.equal(f"{guards.name(thing)}.name", "n", "the name")
    guards.size(f"{guards.name(thing)}.list", 1, "the list")
    check = guards.build()
    assert check((), {}, None)
    thing.list.append(2)
    assert not check((), {}, None)
    assert guards.why((), {}, None) == "the list was 1, is 2"


def test_a_second_backward_needs_the_values_kept():
    model = network()
    run = gl.compile(lambda x: model(x).square().mean())
    for _ in range(3):
        loss = run(X)
    loss.backward(retain_graph=True)
    loss.backward()
    twice = [p.grad.numpy().copy() for p in model.parameters()]
    with pytest.raises(RuntimeError, match="already run"):
        loss.backward()
    model.zero_grad()
    model(X).square().mean().backward()
    for p, g in zip(model.parameters(), twice):
        np.testing.assert_allclose(2 * p.grad.numpy(), g, rtol=1e-5, atol=1e-7)


def test_results_in_the_graph_of_the_caller():
    model = network()

    def forward(x, scale):
        y = model(x)
        return {"y": y, "loss": (y * scale).mean()}, x.exp()

    run = gl.compile(forward)
    for _ in range(4):
        grads = []
        for f in (run, forward):
            x, scale = X.clone().requires_grad_(), gl.tensor(2.0, requires_grad=True)
            found, other = f(x * 1, scale)  # an argument that was computed
            (found["loss"] + found["y"].sum() + other.mean()).backward()
            grads.append([x.grad, scale.grad, *(p.grad.clone() for p in model.parameters())])
            model.zero_grad()
        for a, b in zip(*grads):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
    assert run(x * 1, scale)[0]["loss"].grad_fn.name() == "CompiledBackward0"


def test_a_profiler_goes_on_behind_a_trace():
    profiler = cProfile.Profile()
    step = gl.compile(lambda x: (x * 2).sum())
    profiler.enable()
    results = [step(gl.ones(3) * i).item() for i in range(4)]
    after = [sorted([3, 1, 2]) for _ in range(7)]
    profiler.disable()
    assert results == [0, 6, 12, 18] and after and sys.getprofile() is None
    assert next(line for line in profiler.getstats() if "sorted" in str(line.code)).callcount >= 7
