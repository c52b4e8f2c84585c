"""Gamma variables and what is made of them, positive, relaxed and transformed distributions: densities, samples, gradients, by themselves.

Against PyTorch: test_distributions_torch.py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import gradlab as gl
from gradlab import distributions as d
from gradlab.distributions.gamma_samples import log_gamma_samples, log_slope

# Name: distributions of two, and where their density is integrated (finer at the ends).
ON_LINE = {
    "Gamma": (lambda: d.Gamma(gl.tensor([0.7, 4.0]), gl.tensor([0.5, 2.0])), (0, 60)),
    "Chi2": (lambda: d.Chi2(gl.tensor([3.0, 8.0])), (0, 80)),
    "InverseGamma": (lambda: d.InverseGamma(gl.tensor([5.0, 9.0]), gl.tensor([2.0, 4.0])), (0, 60)),
    "Beta": (lambda: d.Beta(gl.tensor([0.8, 4.0]), gl.tensor([2.0, 1.5])), (0, 1)),
    "StudentT": (lambda: d.StudentT(gl.tensor([6.0, 30.0]), gl.tensor([1.0, -2.0]), gl.tensor([1.0, 0.5])), (-60, 60)),
    "FisherSnedecor": (lambda: d.FisherSnedecor(gl.tensor([3.0, 8.0]), gl.tensor([12.0, 30.0])), (0, 120)),
    "HalfNormal": (lambda: d.HalfNormal(gl.tensor([0.5, 2.0])), (0, 20)),
    "Pareto": (lambda: d.Pareto(gl.tensor([1.0, 0.5]), gl.tensor([6.0, 9.0]), validate_args=False), (0, 60)),
    "GeneralizedPareto": (lambda: d.GeneralizedPareto(0.0, gl.tensor([0.5, 2.0]), gl.tensor([0.1, 0.0]), validate_args=False), (0, 60)),
    "Weibull": (lambda: d.Weibull(gl.tensor([1.0, 0.5]), gl.tensor([0.9, 3.0])), (0, 40)),
    "Kumaraswamy": (lambda: d.Kumaraswamy(gl.tensor([0.9, 3.0]), gl.tensor([2.0, 1.5])), (0, 1)),
    "ContinuousBernoulli": (lambda: d.ContinuousBernoulli(gl.tensor([0.1, 0.5])), (0, 1)),
    "RelaxedBernoulli": (lambda: d.RelaxedBernoulli(0.8, gl.tensor([0.2, 0.6])), (0, 1)),
    "VonMises": (lambda: d.VonMises(gl.tensor([0.0, 0.5]), gl.tensor([0.5, 8.0])), (-math.pi, math.pi)),
    "Tanh": (lambda: d.TransformedDistribution(d.Normal(gl.tensor([0.0, 0.5]), gl.tensor([0.5, 0.3])), [d.TanhTransform()]), (-1, 1)),
    "LogLogistic": (lambda: d.TransformedDistribution(
        d.Uniform(gl.zeros(2), gl.ones(2)), [d.SigmoidTransform().inv, d.AffineTransform(0.5, 0.3), d.ExpTransform()]), (0, 60)),
}  # fmt: skip
N = 40_000


@pytest.fixture(autouse=True)
def seeded():
    gl.manual_seed(0)


def grid(low, high):
    """Middles and widths of intervals, short where a density may be infinite."""
    share = np.linspace(0, 1, 12_001)
    edges = low + (high - low) * (np.sin(share * math.pi / 2) ** 4 if low == 0 else share)
    return np.clip((edges[1:] + edges[:-1]) / 2, None, high - 1e-7), np.diff(edges)


@pytest.mark.parametrize("name", ON_LINE)
def test_densities_and_samples(name):
    make, ends = ON_LINE[name]
    dist = make()
    assert dist.batch_shape == (2,) and dist.event_shape == ()
    x, step = grid(*ends)
    density = np.exp(dist.log_prob(gl.tensor(x[:, None].astype(np.float32))).numpy().astype(np.float64)) * step[:, None]
    np.testing.assert_allclose(np.nansum(density, 0), 1, atol=4e-3)
    values = dist.sample((N,)).double().numpy()
    for i in range(2):
        below = np.interp(np.sort(values[:, i]), x + step / 2, np.cumsum(np.nan_to_num(density[:, i])))
        assert np.abs(below - (np.arange(N) + 0.5) / N).max() < 1.7 / math.sqrt(N) + 2e-3  # Kolmogorov and Smirnov, at about 1 %
    if name in ("RelaxedBernoulli", "Tanh", "LogLogistic", "VonMises"):
        return
    mean = (density * x[:, None]).sum(0)
    np.testing.assert_allclose(dist.mean.numpy(), mean, rtol=4e-3)
    np.testing.assert_allclose(dist.variance.numpy(), (density * (x[:, None] - mean) ** 2).sum(0), rtol=2e-2)
    if name != "FisherSnedecor":
        entropy = -(density * np.log(np.where(density > 0, density / step[:, None], 1))).sum(0)
        np.testing.assert_allclose(dist.entropy().numpy(), entropy, atol=0.01)
    np.testing.assert_allclose(values.mean(0), mean, atol=6 * dist.stddev.numpy().max() / math.sqrt(N))


PARAMETERS = {
    "Gamma": ((0.4, 2.0), (3.0, 0.5)), "Beta": ((0.5, 2.0), (4.0, 3.0)), "StudentT": ((8.0, 1.0, 2.0),), "InverseGamma": ((6.0, 2.0),),
    "FisherSnedecor": ((4.0, 20.0),), "Chi2": ((3.0,),), "Weibull": ((2.0, 1.5),), "Pareto": ((1.0, 8.0),), "Kumaraswamy": ((2.0, 3.0),),
    "HalfNormal": ((2.0,),), "ContinuousBernoulli": ((0.2,), (0.5,)),
}  # fmt: skip


@pytest.mark.parametrize(("name", "values"), [(n, v) for n, sets in PARAMETERS.items() for v in sets])
def test_gradients_of_samples_are_those_of_expectations(name, values):
    given = [gl.tensor(v, dtype=gl.float64, requires_grad=True) for v in values]
    getattr(d, name)(*given).rsample((N,)).mean().backward()
    for i, p in enumerate(given):
        h = 1e-4 * max(1.0, values[i])
        up, down = ([v + (s if k == i else 0) for k, v in enumerate(values)] for s in (h, -h))
        want = (getattr(d, name)(*up).mean.item() - getattr(d, name)(*down).mean.item()) / (2 * h)
        assert p.grad.item() == pytest.approx(want, abs=0.03, rel=0.06)


def test_slopes_of_gamma_variables_are_exact():
    """Against the quantile function's difference quotient, by igamma in float64; and to second order."""
    a, y = gl.tensor([1.0, 2.5, 30.0, 400.0], dtype=gl.float64), gl.tensor([0.05, 4.0, 25.0, 460.0], dtype=gl.float64)
    h = 1e-4 * a
    lower, upper = ([f(a + k * h, y) - f(a - k * h, y) for k in (1, 2)] for f in (gl.igamma, gl.igammac))
    small = [gl.where(y < a, one, -other) for one, other in zip(lower, upper, strict=True)]
    density = ((a - 1) * y.log() - y - a.lgamma()).exp()
    want = -(8 * small[0] - small[1]) / (12 * h) / density / y
    for exact, tolerance in ((True, 1e-6), (False, 1e-6)):
        np.testing.assert_allclose(log_slope(a, y.log(), exact).numpy(), want.numpy(), rtol=tolerance)
    a.requires_grad_()
    seen = log_gamma_samples(a, (4,))
    (slope,) = gl.autograd.grad(seen.sum(), a, create_graph=True)
    (curve,) = gl.autograd.grad(slope.sum(), a)
    along = (log_slope(a + h, seen + slope * h, True) - log_slope(a - h, seen - slope * h, True)) / (2 * h)
    np.testing.assert_allclose(curve.numpy(), along.detach().numpy(), rtol=1e-5)


