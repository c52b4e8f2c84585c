"""Compiled functions never go stale: whatever changes of what they use, the next call gives what eager gives.

Each way to change something (`kinds.stale`) is tried in several forms: a function, a module, a module compiled in place, a training step.
What a function computes from is tried in a function and, in turns, in a module or a training step.
"""

import datetime
import os
import random
import secrets
import time
import uuid
from pathlib import Path

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.graph.executables.numpy.executable import NumpyExecutable
from gradlab.overrides import overridable

from kinds.stale import MODELS, READS, STEPS, asked, bound, classes, code, modules, objects, protocols, steps, system, wrappers

SHELVES = asked, bound, classes, code, modules, objects, protocols, steps, system, wrappers  # which fill the tables


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Programs run in NumPy, which needs no compiler; their conditions are tested in machine code as always."""
    monkeypatch.setattr(gl.graph.calls.runner, "executable", NumpyExecutable)


@pytest.fixture
def patch(monkeypatch):
    """monkeypatch, and what else is undone."""
    undo = []
    monkeypatch.callback = undo.append
    yield monkeypatch
    for each in undo:
        each()


def x():
    return gl.tensor([0.5, -1.0])


def numbers(value):
    return np.array(value.tolist())


def follows(compiled, eager, change, patch):
    for _ in range(3):
        np.testing.assert_allclose(compiled(), before := eager(), rtol=1e-5, atol=1e-6)
    change(patch)
    after = eager()
    assert not np.allclose(before, after), "the change shows"
    for _ in range(3):
        np.testing.assert_allclose(compiled(), after, rtol=1e-5, atol=1e-6)


class Using(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function  # perhaps a module
        self.w = nn.Parameter(gl.ones(2))

    def forward(self, x):
        return self.function(x) * self.w


def stepping(made, run):
    """A training step from the same state each time: its loss, and what became of the parameters."""
    parameters = list(made.parameters())
    before = [p.detach().clone() for p in parameters]

    def one():
        with gl.no_grad():
            for p, was in zip(parameters, before, strict=True):
                p.copy_(was)
        loss = run(x())
        return np.concatenate([numbers(t).reshape(-1) for t in (loss, *parameters)])

    return one


def plain_step(made):
    optimizer = gl.optim.SGD(made.parameters(), lr=0.1)

    def run(x):
        loss = (made(x) * gl.tensor([1.0, 3.0])).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return run


@pytest.mark.parametrize("way", READS)
def test_function(way, patch):
    function, change = READS[way]()
    run = gl.compile(function)
    follows(lambda: numbers(run(x())), lambda: numbers(function(x())), change, patch)


@pytest.fixture
def asking(monkeypatch):
    """Public functions as they are where a class may answer for them (`__torch_function__`)."""
    for module, table in overridable.places().items():
        for name, function in table.items():
            if vars(module).get(name) is function.plain:
                monkeypatch.setitem(vars(module), name, function)


@pytest.mark.parametrize("way", sorted((asked.__dict__ | system.__dict__).keys() & READS.keys()))
def test_function_while_functions_ask(way, asking, patch):
    test_function(way, patch)


@pytest.mark.parametrize("way", list(READS)[::2])
def test_module(way, patch):
    function, change = READS[way]()
    made = Using(function)
    run = gl.compile(made)
    follows(lambda: numbers(run(x())), lambda: numbers(made(x())), change, patch)


@pytest.mark.parametrize("way", list(READS)[1::2])
def test_step(way, patch):
    function, change = READS[way]()
    made = Using(function)
    run = plain_step(made)
    follows(stepping(made, gl.compile(run)), stepping(made, run), change, patch)


@pytest.mark.parametrize("way", MODELS)
def test_model_in_a_function(way, patch):
    made, change = MODELS[way]()
    run = gl.compile(lambda x: made(x) + 1.0)
    follows(lambda: numbers(run(x())), lambda: numbers(made(x()) + 1.0), change, patch)


@pytest.mark.parametrize("way", MODELS)
def test_model(way, patch):
    made, change = MODELS[way]()
    run = gl.compile(made)
    follows(lambda: numbers(run(x())), lambda: numbers(made(x())), change, patch)


@pytest.mark.parametrize("way", MODELS)
def test_model_compiled_in_place(way, patch):
    made, change = MODELS[way]()
    compiled = made.compile()
    follows(lambda: numbers(made(x())), lambda: numbers(eagerly(made)(x())), change, patch)
    assert compiled is not None


@pytest.mark.parametrize("way", sorted(modules.__dict__.keys() & MODELS.keys()))
def test_model_while_functions_ask(way, asking, patch):
    test_model_compiled_in_place(way, patch)


def eagerly(made):
    def run(x):
        compiled = made.__dict__.pop("_compiled_call", None)
        try:
            return made(x)
        finally:
            if compiled is not None:
                made.__dict__["_compiled_call"] = compiled

    return run


@pytest.mark.parametrize("way", MODELS)
def test_model_inside_another(way, patch):
    made, change = MODELS[way]()
    outer = nn.Sequential(nn.Identity(), made)
    run = gl.compile(outer)
    follows(lambda: numbers(run(x())), lambda: numbers(outer(x())), change, patch)


@pytest.mark.parametrize("way", MODELS)
def test_model_in_a_step(way, patch):
    made, change = MODELS[way]()
    outer = Using(made)
    run = plain_step(outer)
    follows(stepping(outer, gl.compile(run)), stepping(outer, run), change, patch)


@pytest.mark.parametrize("way", STEPS)
def test_training(way, patch):
    made, run, change = STEPS[way]()
    follows(stepping(made, gl.compile(run)), stepping(made, run), change, patch)


DRAWS = np.random.default_rng(0), np.random.RandomState(0), random.Random(0)
REFUSED = {
    "a generator of NumPy's": lambda x: x * float(DRAWS[0].normal()),
    "an older one": lambda x: x * float(DRAWS[1].rand()),
    "one of Python's": lambda x: x * DRAWS[2].randint(0, 9),
    "the system's numbers": lambda x: x * float(uuid.uuid4().int % 7),
    "secrets": lambda x: x * float(secrets.randbelow(7)),
    "a file": lambda x: x * float(len(_text(__file__))),
    "a path": lambda x: x * float(len(Path(__file__).read_text())),
    "whether a file is there": lambda x: x * (2.0 if os.path.exists(__file__) else 3.0),
    "a directory": lambda x: x * float(len(os.listdir("."))),
    "a file's size": lambda x: x * float(os.stat(__file__).st_size),
    "a clock": lambda x: x * float(time.localtime().tm_year),
    "a date": lambda x: x * float(datetime.date.today().day),
}


def _text(name):
    with open(name, encoding="utf-8") as file:
        return file.read()


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_a_condition_is_refused(what):
    run = gl.compile(REFUSED[what])
    run(x())
    with pytest.raises(gl.graph.TraceError, match="a replay"):
        run(x())


def test_there_are_many_ways():
    assert 2 * len(READS) + 5 * len(MODELS) + len(STEPS) > 850
