"""Programs whose state is computed from other state that they write: each reads what was there when its line ran, in every order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gradlab as gl
from gradlab.backends.native import compiler

START = {"a": [1.0, 2.0, 3.0], "b": [10.0, 20.0, 30.0], "c": [0.5, 0.25, 0.125]}
LINES = {
    "a from x": lambda s, x: s["a"].add_(x), "b from a": lambda s, x: s["b"].copy_(s["a"] * 2),
    "c from b": lambda s, x: s["c"].mul_(s["b"]),
    "a from c": lambda s, x: s["a"].copy_(s["c"] + x), "part of b": lambda s, x: s["b"][1:].sub_(s["a"][:2]),
    "swap": lambda s, x: swap(s["a"], s["b"]), "c from its turned self": lambda s, x: s["c"].copy_(s["c"].flip(0)),
    "b from view of b": lambda s, x: s["b"][:2].copy_(s["b"][1:] * 1.0),
}  # fmt: skip


def swap(a, b):
    kept = a.clone()
    a.copy_(b)
    b.copy_(kept)


def result(order, compiled):
    """All state after three calls, and what each call returned."""
    state = {name: gl.tensor(values) for name, values in START.items()}

    def step(x):
        seen = []
        for name in order:
            LINES[name](state, x)
            seen.append(state["a"] + state["b"] * state["c"])
        return seen

    run, found = (gl.compile(step) if compiled else step), []
    for i in range(4):
        found += [t.numpy().copy() for t in run(gl.tensor([0.5, -1.0, 2.0]) * (i + 1))]
    return [*found, *(t.numpy().copy() for t in state.values())]


@pytest.mark.parametrize("by_machine", [False, True])
def test_orders_of_writes(by_machine, monkeypatch):
    if by_machine and not compiler.available():
        pytest.skip("no C++ compiler")
    monkeypatch.setattr(compiler, "available", lambda: by_machine)
    orders = [*[*itertools.permutations(LINES, 2)][:: 7 if by_machine else 3], tuple(LINES), tuple(reversed(LINES))]
    for order in orders:
        for got, want in zip(result(order, True), result(order, False), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=str(order))


def test_an_average_of_what_a_step_has_just_written():
    """Weights are written by an optimizer, their average by the next line, a count by the third: as one program."""

    def run(compiled):
        gl.manual_seed(0)
        layer, x = gl.nn.Linear(3, 2), gl.ones(4, 3)
        optimizer = gl.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
        average, count = gl.zeros(2, 3), gl.zeros(())

        def step():
            loss = layer(x).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            count.add_(1)
            average.add_((layer.weight.detach() - average) / count)
            return loss.detach(), average.sum()

        step = gl.compile(step) if compiled else step
        return [float(v) for _ in range(5) for v in step()], average.numpy().copy(), count.item()

    (seen, average, count), (want_seen, want_average, want_count) = run(True), run(False)
    np.testing.assert_allclose(seen, want_seen, rtol=1e-5)
    np.testing.assert_allclose(average, want_average, rtol=1e-5)
    assert count == want_count == 5