def test_small_concentrations_do_not_underflow():
    tiny = d.Dirichlet(gl.full((3,), 1e-3)).sample((1000,))
    assert gl.isfinite(tiny).all() and gl.allclose(tiny.sum(-1), gl.ones(1000))
    assert gl.isfinite(d.Beta(1e-3, 1e-3).log_prob(d.Beta(1e-3, 1e-3).sample((1000,)))).all()
    assert (d.Gamma(1e-3, 1.0).sample((1000,)) > 0).all()
    assert d.Gamma(gl.tensor([1e7]), 1.0).sample((1000,)).std().item() == pytest.approx(math.sqrt(1e7), rel=0.1)


def test_shares():
    concentration = gl.tensor([[0.5, 1.0, 3.0], [2.0, 2.0, 2.0]], requires_grad=True)
    dist = d.Dirichlet(concentration)
    values = dist.rsample((N,))
    np.testing.assert_allclose(values.mean(0).detach().numpy(), dist.mean.detach().numpy(), atol=0.01)
    np.testing.assert_allclose(values.var(0).detach().numpy(), dist.variance.detach().numpy(), atol=0.01)
    values.mean(0)[:, 0].sum().backward()
    total = concentration.detach().sum(-1)
    want = (total - concentration.detach()[:, 0]) / total.square()
    np.testing.assert_allclose(concentration.grad[:, 0].numpy(), want.numpy(), atol=0.01)
    relaxed = d.RelaxedOneHotCategorical(0.7, logits=gl.zeros(4, 3, requires_grad=True))
    assert gl.allclose(relaxed.rsample().sum(-1), gl.ones(4)) and relaxed.log_prob(relaxed.sample((5,))).shape == (5, 4)
    through = gl.zeros(3, requires_grad=True)
    (d.OneHotCategoricalStraightThrough(logits=through).rsample() * gl.tensor([1.0, 0.0, 0.0])).sum().backward()
    assert gl.allclose(through.grad, gl.tensor([2.0, -1.0, -1.0]) / 9)
    parts = d.LogisticNormal(gl.zeros(3), gl.ones(3)).sample((9,))
    assert parts.shape == (9, 4) and gl.allclose(parts.sum(-1), gl.ones(9))


