"""Distributions and transforms of one's own, and what the library's transforms take and give."""

import math

import numpy as np
import pytest

import gradlab as gl
from gradlab import distributions as D
from gradlab.distributions import constraints as c, transform_domains, utils


def test_every_transform_says_what_it_takes_and_gives():
    public = [getattr(D, name) for name in D.__all__]
    kinds = [kind for kind in public if isinstance(kind, type) and issubclass(kind, D.Transform) and kind is not D.Transform]
    assert [kind.__name__ for kind in kinds if kind not in transform_domains.DOMAINS] == []


SETS = [
    c.real, c.positive, c.greater_than(2.0), c.less_than(3.0), c.unit_interval, c.interval(-1.0, 4.0), c.simplex, c.lower_cholesky,
    c.positive_definite, c.corr_cholesky, c.independent(c.positive, 1), c.stack([c.real, c.positive, c.real], -1),
]  # fmt: skip


@pytest.mark.parametrize("constraint", SETS, ids=repr)
def test_domains_count_the_dimensions_of_a_value(constraint):
    x = gl.randn(4, 3, 3, dtype=gl.float64)
    t = D.transform_to(constraint)
    assert t.codomain.event_dim == t.dim_out == t.inv.domain.event_dim and t.domain.event_dim == t.dim_in
    assert t.domain.check(x).all() and t.codomain.check(t(x)).all()
    support = D.TransformedDistribution(D.Normal(x, gl.ones_like(x)), t).support
    assert support.check(t(x)).all()


def test_distributions_and_transforms_of_ones_own():
    class Fixed(D.Distribution):
        support = c.real
        has_rsample = True

        def __init__(self, a, validate_args=None):
            (self.a,) = utils.broadcast_all(a)
            super().__init__(self.a.shape, validate_args=validate_args)

        def expand(self, batch_shape, _instance=None):
            made = self._get_checked_instance(Fixed, _instance)
            made.a = self.a.expand(batch_shape)
            super(Fixed, made).__init__(batch_shape, validate_args=False)
            return made

        def rsample(self, sample_shape=()):
            return self.a.expand(self._extended_shape(sample_shape))

        def log_prob(self, value):
            self._validate_sample(value)
            return value / self.a

        @utils.lazy_property
        def twice(self):
            return 2 * self.a

    Fixed.arg_constraints = {"a": c.positive}
    fixed = Fixed(gl.ones(3))
    assert fixed.expand((2, 3)).rsample((4,)).shape == (4, 2, 3) and fixed.twice is fixed.twice and fixed.batch_shape.numel() == 3
    for wrong in (lambda: Fixed(-1.0), lambda: fixed.log_prob(gl.full((3,), gl.nan)), lambda: fixed.log_prob(gl.ones(2))):
        with pytest.raises((ValueError, RuntimeError)):
            wrong()

    class Square(D.Transform):
        domain = codomain = c.positive

        def _call(self, x):
            return x.square()

        def _inverse(self, y):
            return y.sqrt()

        def log_abs_det_jacobian(self, x, y):
            return (2 * x).log()

    t = D.TransformedDistribution(D.Exponential(1.0), Square())
    assert abs(t.log_prob(gl.tensor(4.0)).item() - -3.3862944) < 1e-6 and repr(t.support) == "GreaterThan(lower_bound=0.0)"
    cached = D.ExpTransform().with_cache()
    y = cached(gl.ones(2))
    assert cached.cache_size == 1 and cached.inv(y) is cached.inv(y) and cached._cached_x_y == (cached.inv(y), y)


