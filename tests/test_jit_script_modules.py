"""`jit.script` of modules, methods and closures."""

from __future__ import annotations

import numpy as np
import pytest
from test_jit_script import INPUTS

import gradlab as gl
from gradlab import nn


@pytest.fixture(autouse=True)
def row_by_row(monkeypatch):
    monkeypatch.setenv("GRADLAB_COMPILE", "0")


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.yes, self.no = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("seen", gl.zeros(()))

    def forward(self, x):
        self.seen += 1
        if x.sum() > 0:
            return self.yes(x)
        return self.no(x)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.Sequential(Gate(), nn.Tanh(), Gate())

    def forward(self, x):
        return self.parts(x)


def test_modules_and_their_submodules():
    gl.manual_seed(0)
    m = Twice()
    scripted = gl.jit.script(m)
    assert isinstance(scripted, Twice) and list(scripted.state_dict()) == list(m.state_dict())
    assert all(a is b for a, b in zip(scripted.parameters(), m.parameters(), strict=True))
    program = gl.jit.trace(scripted, (gl.tensor(INPUTS[0]),))
    for values in INPUTS:
        want = m(gl.tensor(values))
        np.testing.assert_allclose(program(gl.tensor(values)).detach().numpy(), want.detach().numpy(), rtol=1e-5)
    assert m.parts[0].seen.item() == 8
    assert list(program.state_dict()) == list(m.state_dict())
    x = gl.tensor(INPUTS[1])
    a = gl.autograd.grad(program(x).sum(), list(m.parameters()), allow_unused=True)
    b = gl.autograd.grad(m(x).sum(), list(m.parameters()), allow_unused=True)
    for u, v in zip(a, b, strict=True):
        np.testing.assert_allclose(0 if u is None else u.numpy(), 0 if v is None else v.numpy(), rtol=1e-5, atol=1e-7)


class Base(nn.Module):
    def forward(self, x):
        return x + 1


class Private(Base):
    def __init__(self):
        super().__init__()
        self.__factor = 3.0

    def forward(self, x):
        y = super().forward(x)
        if x.sum() > 0:
            y = y * self.__factor
        return y


def test_private_names_and_super():
    program = gl.jit.trace(gl.jit.script(Private()), (gl.ones(2),))
    assert program(gl.tensor([1.0, 2.0])).tolist() == [6.0, 9.0] and program(gl.tensor([-1.0, -2.0])).tolist() == [0.0, -1.0]


class Method(nn.Module):
    def forward(self, x):
        return self.chosen(x)

    @gl.jit.script
    def chosen(self, x):
        return x if x.sum() > 0 else -x


def test_methods_closures_defaults_and_docstrings():
    assert gl.jit.trace(Method(), (gl.tensor(INPUTS[0]),))(gl.tensor(INPUTS[1])).tolist() == [1.0, 2.0, -0.5, 9.0]
    factor = 2.0

    @gl.jit.script
    def f(x, *, shift=1.0, **rest):
        """What f does."""
        return x * factor + shift + rest.get("more", 0) if x.sum() > 0 else x

    assert f(gl.ones(1)).tolist() == [3.0] and f(gl.ones(1), shift=5.0, more=1).tolist() == [8.0]
    factor = 4.0
    assert f(gl.ones(1)).tolist() == [5.0]
    assert f.__doc__ == "What f does." and f.__name__ == "f" and "branch" not in f.code and "_script.either" in f.code
    assert repr(f).startswith("<script test_methods_closures")
