"""`scan`: eager, traced and compiled give the same values and gradients."""

from __future__ import annotations

import numpy as np
import pytest
from control_flow_tools import COMPILERS, as_traced, leaf, same, with_gradients, with_second_gradients

import gradlab as gl
from gradlab.backends.native import compiler
from gradlab.graph import trace


@pytest.fixture(params=COMPILERS)
def machine(request, monkeypatch):
    """With the machine's compiler and without one."""
    if request.param == "none":
        monkeypatch.setattr(compiler, "available", lambda: False)
    return request.param


# ---------------------------------------------------------------- scan


def test_scan_is_a_loop():
    xs = gl.arange(12.0).view(4, 3)
    carry, ys = gl.scan(lambda c, x: (c + x, c * x), gl.ones(3), xs)
    c, rows = np.ones(3), []
    for x in np.arange(12.0).reshape(4, 3):
        rows.append(c * x)
        c = c + x
    np.testing.assert_array_equal(carry.numpy(), c)
    np.testing.assert_array_equal(ys.numpy(), np.stack(rows))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("recompute", [False, True])
def test_scan_and_its_gradients(machine, reverse, recompute):
    w, b, h, xs = leaf(4, 4), leaf(4, seed=1), leaf(3, 4, seed=2), leaf(5, 3, 4, seed=3)

    def run(h, xs):
        def step(c, x):
            new = (c @ w + x + b).tanh()
            return new, {"double": new * 2, "old": c.sum(0)}

        return gl.scan(step, h, xs, reverse=reverse, recompute=recompute)

    as_traced(with_gradients(run, w, b), h, xs)


def test_scan_of_other_dimensions_and_nested_carry(machine):
    w, a, b, xs, ts = leaf(3, 3), leaf(2, 3, seed=1), leaf(2, seed=2), leaf(2, 6, 3, seed=3), leaf(4, 6, seed=4)

    def run(a, b, xs, ts):
        def step(carry, x):
            (a, b), n = carry["pair"], carry["n"]
            a = (a @ w * x[0]).sin()
            b = b + a.sum(1) * x[1].mean()
            return {"pair": (a, b), "n": n + 1}, None if n is None else (a * b.unsqueeze(1), n)

        return gl.scan(step, {"pair": (a, b), "n": gl.tensor(0)}, (xs, ts), dim=1)

    as_traced(with_gradients(run, w), a, b, xs, ts)


def test_scan_second_gradients(machine):
    w, h, xs = leaf(3, 3), leaf(2, 3, seed=1), leaf(4, 2, 3, seed=2)

    def run(h, xs):
        return gl.scan(lambda c, x: ((c @ w + x).tanh(), (c * x).sum()), h, xs)

    as_traced(with_second_gradients(run, w), h, xs, tolerance=1e-8)


def test_scan_gradients_by_differences():
    w, h, xs = leaf(2, 2), leaf(2, seed=1), leaf(3, 2, seed=2)

    def run(w, h, xs):
        c, ys = gl.scan(lambda c, x: ((c @ w + x).sin(), c * x), h, xs)
        return c.sum() + (ys * ys).sum()

    program = trace(lambda w, h, xs: gl.autograd.grad(run(w, h, xs), [w, h, xs]), w, h, xs)
    found = program(w, h, xs)
    for x, g in zip((w, h, xs), found, strict=True):
        flat, numbers = x.detach().numpy().reshape(-1), g.numpy().reshape(-1)
        for i in range(flat.size):
            kept = flat[i]
            values = []
            for step in (1e-6, -1e-6):
                flat[i] = kept + step
                values.append(float(run(w, h, xs).item()))
            flat[i] = kept
            assert abs((values[0] - values[1]) / 2e-6 - numbers[i]) < 1e-6


def test_closures_over_intermediate_results(machine):
    """What the body uses may itself have been computed of each other and of what is differentiated."""
    a, xs = leaf(3), leaf(4, 3, seed=1)

    def run(a, xs):
        b = a * 2
        c = b.exp() + a
        last, ys = gl.scan(lambda s, x: (s + b * x, s * c + a), a, xs)
        return last * b, ys + c

    as_traced(with_gradients(run), a, xs)
    as_traced(with_second_gradients(run), a, xs, tolerance=1e-8)


def test_detached_parts_have_no_gradient(machine):
    w, h, xs = leaf(3, 3), leaf(2, 3, seed=1), leaf(4, 2, 3, seed=2)

    def run(h, xs):
        def step(c, x):
            with gl.no_grad():
                gate = (c @ w).sigmoid()
            return c * gate + x.detach() + (w.detach() * w).sum(), c

        return gl.scan(step, h, xs)

    as_traced(with_gradients(run, w), h, xs)


