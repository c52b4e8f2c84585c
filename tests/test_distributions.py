"""Distributions: densities that integrate to one, samples with the moments they should have, gradients, divergences."""

import math

import numpy as np
import pytest

import gradlab as gl
from gradlab import distributions as d

CONTINUOUS = {
    "Normal": lambda: d.Normal(gl.tensor([0.5, -1.0]), gl.tensor([0.5, 2.0])),
    "Laplace": lambda: d.Laplace(gl.tensor([0.5, -1.0]), gl.tensor([0.5, 2.0])),
    "Gumbel": lambda: d.Gumbel(gl.tensor([0.5, -1.0]), gl.tensor([0.5, 2.0])),
    "LogNormal": lambda: d.LogNormal(gl.tensor([0.5, -1.0]), gl.tensor([0.5, 0.6])),
    "Uniform": lambda: d.Uniform(gl.tensor([0.5, -1.0]), gl.tensor([1.5, 2.0])),
    "Exponential": lambda: d.Exponential(gl.tensor([0.5, 2.0])),
}
DISCRETE = {
    "Bernoulli": lambda: d.Bernoulli(gl.tensor([0.3, 0.8])),
    "Bernoulli of logits": lambda: d.Bernoulli(logits=gl.tensor([0.3, -0.8])),
    "Binomial": lambda: d.Binomial(5, gl.tensor([0.3, 0.8])),
    "Binomial of tensors": lambda: d.Binomial(gl.tensor([5, 3]), gl.tensor([0.3, 0.8]), validate_args=False),
    "Geometric": lambda: d.Geometric(gl.tensor([0.3, 0.8])),
    "Poisson": lambda: d.Poisson(gl.tensor([0.5, 4.0])),
    "Categorical": lambda: d.Categorical(gl.tensor([[1.0, 2.0, 1.0], [0.0, 1.0, 3.0]])),
}


@pytest.fixture(autouse=True)
def seeded():
    gl.manual_seed(0)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name):
    dist = CONTINUOUS[name]()
    x = np.linspace(-40, 80, 240_001) if name not in ("LogNormal", "Exponential", "Uniform") else np.linspace(1e-6, 80, 240_001)
    if name == "Uniform":
        dist._validate_args = False
        x = np.linspace(-2, 3, 240_001)
    step = x[1] - x[0]
    density = np.exp(dist.log_prob(gl.tensor(x[:, None].astype(np.float32))).numpy().astype(np.float64))
    np.testing.assert_allclose(density.sum(0) * step, 1, atol=2e-3)
    mean = (density * x[:, None]).sum(0) * step
    np.testing.assert_allclose(dist.mean.numpy(), mean, atol=5e-3)
    np.testing.assert_allclose(dist.variance.numpy(), (density * (x[:, None] - mean) ** 2).sum(0) * step, rtol=1e-2)
    safe = np.where(density > 0, density, 1)
    np.testing.assert_allclose(dist.entropy().numpy(), -(density * np.log(safe)).sum(0) * step, atol=5e-3)
    values = dist.sample((20_000,))
    assert not values.requires_grad
    np.testing.assert_allclose(values.mean(0).numpy(), dist.mean.numpy(), atol=0.08)
    np.testing.assert_allclose(values.std(0).numpy(), dist.stddev.numpy(), rtol=0.08)
    q = gl.tensor([[0.1], [0.5], [0.9]])
    np.testing.assert_allclose(dist.cdf(dist.icdf(q)).numpy(), np.broadcast_to(q.numpy(), (3, 2)), atol=1e-5)
    np.testing.assert_allclose((values < dist.icdf(gl.tensor(0.25))).float().mean(0).numpy(), 0.25, atol=0.02)
    assert dist.expand((3, 2)).sample((4,)).shape == (4, 3, 2)
    assert dist.stddev.shape == dist.batch_shape == (2,)


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name):
    dist = DISCRETE[name]()
    top = {"Bernoulli": 2, "Bernoulli of logits": 2, "Binomial": 6, "Binomial of tensors": 6, "Categorical": 3}.get(name, 60)
    x = gl.arange(top)[:, None] if name == "Categorical" else gl.arange(top).float()[:, None]
    p = np.exp(dist.log_prob(x).numpy().astype(np.float64))
    np.testing.assert_allclose(p.sum(0), 1, atol=1e-5)
    values = dist.sample((20_000,)).double()
    for k in range(min(top, 3)):
        np.testing.assert_allclose((values == k).double().mean(0).numpy(), p[k], atol=0.02)
    if name != "Categorical":
        mean = (p * x.numpy()).sum(0)
        np.testing.assert_allclose(dist.mean.numpy(), mean, rtol=1e-4)
        np.testing.assert_allclose(dist.variance.numpy(), (p * (x.numpy() - mean) ** 2).sum(0), rtol=1e-3)
    if name != "Poisson":
        safe = np.where(p > 0, p, 1)
        np.testing.assert_allclose(dist.entropy().numpy(), -(p * np.log(safe)).sum(0), atol=1e-5)
    if dist.has_enumerate_support and name != "Binomial of tensors":
        assert dist.enumerate_support().shape == (top, 2)
        assert dist.enumerate_support(expand=False).shape == (top, 1)
    with pytest.raises(NotImplementedError, match="rsample"):
        dist.rsample()


