"""`cond`, `switch`, `while_loop`: eager, traced and compiled alike; and what all of control flow refuses."""

from __future__ import annotations

import numpy as np
import pytest
from control_flow_tools import COMPILERS, as_traced, leaf, same, with_gradients, with_second_gradients

import gradlab as gl
from gradlab.backends.native import compiler
from gradlab.graph import TraceError, trace


@pytest.fixture(params=COMPILERS)
def machine(request, monkeypatch):
    """With the machine's compiler and without one."""
    if request.param == "none":
        monkeypatch.setattr(compiler, "available", lambda: False)
    return request.param


# ---------------------------------------------------------------- cond and switch


def test_cond_takes_one_branch(machine):
    w, x = leaf(3, 3), leaf(2, 3, seed=1)

    def run(p, x):
        return gl.cond(p, lambda x: (x @ w, x.sum()), lambda x: (x.exp(), (w * w).sum()), (x,))

    for function in (with_gradients(run, w), with_second_gradients(run, w)):
        program = None
        for p in (gl.tensor(True), gl.tensor(False)):
            as_traced(function, p, x, tolerance=1e-8)
            program = program or trace(function, p, x)
            same(program(p, x), function(p, x), 1e-8)


def test_cond_of_a_computed_condition(machine):
    x = leaf(4)

    def run(x):
        return gl.cond(x.sum() > 0, lambda: x * 2, lambda: x * x)

    compute = with_gradients(run)
    compiled = gl.compile(compute)
    for sign in (1, 1, -1, 1, -1):
        y = (x.detach().abs() * sign).requires_grad_()
        same(compiled(y), with_gradients(lambda y: gl.cond(y.sum() > 0, lambda: y * 2, lambda: y * y))(y))
    assert compiled is not None


def test_switch_clamps_its_index(machine):
    x, w = leaf(3), leaf(3, seed=1)
    branches = [lambda x: x.sin(), lambda x: x * w, lambda x: (x * x).tanh() @ w * x, lambda x: gl.zeros(3, dtype=gl.float64)]

    def run(i, x):
        return gl.switch(i, branches, (x,))

    compute = with_gradients(run, w)
    program = trace(compute, gl.tensor(0), x)
    for i, taken in ((-3, 0), (0, 0), (1, 1), (2, 2), (3, 3), (9, 3)):
        same(program(gl.tensor(i), x)[0][0], branches[taken](x))
        same(gl.switch(i, branches, (x,)), branches[taken](x))
        if taken != 3:
            same(program(gl.tensor(i), x), compute(gl.tensor(i), x))
    assert all(float(g.abs().sum()) == 0 for g in program(gl.tensor(3), x)[1])


def test_untaken_branches_do_not_run(machine):
    """An index out of range would be refused."""
    x = gl.arange(4.0)

    def run(i):
        return gl.cond(i < 4, lambda: x.index_select(0, i.view(1)), lambda: gl.zeros(1))

    program = trace(run, gl.tensor(0))
    assert program(gl.tensor(2)).tolist() == [2.0]
    assert program(gl.tensor(7)).tolist() == [0.0]
    with pytest.raises(IndexError):
        trace(lambda i: gl.cond(i < 9, lambda: x.index_select(0, i.view(1)), lambda: gl.zeros(1)), gl.tensor(0))(gl.tensor(7))


def test_scan_in_cond_in_scan(machine):
    w, h, xs = leaf(3, 3), leaf(3, seed=1), leaf(4, 2, 3, seed=2)

    def run(h, xs):
        def inner(c, x):
            return (c * x).tanh() + (w @ x), c

        def outer(c, x):
            return gl.cond(c.sum() > 0, lambda c, x: gl.scan(inner, c, x), lambda c, x: (c + x.sum(0), x * w[0]), (c, x))

        return gl.scan(outer, h, xs)

    as_traced(with_gradients(run, w), h, xs)
    as_traced(with_second_gradients(run, w), h, xs, tolerance=1e-7)


