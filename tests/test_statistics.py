"""Spread, norms, order statistics and covariance against NumPy; gradients at the points without a derivative."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gradlab as gl

from slopes import check_slopes

X = np.random.default_rng(0).normal(size=(3, 5))
T = gl.tensor(X)


@pytest.mark.parametrize("correction", [0, 1, 2])
@pytest.mark.parametrize("dim", [None, 0, 1, (0, 1)])
def test_std(dim, correction):
    want = X.std(axis=dim, ddof=correction)
    np.testing.assert_allclose(gl.std(T, dim, correction=correction).numpy(), want)
    deviation, mean = gl.std_mean(T, dim, correction=correction)
    np.testing.assert_allclose(deviation.numpy(), want)
    np.testing.assert_allclose(mean.numpy(), X.mean(axis=dim))
    variance, mean = gl.var_mean(T, dim, correction=correction, keepdim=True)
    np.testing.assert_allclose(variance.numpy(), X.var(axis=dim, ddof=correction, keepdims=True))
    check_slopes(lambda x: gl.std(x, dim, correction=correction), X)


def test_std_of_a_constant_has_no_slope():
    x = gl.full((4,), 4.0, requires_grad=True)
    x.std().backward()
    assert x.grad.tolist() == [0, 0, 0, 0]
    assert math.isnan(gl.std(gl.tensor([3.0])).item())
    assert gl.std(gl.tensor([3.0]), correction=0).item() == 0
    assert gl.std(T, False).item() == pytest.approx(X.std())


@pytest.mark.parametrize("p", [2, 1, 3, 0.5, math.inf, -math.inf, 0, -1.5, "fro"])
@pytest.mark.parametrize("dim", [None, 0, (0, 1)])
def test_norms(p, dim):
    order = 2 if p == "fro" else p
    flat = X.reshape(-1) if dim is None or dim == (0, 1) else X
    want = np.linalg.norm(flat, order, axis=0)
    np.testing.assert_allclose(gl.norm(T, p, dim).numpy(), want)
    if p != 0:
        check_slopes(lambda x: gl.norm(x, p, dim), X)
    x = gl.zeros(2, 3, requires_grad=True)
    gl.norm(x, p, 1).sum().backward()
    assert x.grad.abs().sum().item() == 0


def test_a_zero_row_leaves_other_rows_alone():
    x = gl.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    x.norm(dim=1).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [[0.6, 0.8], [0, 0]], rtol=1e-6)


def test_norm_of_halves_does_not_overflow():
    assert gl.norm(gl.full((4,), 1000.0, dtype=gl.float16)).item() == 2000
    with pytest.raises(RuntimeError):
        gl.norm(gl.tensor([1, 2]))
    with pytest.raises(ValueError, match="number"):
        gl.norm(T, "nuclear")


def test_dist_and_renorm():
    assert gl.dist(gl.tensor([1.0, 2.0]), gl.tensor([4.0, 6.0])).item() == 5
    y = gl.renorm(T, 2, 0, 1.0)
    norms = np.linalg.norm(X, axis=1)
    np.testing.assert_allclose(np.linalg.norm(y.numpy(), axis=1), np.minimum(norms, 1), rtol=1e-6)
    check_slopes(lambda x: gl.renorm(x, 2, 0, 1.0), X)


def test_medians():
    assert gl.median(gl.tensor([4.0, 1.0, 3.0, 2.0])).item() == 2
    values, indices = gl.median(T, 1)
    np.testing.assert_allclose(values.numpy(), np.median(X, 1))
    np.testing.assert_allclose(np.take_along_axis(X, indices.numpy()[:, None], 1)[:, 0], np.median(X, 1))
    x = gl.tensor([1.0, math.nan, 3.0])
    assert math.isnan(gl.median(x).item())
    assert gl.nanmedian(x).item() == 1
    assert gl.nanmedian(x, 0).indices.item() == 0
    assert math.isnan(gl.median(gl.zeros(0)).item())
    tied = gl.tensor([1.0, 2.0, 2.0, 5.0], requires_grad=True)
    gl.median(tied).backward()
    assert tied.grad.tolist() == [0, 0.5, 0.5, 0]
    check_slopes(lambda x: gl.median(x, 0).values, X)


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
@pytest.mark.parametrize("dim", [None, 0, 1])
def test_quantiles(interpolation, dim):
    levels = np.array([0.0, 0.3, 0.5, 1.0])
    want = np.quantile(X, levels, axis=dim, method=interpolation)
    np.testing.assert_allclose(gl.quantile(T, gl.tensor(levels), dim, interpolation=interpolation).numpy(), want)
    kept = gl.quantile(T, 0.3, dim, keepdim=True, interpolation=interpolation)
    np.testing.assert_allclose(kept.numpy(), np.quantile(X, 0.3, axis=dim, method=interpolation, keepdims=True))
    check_slopes(lambda x: gl.quantile(x, 0.35, dim, interpolation=interpolation), X)


def test_quantiles_and_nan():
    x = np.array([[1.0, math.nan, 3.0], [4.0, 5.0, 9.0], [math.nan] * 3])
    found = gl.quantile(gl.tensor(x), 0.5, 1).tolist()
    assert [math.isnan(v) for v in found] == [True, False, True]
    np.testing.assert_allclose(gl.nanquantile(gl.tensor(x), 0.4, 1).numpy(), [1.8, 4.8, math.nan])
    one = gl.ones(1)
    for values, q in ((T, 1.5), (T, gl.tensor([0.5])), (gl.zeros(0), 0.5), *((one, gl.tensor(q)) for q in (1.5, [0.5, -0.1], math.nan))):
        with pytest.raises(RuntimeError):
            gl.quantile(values, q)


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_the_gradient_of_a_quantile_that_is_nan(interpolation):
    """It is that of the NaN, as of a median or a maximum."""
    x = gl.tensor([[1.0, math.nan, 2.0], [3.0, 1.0, 2.0]], requires_grad=True)
    gl.quantile(x, 0.5, 1, interpolation=interpolation).sum().backward()
    assert x.grad.tolist() == [[0, 1, 0], [0, 0, 1]]


def test_sums_that_pass_over_nan():
    x = gl.tensor([[1.0, math.nan], [3.0, 4.0]], requires_grad=True)
    assert gl.nansum(x).item() == 8
    assert gl.nansum(x, 0).tolist() == [4, 4]
    assert gl.nanmean(x, 1).tolist() == [1, 3.5]
    gl.nansum(x).backward()
    assert x.grad.tolist() == [[1, 0], [1, 1]]
    low, high = gl.aminmax(T, dim=1)
    np.testing.assert_array_equal(low.numpy(), X.min(1))
    np.testing.assert_array_equal(high.numpy(), X.max(1))


def test_covariance():
    counts, importance = np.array([1, 2, 1, 3, 1]), np.array([0.5, 1.0, 2.0, 0.1, 0.7])
    np.testing.assert_allclose(gl.cov(T).numpy(), np.cov(X))
    np.testing.assert_allclose(gl.cov(T, correction=0).numpy(), np.cov(X, ddof=0))
    found = gl.cov(T, fweights=gl.tensor(counts), aweights=gl.tensor(importance))
    np.testing.assert_allclose(found.numpy(), np.cov(X, fweights=counts, aweights=importance))
    np.testing.assert_allclose(gl.corrcoef(T).numpy(), np.corrcoef(X))
    assert gl.cov(T[0]).item() == pytest.approx(X[0].var(ddof=1))
    check_slopes(gl.cov, X)
    check_slopes(gl.corrcoef, X)
    with pytest.raises(RuntimeError):
        gl.cov(T, fweights=gl.tensor([1.0] * 5))


@pytest.mark.parametrize("n", [1, 127, 1000, 4097])
def test_awkward_lengths(n):
    x = np.random.default_rng(n).normal(size=(3, n)).astype(np.float32)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(gl.norm(gl.tensor(x), dim=1).numpy(), np.linalg.norm(wide, axis=1), rtol=1e-6)
    np.testing.assert_allclose(gl.std(gl.tensor(x), 1, correction=0).numpy(), wide.std(1), rtol=1e-5)


@pytest.mark.parametrize("function", [gl.var, gl.std, gl.var_mean, gl.std_mean])
@pytest.mark.parametrize("dim", [None, 0, 1, (0, 1)])
def test_a_correction_of_as_many_or_more(function, dim):
    """Nothing is left to divide by: the spread is infinite, and NaN where there is none."""
    for dtype in (gl.float32, gl.float64):
        for numbers, want in ((T.to(dtype), math.inf), (gl.full((3, 5), 7.0, dtype=dtype), math.nan)):
            n = numbers.numel() if dim in (None, (0, 1)) else numbers.shape[dim]
            for correction in (n, n + 1, n + 7):
                found = function(numbers, dim, correction=correction) if dim is not None else function(numbers, correction=correction)
                found = found[0] if isinstance(found, tuple) else found
                assert found.dtype == dtype
                np.testing.assert_array_equal(found.numpy(), np.full(found.shape, want))