def test_divergences_by_log_odds_beyond_what_probabilities_say():
    """Values and slopes by hand: of Geometric, with p and q the small odds, log(p / q) + q / p - 1."""
    a, b = gl.tensor([-1000.0, -1000.0, -200.0, -40.5, -40.0], requires_grad=True), gl.tensor([-1001.0, -999.0, -200.0, -39.5, -39.0])
    found = D.kl_divergence(D.Geometric(logits=a), D.Geometric(logits=b))
    gap = (b - a).detach().double().numpy()
    np.testing.assert_allclose(found.tolist(), -gap + np.exp(gap) - 1, rtol=2e-6, atol=1e-7)
    np.testing.assert_allclose(gl.autograd.grad(found.sum(), a)[0].tolist(), 1 - np.exp(gap), rtol=2e-6, atol=1e-7)
    p, q = gl.tensor([0.0, 1000.0, -1000.0], requires_grad=True), gl.tensor([100.0, -1000.0, 1000.0])
    for kind in (D.Bernoulli, lambda logits: D.Binomial(1, logits=logits)):
        found = D.kl_divergence(kind(logits=p), kind(logits=q))
        np.testing.assert_allclose(found.tolist(), [50 - math.log(2), 1000, 1000], rtol=1e-6)
        np.testing.assert_allclose(gl.autograd.grad(found.sum(), p)[0].tolist(), [-25, 0, 0], atol=1e-6)


def test_modules_that_are_transforms_and_distributions():
    """Their parameters are found: the base's __init__ goes on to the module's, in either order of the bases."""

    class Scaled(D.Transform, gl.nn.Module):
        domain = codomain = c.real

        def __init__(self):
            super().__init__(cache_size=1)
            self.log_scale = gl.nn.Parameter(gl.zeros(()))

        def _call(self, x):
            return x * self.log_scale.exp()

        def _inverse(self, y):
            return y * (-self.log_scale).exp()

        def log_abs_det_jacobian(self, x, y):
            return self.log_scale.expand(x.shape)

        __hash__ = gl.nn.Module.__hash__

    class Learned(D.Distribution, gl.nn.Module):
        def __init__(self):
            super().__init__((), ())
            self.scale = Scaled()

        def log_prob(self, value):
            return D.TransformedDistribution(D.Normal(0.0, 1.0), [self.scale]).log_prob(value)

    learned = Learned()
    assert [name for name, _ in learned.named_parameters()] == ["scale.log_scale"]
    learned.log_prob(gl.tensor(2.0)).backward()
    assert learned.scale.log_scale.grad.item() == 3  # -1 + (y / scale)^2


def test_domains_that_each_object_has_of_its_own():
    """Their dimensions count: they were taken for single numbers."""

    class Rows(D.Transform):
        bijective = True

        def __init__(self, dims):
            super().__init__()
            self.dims = dims

        @c.dependent_property(is_discrete=False)
        def domain(self):
            return c.independent(c.real, self.dims)

        codomain = property(lambda self: c.independent(c.real, self.dims))

        def _call(self, x):
            return 2 * x

        def _inverse(self, y):
            return y / 2

        def log_abs_det_jacobian(self, x, y):
            return math.log(2.0) * gl.ones_like(x).flatten(-self.dims).sum(-1)

    plain = D.Normal(gl.zeros(2, 3, 4), 2.0)
    value = gl.arange(24.0).reshape(2, 3, 4)
    for dims in (1, 2):
        found = D.TransformedDistribution(D.Normal(gl.zeros(2, 3, 4), 1.0), [Rows(dims)])
        assert found.event_shape == (2, 3, 4)[-dims:] and found.log_prob(value).shape == (2, 3, 4)[:-dims]
        np.testing.assert_allclose(found.log_prob(value), D.Independent(plain, dims).log_prob(value), rtol=1e-6)
    assert not D.Transform.bijective
    with pytest.raises(NotImplementedError, match="define one"):
        D.TransformedDistribution(D.Normal(0.0, 1.0), [Rows(0)]).cdf(gl.tensor(0.0))


def test_dimensions_of_events_of_transforms():
    transforms = D.ExpTransform(), D.SoftmaxTransform(), D.StickBreakingTransform(), D.LowerCholeskyTransform()
    assert [t.event_dim for t in transforms] == [0, 1, 1, 2]
    with pytest.raises(ValueError, match="differs between its sides"):
        _ = D.CorrCholeskyTransform().event_dim