def test_counts():
    dist = d.NegativeBinomial(gl.tensor([0.5, 6.0]), gl.tensor([0.6, 0.3]))
    p = dist.log_prob(gl.arange(200.0)[:, None]).exp().double()
    np.testing.assert_allclose(p.sum(0).numpy(), 1, atol=1e-5)
    values = dist.sample((N,))
    np.testing.assert_allclose(values.mean(0).numpy(), dist.mean.numpy(), rtol=0.05)
    np.testing.assert_allclose(values.var(0).numpy(), dist.variance.numpy(), rtol=0.1)
    np.testing.assert_allclose((values == 0).float().mean(0).numpy(), p[0].numpy(), atol=0.01)
    assert (d.NegativeBinomial(gl.tensor(0.0), 0.5).sample((10,)) == 0).all()


def test_policies():
    """A squashed Gaussian, as of soft actor-critic: the cached inverse keeps the density finite."""
    mu = gl.full((2,), 8.0, requires_grad=True)
    squashed = d.Independent(d.TransformedDistribution(d.Normal(mu, gl.ones(2)), [d.TanhTransform(cache_size=1)]), 1)
    action = squashed.rsample()
    loss = squashed.log_prob(action)
    loss.backward()
    assert math.isfinite(loss.item()) and gl.isfinite(mu.grad).all()
    assert squashed.event_shape == (2,) and loss.shape == ()
    beta = d.Independent(d.Beta(gl.full((4, 2), 2.0), gl.full((4, 2), 3.0)), 1)
    assert beta.log_prob(beta.sample()).shape == (4,)


def test_compiled_and_mapped():
    concentration = gl.tensor([0.5, 2.0, 9.0], requires_grad=True)

    def loss(c):
        x = d.Gamma(c, 1.0).rsample((5,))
        return (x.log() + d.Beta(c, 2.0).rsample()).sum() + d.kl_divergence(d.Dirichlet(c), d.Dirichlet(gl.ones(3)))

    found = []
    for run in (loss, gl.compile(loss)):
        gl.manual_seed(1)
        results = []
        for _ in range(4):
            concentration.grad = None
            value = run(concentration)
            value.backward()
            results += [value.item(), *concentration.grad.tolist()]
        found.append(results)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)
    each = gl.vmap(gl.func.grad(lambda c: d.Gamma(c, 1.0).rsample((3,)).sum()), randomness="different")(gl.ones(4))
    assert each.shape == (4,) and len(set(each.tolist())) == 4


