"""Constraints, what distributions say of their values, and the transforms that lead to them."""

import importlib
import math

import numpy as np
import pytest

import gradlab as gl
from gradlab import distributions as D
from gradlab.distributions import biject_to, constraints as C, transform_to, utils

NORMAL = np.random.default_rng(0).normal(size=(3, 3))
CORRELATED = [[1.0, 0.0], [0.6, 0.8]]
CASES = {  # by constraint: values that are in it, and values that are not
    "boolean": (1.0, 0.5), "nonnegative": (0.0, -1.0), "nonnegative_integer": (0.0, 0.5), "positive": (2.0, 0.0),
    "positive_integer": (1.0, 0.0),
    "real": (0.0, float("nan")), "unit_interval": (1.0, 1.5),
    "one_hot": ([0.0, 1.0], [1.0, 1.0]), "real_vector": ([0.0, 1.0], [0.0, float("nan")]), "simplex": ([0.3, 0.7], [0.5, 0.7]),
    "corr_cholesky": (CORRELATED, [[1.0, 0.0], [0.6, 0.6]]), "lower_cholesky": ([[1.0, 0.0], [5.0, 2.0]], [[1.0, 0.0], [5.0, -2.0]]),
    "lower_triangular": ([[1.0, 0.0], [5.0, -2.0]], [[1.0, 1.0], [0.0, 1.0]]),
    "positive_definite": ([[2.0, 1.0], [1.0, 2.0]], [[1.0, 2.0], [2.0, 1.0]]),
    "positive_semidefinite": ([[1.0, 0.0], [0.0, 0.0]], [[-1.0, 0.0], [0.0, 1.0]]), "square": ([[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0]]),
    "symmetric": ([[1.0, 2.0], [2.0, 1.0]], [[1.0, 2.0], [3.0, 1.0]]),
}  # fmt: skip
MADE = {  # by a function's name: its arguments, a value that is in it, one that is not
    "greater_than": ((1,), 1.5, 1.0), "greater_than_eq": ((1,), 1.0, 0.5), "half_open_interval": ((0, 1), 0.0, 1.0),
    "interval": ((0, 1), 1.0, 2.0),
    "integer_interval": ((0, 2), 2.0, 1.5), "less_than": ((1,), 0.0, 1.0), "multinomial": ((3,), [1.0, 2.0], [2.0, 2.0]),
    "independent": ((C.positive, 1), [1.0, 2.0], [1.0, -2.0]), "cat": (([C.positive, C.real],), [1.0, -2.0], [-1.0, -2.0]),
    "stack": (([C.positive, C.real],), [1.0, -2.0], [-1.0, -2.0]),
    "MixtureSameFamilyConstraint": ((C.positive,), 1.0, -1.0),
}  # fmt: skip
REST = {"Constraint", "dependent", "dependent_property", "is_dependent"}


def test_every_constraint_has_a_case():
    assert {*CASES, *MADE, *REST} == {*C.__all__}


@pytest.mark.parametrize("name", [*CASES, *MADE])
def test_check(name):
    arguments, inside, outside = (None, *CASES[name]) if name in CASES else MADE[name]
    constraint = getattr(C, name) if arguments is None else getattr(C, name)(*arguments)
    assert constraint.check(gl.tensor(inside)).all()
    assert not constraint.check(gl.tensor(outside)).all()
    assert name in repr(constraint).lower() or repr(constraint).endswith(")")


def test_constraints_that_depend_on_parameters():
    assert C.is_dependent(C.dependent) and C.is_dependent(D.Uniform.support) and not C.is_dependent(D.Uniform(0.0, 1.0).support)
    with pytest.raises(ValueError, match="ask the distribution"):
        C.dependent.check(gl.ones(1))
    assert C.dependent(event_dim=1).event_dim == 1

    class Mine(D.Distribution):
        @C.dependent_property(is_discrete=True, event_dim=1)
        def support(self):
            return C.real_vector

    assert (Mine.support.is_discrete, Mine.support.event_dim, Mine().support) == (True, 1, C.real_vector)


