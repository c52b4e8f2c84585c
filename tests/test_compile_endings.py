"""Compiled CPU programs: what follows a product of matrices runs in the product's kernel (`graph/executables/native/epilogues.py`), and
long products are done in halves where both operands have to be packed."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.backends.native import compiler

pytestmark = pytest.mark.skipif(not compiler.available(), reason="needs a C++ compiler")
F = nn.functional


def arrays(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [gl.tensor(rng.normal(size=shape).astype(np.float32)) for shape in shapes]


def check(function, *shapes):
    """Compiled calls on several inputs give what eager ones give; the rows that run together with a product."""
    step = gl.compile(function)
    for seed in range(4):
        given = arrays(seed, *shapes)
        for a, b in zip(*((r if isinstance(r, tuple) else (r,)) for r in (step(*given), function(*given))), strict=True):
            want = b.numpy(force=True)
            np.testing.assert_allclose(a.numpy(force=True), want, rtol=3e-5, atol=5e-6 * max(1, abs(want).max()))
    report = step.programs[0].runner.executable.report
    return [[c.op.name for c in s.calls[1:]] for s in report if len(s.calls) > 1 and s.calls[0].op.name in ("linear", "matmul")]


def gelu(x):
    return F.gelu(x, approximate="tanh")


SIZES = [(1, 1, 1), (7, 37, 5), (65, 128, 33), (130, 300, 96)]


@pytest.mark.parametrize("m, n, k", SIZES)
def test_activations_of_a_layer(m, n, k):
    shapes = (m, k), (n, k), (n,)
    assert check(lambda x, w, b: F.linear(x, w, b).relu(), *shapes) == [["relu"]]
    assert check(lambda x, w, b: gelu(F.linear(x, w, b)), *shapes) == [["gelu_tanh"]]
    assert check(lambda x, w, b: gelu(x @ w.mT), *shapes) == [["gelu_tanh"]]
    assert check(lambda x, w, b, r: r + F.linear(x, w, b), *shapes, (m, n)) == [["add"]]
    assert check(lambda x, w, b, r: F.linear(x, w) + r, *shapes, (m, n)) == [["add"]]


def _steps(a):
    """A half array as integers in the order of its values: neighbours are 1 apart."""
    found = a.detach()._array.view(np.int16).astype(int)
    return np.where(found < 0, -(found & 0x7FFF), found)


@pytest.mark.parametrize("m, n, k", SIZES[1:3])
@pytest.mark.parametrize("dtype", [gl.float16, gl.bfloat16])
def test_half_types_are_rounded_in_the_product(dtype, m, n, k):
    """Where each row of eager mode rounds; operands are small whole numbers and quarters, whose sums are the same in any order."""
    rng = np.random.default_rng(m)
    x, w, b, r = (gl.tensor(rng.integers(-9, 10, shape) * 0.25).to(dtype) for shape in ((m, k), (n, k), (n,), (m, n)))
    odd = r.clone()
    odd.flatten()[: min(5, m * n)] = gl.tensor([float("nan"), float("inf"), -float("inf"), 3e-8, -0.0][: m * n]).to(dtype)
    functions = {
        (): lambda: (F.linear(x, w, b).float(),),
        ("relu",): lambda: (F.linear(x, w, b).relu().float(),),
        ("gelu_tanh",): lambda: (gelu(F.linear(x, w, b)).float(),),
        ("gelu_tanh", "kept"): lambda: (gelu(z := F.linear(x, w, b)).float(), z.float()),
        ("add",): lambda: (odd.float() + F.linear(x, w, b),),
        ("rounded to add",): lambda: ((odd + F.linear(x, w, b)).float(),),
        ("rounded for a gradient",): lambda: (gl.autograd.grad(gelu(z := odd.clone().requires_grad_()), z, F.linear(x, w))[0].float(),),
    }  # fmt: skip
    for names, function in functions.items():
        step = gl.compile(function)
        for _ in range(2):
            got = step()
        for a, want in zip(got, function(), strict=True):
            found, wanted = (_steps(y.detach().to(dtype)) if "add" != names[:1] else y.detach()._array for y in (a, want))
            known = ~np.isnan(want.detach()._array)
            assert np.array_equal(known, ~np.isnan(a.detach()._array))
            exact = names in ((), ("relu",), ("add",), ("rounded to add",))
            assert abs(found - wanted)[known & np.isfinite(want.detach()._array)].max(initial=0) <= (not exact), names
        report = step.programs[0].runner.executable.report
        steps = [s.calls for s in report if s.calls and s.calls[0].op.name.startswith(("linear", "matmul"))]
        ran = [c.op.name for c in steps[0][1:]]
        assert ran[0] == f"round_to_{dtype}".replace("gradlab.", ""), names
        assert names[:1] == tuple(ran[1:2]) or names[:1] in ((), ("rounded to add",), ("rounded for a gradient",)), ran


def test_what_is_needed_besides():
    """A layer's result that is asked for is there; only gelu's kernel writes it too."""
    shapes = (33, 20), (40, 20), (40,)

    def both(act):
        def function(x, w, b):
            z = F.linear(x, w, b)
            return z, act(z)

        return function

    assert check(both(gelu), *shapes) == [["gelu_tanh"]]
    assert check(both(gl.relu), *shapes) == []
    assert check(lambda x, w, b: gelu(F.linear(x, w, b)) + F.linear(x, w, b).exp(), *shapes) in ([], [["gelu_tanh"]])


def test_views_between():
    """A view of the layer's result with another last dimension."""
    shapes = (6, 5, 20), (48, 20), (48,)
    assert check(lambda x, w, b: F.linear(x, w, b).view(6, 5, 4, 12).relu(), *shapes) == [["relu"]]
    assert check(lambda x, w, b: F.linear(x, w, b).view(30, 48).relu(), *shapes) == [["relu"]]
    assert check(lambda x, w, b: F.linear(x, w, b).mT.relu(), *shapes) == []  # not in the order of memory
    assert check(lambda x, w, b: F.linear(x, w, b)[:, 1:].relu(), *shapes) == []


