"""Adafactor: against its formula, against PyTorch, compiled, on a GPU, saved and loaded."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

OPTIONS = [
    {}, {"lr": 0.3}, {"lr": 0.1, "weight_decay": 0.5}, {"eps": (1e-3, 1e-2), "d": 2.0}, {"beta2_decay": -0.3, "maximize": True},
    {"lr": 5.0, "d": 1.0},
]  # fmt: skip
SHAPES = [(4, 3), (3,), (2, 3, 5, 4), (), (1, 6)]


def start(dtype="float64"):
    rng = np.random.default_rng(0)
    return [rng.normal(size=s).astype(dtype) for s in SHAPES]


def gradients(steps=8, dtype="float64"):
    rng = np.random.default_rng(1)
    return [[(3.0**i * rng.normal(size=s)).astype(dtype) for s in SHAPES] for i in range(steps)]


def trained(options, dtype="float64", device="cpu", wrap=lambda f: f, rate=None):
    params = [gl.tensor(x, device=device, requires_grad=True) for x in start(dtype)]
    optimizer, seen = gl.optim.Adafactor(params, **options), []

    def step(*found):
        for p, g in zip(params, found, strict=True):
            p.grad = g
        optimizer.step()

    run = wrap(step)
    for i, arrays in enumerate(gradients(dtype=dtype)):
        if rate is not None:
            optimizer.param_groups[0]["lr"] = rate(i)
        for p in params:
            p.grad = None
        run(*(gl.tensor(g, device=device) for g in arrays))
        seen.append([p.detach().cpu().numpy().copy() for p in params])
    return seen, run


def rms(x):
    return np.sqrt(np.mean(np.square(x)))


def by_formula(lr=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0, maximize=False):
    params, floor, seen = start(), np.finfo(np.float64).eps if eps[0] is None else eps[0], []
    kept = [[0.0, 0.0] for _ in params]
    for t, arrays in enumerate(gradients(), 1):
        fresh = t**beta2_decay
        for i, g in enumerate(arrays):
            g = -g if maximize else g
            alpha = max(eps[1], rms(params[i])) * min(lr, t**-0.5)
            p = params[i] * (1 - lr * weight_decay)
            for k, axis in enumerate((-1, -2) if g.ndim > 1 else (None,)):
                squares = g * g if axis is None else np.mean(g * g, axis, keepdims=True)
                kept[i][k] = kept[i][k] + fresh * (squares - kept[i][k])
            v = kept[i][0]
            if g.ndim > 1:
                v = v @ kept[i][1] / np.maximum(np.mean(v, -2, keepdims=True), floor)
            update = g / np.sqrt(np.maximum(v, floor * floor))
            params[i] = p - update * alpha / max(1.0, rms(update) / d)
        seen.append([p.copy() for p in params])
    return seen


def same(a, b, tolerance):
    for x, y in zip(a, b, strict=True):
        for u, v in zip(x, y, strict=True):
            np.testing.assert_allclose(u, v, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("options", OPTIONS)
def test_it_is_its_formula(options):
    same(trained(options)[0], by_formula(**options), 1e-12)
    same(trained(options, "float32")[0], by_formula(**options), 2e-5)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", OPTIONS)
def test_it_is_what_pytorch_does(options, dtype):
    torch = pytest.importorskip("torch")
    params = [torch.tensor(x, requires_grad=True) for x in start(dtype)]
    optimizer, seen = torch.optim.Adafactor(params, **options), []
    for arrays in gradients(dtype=dtype):
        for p, g in zip(params, arrays, strict=True):
            p.grad = torch.tensor(g)
        optimizer.step()
        seen.append([p.detach().numpy().copy() for p in params])
    same(trained(options, dtype)[0], seen, 2e-6 if dtype == "float32" else 1e-14)


@pytest.mark.parametrize("options", OPTIONS[:3])
def test_compiled(options):
    rate = lambda i: 0.3 / (i + 1)
    eager, (found, run) = trained(options, "float32", rate=rate)[0], trained(options, "float32", wrap=gl.compile, rate=rate)
    same(found, eager, 1e-5)
    assert len(run.programs) == 1  # a schedule needs no new trace


@pytest.mark.usefixtures("cuda")
def test_on_a_gpu():
    same(trained(OPTIONS[2], "float32", "cuda")[0], trained(OPTIONS[2], "float32")[0], 1e-5)


def test_its_state_is_saved_and_loaded():
    params = [gl.tensor(x, requires_grad=True) for x in start()]
    first, steps = gl.optim.Adafactor(params, lr=0.1), gradients(4)
    for n, arrays in enumerate(steps):
        if n == 2:
            saved, weights = first.state_dict(), [p.detach().clone() for p in params]
        for p, g in zip(params, arrays, strict=True):
            p.grad = gl.tensor(g)
        first.step()
    others = [w.clone().requires_grad_() for w in weights]
    second = gl.optim.Adafactor(others)
    second.load_state_dict(saved)
    for arrays in steps[2:]:
        for p, g in zip(others, arrays, strict=True):
            p.grad = gl.tensor(g)
        second.step()
    for p, q in zip(params, others, strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), q.detach().numpy())
    assert {k: v.shape for k, v in first.state[params[0]].items()} == {"step": (), "row_var": (4, 1), "col_var": (1, 3)}
    assert {k: v.shape for k, v in first.state[params[1]].items()} == {"step": (), "variance": (3,)}


@pytest.mark.parametrize(
    ("options", "text"),
    [({"lr": -1.0}, "lr"), ({"beta2_decay": 0.1}, "beta2_decay"), ({"eps": (-1.0, 0.1)}, "epsilon1"), ({"eps": (None, -0.1)}, "epsilon2"),
     ({"d": 0.5}, "threshold d"), ({"weight_decay": -1.0}, "weight_decay")],
)  # fmt: skip
def test_what_is_refused(options, text):
    with pytest.raises(ValueError, match=text):
        gl.optim.Adafactor([gl.ones(2, requires_grad=True)], **options)