def test_carry_that_is_passed_through_and_results_from_outside(machine):
    w, h, xs = leaf(2), leaf(2, seed=1), leaf(3, 2, seed=2)

    def run(h, xs):
        return gl.scan(lambda c, x: ((c[0], c[1] + x), (w, c[0], x)), (h, h * 2), xs)

    as_traced(with_gradients(run, w), h, xs)
    same(trace(run, h, xs[:1])(h, xs[:1]), run(h, xs[:1]))


def test_one_step_and_numbers(machine):
    xs = leaf(5)
    as_traced(with_gradients(lambda xs: gl.scan(lambda c, x: (c * x, c + x), gl.tensor(1.0, dtype=gl.float64), xs)), xs)
    one = leaf(1)
    as_traced(with_gradients(lambda xs: gl.scan(lambda c, x: (c * x, c + x), gl.tensor(1.0, dtype=gl.float64), xs)), one)


def test_half_precision(machine):
    xs = leaf(5, 3, dtype=gl.float16)
    as_traced(with_gradients(lambda xs: gl.scan(lambda c, x: ((c + x).tanh(), c), gl.zeros(3, dtype=gl.float16), xs)), xs, tolerance=1e-3)


def test_random_numbers_are_fresh_in_each_step(machine):
    xs = gl.zeros(6, 8)

    def noise(xs):
        before = gl.rand(2)
        _, ys = gl.scan(lambda c, x: (c, x + gl.randn(8)), gl.zeros(()), xs)
        return before, ys, gl.rand(3)

    gl.manual_seed(5)
    wanted = [noise(xs) for _ in range(3)]
    compiled = gl.compile(noise)
    gl.manual_seed(5)
    found = [compiled(xs) for _ in range(3)]
    same(found, wanted, 1e-6)
    rows = found[2][1].numpy()
    assert len({float(r[0]) for r in rows}) == 6


def test_dropout_and_its_gradient(machine):
    w, xs = leaf(8, 8, dtype=gl.float32), leaf(5, 4, 8, seed=1, dtype=gl.float32)
    drop = gl.nn.Dropout(0.5)

    def run(xs):
        _, ys = gl.scan(lambda c, x: (drop((c + x) @ w).tanh(), c), gl.zeros(4, 8), xs)
        return ys

    compute = with_gradients(run, w)
    gl.manual_seed(3)
    wanted = [compute(xs) for _ in range(2)]
    for recompute in (False, True):
        gl.manual_seed(3)
        compiled = gl.compile(
            with_gradients(lambda xs, r=recompute: gl.scan(
                lambda c, x: (drop((c + x) @ w).tanh(), c), gl.zeros(4, 8), xs, recompute=r)[1], w)
        )  # fmt: skip
        same([compiled(xs) for _ in range(2)], wanted, 1e-5)


def test_third_gradients_and_integers_in_the_carry(machine):
    w, h, xs = leaf(3, 3), leaf(2, 3, seed=1), leaf(4, 2, 3, seed=2)

    def run(h, xs):
        def step(carry, x):
            h, n = carry
            return ((h @ w).tanh() * (n + 1) + x * h, n + 1), (h, n)

        (h, _), (ys, _) = gl.scan(step, (h, gl.tensor(0)), xs, reverse=True)
        value = (h * h * h).sum() + ys.sin().sum()
        for _ in range(2):
            value = sum((g * g).sum() for g in gl.autograd.grad(value, [h, w], create_graph=True))
        return gl.autograd.grad(value, [w, xs])

    program = trace(run, h, xs)
    for found, wanted in zip(program(h, xs), run(h, xs), strict=True):
        assert float((found - wanted).abs().max()) < 1e-9 * float(wanted.abs().max())


def test_cells_of_nn_and_their_weights(machine):
    """The gradients of weights are products of what is stacked, also through a transposed weight."""
    xs = gl.tensor(np.random.default_rng(0).standard_normal((6, 2, 3)).astype(np.float32))
    for cell in (gl.nn.GRUCell(3, 4), gl.nn.RNNCell(3, 4), gl.nn.LSTMCell(3, 4)):
        def run(xs, cell=cell):
            def step(h, x):
                new = cell(x, h)
                return new, new

            start = gl.zeros(2, 4)
            return gl.scan(step, (start, start) if isinstance(cell, gl.nn.LSTMCell) else start, xs)

        as_traced(with_gradients(run, *cell.parameters()), xs, tolerance=1e-4)
        compiled = trace(with_gradients(run, *cell.parameters()), xs)
        assert sum(c.op.name == "matmul" for c in compiled.graph.calls) == 2  # outside of the scan