DIVERGENCES = [
    (d.Gamma(2.0, 1.0), d.Gamma(3.0, 2.0)), (d.Beta(2.0, 3.0), d.Beta(1.0, 1.5)), (d.Exponential(2.0), d.Gamma(3.0, 1.0)),
    (d.Gamma(2.0, 1.0), d.Exponential(0.5)), (d.Beta(2.0, 3.0), d.Normal(0.0, 1.0)), (d.Normal(0.0, 1.0), d.Gumbel(1.0, 2.0)),
    (d.Uniform(0.1, 0.9), d.Beta(2.0, 3.0)), (d.Normal(0.5, 1.0), d.Laplace(0.0, 2.0)), (d.Pareto(1.0, 5.0), d.Gamma(2.0, 1.0)),
    (d.Cauchy(0.0, 1.0), d.Cauchy(1.0, 2.0)), (d.HalfNormal(1.0), d.HalfNormal(2.0)), (d.Uniform(0.0, 2.0), d.Gumbel(0.0, 1.0)),
    (d.Beta(2.0, 3.0), d.ContinuousBernoulli(0.2)), (d.Gamma(2.0, 1.0), d.Gumbel(0.5, 2.0)), (d.Uniform(1.5, 2.0), d.Pareto(1.0, 3.0)),
    (d.Dirichlet(gl.tensor([2.0, 1.0, 3.0])), d.Dirichlet(gl.tensor([1.0, 1.0, 2.0]))),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(DIVERGENCES)))
def test_divergences(at):
    p, q = DIVERGENCES[at]
    x = p.sample((N,))
    sampled = (p.log_prob(x) - q.log_prob(x)).mean().item()
    assert d.kl_divergence(p, q).item() == pytest.approx(sampled, abs=0.03, rel=0.05)


def test_infinite_divergences():
    for p, q in [
        (d.Normal(0.0, 1.0), d.Gamma(1.0, 1.0)), (d.Uniform(-1.0, 1.0), d.Exponential(1.0)), (d.Gamma(1.0, 1.0), d.Beta(1.0, 1.0)),
        (d.Beta(1.0, 1.0), d.Uniform(0.1, 1.0)), (d.Pareto(1.0, 1.0), d.Pareto(2.0, 1.0)), (d.Poisson(1.0), d.Bernoulli(0.5)),
    ]:  # fmt: skip
        assert d.kl_divergence(p, q).item() == math.inf
    assert d.kl_divergence(d.Chi2(3.0), d.Chi2(3.0)).item() == pytest.approx(0, abs=1e-6)


def test_the_slope_of_log_odds_at_0():
    logits = gl.zeros(2, requires_grad=True)
    d.Binomial(4, logits=logits).log_prob(gl.tensor([1.0, 3.0])).sum().backward()
    assert logits.grad.tolist() == [-1.0, 1.0]


def test_a_generalised_pareto_next_to_an_exponential():
    slopes = []
    for c in (0.0, 1e-9, -1e-9, 1e-7, 5e-6, 7e-6, 1e-4):
        c = gl.tensor(c, dtype=gl.float64, requires_grad=True)
        dist = d.GeneralizedPareto(1.0, gl.tensor(2.0, dtype=gl.float64), c)
        x = gl.tensor(4.0, dtype=gl.float64)
        np.testing.assert_allclose(dist.icdf(dist.cdf(x)).item(), 4, rtol=1e-12)
        dist.log_prob(x).backward()
        slopes.append(c.grad.item() - 2 * c.item() * (1.5**2 / 2 - 1.5**3 / 3))  # a series: -z + z²/2 + c (z² - 2z³/3)
    np.testing.assert_allclose(slopes, -1.5 + 1.5**2 / 2, atol=1e-7)
    end = d.GeneralizedPareto(0.0, 1.0, -0.5)
    assert end.support.check(gl.tensor([-0.1, 0.0, 2.0, 2.1])).tolist() == [False, True, True, False] and end.sample((1000,)).max() <= 2
    assert d.GeneralizedPareto(0.0, 1.0, -0.5, validate_args=False).log_prob(gl.tensor(2.5)) == -math.inf


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: d.Gamma(0.0, 1.0), "positive"), (lambda: d.Gamma(1.0, 1.0).log_prob(gl.tensor(-1.0)), "not negative"),
        (lambda: d.Beta(1.0, 1.0).log_prob(gl.tensor(1.5)), "from 0 to 1"), (lambda: d.Dirichlet(1.0), "at least one dimension"),
        (lambda: d.Dirichlet(gl.ones(2)).log_prob(gl.tensor([0.5, 0.6])), "sum is 1"), (lambda: d.NegativeBinomial(1.0), "probs or logits"),
        (lambda: d.Pareto(1.0, 1.0).log_prob(gl.tensor(0.5)), "at least the scale"), (lambda: d.TanhTransform(cache_size=2), "cache_size"),
        (lambda: d.TransformedDistribution(d.Normal(0.0, 1.0), [d.StickBreakingTransform()]), "one value"),
        (lambda: d.ReshapeTransform((3,), (2,)), "numbers of elements"), (lambda: d.VonMises(0.0, 0.0), "positive"),
        (lambda: d.LowRankMultivariateNormal(gl.zeros(2), gl.ones(3, 1), gl.ones(2)), "rows"),
    ],
)  # fmt: skip
def test_what_is_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()