def test_cauchy_has_no_moments():
    dist = d.Cauchy(0.0, 1.0)
    assert math.isnan(dist.mean.item())
    assert dist.variance.item() == math.inf
    assert dist.cdf(dist.icdf(gl.tensor(0.3))).item() == pytest.approx(0.3)
    assert dist.log_prob(gl.tensor(0.0)).item() == pytest.approx(-math.log(math.pi))


def test_vectors():
    cov = np.array([[2.0, 0.6], [0.6, 1.0]], np.float32)
    loc = gl.tensor([1.0, -1.0])
    kinds = {"covariance_matrix": cov, "precision_matrix": np.linalg.inv(cov), "scale_tril": np.linalg.cholesky(cov)}
    x = np.array([0.5, 0.25], np.float32)
    gap = x - loc.numpy()
    want = -0.5 * gap @ np.linalg.inv(cov) @ gap - 0.5 * math.log(np.linalg.det(cov)) - math.log(2 * math.pi)
    for name, matrix in kinds.items():
        dist = d.MultivariateNormal(loc, **{name: gl.tensor(matrix)})
        assert dist.log_prob(gl.tensor(x)).item() == pytest.approx(want, abs=1e-4)
        np.testing.assert_allclose(dist.covariance_matrix.numpy(), cov, atol=1e-5)
        np.testing.assert_allclose(gl.cov(dist.sample((20_000,)).T).numpy(), cov, atol=0.08)
        assert dist.log_prob(gl.zeros(5, 2)).shape == (5,)
    with pytest.raises(ValueError, match="exactly one"):
        d.MultivariateNormal(loc)
    hot = d.OneHotCategorical(gl.tensor([1.0, 3.0]))
    assert hot.sample((7,)).shape == (7, 2)
    assert hot.log_prob(gl.tensor([0.0, 1.0])).item() == pytest.approx(math.log(0.75))
    counts = d.Multinomial(3, gl.tensor([0.2, 0.8]))
    assert (counts.sample((9,)).sum(-1) == 3).all()
    assert counts.log_prob(gl.tensor([1.0, 2.0])).exp().item() == pytest.approx(3 * 0.2 * 0.64)
    both = d.Independent(d.Normal(gl.zeros(4, 3), gl.ones(4, 3)), 1)
    assert (both.batch_shape, both.event_shape) == ((4,), (3,))
    assert both.log_prob(gl.zeros(4, 3)).shape == both.entropy().shape == (4,)
    assert both.expand((2, 4)).rsample().shape == (2, 4, 3)


def test_mixtures():
    mix = d.MixtureSameFamily(d.Categorical(gl.tensor([1.0, 3.0])), d.Normal(gl.tensor([-2.0, 2.0]), gl.tensor([1.0, 0.5])))
    values = mix.sample((20_000,))
    assert values.mean().item() == pytest.approx(mix.mean.item(), abs=0.05)
    assert values.var().item() == pytest.approx(mix.variance.item(), rel=0.05)
    assert (values < 0).float().mean().item() == pytest.approx(mix.cdf(gl.tensor(0.0)).item(), abs=0.02)
    x = np.linspace(-10, 10, 10_001, dtype=np.float32)
    assert mix.log_prob(gl.tensor(x)).exp().sum().item() * 0.002 == pytest.approx(1, abs=1e-3)
    vectors = d.MixtureSameFamily(d.Categorical(gl.ones(5, 2)), d.Independent(d.Normal(gl.zeros(5, 2, 3), gl.ones(5, 2, 3)), 1))
    assert vectors.sample((4,)).shape == (4, 5, 3)
    assert vectors.log_prob(gl.zeros(5, 3)).shape == (5,)


