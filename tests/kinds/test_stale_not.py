"""A compiled function is traced once where nothing changes that it uses, whatever changes beside it."""

import collections
import contextvars
import functools
import operator
import os
import types
import weakref

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.graph.executables.numpy.executable import NumpyExecutable

from kinds.stale import MODELS, READS, STEPS, asked, bound, classes, code, modules, objects, protocols, settings, steps, system, wrappers

SHELVES = asked, bound, classes, code, modules, objects, protocols, steps, system, wrappers  # which fill the tables
COUNTS = {"calls": 0}
TOTAL = 0


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(gl.graph.calls.runner, "executable", NumpyExecutable)


def once(function, beside, *args, calls=5):
    """The function is traced once, though something beside it changes before each call."""
    run = gl.compile(function)
    for _ in range(calls):
        beside()
        run(*(args or (gl.tensor([0.5, -1.0]),)))
    assert len(run.programs) == 1, run.explain()


def nothing():
    pass


@pytest.mark.parametrize("way", READS)
def test_where_nothing_changes(way):
    function, _ = READS[way]()
    once(function, nothing)


@pytest.mark.parametrize("way", MODELS)
def test_where_nothing_changes_of_a_model(way):
    made, _ = MODELS[way]()
    once(lambda x: made(x), nothing)


@pytest.mark.parametrize("way", STEPS)
def test_where_nothing_changes_of_a_step(way):
    _, run, _ = STEPS[way]()
    once(run, nothing)


class Net(nn.Module):
    scale = 2.0

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.steps, self.k, self.history = 0, 2.0, []

    def forward(self, x):
        return self.helper(self.inner(x)) * self.k

    def helper(self, x):
        return x * self.scale

    def other(self):
        return self.steps


class Trainer:
    def __init__(self):
        self.k, self.steps, self.log, self.table = 2.0, 0, [], {"k": 2.0, "steps": 0}
        self.settings = types.SimpleNamespace(k=2.0)

    def scaled(self, x):
        return x * self.k

    def other(self, x):
        return x


def beside_a_module():
    net = Net()
    yield lambda x: net(x)
    yield lambda: setattr(net, "steps", net.steps + 1)
    yield lambda: setattr(net, f"new_{len(vars(net))}", 1)
    yield lambda: net.history.append(1)
    yield lambda: setattr(Net, "other", lambda self: 1)
    yield lambda: setattr(Net, f"new_{len(vars(Net))}", 1)
    yield lambda: net.inner.__dict__.update({f"new_{len(vars(net.inner))}": 1})
    yield lambda: setattr(net, "k", float(net.k))
    yield lambda: net.zero_grad()
    yield lambda: net.state_dict()
    yield lambda: net.load_state_dict(net.state_dict())
    yield lambda: net.eval().train()
    yield lambda: net(gl.ones(3, 2))


def beside_an_object():
    trainer = Trainer()
    yield lambda x: trainer.scaled(x)
    yield lambda: setattr(trainer, "steps", trainer.steps + 1)
    yield lambda: setattr(trainer, f"new_{len(vars(trainer))}", 1)
    yield lambda: trainer.log.append(1)
    yield lambda: setattr(Trainer, "other", lambda self, x: x + 1)
    yield lambda: setattr(Trainer, f"new_{len(vars(Trainer))}", 1)
    yield lambda: trainer.settings.__dict__.update(j=len(trainer.log))


def beside_a_method_by_name():
    trainer = Trainer()
    yield lambda x: getattr(trainer, "scaled")(x) * (2.0 if hasattr(trainer, "later") else 1.0)  # noqa: B009
    yield lambda: setattr(trainer, "steps", trainer.steps + 1)
    yield lambda: setattr(trainer, f"new_{len(vars(trainer))}", 1)


def beside_a_function():
    def helper(x, k=2.0):
        return x * k

    yield lambda x: helper(x)
    yield lambda: setattr(helper, "calls", getattr(helper, "calls", 0) + 1)
    yield lambda: helper(gl.ones(2))
    yield lambda: setattr(helper, "__defaults__", (float("2.0"),))
    yield lambda: setattr(helper, "__doc__", str(len(vars(helper))))
    yield lambda: setattr(helper, "__code__", helper.__code__.replace())


