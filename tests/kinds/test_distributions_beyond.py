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


NUMBERS = {
    **{made(validate_args=True).__class__.__name__: made for made in CONTINUOUS},
    "Bernoulli": lambda **k: D.Bernoulli(gl.tensor(0.3), **k), "Binomial": lambda **k: D.Binomial(3, gl.tensor(0.3), **k),
    "Categorical": lambda **k: D.Categorical(gl.tensor([0.2, 0.8]), **k), "Geometric": lambda **k: D.Geometric(gl.tensor(0.3), **k),
    "ContinuousBernoulli": lambda **k: D.ContinuousBernoulli(gl.tensor(0.3), **k), "HalfNormal": lambda **k: D.HalfNormal(1.0, **k),
    "HalfCauchy": lambda **k: D.HalfCauchy(1.0, **k), "NegativeBinomial": lambda **k: D.NegativeBinomial(2.0, gl.tensor(0.3), **k),
    "Poisson": lambda **k: D.Poisson(2.0, **k), "Uniform": lambda **k: D.Uniform(0.0, 2.0, **k),
    "RelaxedBernoulli": lambda **k: D.RelaxedBernoulli(gl.tensor(0.5), gl.tensor(0.3), **k),
}  # fmt: skip
ODD = (-INF, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, INF, NAN)
# At the ends of its interval the log-odds that a relaxed one computes with are infinite.
UNDECIDED = {("RelaxedBernoulli", 0.0), ("RelaxedBernoulli", 1.0)}
GIVEN_NO_PLACE = {"Categorical", "Uniform"}  # whose density does not depend on where in the support a value is


@pytest.mark.parametrize("name", NUMBERS)
def test_a_density_is_asked_for_in_the_support_alone(name):
    made = NUMBERS[name](validate_args=True)
    for value in ODD:
        if (name, value) in UNDECIDED:
            continue
        if made.support.check(gl.tensor(value)):
            assert math.isinf(value) or not made.log_prob(gl.tensor(value)).isnan(), value
        else:
            with pytest.raises(ValueError):
                made.log_prob(gl.tensor(value))


@pytest.mark.parametrize("name", sorted(NUMBERS.keys() - GIVEN_NO_PLACE))
def test_a_density_has_the_digits_of_its_value(name):
    one = NUMBERS[name]()
    assert one.log_prob(gl.tensor(1.0 if one.support.is_discrete or name == "Pareto" else 0.5, dtype=gl.float64)).dtype is gl.float64


def test_a_distribution_with_parts_of_its_own_is_not_expanded_without_them():
    class Shifted(D.Normal):
        def __init__(self, loc, scale, shift):
            super().__init__(loc, scale)
            self.shift = shift

    class Further(Shifted):
        pass

    class Named(Shifted):
        batched = ("loc", "scale", "shift")

    class Same(D.Normal):
        pass

    class Expanded(Shifted):
        def expand(self, batch_shape, _instance=None):
            new = self._get_checked_instance(Expanded, _instance)
            new.shift = self.shift.expand(batch_shape)
            return super().expand(batch_shape, new)

    for kind in (Shifted, Further):
        with pytest.raises(NotImplementedError, match=f"{kind.__name__} has an __init__ of its own"):
            kind(gl.tensor(0.0), gl.tensor(1.0), gl.tensor(5.0)).expand((3,))
    for kind in (Named, Expanded):
        assert kind(gl.tensor(0.0), gl.tensor(1.0), gl.tensor(5.0)).expand((3,)).shift.shape == (3,)
    assert Same(0.0, 1.0).expand((3,)).batch_shape == (3,)
