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


@pytest.mark.parametrize("made", [lambda t: D.Cauchy(t(0.5), t(2.0)), lambda t: D.StudentT(t(0.1)), lambda t: D.HalfCauchy(t(2.0)),
                                  lambda t: D.Pareto(t(1e-30), t(0.1)), lambda t: D.Gumbel(t(0.5), t(2.0)),
                                  lambda t: D.Laplace(t(0.0), t(2.0)),
                                  lambda t: D.LogNormal(t(0.0), t(1.0)), lambda t: D.InverseGamma(t(0.1), t(1.0)),
                                  lambda t: D.FisherSnedecor(t(0.1), t(0.1)),
                                  lambda t: D.GeneralizedPareto(t(0.0), t(1.0), t(3.0))])  # fmt: skip
def test_densities_far_out(made):
    """Heavy tails reach numbers whose squares no float32 holds; their logarithms are those of float64, and so are the gradients."""
    for at in (2e-30, 1e-10, 1e10, 1e20, 1e30):
        found = []
        for dtype in (gl.float32, gl.float64):
            value = gl.tensor(at, dtype=dtype, requires_grad=True)
            density = made(lambda x, dtype=dtype: gl.tensor(x, dtype=dtype)).log_prob(value)
            found.append([float(density), float(gl.autograd.grad(density, value)[0])])
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(found[0], np.float32(found[1]), rtol=1e-4, atol=1e-30)


T = D.transforms
RISING = [T.ExpTransform(), T.SigmoidTransform(), T.TanhTransform(), T.SoftplusTransform(),
          T.AffineTransform(1.0, 2.0), T.PowerTransform(gl.tensor(3.0)), T.CumulativeDistributionTransform(D.Normal(0.0, 1.0))]  # fmt: skip
FALLING = [T.AffineTransform(1.0, -2.0), T.PowerTransform(gl.tensor(-1.0))]


def test_the_sign_of_every_transform():
    """`cdf` turns over where a transform falls, and has no meaning where it does neither."""
    for expected, kinds in ((1, RISING), (-1, FALLING)):
        for t in kinds:
            each = (t, t.inv, T.IndependentTransform(t, 1), T.ComposeTransform([t, T.ExpTransform()]))
            assert [int(x.sign) for x in each] == [expected] * 4, t
    seen = {type(t).__name__ for t in (*RISING, *FALLING)} | {"ComposeTransform", "IndependentTransform", "Transform"}
    others = {"AbsTransform": (), "SoftmaxTransform": (), "StickBreakingTransform": (), "LowerCholeskyTransform": (),
              "PositiveDefiniteTransform": (), "CorrCholeskyTransform": (), "ReshapeTransform": ((2,), (2, 1)),
              "CatTransform": ([T.ExpTransform()],), "StackTransform": ([T.ExpTransform()],)}  # fmt: skip
    assert seen | set(others) == {name for name in vars(T) if name.endswith("Transform") and name[0] != "_"}
    for name, arguments in others.items():
        with pytest.raises(NotImplementedError):
            _ = getattr(T, name)(*arguments).sign
    with pytest.raises(NotImplementedError):
        D.TransformedDistribution(D.Normal(0.0, 1.0), [T.AbsTransform()]).cdf(gl.tensor(0.5))


def test_transforms_with_equal_numbers_are_equal():
    """So that the divergence of two distributions that go through the same function is that of their bases."""
    kinds = [lambda: T.ExpTransform(), lambda: T.AffineTransform(1.0, 2.0), lambda: T.AffineTransform(gl.ones(2), 2.0),
             lambda: T.PowerTransform(gl.tensor(2.0)), lambda: T.IndependentTransform(T.ExpTransform(), 1),
             lambda: T.ComposeTransform([T.AffineTransform(0.0, 3.0), T.TanhTransform()])]  # fmt: skip
    made = [(each(), each(), each().inv, each().inv) for each in kinds]
    for i, (a, b, c, d) in enumerate(made):
        assert a == b and c == d and a != c and hash(a) == hash(b)
        assert all(a != x[0] for j, x in enumerate(made) if i != j)
        base, other = D.Normal(gl.zeros(2), 1.0), D.Normal(gl.ones(2), 1.0)
        p, q = D.TransformedDistribution(base, [a]), D.TransformedDistribution(other, [b])
        assert gl.allclose(D.kl_divergence(p, q), gl.full(p.batch_shape, 0.5 * (1 if p.batch_shape else 2)))
    assert T.AffineTransform(1.0, 2.0) != T.AffineTransform(1.0, 3.0)