def beside_globals():
    yield lambda x: x * settings.K
    yield lambda: globals().update(TOTAL=TOTAL + 1)
    yield lambda: COUNTS.update(calls=COUNTS["calls"] + 1)
    yield lambda: setattr(settings, "OTHER", len(vars(settings)))
    yield lambda: setattr(settings, "K", float("2.0"))
    yield lambda: os.environ.update(STALE_BESIDE=str(COUNTS["calls"]))


def beside_equal_values():
    holder = types.SimpleNamespace(k=[2.0], table={"k": 2.0}, partial=None)

    def use(x):
        return x * holder.k[0] * holder.table["k"] * holder.partial(1.0)

    holder.partial = functools.partial(operator.mul, 2.0)
    yield use
    yield lambda: setattr(holder, "k", [2.0])
    yield lambda: setattr(holder, "table", {"k": 2.0})
    yield lambda: setattr(holder, "partial", functools.partial(operator.mul, 2.0))


def beside_a_cache():
    @functools.lru_cache
    def factor(n):
        return float(n)

    yield lambda x: x * factor(2)
    yield lambda: factor(factor.cache_info().currsize + 5)
    yield lambda: factor.cache_clear()


def beside_closures():
    def made(k):
        return lambda x: x * k

    first = made(2.0)
    kept = []
    yield lambda x: first(x)
    yield lambda: kept.append(made(len(kept)))
    yield lambda: kept[-1](gl.ones(1)) if kept else None


def beside_what_it_makes_itself():
    def use(x):
        table, holder = {"a": 1.0}, Trainer()
        holder.k = table["a"]
        table["a"] = holder.k + 1.0
        holder.table["steps"] += 1
        holder.log.append(table["a"])
        holder.settings.k = {key: value for key, value in table.items() if key not in holder.table}
        holder.settings.k["a"] += 1.0

        def scaled(y):
            nonlocal holder
            holder.steps += 1
            return y * holder.settings.k["a"]

        return scaled(x) * table.setdefault("b", 2.0) * sum(holder.log)

    yield use
    yield nothing


def beside_references():
    trainer, variable = Trainer(), contextvars.ContextVar("k", default=2.0)
    reference, chain = weakref.ref(trainer), collections.ChainMap({"k": 2.0}, {})
    yield lambda x: x * reference().k * variable.get() * chain["k"]
    yield lambda: setattr(trainer, "steps", trainer.steps + 1)
    yield lambda: variable.set(2.0)
    yield lambda: weakref.ref(trainer)


def beside_a_step():
    net = Net()
    optimizer = gl.optim.Adam(net.parameters(), lr=0.01)
    scheduler = gl.optim.lr_scheduler.StepLR(optimizer, 1)

    def step(x):
        loss = net(x).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    yield step
    yield lambda: scheduler.step() if scheduler.optimizer.state else None
    yield lambda: optimizer.state_dict()
    yield lambda: optimizer.zero_grad()
    yield lambda: setattr(optimizer, "seen", len(vars(optimizer)))
    yield lambda: setattr(net, "steps", net.steps + 1)
    yield lambda: optimizer.register_step_post_hook(lambda *_: None).remove()


class Computing(nn.Module):
    """Attributes that are made anew at each access."""

    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(gl.ones(2))
        self.inner = nn.Linear(2, 2)

    @property
    def w(self):
        return self.p * 2.0

    @w.setter
    def w(self, value):
        raise AssertionError("a trace sets nothing")

    @property
    def noise(self):
        return gl.rand(2) * self.p

    @property
    def settings(self):
        return types.SimpleNamespace(k=len(self.p))

    @functools.singledispatchmethod
    def of(self, value):
        return self.p * value

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name) * 2.0

    def forward(self, x):
        return x * self.w * self.weight[0] + self.noise * self.settings.k


def parametrized(name):
    made = getattr(nn.utils.parametrizations, name)(nn.Linear(2, 2))
    return lambda x: made(x) @ made.weight