PAIRS = {
    "Normal": (lambda: d.Normal(0.0, 1.0), lambda: d.Normal(1.0, 2.0)),
    "Laplace": (lambda: d.Laplace(0.0, 1.0), lambda: d.Laplace(1.0, 2.0)),
    "Gumbel": (lambda: d.Gumbel(0.0, 1.0), lambda: d.Gumbel(1.0, 2.0)),
    "LogNormal": (lambda: d.LogNormal(0.0, 1.0), lambda: d.LogNormal(1.0, 2.0)),
    "Uniform": (lambda: d.Uniform(0.0, 1.0), lambda: d.Uniform(-1.0, 2.0)),
    "Exponential": (lambda: d.Exponential(1.0), lambda: d.Exponential(2.5)),
    "Bernoulli": (lambda: d.Bernoulli(0.3), lambda: d.Bernoulli(0.6)),
    "Binomial": (lambda: d.Binomial(4, 0.3), lambda: d.Binomial(4, 0.6)),
    "Geometric": (lambda: d.Geometric(0.3), lambda: d.Geometric(0.6)),
    "Poisson": (lambda: d.Poisson(3.0), lambda: d.Poisson(2.0)),
    "Categorical": (lambda: d.Categorical(gl.tensor([0.2, 0.8])), lambda: d.Categorical(gl.tensor([0.5, 0.5]))),
    "OneHotCategorical": (lambda: d.OneHotCategorical(gl.tensor([0.2, 0.8])), lambda: d.OneHotCategorical(gl.tensor([0.5, 0.5]))),
    "MultivariateNormal": (
        lambda: d.MultivariateNormal(gl.zeros(2), gl.eye(2)),
        lambda: d.MultivariateNormal(gl.ones(2), gl.tensor([[2.0, 0.5], [0.5, 1.0]])),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_divergences(name):
    p, q = (make() for make in PAIRS[name])
    x = p.sample((100_000,))
    sampled = (p.log_prob(x) - q.log_prob(x)).mean().item()
    assert d.kl_divergence(p, q).item() == pytest.approx(sampled, abs=0.03, rel=0.05)
    assert d.kl_divergence(p, p).item() == pytest.approx(0, abs=1e-5)
    assert d.kl_divergence(d.Independent(p.expand((3,)), 1), d.Independent(q.expand((3,)), 1)).shape == ()


@pytest.mark.parametrize("name", [*CONTINUOUS, *DISCRETE])
def test_divergences_in_a_compiled_function(name):
    """No values are read: none are there in a trace."""
    make = {**CONTINUOUS, **DISCRETE}[name]

    def divergence(x):
        return d.kl_divergence(make(), make()) + x

    if name == "Binomial of tensors":
        pytest.skip("counts in tensors are compared")
    compiled = gl.compile(divergence)
    for _ in range(3):
        np.testing.assert_allclose(compiled(gl.ones(2)).numpy(), divergence(gl.ones(2)).numpy(), atol=1e-6)


def test_divergences_without_a_formula_and_infinite_ones():
    with pytest.raises(NotImplementedError, match="register_kl"):
        d.kl_divergence(d.Normal(0.0, 1.0), d.Poisson(1.0))
    assert d.kl_divergence(d.Categorical(gl.tensor([0.5, 0.5])), d.Categorical(gl.tensor([0.0, 1.0]))).item() == math.inf
    assert d.kl_divergence(d.Uniform(0.0, 2.0), d.Uniform(0.0, 1.0)).item() == math.inf


def test_gradients():
    mu, scale = gl.zeros(3, requires_grad=True), gl.ones(3, requires_grad=True)
    d.Normal(mu, scale).rsample((1000,)).mean(0).sum().backward()
    assert gl.allclose(mu.grad, gl.ones(3))
    logits = gl.zeros(4, 3, requires_grad=True)
    policy = d.Categorical(logits=logits)
    actions = policy.sample()
    (-policy.log_prob(actions).mean()).backward()
    want = (gl.full((4, 3), 1 / 3) - gl.nn.functional.one_hot(actions, 3)) / 4
    assert gl.allclose(logits.grad, want, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: d.Normal(0.0, -1.0), "scale is positive"),
        (lambda: d.Uniform(1.0, 0.0), "low is below high"),
        (lambda: d.Bernoulli(1.5), "from 0 to 1"),
        (lambda: d.Bernoulli(), "either probs or logits"),
        (lambda: d.Categorical(gl.tensor([-1.0, 2.0])), "not negative"),
        (lambda: d.Categorical(probs=0.3), "at least one dimension"),
        (lambda: d.Categorical(gl.ones(3)).log_prob(gl.tensor(3)), "from 0 to 2"),
        (lambda: d.Normal(0.0, 1.0).log_prob(gl.tensor(math.nan)), "NaN"),
        (lambda: d.Poisson(1.0).log_prob(gl.tensor(0.5)), "whole number"),
        (lambda: d.Independent(d.Normal(0.0, 1.0), 1), "reinterpreted_batch_ndims"),
    ],
)
def test_what_is_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_checks_can_be_switched_off():
    assert d.Normal(0.0, -1.0, validate_args=False).scale.item() == -1
    with pytest.raises(TypeError, match="tensors or numbers"):
        d.Normal("a", 1.0)
    with pytest.raises(AttributeError, match="did you mean Pareto"):
        _ = d.Paretos