SAMPLES = {
    "Bernoulli": (0.3,), "Beta": (1.0, 2.0), "Binomial": (5, 0.3), "Categorical": ([0.2, 0.8],), "Cauchy": (0.0, 1.0), "Chi2": (2.0,),
    "ContinuousBernoulli": (0.3,), "Dirichlet": ([1.0, 2.0],), "Exponential": (2.0,), "FisherSnedecor": (3.0, 4.0), "Gamma": (1.0, 2.0),
    "GeneralizedPareto": (0.0, 1.0, 0.2),
    "Geometric": (0.3,), "Gumbel": (0.0, 1.0), "HalfCauchy": (1.0,), "HalfNormal": (1.0,), "InverseGamma": (3.0, 2.0),
    "Kumaraswamy": (1.0, 2.0),
    "Laplace": (0.0, 1.0), "LogNormal": (0.0, 1.0), "LogisticNormal": ([0.0], [1.0]),
    "LowRankMultivariateNormal": ([0.0, 0.0], [[1.0], [1.0]], [1.0, 1.0]),
    "Multinomial": (3, [0.2, 0.8]), "MultivariateNormal": ([0.0], [[1.0]]), "NegativeBinomial": (3.0, 0.4), "Normal": (0.0, 1.0),
    "OneHotCategorical": ([0.2, 0.8],), "OneHotCategoricalStraightThrough": ([0.2, 0.8],), "Pareto": (1.0, 2.0), "Poisson": (2.0,),
    "RelaxedBernoulli": (2.0, 0.3), "RelaxedOneHotCategorical": (2.0, [0.2, 0.8]), "StudentT": (3.0,), "Uniform": (0.0, 2.0),
    "VonMises": (0.0, 1.0),
    "LKJCholesky": (3, 1.5), "Weibull": (1.0, 2.0), "Wishart": (3.0, [[2.0, 0.5], [0.5, 1.0]]),
}  # fmt: skip
OF_OTHERS = {"Distribution", "ExponentialFamily", "Independent", "MixtureSameFamily", "TransformedDistribution"}


def test_every_distribution_has_a_sample():
    kinds = {name for name in D.__all__ if isinstance(kind := getattr(D, name), type) and issubclass(kind, D.Distribution)}
    assert kinds == {*SAMPLES, *OF_OTHERS}


def made(module, name, tensor):
    return getattr(module, name)(*[value if isinstance(value, int) else tensor(value) for value in SAMPLES[name]])


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_in_the_support(name):
    gl.manual_seed(0)
    distribution = made(D, name, gl.tensor)
    values = distribution.sample((20,))
    fits = distribution.support.check(values)
    assert fits.all() and fits.shape == values.shape[: values.ndim - distribution.support.event_dim]
    assert distribution.arg_constraints
    for argument, constraint in distribution.arg_constraints.items():
        value = getattr(distribution, argument)
        assert C.is_dependent(constraint) or constraint.check(gl.as_tensor(value)).all(), argument


def test_supports_of_distributions_of_others():
    normal = D.Normal(gl.zeros(3), gl.ones(3))
    assert D.Independent(normal, 1).support.event_dim == 1 and D.Independent(normal, 1).support.check(gl.ones(3)).tolist() is True
    mixture = D.MixtureSameFamily(D.Categorical(gl.ones(2)), D.Exponential(gl.ones(2)))
    assert mixture.support.check(gl.tensor([1.0, -1.0])).tolist() == [True, False]
    assert repr(D.TransformedDistribution(normal, D.ExpTransform()).support) == repr(C.positive)