def test_operands_that_lie_otherwise():
    shapes = (20, 20), (20, 20), (20, 20)
    assert check(lambda x, w, r: x @ w + r.mT, *shapes) == []
    assert check(lambda x, w, r: x @ w + r[0], *shapes) == []
    assert check(lambda x, w, r: gelu((x @ w).mT) + r, *shapes) == []
    assert check(lambda x, w, r: (x.mT @ w).relu(), *shapes) == [["relu"]]
    assert check(lambda x, w, r: x @ w + x @ r, *shapes) in ([["add"]], [])


def network(act):
    def loss(x, a, b, c):
        params = [p.detach().requires_grad_() for p in (a, b, c)]
        h = act(F.linear(x, params[0]))
        y = F.linear(act(F.linear(h, params[1])), params[2])
        out = (y * y).mean()
        return (out, *gl.autograd.grad(out, params))

    return loss


@pytest.mark.parametrize("act, back", [(gelu, "gelu_tanh_backward"), (gl.relu, "relu_backward")])
@pytest.mark.parametrize("rows", [9, 300, 1100])
def test_gradients(act, back, rows):
    found = check(network(act), (rows, 24), (48, 24), (36, 48), (10, 36))
    assert sum(back in names for names in found) == 2


def test_gradients_of_three_dimensions():
    def loss(x, a, b):
        a, b = (p.detach().requires_grad_() for p in (a, b))
        out = (x + F.linear(gelu(F.linear(x, a)), b)).square().sum()
        return (out, *gl.autograd.grad(out, (a, b)))

    found = check(loss, (4, 33, 24), (96, 24), (24, 96))
    assert any("gelu_tanh_backward" in names for names in found)


def test_no_number_stays_none():
    x = gl.tensor(np.array([[1.0, np.nan], [np.inf, 0.0], [-1.0, 2.0]], np.float32))
    w = gl.tensor(np.array([[1.0, 1.0], [-1.0, 0.5], [0.0, 1.0]], np.float32))
    for act in (gl.relu, gelu):
        step = gl.compile(lambda x, w, act=act: act(F.linear(x, w)))
        for _ in range(3):
            np.testing.assert_allclose(step(x, w).numpy(), act(F.linear(x, w)).numpy(), rtol=1e-6, atol=1e-7)


def test_state_that_a_residual_adds_to():
    """The sum goes into the state that it reads."""
    state, (x, w) = gl.zeros(40, 24), arrays(0, (40, 16), (24, 16))

    def add(x, w):
        state.add_(F.linear(x, w))
        return state.sum()

    step = gl.compile(add)
    want = F.linear(x, w).numpy()
    for i in range(1, 6):
        step(x, w)
        np.testing.assert_allclose(state.numpy(), i * want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("m, n, k", [(65, 40, 512), (128, 96, 1111), (48, 256, 2048), (200, 33, 777)])
def test_long_products_in_halves(m, n, k):
    given = arrays(0, (k, m), (k, n))
    step = gl.compile(lambda a, b: a.mT @ b)
    want = given[0].numpy().astype(np.float64).T @ given[1].numpy()
    for _ in range(3):
        np.testing.assert_allclose(step(*given).numpy(), want, rtol=1e-5, atol=2e-4)
    kernels = [name for s in step.programs[0].runner.executable.report for name in s.kernels]
    assert ("gradlab_add_rest" in kernels) == (m * n * k // 8 >= 1 << 15)
