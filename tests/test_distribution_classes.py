"""Which classes of `distributions` are kinds of which, what the transformed ones are made of, and what subclasses set of normal vectors."""

from __future__ import annotations

import inspect
import pickle

import pytest

import gradlab as gl
from gradlab.distributions import constraints, transforms

d = gl.distributions

# The distribution, its base, its transforms.
TRANSFORMED = [
    (lambda: d.LogNormal(0.5, gl.tensor([1.0, 2.0])), d.Normal, "[ExpTransform()]"),
    (lambda: d.HalfNormal(gl.tensor([1.0, 2.0])), d.Normal, "[AbsTransform()]"),
    (lambda: d.HalfCauchy(gl.tensor([1.0, 2.0])), d.Cauchy, "[AbsTransform()]"),
    (lambda: d.Gumbel(0.5, gl.tensor([1.0, 2.0])), d.Uniform,
     "[ExpTransform().inv, AffineTransform(), ExpTransform().inv, AffineTransform()]"),
    (lambda: d.InverseGamma(2.0, gl.tensor([1.0, 2.0])), d.Gamma, "[PowerTransform()]"),
    (lambda: d.Kumaraswamy(2.0, gl.tensor([1.0, 2.0])), d.Uniform, "[PowerTransform(), AffineTransform(), PowerTransform()]"),
    (lambda: d.Pareto(2.0, gl.tensor([1.0, 2.0])), d.Exponential, "[ExpTransform(), AffineTransform()]"),
    (lambda: d.Weibull(2.0, gl.tensor([1.0, 2.0])), d.Exponential, "[PowerTransform(), AffineTransform()]"),
    (lambda: d.RelaxedBernoulli(0.5, gl.tensor([0.25, 0.5])), d.relaxed.LogitRelaxedBernoulli, "[SigmoidTransform()]"),
    (lambda: d.RelaxedOneHotCategorical(0.5, gl.tensor([[0.25, 0.75], [0.5, 0.5]])), d.relaxed.ExpRelaxedCategorical, "[ExpTransform()]"),
]  # fmt: skip


@pytest.mark.parametrize("make, base, steps", TRANSFORMED, ids=[inspect.getsource(m).split("d.")[1].split("(")[0] for m, *_ in TRANSFORMED])
def test_transformed_ones_have_their_base_and_their_transforms(make, base, steps):
    gl.manual_seed(3)
    whole = make()
    assert isinstance(whole, d.TransformedDistribution) and type(whole.base_dist) is base and repr(whole.transforms) == steps
    assert whole.batch_shape == whole.base_dist.batch_shape == (2,) and whole.event_shape == whole.base_dist.event_shape
    wide = whole.expand((3, 2))
    assert type(wide) is type(whole) and wide.batch_shape == wide.base_dist.batch_shape == (3, 2)
    x = wide.sample()
    if type(whole) in (d.HalfNormal, d.HalfCauchy):  # an absolute value has no one inverse: the formula counts both sides
        steps_alone = whole.base_dist.log_prob(x) + gl.tensor(2.0).log()
    else:
        steps_alone = d.TransformedDistribution(whole.base_dist, whole.transforms).log_prob(x)
    assert wide.log_prob(x).shape == (3, 2) and gl.allclose(wide.log_prob(x), whole.log_prob(x))
    assert gl.allclose(whole.log_prob(x), steps_alone, rtol=1e-3, atol=1e-3)
    assert pickle.loads(pickle.dumps(whole)).batch_shape == (2,)


def test_what_is_set_at_the_base_is_seen():
    whole = d.LogNormal(0.0, gl.tensor([1.0, 2.0]))
    whole.base_dist.loc = gl.tensor([3.0, 4.0])
    assert whole.loc.tolist() == [3.0, 4.0]
    half = d.HalfCauchy(1.0)
    half.base_dist.scale = gl.tensor(2.0)
    assert half.scale.item() == 2.0
    assert d.LogisticNormal(gl.zeros(2), gl.ones(2)).expand((3,)).sample().shape == (3, 3)
    assert type(d.LogisticNormal(gl.zeros(2), gl.ones(2)).expand((3,))) is d.LogisticNormal


@pytest.mark.parametrize("given", ["covariance_matrix", "precision_matrix", "scale_tril"])
def test_normal_vectors_of_a_factor_that_a_subclass_sets(given):
    class OnlyFactor(d.MultivariateNormal):
        def __init__(self, loc, factor):
            self.loc, self._unbroadcasted_scale_tril = loc, factor
            d.Distribution.__init__(self, loc.shape[:-1], loc.shape[-1:])

        def expand(self, batch_shape, _instance=None):
            return super().expand(batch_shape, self._get_checked_instance(OnlyFactor, _instance))

    factor = gl.tensor([[2.0, 0.0], [0.5, 1.0]])
    covariance = factor @ factor.mT
    matrix = {"covariance_matrix": covariance, "precision_matrix": gl.linalg.inv(covariance), "scale_tril": factor}[given]
    own, usual = OnlyFactor(gl.ones(3, 2), factor), d.MultivariateNormal(gl.ones(3, 2), **{given: matrix})
    wishart = d.Wishart(gl.tensor([3.0, 4.0, 5.0]), **{given: matrix})
    x = gl.tensor([0.5, -1.0])
    for found in (own.expand((4, 3)), usual.expand((4, 3)), wishart.expand((4, 3))):
        for name, expected in (("covariance_matrix", covariance), ("precision_matrix", gl.linalg.inv(covariance)), ("scale_tril", factor)):
            assert getattr(found, name).shape == (4, 3, 2, 2) and gl.allclose(getattr(found, name)[2, 1], expected, atol=1e-5)
        assert found._unbroadcasted_scale_tril.shape == (2, 2)
    assert getattr(usual, given)[1].tolist() == matrix.tolist()  # as it was given, to the last digit
    for name in ("mean", "variance", "entropy"):
        one, other = getattr(own, name), getattr(usual, name)
        assert gl.allclose(one() if name == "entropy" else one, other() if name == "entropy" else other, atol=1e-5)
    assert gl.allclose(own.log_prob(x), usual.log_prob(x), atol=1e-5) and own.rsample((5,)).shape == (5, 3, 2)


