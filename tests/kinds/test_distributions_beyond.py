"""Distributions at what is no value of theirs: NaN is not an impossible value, it is NaN; a cdf ends at 0 and 1; and what only some had."""

import itertools
import math

import numpy as np
import pytest

import gradlab as gl

D, NAN, INF = gl.distributions, float("nan"), float("inf")
CONTINUOUS = [
    lambda **k: D.Beta(0.5, 2.0, **k), lambda **k: D.Cauchy(0.5, 2.0, **k), lambda **k: D.Chi2(3.0, **k),
    lambda **k: D.Exponential(2.0, **k),
    lambda **k: D.FisherSnedecor(3.0, 5.0, **k), lambda **k: D.Gamma(2.0, 3.0, **k), lambda **k: D.Gumbel(1.0, 2.0, **k),
    lambda **k: D.InverseGamma(3.0, 2.0, **k), lambda **k: D.Laplace(0.5, 2.0, **k), lambda **k: D.LogNormal(0.5, 1.0, **k),
    lambda **k: D.Normal(0.5, 2.0, **k), lambda **k: D.Pareto(1.0, 2.0, **k), lambda **k: D.StudentT(3.0, **k),
    lambda **k: D.Weibull(1.0, 2.0, **k), lambda **k: D.Kumaraswamy(2.0, 3.0, **k), lambda **k: D.GeneralizedPareto(0.0, 1.0, 0.5, **k),
    lambda **k: D.GeneralizedPareto(0.0, 1.0, -0.5, **k), lambda **k: D.VonMises(0.5, 2.0, **k),
]  # fmt: skip


@pytest.mark.parametrize("made", CONTINUOUS)
def test_nan_has_no_density_but_nan(made):
    assert made(validate_args=False).log_prob(gl.tensor(NAN)).isnan()
    with pytest.raises(ValueError):
        made(validate_args=True).log_prob(gl.tensor(NAN))


def test_generalized_pareto_ends():
    heavy, short = D.GeneralizedPareto(0.0, 1.0, 0.5, validate_args=False), D.GeneralizedPareto(0.0, 1.0, -0.5, validate_args=False)
    assert heavy.cdf(gl.tensor([-1.0, 0.0, INF])).tolist() == [0, 0, 1]
    assert short.cdf(gl.tensor([-1.0, 0.0, 2.0, 3.0, INF])).tolist() == [0, 0, 1, 1, 1]
    assert short.log_prob(gl.tensor([-1.0, 3.0])).tolist() == [-INF, -INF]
    values = gl.tensor([-1.0, 0.25, 1.5, 3.0], dtype=gl.float64, requires_grad=True)
    (slope,) = gl.autograd.grad(short.cdf(values).sum(), values)
    assert np.allclose(slope, [0, 1.5**0 * 0.875, 0.25, 0])


def test_modes():
    assert D.Bernoulli(gl.tensor([0.0, 0.3, 0.7, 1.0])).mode.tolist() == [0, 0, 1, 1]
    assert D.Bernoulli(0.5).mode.isnan() and D.Uniform(gl.zeros(2), gl.ones(2)).mode.isnan().all()


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("probs", [[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
def test_entropy_of_counts(n, probs):
    """Against the sum over all counts."""
    entropy = 0.0
    for counts in itertools.product(range(n + 1), repeat=3):
        if sum(counts) == n:
            p = math.factorial(n) * math.prod(q**c / math.factorial(c) for q, c in zip(probs, counts))
            entropy -= p * math.log(p) if p else 0
    found = D.Multinomial(n, gl.tensor([probs, probs], dtype=gl.float64)).entropy()
    assert found.shape == (2,) and np.allclose(found, entropy, atol=1e-12)