@pytest.mark.usefixtures("cuda")
def test_on_a_gpu():
    for make in (lambda c: d.Gamma(c, 1.0), lambda c: d.Beta(c, 2.0), lambda c: d.StudentT(c), lambda c: d.VonMises(0.0, c)):
        found = []
        for device in ("cpu", "cuda"):
            gl.manual_seed(3)
            c = gl.tensor([0.5, 3.0], device=device, requires_grad=True)
            dist = make(c)
            x = dist.rsample((4,)) if dist.has_rsample else dist.sample((4,))
            (x.sum() + dist.log_prob(x.detach()).sum()).backward()
            found.append((x.detach().cpu().numpy(), c.grad.cpu().numpy()))
        np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-6)
        np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-5)


OUTSIDE = {  # of distributions that live on a part of the line: values below and above it
    "Exponential": (lambda: d.Exponential(2.0), [-1.0], []), "HalfNormal": (lambda: d.HalfNormal(2.0), [-1.0], []),
    "HalfCauchy": (lambda: d.HalfCauchy(2.0), [-1.0], []), "LogNormal": (lambda: d.LogNormal(0.0, 1.0), [-1.0, 0.0], []),
    "Pareto": (lambda: d.Pareto(2.0, 3.0), [-1.0, 0.0, 1.9], []), "Weibull": (lambda: d.Weibull(2.0, 3.0), [-1.0], []),
    "GeneralizedPareto": (lambda: d.GeneralizedPareto(1.0, 1.0, -0.5), [0.9], [3.1]),
    "Uniform": (lambda: d.Uniform(1.0, 2.0), [0.0], [3.0]), "Kumaraswamy": (lambda: d.Kumaraswamy(2.0, 3.0), [-1.0], [1.5]),
    "ContinuousBernoulli": (lambda: d.ContinuousBernoulli(0.3), [-1.0], [1.5]),
}  # fmt: skip


@pytest.mark.parametrize("name", OUTSIDE)
def test_cumulative_outside_of_the_support(name):
    """It was -0.65 of Exponential and -1.7 of Weibull."""
    make, below, above = OUTSIDE[name]
    assert all(make().cdf(gl.tensor(v)).item() == 0 for v in below) and all(make().cdf(gl.tensor(v)).item() == 1 for v in above)


VECTORS = {  # of distributions whose value is more than one number, with a value
    "Dirichlet": (lambda: d.Dirichlet(gl.tensor([0.5, 1.0, 2.0])), [0.2, 0.3, 0.5]),
    "MultivariateNormal": (lambda: d.MultivariateNormal(gl.zeros(3), gl.eye(3)), [0.2, 0.3, 0.5]),
    "LowRankMultivariateNormal": (lambda: d.LowRankMultivariateNormal(gl.zeros(3), gl.ones(3, 1), gl.ones(3)), [0.2, 0.3, 0.5]),
    "OneHotCategorical": (lambda: d.OneHotCategorical(gl.tensor([0.2, 0.3, 0.5])), [0.0, 1.0, 0.0]),
    "Multinomial": (lambda: d.Multinomial(4, gl.tensor([0.2, 0.3, 0.5])), [1.0, 1.0, 2.0]),
    "RelaxedOneHotCategorical": (lambda: d.RelaxedOneHotCategorical(gl.tensor(0.5), gl.tensor([0.2, 0.3, 0.5])), [0.2, 0.3, 0.5]),
    "LogisticNormal": (lambda: d.LogisticNormal(gl.zeros(2), gl.ones(2)), [0.2, 0.3, 0.5]),
    "StickBreaking": (lambda: d.TransformedDistribution(d.Normal(gl.zeros(2), gl.ones(2)), [d.StickBreakingTransform()]), [0.2, 0.3, 0.5]),
    "LKJCholesky": (lambda: d.LKJCholesky(3, 1.0), np.eye(3).tolist()), "Wishart": (lambda: d.Wishart(4.0, gl.eye(3)), np.eye(3).tolist()),
}  # fmt: skip