LEADING = {
    "real": C.real, "positive": C.positive, "nonnegative": C.nonnegative, "unit_interval": C.unit_interval, "simplex": C.simplex,
    "real_vector": C.real_vector, "corr_cholesky": C.corr_cholesky, "interval": C.interval(-2.0, 3.0), "less_than": C.less_than(2.0),
    "greater_than": C.greater_than(2.0), "cat": C.cat([C.positive, C.real], dim=-1, lengths=[1, 2]),
    "stack": C.stack([C.positive, C.real, C.unit_interval], dim=-1), "independent": C.independent(C.positive, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", LEADING)
def test_transforms_with_an_inverse(name):
    constraint, x = LEADING[name], gl.tensor(NORMAL)
    transform = biject_to(constraint)
    y = transform(x)
    assert constraint.check(y).all() and transform.forward_shape(x.shape) == y.shape and transform.inverse_shape(y.shape) == x.shape
    assert gl.allclose(transform.inv(y), x, atol=1e-6)
    jacobian = gl.autograd.functional.jacobian(lambda row: transform(row), x[0])
    if name == "simplex":
        jacobian = jacobian[:-1]  # the last share follows from the others
    if name == "corr_cholesky":
        jacobian = gl.stack([jacobian[1, 0], jacobian[2, 0], jacobian[2, 1]])  # the diagonal follows from the rest
    assert transform.log_abs_det_jacobian(x, y)[0].sum().item() == pytest.approx(gl.linalg.slogdet(jacobian)[1].item())


@pytest.mark.parametrize("name", ["lower_cholesky", "positive_definite", "positive_semidefinite", "simplex"])
def test_transforms_that_only_lead_there(name):
    constraint = getattr(C, name)
    transform = transform_to(constraint)
    y = transform(gl.tensor(NORMAL))
    assert constraint.check(y).all() and gl.allclose(transform(transform.inv(y)), y) and not transform.bijective


def test_registering():
    class Odd(C.Constraint):
        pass

    with pytest.raises(NotImplementedError, match="Odd"):
        biject_to(Odd())
    registry = importlib.import_module("gradlab.distributions.constraint_registry").ConstraintRegistry()

    @registry.register(Odd)
    def odd(constraint):
        return D.ExpTransform()

    assert isinstance(registry(Odd()), D.ExpTransform)
    with pytest.raises(TypeError, match="a constraint"):
        registry.register(3, odd)


def test_faulty_transforms():
    with pytest.raises(ValueError, match="not n"):
        D.CorrCholeskyTransform()(gl.zeros(2))
    with pytest.raises(ValueError, match="lengths"):
        D.CatTransform([D.ExpTransform()], lengths=[1, 2])
    with pytest.raises(ValueError, match="single numbers"):
        D.CatTransform([D.SoftmaxTransform()], lengths=[3]).log_abs_det_jacobian(gl.zeros(3), gl.zeros(3))
    uniform = D.CumulativeDistributionTransform(D.Normal(0.0, 1.0))
    x = gl.tensor([-1.0, 0.5])
    assert gl.allclose(uniform.inv(uniform(x)), x, atol=1e-5)
    assert gl.allclose(uniform.log_abs_det_jacobian(x, uniform(x)), D.Normal(0.0, 1.0).log_prob(x))


def test_matrices():
    gl.manual_seed(0)
    factors = D.LKJCholesky(3, gl.tensor(2.0, dtype=gl.float64)).sample((4000,))
    correlations = factors @ factors.mT
    assert gl.allclose(correlations.mean(0), gl.eye(3, dtype=gl.float64), atol=0.05)
    # Each correlation is 2 b - 1 of a Beta(a, a) with a = concentration + dim / 2 - 1, whose variance is 1 / (2 a + 1).
    assert correlations[:, 0, 1].var().item() == pytest.approx(1 / 6, rel=0.1)
    flat = D.LKJCholesky(2, 1.0)  # L_22 = sqrt(1 - r²) with r uniform: the density over the circle is 1/2
    assert flat.log_prob(gl.tensor(CORRELATED)).item() == pytest.approx(-math.log(2))
    cov = gl.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=gl.float64)
    wishart = D.Wishart(4.0, cov)
    samples = wishart.sample((20000,))
    assert gl.allclose(samples.mean(0), wishart.mean, rtol=0.03) and gl.allclose(samples.var(0), wishart.variance, rtol=0.1)
    assert -wishart.log_prob(samples).mean().item() == pytest.approx(wishart.entropy().item(), abs=0.05)
    assert gl.allclose(D.Wishart(4.0, precision_matrix=gl.linalg.inv(cov)).covariance_matrix, cov)
    assert gl.isnan(D.Wishart(2.5, cov).mode).all() and gl.allclose(wishart.mode, cov)
    for wrong in (lambda: D.LKJCholesky(1), lambda: D.LKJCholesky(2, -1.0), lambda: D.Wishart(1.0, cov), lambda: D.Wishart(3.0)):
        with pytest.raises(ValueError, match=r"LKJCholesky|Wishart"):
            wrong()


def test_exponential_families():
    class Waiting(D.ExponentialFamily):
        """The exponential distribution: θ = -rate, F = -log(-θ)."""

        def __init__(self, rate):
            super().__init__(rate.shape)
            self.rate = rate

        @property
        def _natural_params(self):
            return (-self.rate,)

        def _log_normalizer(self, theta):
            return -(-theta).log()

    rate = gl.tensor([0.5, 2.0])
    assert gl.allclose(Waiting(rate).entropy(), D.Exponential(rate).entropy())
    assert isinstance(Waiting(rate), D.ExponentialFamily) and isinstance(D.Chi2(gl.ones(1)), D.ExponentialFamily)
    assert issubclass(D.Gamma, D.ExponentialFamily) and not issubclass(D.Cauchy, D.ExponentialFamily)
    assert not isinstance(D.Normal(0.0, 1.0), Waiting)


class TestUtils:
    def test_triangles(self):
        matrix = gl.tensor(NORMAL)
        for diagonal in (-1, 0, 1):
            row = utils.tril_matrix_to_vec(matrix, diagonal)
            assert gl.equal(utils.vec_to_tril_matrix(row, diagonal), matrix.tril(diagonal))
        with pytest.raises(ValueError, match="diag"):
            utils.tril_matrix_to_vec(matrix, 3)
        with pytest.raises(ValueError, match="square"):
            utils.vec_to_tril_matrix(gl.ones(2))

    def test_probabilities(self):
        probs = gl.tensor([0.0, 0.25, 1.0])
        assert gl.isfinite(utils.probs_to_logits(probs, is_binary=True)).all()
        assert gl.allclose(utils.logits_to_probs(utils.probs_to_logits(probs, is_binary=True), is_binary=True), probs, atol=1e-6)
        assert gl.allclose(utils.logits_to_probs(utils.probs_to_logits(gl.tensor([0.3, 0.7]))), gl.tensor([0.3, 0.7]))
        a, b = utils.broadcast_all(1.0, gl.zeros(2))
        assert a.tolist() == [1.0, 1.0] and b.shape == (2,)

    def test_lazy_properties(self):
        class Counted:
            calls = 0

            @utils.lazy_property
            def value(self):
                """A doc."""
                self.calls += 1
                return 3

        counted = Counted()
        assert (counted.value, counted.value, counted.calls) == (3, 3, 1) and Counted.value.__doc__ == "A doc."


@pytest.mark.torch
def test_beside_pytorch():
    torch = pytest.importorskip("torch")
    there = torch.distributions
    random = np.random.default_rng(1)
    factors = random.normal(size=(4, 3, 3))
    values = [
        random.normal(size=(5, 3, 3)), np.tril(factors), np.eye(3)[None] * np.arange(1, 3)[:, None, None],
        random.integers(-1, 3, (4, 3, 3)).astype(float), factors @ factors.transpose(0, 2, 1), random.dirichlet(np.ones(3), (2, 3)),
    ]  # fmt: skip
    for name in CASES:
        here, other = getattr(C, name), getattr(there.constraints, name)
        assert (here.event_dim, here.is_discrete) == (other.event_dim, other.is_discrete)
        for x in values:
            np.testing.assert_array_equal(here.check(gl.tensor(x)).numpy(), other.check(torch.tensor(x)).numpy(), name)
    for name in SAMPLES:
        here, other = made(D, name, gl.tensor), made(there, name, torch.tensor)
        assert {*here.arg_constraints} == {*other.arg_constraints}
        assert (here.support.event_dim, here.support.is_discrete) == (other.support.event_dim, other.support.is_discrete)