COMPUTING = {
    "of a module": lambda made, x: made(x),
    "by name": lambda made, x: x * made.w * made.weight[0],
    "an object": lambda made, x: x * made.settings.k,
    "a random tensor": lambda made, x: x * made.noise,
    "a method": lambda made, x: x * made.of(2.0),
}
COMPUTED = {
    **{what: functools.partial(lambda take: functools.partial(take, Computing()), take) for what, take in COMPUTING.items()},
    **{name: functools.partial(parametrized, name) for name in ("weight_norm", "orthogonal")},
}


@pytest.mark.parametrize("what", COMPUTED)
def test_attributes_that_are_computed(what):
    """They are no places that a trace could have changed; in particular nothing is put back there."""
    once(COMPUTED[what](), nothing)


BESIDE = {
    f"{make.__name__.removeprefix('beside_')} {number}": (make, number)
    for make in (beside_a_module, beside_an_object, beside_a_method_by_name, beside_a_function, beside_globals, beside_equal_values,
                 beside_a_cache, beside_closures, beside_what_it_makes_itself, beside_references, beside_a_step)
    for number in range(1, len(list(make())))
}  # fmt: skip


@pytest.mark.parametrize("what", BESIDE)
def test_what_changes_beside(what):
    make, number = BESIDE[what]
    function, *changes = make()
    once(function, changes[number - 1])


def test_conditions_go_on_in_machine_code():
    """What changes beside a class makes its condition be looked at in Python once, not for ever."""
    trainer = Trainer()
    run = gl.compile(lambda x: trainer.scaled(x))
    for _ in range(3):
        run(gl.ones(2))
    names = run.programs[0].guards.names
    if "watch" not in names:
        pytest.skip("no compiler")
    assert names["watch"](names["watch_at"])
    Trainer.another = 1
    assert not names["watch"](names["watch_at"])
    run(gl.ones(2))
    assert names["watch"](names["watch_at"])
    assert len(run.programs) == 1


def test_a_debugger_goes_on():
    """The interpreter's trace and profile functions are what they were, whether the trace succeeds or not."""
    import sys

    before = sys.gettrace(), sys.getprofile()
    run = gl.compile(lambda x: x * np.float64(2.0))
    for _ in range(3):
        run(gl.ones(2))
    assert (sys.gettrace(), sys.getprofile()) == before
    run = gl.compile(lambda x: x.item())
    run(gl.ones(1))
    with pytest.raises(gl.graph.TraceError):
        run(gl.ones(1))
    assert (sys.gettrace(), sys.getprofile()) == before


CACHES = {"numbers": lambda k: k + 1.0, "tensors": lambda k: gl.arange(3) * k, "lists": lambda k: [k]}


@pytest.mark.parametrize("what", CACHES)
def test_caches_that_a_trace_would_fill(what):
    """They are filled by a run of the function instead: no value of a trace stays in them, and the next call is traced."""
    known, settings = {}, {"k": 1}

    def function(x):
        k = settings["k"]
        if k not in known:
            known[k] = CACHES[what](k)
        return (x * (known[k][0] if what == "lists" else known[k])).sum()

    run = gl.compile(function)
    for k in (1, 1, 2, 2, 2, 3, 3, 1, 2):
        settings["k"] = k
        assert run(gl.ones(3)).item() == function(gl.ones(3)).item()
    assert run.programs


def test_a_dispatcher_that_a_trace_would_fill():
    @functools.singledispatch
    def scale(value):
        return 1.0

    run = gl.compile(lambda x, value: x.sum() * scale(value))
    for value in (1, 1, "a", 1):
        assert run(gl.ones(3), value).item() == 3
    scale.register(str, lambda value: 5.0)
    assert [run(gl.ones(3), value).item() for value in (1, "a", "a", 1)] == [3, 15, 15, 3]


def test_what_grows_at_each_call_is_refused():
    history = {}

    def function(x):
        history[len(history)] = 1.0
        return x.sum()

    run = gl.compile(function)
    with pytest.raises(gl.graph.TraceError, match="changes"):
        for _ in range(9):
            run(gl.ones(3))
    assert len(history) < 9