def test_what_libraries_name():
    assert isinstance(d.Wishart(3.0, gl.eye(2)), d.ExponentialFamily)
    hot = d.OneHotCategorical(gl.tensor([1.0, 3.0]))
    assert not isinstance(hot, d.Categorical) and type(hot._categorical) is d.Categorical
    assert type(d.OneHotCategoricalStraightThrough(gl.tensor([1.0, 3.0])).expand((2,))) is d.OneHotCategoricalStraightThrough
    for one, given in ((d.Bernoulli(logits=gl.zeros(2)), "logits"), (d.Categorical(gl.ones(2)), "probs"), (hot, "probs")):
        assert one._param is getattr(one, given) or given == "probs"
        assert one.param_shape == (2,) and given in vars(getattr(one, "_categorical", one))
    assert isinstance(transforms.ExpTransform().inv, transforms._InverseTransform)
    assert transforms.Distribution is d.Distribution and transforms.Tensor is gl.Tensor
    assert isinstance(type("Own", (), {"size": d.utils.lazy_property(lambda self: 3)}).size, property)


@pytest.mark.torch
def test_classes_are_kinds_of_what_they_are_in_pytorch():
    torch = pytest.importorskip("torch")
    differ, pairs = [], 0
    for ours, theirs in (
        (d, torch.distributions), (transforms, torch.distributions.transforms), (constraints, torch.distributions.constraints),
    ):  # fmt: skip
        names = [n for n in dir(theirs) if inspect.isclass(getattr(theirs, n)) and inspect.isclass(getattr(ours, n, None))]
        names = [n for n in names if getattr(theirs, n).__module__.startswith("torch.distributions")]
        assert len(names) > 20
        for a in names:
            for b in names:
                pairs += 1
                if issubclass(getattr(ours, a), getattr(ours, b)) != issubclass(getattr(theirs, a), getattr(theirs, b)):
                    differ.append((ours.__name__, a, b))
    assert differ == [] and pairs > 3000


def test_a_distribution_of_the_users():
    class Between(gl.distributions.Distribution):
        @property
        def arg_constraints(self):
            return {"low": constraints.real, "high": constraints.real}

        def __init__(self, low, high):
            self.low, self.high = low, high
            super().__init__(low.shape)

        def rsample(self, sample_shape=()):
            return self.low + gl.rand(self._extended_shape(sample_shape)) * (self.high - self.low)

    found = Between(gl.zeros(2), gl.ones(2))
    assert repr(found) == "Between(low: (2,), high: (2,))"
    with pytest.warns(UserWarning, match="sample_n"):
        assert found.sample_n(3).shape == (3, 2)


def test_mixtures_are_expanded_with_their_parts():
    d = gl.distributions
    mixture = d.MixtureSameFamily(d.Categorical(gl.ones(5)), d.Normal(gl.arange(5.0), gl.ones(5)))
    wide = mixture.expand((3, 2))
    assert wide.sample((4,)).shape == (4, 3, 2) and gl.equal(wide.mean, mixture.mean.expand(3, 2)) and wide.variance.shape == (3, 2)
    assert gl.allclose(wide.log_prob(gl.zeros(3, 2)), mixture.log_prob(gl.zeros(())).expand(3, 2))
    of_vectors = d.MixtureSameFamily(d.Categorical(gl.ones(3, 5)), d.MultivariateNormal(gl.zeros(3, 5, 2), gl.eye(2)))
    assert d.Independent(of_vectors, 1).expand((4,)).sample().shape == (4, 3, 2)


@pytest.mark.parametrize("mine", [gl.float32, gl.float64])
@pytest.mark.parametrize("other", [gl.float16, gl.float32, gl.float64, gl.int64])
def test_values_of_any_type_have_a_density(mine, other):
    """Of matrices' distributions in the type of the parameters."""
    d, eye, zeros = gl.distributions, 2 * gl.eye(2, dtype=mine), gl.zeros(2, dtype=mine)
    for made, value in ((d.MultivariateNormal(zeros, eye), gl.ones(2)), (d.MultivariateNormal(zeros, precision_matrix=eye), gl.ones(2)),
                        (d.LowRankMultivariateNormal(zeros, gl.ones(2, 1, dtype=mine), gl.ones(2, dtype=mine)), gl.ones(2)),
                        (d.Wishart(gl.tensor(3.0, dtype=mine), eye), 3 * gl.eye(2))):  # fmt: skip
        found = made.log_prob(value.to(other))
        assert found.dtype == mine and gl.allclose(found, made.log_prob(value.to(mine)))