def test_cond_draws_in_the_branch_that_is_taken(machine):
    def run(p):
        return gl.cond(p, lambda: gl.randn(4), lambda: gl.rand(4) + 100), gl.rand(2)

    compiled = gl.compile(run)
    gl.manual_seed(1)
    found = [compiled(gl.tensor(bool(i % 2)))[0].numpy() for i in range(6)]
    assert len({tuple(f) for f in found}) == 6
    assert all((f > 50).all() == (i % 2 == 0) for i, f in enumerate(found))


# ---------------------------------------------------------------- while_loop


def test_newton_iteration(machine):
    def root(a):
        def body(x, n):
            return 0.5 * (x + a / x), n + 1

        return gl.while_loop(lambda x, n: ((x * x - a).abs() > 1e-12 * a).any() & (n < 100), body, (a.clone(), gl.tensor(0)))

    program = trace(root, gl.tensor([2.0, 9.0], dtype=gl.float64))
    for numbers in ([2.0, 9.0], [1e6, 0.01], [1.0, 1.0]):
        a = gl.tensor(numbers, dtype=gl.float64)
        found, n = program(a)
        same((found, n), root(a))
        np.testing.assert_allclose(found.numpy(), np.sqrt(numbers), rtol=1e-12)
    compiled = gl.compile(root)
    for _ in range(3):
        same(compiled(a), root(a))


def test_while_loop_that_does_not_begin(machine):
    program = trace(lambda x: gl.while_loop(lambda x: x < 0, lambda x: (x - 1,), (x,)), gl.tensor(3.0))
    assert program(gl.tensor(3.0))[0].item() == 3.0


def test_while_loop_has_no_gradient_in_a_trace():
    x = leaf(2)

    def run(x):
        (y,) = gl.while_loop(lambda y: y.sum() < 10, lambda y: (y * 2 + 1,), (x,))
        return gl.autograd.grad(y.sum(), x)

    assert run(x)[0].shape == (2,)  # eagerly it is a Python loop
    with pytest.raises(RuntimeError, match="use scan with the largest number of steps"):
        trace(run, x)
    with pytest.raises(TraceError, match="draw outside"):
        trace(lambda x: gl.while_loop(lambda x: x < 1, lambda x: (x + gl.rand(()),), (x,)), gl.tensor(0.0))


# ---------------------------------------------------------------- refusals


def test_branches_that_differ():
    x = gl.ones(3)
    with pytest.raises(ValueError, match=r"float32\[3\] in the result of false_fn .*float64\[3\] in the result of true_fn"):
        trace(lambda p: gl.cond(p, lambda: x.double(), lambda: x), gl.tensor(True))
    with pytest.raises(TypeError, match=r"nests as tensor, .* as \(tensor, tensor\)"):
        trace(lambda p: gl.cond(p, lambda: (x, x), lambda: x), gl.tensor(True))
    with pytest.raises(ValueError, match=r"branch 0 .*branch 1"):
        trace(lambda i: gl.switch(i, [lambda: x, lambda: x[:2]]), gl.tensor(0))


def test_carry_that_changes():
    for run in (lambda f, x: f(x), lambda f, x: trace(f, x)):
        with pytest.raises(ValueError, match=r"float32\[3\] in init, but float32\[1, 3\] in the carry"):
            run(lambda x: gl.scan(lambda c, x: (c + x.view(1, 3), None), x[0], x), gl.ones(2, 3))
        with pytest.raises(ValueError, match=r"float32\[\] in carried, but float64\[\] in the result of body_fn"):
            run(lambda x: gl.while_loop(lambda x: x < 1, lambda x: (x.double() + 1,), (x,)), gl.tensor(0.0))
        with pytest.raises(TypeError, match="init nests as tensor"):
            run(lambda x: gl.scan(lambda c, x: ((c, c), None), x[0], x), gl.ones(2, 3))


