"""gradlab.special and the gamma functions: known values, edges, gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gradlab as gl
from gradlab import special

from slopes import check_slopes

X = np.array([-7.5, -2.0, -0.3, 0.0, 0.4, 1.7, 6.0])


def wide(values):
    return gl.tensor(values, dtype=gl.float64)


def test_the_normal_distribution():
    want = [0.5 * math.erfc(-x / math.sqrt(2)) for x in X]
    np.testing.assert_allclose(special.ndtr(wide(X)).numpy(), want, rtol=1e-13)
    np.testing.assert_allclose(special.log_ndtr(wide(X)).numpy(), np.log(want), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(special.ndtri(special.ndtr(wide(X[:-1]))).numpy(), X[:-1], atol=1e-10)
    far = special.log_ndtr(wide([-100.0, -1e10, 40.0])).numpy()
    np.testing.assert_allclose(far, [-5005.524208694205, -5e19, 0], rtol=1e-12)
    assert special.ndtri(wide([0.0, 1.0])).tolist() == [-math.inf, math.inf]
    assert np.isnan(special.ndtri(wide([-0.1, 1.1])).numpy()).all()
    for function in (special.ndtr, special.log_ndtr, special.erfcx):
        check_slopes(function, X)
    check_slopes(special.ndtri, np.array([0.01, 0.3, 0.9]))


def test_scaled_complement():
    np.testing.assert_allclose(special.erfcx(wide(X[1:])).numpy(), [math.exp(x * x) * math.erfc(x) for x in X[1:]], rtol=1e-12)
    np.testing.assert_allclose(special.erfcx(wide([1e5])).numpy(), 1 / (1e5 * math.sqrt(math.pi)), rtol=1e-9)


def test_poles_of_the_gamma_functions():
    assert gl.lgamma(wide([0.0, -1.0, -5.0, math.inf])).tolist() == [math.inf] * 4
    assert gl.digamma(wide([0.0]))[0] == -math.inf
    assert np.isnan(gl.digamma(wide([-1.0, -2.0])).numpy()).all()
    assert gl.polygamma(1, wide([0.0, -3.0])).tolist() == [math.inf, math.inf]


def test_known_values():
    euler = 0.5772156649015329
    np.testing.assert_allclose(gl.digamma(wide([1.0, 2.0])).numpy(), [-euler, 1 - euler], rtol=1e-14)
    np.testing.assert_allclose(gl.polygamma(1, wide([1.0])).numpy(), math.pi**2 / 6, rtol=1e-14)
    np.testing.assert_allclose(gl.polygamma(3, wide([1.0])).numpy(), math.pi**4 / 15, rtol=1e-14)
    np.testing.assert_allclose(gl.lgamma(gl.tensor([5])).numpy(), math.log(24), rtol=1e-6)
    np.testing.assert_allclose(
        gl.mvlgamma(wide([3.0]), 2).numpy(), math.lgamma(3) + math.lgamma(2.5) + math.log(math.pi) / 2, rtol=1e-14
    )
    assert gl.polygamma(0, gl.tensor([3])).dtype == gl.float32
    with pytest.raises(RuntimeError, match="negative"):
        gl.polygamma(-1, wide([1.0]))


def test_the_float32_logarithm_of_gamma_is_float64s_rounded():
    rng = np.random.default_rng(0)
    near = np.concatenate([1 + rng.normal(size=500) * 1e-6, 2 + rng.normal(size=500) * 1e-6, -2.457 + rng.normal(size=500) * 1e-3])
    x = np.concatenate([rng.uniform(-30, 30, 20_000), 10 ** rng.uniform(-44, 35, 2000), near]).astype(np.float32)
    exact = gl.lgamma(gl.tensor(x.astype(np.float64))).numpy()
    found = gl.lgamma(gl.tensor(x)).numpy()
    np.testing.assert_allclose(found, exact, rtol=1.3e-7)
    assert (found != exact.astype(np.float32)).mean() < 1e-4


def test_entropy():
    assert special.entr(wide([0.0, 1.0, -1.0])).tolist() == [0, 0, -math.inf]
    check_slopes(special.entr, np.array([0.2, 1.5]))


def test_xlog1py_at_zero():
    assert special.xlog1py(wide([0.0, 0.0]), wide([-1.0, 3.0])).tolist() == [0, 0]
    assert np.isnan(special.xlog1py(wide([0.0]), math.nan).item())
    np.testing.assert_allclose(special.xlog1py(2, wide([1.0])).numpy(), 2 * math.log(2))
    check_slopes(special.xlog1py, np.array([0.5, 2.0]), np.array([0.3, -0.4]))
    a = wide([0.0]).requires_grad_()
    special.xlog1py(a, wide([-1.0])).sum().backward()
    assert np.isfinite(a.grad.numpy()).all()
    with pytest.raises(TypeError, match="at least one tensor"):
        special.xlog1py(1, 2)


def test_every_name_is_there():
    assert all(callable(getattr(special, name)) for name in special.__all__)
