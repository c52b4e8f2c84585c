"""L-BFGS: it finds minima, its line search satisfies its conditions, a resumed run goes on bit for bit."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest

import gradlab as gl
from gradlab import optim
from gradlab.optim import lbfgs_history
from gradlab.optim.line_search import ARMIJO, CURVATURE, Point, cubic_minimum, strong_wolfe


def valley(x):
    """Rosenbrock's function, whose minimum 0 is at (1, …, 1)."""
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def closure(opt, x, function):
    def run():
        opt.zero_grad()
        loss = function(x)
        loss.backward()
        return loss

    return run


def test_it_finds_the_end_of_a_curved_valley():
    x = gl.tensor([-1.2, 1.0, 0.5], dtype=gl.float64, requires_grad=True)
    opt = optim.LBFGS([x], max_iter=100, max_eval=200, line_search_fn="strong_wolfe", tolerance_change=1e-14)
    opt.step(closure(opt, x, valley))
    np.testing.assert_allclose(x.detach().numpy(), 1, atol=1e-6)
    assert opt.state[x]["n_iter"] < 80


def test_a_quadratic_takes_a_few_iterations():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6))
    a, b = gl.tensor(root @ root.T + np.eye(6)), gl.tensor(rng.normal(size=6))
    x, y = gl.zeros(2, dtype=gl.float64, requires_grad=True), gl.zeros(2, 2, dtype=gl.float64, requires_grad=True)
    opt = optim.LBFGS([x, y], max_iter=50, line_search_fn="strong_wolfe", tolerance_change=1e-14)

    def run():
        opt.zero_grad()
        v = gl.cat([x, y.reshape(-1)])
        loss = 0.5 * v.dot(a @ v) - b.dot(v)
        loss.backward()
        return loss

    first = opt.step(run)
    assert first.item() == 0
    want = gl.linalg.solve(a, b).numpy()
    np.testing.assert_allclose(np.concatenate([x.detach().numpy(), y.detach().numpy().ravel()]), want, atol=1e-6)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_a_resumed_run_goes_on_bit_for_bit(search):
    def steps(x, opt, n):
        for _ in range(n):
            opt.step(closure(opt, x, valley))
        return x.detach().numpy()

    def made(values):
        x = gl.tensor(values, dtype=gl.float64, requires_grad=True)
        return x, optim.LBFGS([x], lr=1e-3 if search is None else 1, max_iter=4, history_size=3, line_search_fn=search)

    whole, opt = made([-1.2, 1.0])
    want = steps(whole, opt, 5).copy()
    x, opt = made([-1.2, 1.0])
    steps(x, opt, 2)
    file = io.BytesIO()
    gl.save({"opt": opt.state_dict(), "x": x}, file)
    file.seek(0)
    saved = gl.load(file)
    again, fresh = made(saved["x"].detach().numpy())
    fresh.load_state_dict(saved["opt"])
    np.testing.assert_array_equal(steps(again, fresh, 3), want)


def test_the_history_is_bounded():
    x = gl.tensor([-1.2, 1.0, 3.0], dtype=gl.float64, requires_grad=True)
    opt = optim.LBFGS([x], max_iter=10, history_size=2, line_search_fn="strong_wolfe")
    opt.step(closure(opt, x, valley))
    assert len(opt.state[x]["old_dirs"]) == 2


def test_the_line_search_satisfies_the_wolfe_conditions():
    functions = [
        (lambda t: -t / (t * t + 2), lambda t: (t * t - 2) / (t * t + 2) ** 2),  # the test functions of Moré and Thuente (1994)
        (lambda t: (t + 0.004) ** 5 - 2 * (t + 0.004) ** 4, lambda t: 5 * (t + 0.004) ** 4 - 8 * (t + 0.004) ** 3),
        (lambda t: (t - 7) ** 2, lambda t: 2 * (t - 7)),
    ]
    for f, df in functions:
        start = Point(0.0, f(0.0), None, df(0.0))
        for first in (1e-3, 0.1, 1.0, 30.0):
            found = strong_wolfe(lambda t, f=f, df=df: Point(t, f(t), None, df(t)), start, first, 1.0, 1e-12, 25)
            assert found.loss <= start.loss + ARMIJO * found.t * start.slope
            assert abs(found.slope) <= -CURVATURE * start.slope


def test_the_cubic_has_its_minimum_where_it_should():
    a, b = Point(0.0, 0.0, None, -3.0), Point(2.0, 2.0, None, 9.0)  # t³ - 3t
    assert cubic_minimum(a, b, 0, 2) == pytest.approx(1)
    assert cubic_minimum(b, a, 0, 2) == pytest.approx(1)
    assert cubic_minimum(a, b, 1.5, 2) == 1.5


def test_wrong_uses_are_refused():
    x = gl.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="parameter groups"):
        optim.LBFGS([{"params": [x]}, {"params": [gl.ones(1, requires_grad=True)]}])
    with pytest.raises(RuntimeError, match="line_search_fn"):
        optim.LBFGS([x], line_search_fn="armijo")
    with pytest.raises(ValueError, match="lr"):
        optim.LBFGS([x], lr=-1)
    with pytest.raises(TypeError, match="closure"):
        optim.LBFGS([x]).step()


def test_nothing_moves_at_a_minimum():
    x = gl.ones(3, dtype=gl.float64, requires_grad=True)
    opt = optim.LBFGS([x])
    assert opt.step(closure(opt, x, valley)).item() == 0
    np.testing.assert_array_equal(x.detach().numpy(), 1)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize("size", [5, 100])
def test_directions_by_inner_products_are_those_of_the_two_loops(monkeypatch, size, search):
    r = np.random.default_rng(0)
    matrix = r.normal(size=(30, 30))
    hessian, target = gl.tensor(matrix @ matrix.T / 30 + np.eye(30) * 0.1), gl.tensor(r.normal(size=30))

    def trained(fewest):
        monkeypatch.setattr(lbfgs_history, "FEWEST", fewest)
        p = gl.zeros(30, dtype=gl.float64, requires_grad=True)
        optimizer = gl.optim.LBFGS([p], lr=0.5, max_iter=4, history_size=size, line_search_fn=search)

        def closure():
            optimizer.zero_grad()
            loss = 0.5 * (p @ (hessian @ p)) - target @ p + 0.01 * (p**4).sum()
            loss.backward()
            return loss

        losses = [float(optimizer.step(closure)) for _ in range(4)]
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # other tensors, of the same values
        return losses + [float(optimizer.step(closure)) for _ in range(2)], p.detach().numpy()

    (loops, end), (products, other) = trained(1 << 30), trained(2)
    np.testing.assert_allclose(products, loops, rtol=1e-10)
    np.testing.assert_allclose(other, end, rtol=1e-5, atol=1e-7)