@pytest.mark.parametrize("run", [lambda f, x: f(x), trace], ids=["eager", "traced"])
def test_wrong_arguments(run):
    x = gl.ones(2, 3)
    for error, function in [
        (TypeError, lambda x: gl.scan(lambda c, x: c, x[0], x)),
        (TypeError, lambda x: gl.scan(lambda c, x: (c, 3), x[0], x)),
        (TypeError, lambda x: gl.scan(lambda c, x: (c, c), 0.0, x)),
        (TypeError, lambda x: gl.scan(None, x[0], x)),
        (IndexError, lambda x: gl.scan(lambda c, x: (c, c), x[0], x, dim=2)),
        (ValueError, lambda x: gl.scan(lambda c, x: (c, c), x[0], (x, x[:1]))),
        (RuntimeError, lambda x: gl.scan(lambda c, x: (c, c), x[0], x[:0])),
        (RuntimeError, lambda x: gl.scan(lambda c, x: (c, c), x[0], None)),
        (ValueError, lambda x: gl.cond(x > 0, lambda: x, lambda: x)),
        (TypeError, lambda x: gl.cond("yes", lambda: x, lambda: x)),
        (TypeError, lambda x: gl.cond(x.sum() > 0, lambda x: x, lambda x: x, x)),
        (TypeError, lambda x: gl.cond(x.sum() > 0, lambda: x, x)),
        (TypeError, lambda x: gl.switch(x.sum(), [lambda: x])),
        (ValueError, lambda x: gl.switch(0, [])),
        (TypeError, lambda x: gl.while_loop(lambda x: x.sum() < 100, lambda x: x + 1, (x,))),
        (ValueError, lambda x: gl.while_loop(lambda x: x < 100, lambda x: (x + 1,), (x,))),
        (ValueError, lambda x: gl.while_loop(lambda: True, lambda: (), ())),
    ]:
        with pytest.raises(error):
            run(function, x)


def test_what_a_body_may_not_do():
    w, x, counter = leaf(3), gl.ones(4, 3, dtype=gl.float64), gl.zeros(())
    kept = []

    def leaking(c, x):
        kept.append(c * 2)
        return c, kept[0]

    def stepping(c, x):
        (c * w).sum().backward()
        return c, x

    for match, body in [
        ("value was read", lambda c, x: (c + float(x.sum()), x)),
        ("in place", lambda c, x: (c + counter.add_(1), x)),
        ("in-place", lambda c, x: (c.add_(1), x)),
        ("in place", lambda c, x: (c, x.add_(1))),
        (r"calls backward\(\)", stepping),
    ]:
        with pytest.raises(RuntimeError, match=match):
            trace(lambda x, body=body: gl.scan(body, x[0], x), x)
        assert w.requires_grad and w.grad is None and counter.item() == 0
    _, ys = trace(lambda x: gl.scan(lambda c, x: (c, (x * 2).add_(1)), x[0], x), x)(x)  # its own values it may change
    same(ys, x * 2 + 1)
    with pytest.raises(TraceError, match="another body"):
        trace(lambda x: (gl.scan(leaking, x[0], x), gl.scan(leaking, x[0], x)), x)
    with pytest.raises(TraceError, match="another"):
        trace(lambda x: (gl.scan(leaking, x[0], x), kept[-1] + x), x)


def test_a_failed_trace_leaves_everything_as_it_was():
    w = leaf(3)

    def run(x):
        y = w * 2

        def body(c, x):
            _ = c * w + y
            raise KeyError("broken")

        return gl.scan(body, x[0], x)

    with pytest.raises(KeyError, match="broken"):
        trace(run, gl.ones(2, 3, dtype=gl.float64))
    assert w.is_leaf and w.requires_grad
    same((w * 2).sum(), gl.tensor(2 * w.detach().numpy().sum(), dtype=gl.float64))


def test_vmap_runs_the_loop():
    xs = gl.arange(24.0).view(2, 4, 3)
    found = gl.vmap(lambda x: gl.scan(lambda c, r: (c + r, c * r), gl.zeros(3), x))(xs)
    same(found[0], xs.sum(1))