@pytest.mark.parametrize("name", VECTORS)
def test_values_of_another_event_shape(name):
    """One that only broadcasts with the event's shape gave a number."""
    make, value = VECTORS[name]
    value = gl.tensor(value)
    for batch in ((), (2,), (5, 1)):
        assert make().log_prob(value.expand(*batch, *value.shape)).shape == batch
    assert make().log_prob(value).isfinite()
    for wrong in (gl.tensor(1.0), gl.ones(1), gl.ones(2, 1), gl.ones(2), gl.ones(4), value[..., :1], value[..., :0]):
        with pytest.raises(ValueError, match="last sizes are the event's"):
            make().log_prob(wrong)
    for no_tensor in ([0.2, 0.3, 0.5], None, "0.5"):
        with pytest.raises(ValueError, match="a value is a tensor, not"):
            make().log_prob(no_tensor)


def test_divergence_through_the_same_transforms():
    one, other = d.Normal(gl.zeros(2, 3), gl.ones(2, 3)), d.Normal(gl.ones(2, 3), 2 * gl.ones(2, 3))
    for transforms, base in (([d.ExpTransform()], 0), ([d.StickBreakingTransform()], 1), ([d.TanhTransform(), d.SigmoidTransform()], 0)):
        p, q = (d.TransformedDistribution(b, transforms) for b in (one, other))
        expected = d.kl_divergence(d.Independent(one, base), d.Independent(other, base))
        np.testing.assert_allclose(d.kl_divergence(p, q).numpy(), expected.numpy(), rtol=1e-6)
    with pytest.raises(NotImplementedError, match="different transforms"):
        d.kl_divergence(d.TransformedDistribution(one, [d.ExpTransform()]), d.TransformedDistribution(other, [d.TanhTransform()]))


@pytest.mark.parametrize("concentration", [0.01, 0.1, 0.5, 0.9, 1.0, 2.0, 10.0])
@pytest.mark.parametrize("dtype, digits", [(gl.float32, 1e-4), (gl.float64, 1e-6)])
def test_gradients_of_gamma_samples_are_implicit(concentration, dtype, digits):
    """-(∂P/∂a)/p at each sample, here by differences of the incomplete gamma function."""
    gl.manual_seed(0)
    a = gl.full((200,), concentration, dtype=dtype, requires_grad=True)
    y = gl.distributions.Gamma(a, gl.ones(200, dtype=dtype)).rsample()
    y.sum().backward()
    at, h, c = y.detach().double(), 1e-5 * concentration, gl.full((200,), concentration, dtype=gl.float64)
    slope = (gl.special.gammainc(c + h, at) - gl.special.gammainc(c - h, at)) / (2 * h)
    expected = -slope / gl.distributions.Gamma(c, gl.ones(200, dtype=gl.float64)).log_prob(at).exp()
    sure = at > 1e-30
    assert gl.allclose(a.grad.double()[sure], expected[sure], rtol=digits, atol=1e-30)


def test_second_derivatives_of_gamma_samples_below_one():
    def sample(a):
        gl.manual_seed(3)
        return gl.distributions.Gamma(a, gl.ones(5, dtype=gl.float64)).rsample()

    a = gl.tensor([0.2, 0.5, 0.8, 0.95, 1.5], dtype=gl.float64, requires_grad=True)
    (first,) = gl.autograd.grad(sample(a).sum(), a, create_graph=True)
    (second,) = gl.autograd.grad(first.sum(), a)
    assert first.isfinite().all() and second.isfinite().all()