def test_counts_in_a_tensor():
    dist = d.Binomial(gl.tensor([[4], [0]]), logits=gl.tensor([0.3, -1.0, 40.0], requires_grad=True))
    assert dist.batch_shape == (2, 3) and dist.total_count.shape == (2, 3) and dist.expand((5, 2, 3)).sample((7,)).shape == (7, 5, 2, 3)
    for i, n in enumerate((4, 0)):
        one = d.Binomial(n, logits=dist.logits[i])
        at = gl.tensor([0.0, 0.0, float(n)])
        for a, b in ((dist.log_prob(at.minimum(dist.total_count))[i], one.log_prob(at)), (dist.entropy()[i], one.entropy())):
            np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
        assert dist.sample((50,))[:, i].max() <= n and (dist.sample((50,))[:, i, 2] == n).all() and (dist.mode[i, 2] == n).all()
    assert d.Binomial(3, gl.tensor([0.5, 0.1]).double()).total_count.tolist() == [3, 3]
    assert d.Binomial(4, 0.5).total_count.dtype == gl.float32
    assert d.Binomial(gl.tensor([2, 2]), 0.5).enumerate_support().tolist() == [[0, 0], [1, 1], [2, 2]]
    assert d.kl_divergence(d.Binomial(gl.tensor([2, 3]), 0.5), d.Binomial(gl.tensor([2, 3]), 0.5)).tolist() == [0, 0]
    for make, text in (
        (lambda: dist.enumerate_support(), "counts differ"), (lambda: d.Binomial(gl.tensor([-1]), 0.5), "not negative"),
        (lambda: d.Binomial(gl.tensor([1.5]), 0.5), "whole"), (lambda: d.Binomial(1.5, 0.5), "whole"),
        (lambda: d.kl_divergence(dist, d.Binomial(4, 0.5)), "trials"),
    ):  # fmt: skip
        with pytest.raises((ValueError, NotImplementedError), match=text):
            make()


def test_traced_and_mapped():
    program = gl.jit.trace(lambda mu, x: d.Normal(mu, 1.0).log_prob(x).sum(), (gl.zeros(3), gl.ones(3)))
    assert program(gl.zeros(3), gl.zeros(3)).item() == pytest.approx(-3 * 0.5 * math.log(2 * math.pi))
    found = gl.vmap(lambda mu: d.kl_divergence(d.Normal(mu, 1.0), d.Normal(0.0, 1.0)))(gl.tensor([0.0, 2.0]))
    assert gl.allclose(found, gl.tensor([0.0, 2.0]))
