"""L-BFGS: it finds minima, its line search satisfies its conditions, a resumed run goes on bit for bit."""

from __future__ import annotations

import copy
import io
import math

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


FALLS = {  # functions of a step and their slopes, which fall at 0
    "bowl": (lambda t: (t - 3) ** 2, lambda t: 2 * (t - 3)),
    "far bowl": (lambda t: (t - 300) ** 2, lambda t: 2 * (t - 300)),
    "narrow bowl": (lambda t: 50 * (t - 0.03) ** 2, lambda t: 100 * (t - 0.03)),
    "quartic": (lambda t: (t - 2) ** 4 + t, lambda t: 4 * (t - 2) ** 3 + 1),
    "waves": (lambda t: 0.02 * t * t - math.sin(3 * t), lambda t: 0.04 * t - 3 * math.cos(3 * t)),
    "no end": (lambda t: -t, lambda t: -1.0),
    "flattens": (lambda t: -math.log1p(t), lambda t: -1 / (1 + t)),
    "kink": (lambda t: abs(t - 1.3) - 0.01 * t, lambda t: (1.0 if t > 1.3 else -1.0) - 0.01),
    "wall": (lambda t: -t + math.exp(min(20 * (t - 2), 300)), lambda t: -1 + 20 * math.exp(min(20 * (t - 2), 300))),
    "dip": (lambda t: -t * math.exp(-30 * t) - 2e-5 * t, lambda t: (30 * t - 1) * math.exp(-30 * t) - 2e-5),
    "ripples": (lambda t: -0.1 * t - 0.05 * math.sin(40 * t), lambda t: -0.1 - 2 * math.cos(40 * t)),
}


def steps_of(name, first, most=7):
    """The steps that the search tries."""
    f, df = FALLS[name]
    tried = []

    def evaluate(t):
        tried.append(t)
        return Point(t, f(t), None, df(t))

    strong_wolfe(evaluate, Point(0.0, f(0.0), None, df(0.0)), first, 1.0, 1e-9, most)
    return tried


STEPS = {  # those of PyTorch's search (see below)
    ("bowl", 0.01): (0.01, 0.1, 1.0), ("bowl", 1.0): (1.0,), ("bowl", 10.0): (10.0, 3.0),
    ("far bowl", 0.01): (0.01, 0.1, 1.0, 10.0, 100.0), ("far bowl", 1.0): (1.0, 10.0, 100.0), ("far bowl", 10.0): (10.0, 100.0),
    ("narrow bowl", 0.01): (0.01,), ("narrow bowl", 1.0): (1.0, 0.03), ("narrow bowl", 10.0): (10.0, 0.03),
    ("quartic", 0.01): (0.01, 0.05505, 0.3030002), ("quartic", 1.0): (1.0,), ("quartic", 10.0): (10.0, 4.417169, 2.156517),
    ("waves", 0.01): (0.01, 0.1, 0.4731413), ("waves", 1.0): (1.0, 0.5305274), ("waves", 10.0): (10.0, 2.753688),
    ("no end", 0.01): (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0),
    ("no end", 1.0): (1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0, 1000000.0),
    ("no end", 10.0): (10.0, 100.0, 1000.0, 10000.0, 100000.0, 1000000.0, 10000000.0), ("flattens", 0.01): (0.01, 0.05505, 0.3030002),
    ("flattens", 1.0): (1.0,), ("flattens", 10.0): (10.0,),
    ("kink", 0.01): (0.01, 0.05505, 0.3030002, 3.030002, 1.195878, 1.48126, 1.289097),
    ("kink", 1.0): (1.0, 10.0, 2.343923, 1.295687, 1.444704, 1.317772, 1.300236),
    ("kink", 10.0): (10.0, 1.788973, 1.352336, 1.153111, 1.305059, 1.282882, 1.300237),
    ("wall", 0.01): (0.01, 0.05505, 0.5505, 5.505, 3.81948, 2.695435, 1.945493),
    ("wall", 1.0): (1.0, 10.0, 6.966292, 4.943627, 3.594884, 2.695253, 2.094746),
    ("wall", 10.0): (10.0, 6.632997, 4.388154, 2.891325, 1.893023, 1.568385, 1.821856),
    ("dip", 0.01): (0.01,), ("dip", 1.0): (1.0, 0.3333433, 0.9333343, 0.8733352, 0.819336, 0.7707368, 0.7269974),
    ("dip", 10.0): (10.0, 3.333433, 9.333343, 9.666672, 9.833336, 9.916668, 9.958334), ("ripples", 0.01): (0.01, 0.03661413),
    ("ripples", 1.0): (1.0,), ("ripples", 10.0): (10.0,),
}  # fmt: skip


@pytest.mark.parametrize(("name", "first"), STEPS)
def test_the_line_search_tries_these_steps(name, first):
    assert steps_of(name, first) == pytest.approx(STEPS[name, first], rel=1e-6)
    for most in (3, 5):  # one evaluation fewer is the same search, cut short
        assert steps_of(name, first, most) == steps_of(name, first)[:most]


@pytest.mark.torch
@pytest.mark.parametrize(("name", "first"), STEPS)
def test_pytorch_tries_these_steps(name, first):
    torch = pytest.importorskip("torch")
    search = pytest.importorskip("torch.optim.lbfgs")._strong_wolfe
    (f, df), tried = FALLS[name], []

    def evaluate(x, t, d):
        tried.append(float(t))
        return f(float(t)), torch.tensor([df(float(t))], dtype=torch.float64)

    one, slope = torch.ones(1, dtype=torch.float64), torch.tensor([df(0.0)], dtype=torch.float64)
    search(evaluate, None, first, one, f(0.0), slope, slope[0], max_ls=6)
    assert tried == pytest.approx(STEPS[name, first], rel=1e-6)


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
