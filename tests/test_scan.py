"""Products, running sums, differences and integrals against NumPy; gradients at zeros and infinities."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gradlab as gl

from slopes import check_slopes

X = np.random.default_rng(0).normal(size=(3, 4))


@pytest.mark.parametrize(
    ("values", "want"),
    [([2.0, 3.0, 4.0], [12, 8, 6]), ([0.0, 3.0, 4.0], [12, 0, 0]), ([0.0, 3.0, 0.0], [0, 0, 0]), ([5.0], [1]), ([0.0], [1])],
)
def test_gradient_of_a_product_with_zeros(values, want):
    x = gl.tensor(values, requires_grad=True)
    x.prod().backward()
    assert x.grad.tolist() == want


def test_second_derivative_of_a_product_at_zeros():
    x = gl.tensor([0.0, 0.0, 3.0], dtype=gl.float64, requires_grad=True)
    (g,) = gl.autograd.grad(x.prod(), [x], create_graph=True)
    (h,) = gl.autograd.grad(g[0], [x])
    assert h.tolist() == [0, 3, 0]


def test_products():
    t = gl.tensor(X)
    np.testing.assert_allclose(t.prod(1).numpy(), X.prod(1))
    np.testing.assert_allclose(gl.prod(t, (0, 1), keepdim=True).numpy(), X.prod(keepdims=True))
    assert gl.prod(gl.tensor([2, 3])).dtype == gl.int64
    assert gl.prod(gl.tensor([True, True])).item() == 1
    assert gl.prod(gl.zeros(0)).item() == 1
    assert gl.prod(t, 0, dtype=gl.float32).dtype == gl.float32


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_running(name, dim):
    np.testing.assert_allclose(getattr(gl, name)(gl.tensor(X), dim).numpy(), getattr(np, name)(X, axis=dim), rtol=1e-12)
    check_slopes(lambda x: getattr(gl, name)(x, dim), X)
    assert getattr(gl.tensor([1, 2], dtype=gl.int8), name)(0).dtype == gl.int64
    assert getattr(gl.tensor(3.0), name)(0).item() == 3


def test_a_long_sum_keeps_its_accuracy():
    x = np.full(1_000_003, 0.1, np.float32)
    assert gl.cumsum(gl.tensor(x), 0)[-1].item() == pytest.approx(float(x[0]) * len(x), rel=1e-6)


def test_logcumsumexp():
    x = gl.tensor([-math.inf, 1.0, 1000.0, -math.inf], dtype=gl.float64, requires_grad=True)
    y = gl.logcumsumexp(x, 0)
    assert y.tolist() == [-math.inf, 1, 1000, 1000]
    y[1:].sum().backward()
    assert x.grad.tolist() == [0, 1, 2, 0]
    with pytest.raises(RuntimeError):
        gl.logcumsumexp(gl.tensor([1]), 0)


def test_running_extremes():
    values, indices = gl.cummax(gl.tensor([1.0, 3.0, 3.0, math.nan, 5.0]), 0)
    assert values.tolist()[:3] == [1, 3, 3]
    assert np.isnan(values.tolist()[3:]).all()
    assert indices.tolist() == [0, 1, 2, 3, 3]
    assert gl.cummin(gl.tensor([3, 1, 2]), 0).values.tolist() == [3, 1, 1]
    x = gl.tensor([1.0, 3.0, 2.0], requires_grad=True)
    gl.cummax(x, 0).values.sum().backward()
    assert x.grad.tolist() == [1, 2, 0]


def test_differences():
    for n in range(6):
        np.testing.assert_allclose(gl.diff(gl.tensor(X), n).numpy(), np.diff(X, n))
    want = np.diff(X, axis=0, prepend=X[:1], append=X[:2])
    np.testing.assert_allclose(gl.diff(gl.tensor(X), dim=0, prepend=gl.tensor(X[:1]), append=gl.tensor(X[:2])).numpy(), want)
    assert gl.diff(gl.tensor([True, False, False])).tolist() == [True, False]
    check_slopes(lambda x: gl.diff(x, 2), X)
    with pytest.raises(RuntimeError):
        gl.diff(gl.tensor(1.0))


def test_integrals():
    points = np.array([0.0, 1.0, 3.0, 3.5])
    np.testing.assert_allclose(gl.trapezoid(gl.tensor(X), gl.tensor(points)).numpy(), np.trapezoid(X, points))
    np.testing.assert_allclose(gl.trapz(gl.tensor(X), dx=0.5, dim=0).numpy(), np.trapezoid(X, dx=0.5, axis=0))
    running = gl.cumulative_trapezoid(gl.tensor(X), gl.tensor(points))
    np.testing.assert_allclose(running[:, -1].numpy(), np.trapezoid(X, points))
    assert running.shape == (3, 3)
    check_slopes(gl.trapezoid, X, points)


def test_wrong_dims():
    for function in (gl.cumsum, gl.cumprod, gl.cummax, gl.logcumsumexp, gl.prod):
        with pytest.raises(IndexError):
            function(gl.ones(2), 1)


@pytest.mark.parametrize("dtype", [gl.float32, gl.float16, gl.int64])
@pytest.mark.parametrize("points", [False, True])
def test_the_integral_of_nothing_is_0_without_graph(dtype, points):
    y = gl.ones(2, 0, dtype=dtype).requires_grad_(dtype.is_floating_point)
    found = gl.trapezoid(y, gl.ones(0).requires_grad_() if points else None)
    assert found.tolist() == [0, 0] and found.dtype is dtype and not found.requires_grad
    running = gl.cumulative_trapezoid(y, gl.ones(0).requires_grad_() if points else None)
    assert running.shape == (2, 0) and running.requires_grad is (points or dtype.is_floating_point)
