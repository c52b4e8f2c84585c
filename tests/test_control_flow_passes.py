"""The bodies of control flow in compiled functions: the passes run over them, with the function's switches, and their loops are fused."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.backends.native import compiler

OFF = {"drop_clones": False, "rewrite": False}


def redundant(x):
    """Two operations that stay, and three that the passes remove."""
    return (x.clone() * 1.0 - 0.0).tanh() + 0.5


def scanned(h, xs):
    return gl.scan(lambda h, x: (redundant(h) * 0.5, redundant(x)), h, xs)[1]


def chosen(h, xs):
    return gl.cond(h.sum() > 0, redundant, lambda x: redundant(x) * 2, (xs,))


def switched(h, xs):
    return gl.switch((h.sum() > 0).to(gl.int64), [redundant, lambda x: redundant(x) * 2, lambda x: redundant(x) * 3], (xs,))


def looped(h, xs):
    with gl.no_grad():
        return gl.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, redundant(x)), (gl.zeros((), dtype=gl.int64), xs))[1]


def nested(h, xs):
    return gl.scan(lambda h, x: (h, gl.cond(x.sum() > 0, redundant, lambda x: redundant(x) * 2, (x,))), h, xs)[1]


FLOWS = {"scan": (scanned, 2), "cond": (chosen, 2), "switch": (switched, 3), "while_loop": (looped, 1), "nested": (nested, 2)}


def compiled(function, passes=None):
    gl.manual_seed(0)
    run = gl.compile(function, passes=passes)
    for _ in range(3):
        h, xs = gl.rand(4) + 0.1, gl.randn(5, 4)
        np.testing.assert_allclose(run(h, xs).numpy(), function(h, xs).numpy(), rtol=1e-5, atol=1e-6)
    return run.stats()


@pytest.mark.parametrize("name", FLOWS)
def test_passes_run_in_the_bodies_unless_they_are_switched_off(name):
    function, bodies = FLOWS[name]
    on, off = compiled(function), compiled(function, OFF)
    assert on.traced == off.traced
    assert off.operations - on.operations == 3 * bodies
    assert on.passes["rewrite"][0] - on.passes["rewrite"][1] >= 2 * bodies
    assert "rewrite" not in off.passes


@pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")
@pytest.mark.parametrize("name", FLOWS)
def test_loops_are_fused_in_the_bodies_that_ran(name):
    on, off = compiled(FLOWS[name][0]), compiled(FLOWS[name][0], OFF)
    assert any(loop.startswith("tanh add") for loop in on.loops)
    assert any("mul sub tanh add" in loop for loop in off.loops)
    assert on.numpy == {}
    assert on.kinds["flow"] >= 1
    assert on.tasks >= 1


@pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")
def test_the_kernels_of_bodies_are_shown():
    run = gl.compile(scanned)
    for _ in range(2):
        run(gl.rand(4), gl.randn(5, 4))
    assert any("= tanh(" in text and "GRADLAB_KERNEL" in text for text in run.kernels().values())


@pytest.mark.parametrize("name", FLOWS)
def test_switches_reach_the_backward_of_bodies(name):
    if name == "while_loop":
        pytest.skip("it has no gradient")
    function, _ = FLOWS[name]

    def gradient(h, xs):
        return gl.autograd.grad(function(h, xs).square().sum(), xs)[0]

    found = []
    for passes in (None, OFF):
        run = gl.compile(gradient, passes=passes)
        for seed in range(3):
            gl.manual_seed(seed)
            h, xs = gl.rand(4) + 0.1, gl.randn(5, 4, requires_grad=True)
            np.testing.assert_allclose(run(h, xs).numpy(), gradient(h, xs).numpy(), rtol=1e-5, atol=1e-6)
        found.append(run.stats())
    assert found[0].operations < found[1].operations


def test_without_compiling_bodies_run_as_python(monkeypatch):
    monkeypatch.setenv("GRADLAB_COMPILE", "0")
    seen = []

    @gl.compile
    def function(h, xs):
        def body(h, x):
            seen.append(x.sum().item())  # a trace would refuse this
            return h + x, h

        return gl.scan(body, h, xs)[0]

    for _ in range(3):
        function(gl.zeros(4), gl.ones(5, 4))
    assert len(seen) == 15
