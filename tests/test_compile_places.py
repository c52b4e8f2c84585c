"""Places that a compiled function binds anew: exchanged ones, some in a branch only, attributes of objects, weights that hooks make."""

from __future__ import annotations

import numpy as np

import gradlab as gl
from gradlab import nn


def same(a, b):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(np.array(x.tolist()), np.array(y.tolist()), rtol=1e-5, atol=1e-6)


def test_places_exchanged_and_shared():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("a", gl.zeros(2))
            self.register_buffer("b", gl.ones(2))
            self.kept = self.a

        def forward(self, x):
            self.a, self.b = self.b, self.a
            self.view = x[0]
            self.given = x
            return self.a * 10 + self.b + self.kept

    eager, model = Pair(), Pair()
    run = gl.compile(model)
    for i in range(6):
        x = gl.full((2, 2), float(i))
        same([eager(x), eager.a, eager.b, eager.view], [run(x), model.a, model.b, model.view])
        assert model.given is x
        model.view.add_(1)
        assert x[0].tolist() == [i + 1.0] * 2  # a view of the argument, as eagerly


def test_written_in_place_and_bound_anew():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("a", gl.zeros(2))

        def forward(self, x):
            self.a.add_(x)
            self.old = self.a
            self.a = self.a * 2
            return self.a + 1

    eager, model = Both(), Both()
    run = gl.compile(model)
    for _ in range(5):
        first, second = eager.a, model.a
        same([eager(gl.ones(2)), eager.a, eager.old], [run(gl.ones(2)), model.a, model.old])
        assert model.old is second and eager.old is first
        same([first], [second])


def test_a_place_that_is_looked_at_in_one_branch_only():
    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            self.memory = gl.zeros(2)

        def forward(self, x, use):
            y = x + self.memory if use else x
            if use != "only":
                self.memory = y.detach()
            return y

    eager, model = Sometimes(), Sometimes()
    run = gl.compile(model)
    for use in (False, False, True, True, "only", "only", True, False, False, "only", True):
        same([eager(gl.ones(2), use), eager.memory], [run(gl.ones(2), use), model.memory])


def test_objects_that_are_looked_at_as_a_whole():
    class State:
        def __init__(self):
            self.h, self.gain = gl.zeros(2), 1.0

    def update(state, x):
        if hasattr(state, "h") and getattr(state, "gain", 0):
            state.h = state.h + x * state.gain
        return state.h

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.state, self.last, self.gain = State(), gl.zeros(2), 1.0

        def forward(self, x):
            if hasattr(self, "last") and hasattr(self, "gain"):
                self.last = self.last + x * self.gain
            return update(self.state, x) + self.last

    model = Model()
    run = gl.compile(model)
    for i in range(4):
        assert run(gl.ones(2)).tolist() == [2.0 * (i + 1)] * 2 == [2 * model.last.tolist()[0]] * 2
    model.gain = model.state.gain = 2.0
    for i in range(4):
        assert run(gl.ones(2)).tolist() == [8.0 + 4 * (i + 1)] * 2
    assert len(run.compiled.programs) == 2


def test_hooks_that_compute_a_weight():
    found = []
    for wrap in (lambda f: f, gl.compile):
        gl.manual_seed(0)
        model = nn.Sequential(nn.utils.spectral_norm(nn.Linear(3, 4)), nn.Tanh(), nn.utils.weight_norm(nn.Linear(4, 2)))
        run, update = wrap(model), gl.optim.SGD(model.parameters(), lr=0.1)
        for i in range(5):
            gl.manual_seed(i)
            loss = run(gl.randn(5, 3)).square().mean()
            update.zero_grad()
            loss.backward()
            update.step()
            found.append(loss)
    same(found[:5], found[5:])
