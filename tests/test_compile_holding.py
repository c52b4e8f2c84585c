"""What a compiled function lets places hold: buffers and attributes that it binds to new tensors are so after each call, as eagerly."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.graph import TraceError

from compiled_steps import refused

F = nn.functional


class Average(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", gl.zeros((), dtype=gl.int64))
        self.register_buffer("mean", gl.zeros(2))
        self.register_buffer("fixed", gl.ones(2))
        self.last = None
        self.hidden = (gl.zeros(2), gl.zeros(2))

    def forward(self, x):
        self.count = self.count + 1
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        self.last = x * 2
        h, c = self.hidden
        self.hidden = h + x.sum(), c * 2 + 1
        return x * self.mean + h * self.fixed


def seen(module):
    return [module.count, module.mean, module.last, *module.hidden]


def same(a, b):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(np.array(x.tolist()), np.array(y.tolist()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"check": True}], ids=["plain", "check"])
def test_buffers_and_attributes_of_a_module(options):
    eager, model = Average(), Average()
    run = gl.compile(model, **options)
    kept = []
    for i in range(8):
        gl.manual_seed(i)
        x = gl.randn(3 if i in (5, 6) else 4, 2)
        same([eager(x)], [run(x)])
        same(seen(eager), seen(model))
        kept.append((model.mean, model.mean.tolist()))
    assert len(run.compiled.programs) == 2 and list(model.state_dict()) == ["count", "mean", "fixed"]
    assert all(mean.tolist() == before for mean, before in kept)  # they are new tensors, and older ones stay
    model.mean = gl.full((2,), 7.0)
    eager.mean = gl.full((2,), 7.0)
    for _ in range(2):
        same([eager(x)], [run(x)])
    assert len(run.compiled.programs) == 2
    assert any("Average.mean's shape" in text for text in run.compiled.explain())
    assert not any("Average.last" in text for text in run.compiled.explain())  # nobody looks at it


def test_another_dtype_or_shape_is_traced_again():
    model = Average()
    run = gl.compile(model)
    for _ in range(3):
        run(gl.ones(4, 2))
    model.mean = model.mean.double()
    for _ in range(3):
        assert run(gl.ones(4, 2)).dtype == gl.float64
    assert len(run.compiled.programs) == 2


def test_a_run_that_fails_changes_nothing():
    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", gl.zeros(3))

        def forward(self, table, i):
            self.seen = self.seen + 1
            return table[i] + self.seen[0]

    model = Looks()
    run = gl.compile(model)
    for _ in range(3):
        run(gl.ones(3), gl.tensor([0, 1]))
    before = model.seen
    with pytest.raises(IndexError):
        run(gl.ones(3), gl.tensor([0, 9]))
    assert model.seen is before and before.tolist() == [3.0] * 3


def test_a_trace_that_fails_changes_nothing():
    model = Average()

    def fails(x):
        y = model(x)
        return y if y.sum() > -1e9 else x

    run = gl.compile(fails)
    run(gl.ones(4, 2))
    before = [model.count, model.mean, model.last, model.hidden]
    with pytest.raises(TraceError, match="a value was read"):
        run(gl.ones(4, 2))
    assert all(a is b for a, b in zip(before, [model.count, model.mean, model.last, model.hidden], strict=True))


def test_python_values_are_refused_as_before():
    class Counts(Average):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(x)

    model = Counts()
    refused(model, gl.ones(4, 2), match=r"changes Counts\.calls while")
    assert model.calls == 1 and model.count.item() == 1


@pytest.mark.parametrize("recurrent", [False, True])
def test_gradients_go_through_what_is_held(recurrent):
    """Without `detach` the graph goes on from call to call, as eagerly."""

    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.h = gl.zeros(1, 2)

        def forward(self, x):
            h = self.h if recurrent else self.h.detach()
            self.h = gl.tanh(self.linear(x) + h)
            return self.h

    found = []
    for wrap in (lambda f: f, gl.compile):
        gl.manual_seed(0)
        model = Cell()
        run, update = wrap(model), gl.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(6):
            loss = sum(run(gl.full((1, 2), 0.5 * i)).square().sum() for i in range(4))
            update.zero_grad()
            loss.backward()
            update.step()
            model.h = model.h.detach()
            losses.append(loss.item())
        found.append(losses)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def test_gradients_of_gradients():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = gl.ones(2)

        def forward(self, x):
            self.scale = self.scale * 0.5
            return (x**3 * self.scale).sum()

    found = []
    for wrap in (lambda f: f, gl.compile):
        run, results = wrap(Scaled()), []
        for i in range(4):
            x = gl.tensor([1.0 + i, 2.0], requires_grad=True)
            (slope,) = gl.autograd.grad(run(x), x, create_graph=True)
            (curve,) = gl.autograd.grad((slope * slope).sum(), x)
            results += [slope, curve]
        found.append(results)
    same(*found)


def test_a_whole_step_with_an_average_of_losses():
    class Trainer:
        def __init__(self, wrap):
            gl.manual_seed(0)
            self.model = nn.Linear(3, 1)
            self.update = gl.optim.Adam(self.model.parameters(), lr=0.01)
            self.average, self.previous = gl.zeros(()), None
            self.run = wrap(self.step)

        def step(self, x):
            loss = self.model(x).square().mean()
            self.update.zero_grad()
            loss.backward()
            self.update.step()
            self.average = 0.9 * self.average + 0.1 * loss.detach()
            self.previous = self.average
            return loss

    a, b = Trainer(lambda f: f), Trainer(gl.compile)
    for i in range(6):
        gl.manual_seed(i)
        x = gl.randn(4, 3)
        same([a.run(x), a.average, a.previous], [b.run(x), b.average, b.previous])
        assert b.previous is b.average  # one tensor, as eagerly
    assert len(b.run.programs) == 1


STATE = gl.zeros(2)


def test_variables_of_modules_and_of_functions():
    global STATE
    before, state, box = STATE, gl.zeros(2), SimpleNamespace(h=gl.zeros(2))

    def function(x):
        global STATE
        nonlocal state
        STATE = STATE + x
        state = state * 2 + x
        box.h = box.h - x
        return STATE * state

    try:
        run = gl.compile(function)
        sums = [run(gl.ones(2)).tolist()[0] for _ in range(5)]
        assert STATE.tolist() == [5.0, 5.0] and state.tolist() == [31.0, 31.0] and box.h.tolist() == [-5.0, -5.0]
        assert sums == [1.0, 6.0, 21.0, 60.0, 155.0] and len(run.programs) == 1
    finally:
        STATE = before


def test_what_only_is_written():
    class Trainer:
        def __init__(self):
            self.last = None

        def step(self, x):
            self.last = x * 2
            return x

    class Holder:
        y = None

    trainer, held, seen = Trainer(), Holder(), 0

    def outer(x):
        nonlocal seen
        seen = x * 3
        return x

    def keep(x, held):
        held.y = x * 4
        return x

    runs = [gl.compile(f) for f in (trainer.step, outer, keep)]
    for i in range(5):
        x = gl.full((2,), float(i))
        runs[0](x)
        runs[1](x)
        runs[2](x, held)
        assert (trainer.last[0].item(), seen[0].item(), held.y[0].item()) == (2.0 * i, 3.0 * i, 4.0 * i)
    assert [len(run.programs) for run in runs] == [1, 1, 1]
    for n in (2, 3, 2, 3, 2, 3):  # what was there before does not matter
        trainer.step(gl.ones(n))
        runs[0](gl.ones(n))
    assert len(runs[0].programs) == 2


def test_private_attributes_of_modules():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self._gain, self._h = 2.0, gl.zeros(2)

        def forward(self, x):
            self._h = self._h + x
            return x * self._gain + self._h

    model = Model()
    run = gl.compile(model)
    for i, gain in enumerate((2.0, 2.0, 2.0, 5.0, 5.0), 1):
        model._gain = gain
        assert run(gl.ones(2)).tolist() == [gain + i] * 2


def test_each_instance_has_its_own():
    class Counter:
        def __init__(self):
            self.n = gl.zeros(())

        @gl.compile
        def add(self, x):
            self.n = self.n + x
            return self.n * 2

    a, b = Counter(), Counter()
    for i in range(4):
        assert a.add(gl.ones(())).item() == 2 * (i + 1)
        assert b.add(gl.full((), 3.0)).item() == 6 * (i + 1)
    b.n = b.n.double()
    for _ in range(3):
        a.add(gl.ones(()))
    assert len(Counter.add.programs) == 2


def test_copies_hold_their_own():
    model = gl.compile(Average())
    for _ in range(3):
        model(gl.ones(4, 2))
    twin = copy.deepcopy(model)
    for _ in range(3):
        twin(gl.ones(4, 2))
    assert model.count.item() == 3 and twin.count.item() == 6
    assert Average().compile() is not None


@pytest.mark.usefixtures("cuda")
def test_on_a_gpu():
    eager, model = Average(), Average().cuda()
    model.hidden = tuple(h.cuda() for h in model.hidden)
    run = gl.compile(model)
    for i in range(4):
        gl.manual_seed(i)
        x = gl.randn(4, 2)
        same([eager(x)], [run(x.cuda())])
        same(seen(eager), seen(model))
    assert len(run.compiled.programs) == 1 and model.mean.is_cuda
