"""Distributions against PyTorch's: densities, moments, entropies, divergences, gradients of samples. Run with -m torch."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gradlab as gl
from gradlab import distributions as ours
from gradlab.distributions.gamma_samples import log_slope

torch = pytest.importorskip("torch")
theirs = torch.distributions
pytestmark = pytest.mark.torch

A, B = [0.3, 1.0, 2.5, 40.0], [0.7, 2.0, 1.0, 3.0]
SHARE = [0.001, 0.3, 0.5, 0.97]
REAL, POSITIVE = [-3.0, 0.0, 0.4, 6.0], [0.02, 0.5, 2.0, 30.0]
COUNTS = [0.0, 1.0, 5.0, 40.0]
VECTOR, SIMPLEX = [[0.5, 1.0, 3.0], [2.0, 2.0, 0.2]], [[0.2, 0.3, 0.5], [0.1, 0.85, 0.05]]

# Name: parameters, values at which the density is taken, what else is compared.
CASES = {
    "Gamma": ((A, B), POSITIVE, "mean mode variance entropy cdf"),
    "Chi2": ((A,), POSITIVE, "mean variance entropy cdf"),
    "InverseGamma": ((A, B), POSITIVE, "mean mode variance entropy cdf"),
    "Beta": ((A, B), SHARE, "mean variance entropy"),
    "Dirichlet": ((VECTOR,), SIMPLEX, "mean mode variance entropy"),
    "StudentT": (([0.5, 1.5, 3.0, 40.0], REAL, B), REAL, "mean mode variance entropy"),
    "FisherSnedecor": (([0.5, 3.0, 5.0, 40.0], [1.0, 3.0, 8.0, 9.0]), POSITIVE, "mean mode variance"),
    "NegativeBinomial": (([0.5, 1.0, 4.0, 10.0], [0.1, 0.5, 0.9, 0.3]), COUNTS, "mean mode variance"),
    "HalfNormal": ((B,), POSITIVE, "mean mode variance entropy cdf icdf"),
    "HalfCauchy": ((B,), POSITIVE, "mean mode entropy cdf icdf"),
    "Pareto": (([0.01, 0.5, 1.0, 3.0], [0.5, 1.5, 2.5, 4.0]), POSITIVE, "mean mode variance entropy cdf icdf"),
    "GeneralizedPareto": (
        ([0.01, 0.0, 0.3, 3.0], B, [0.4, 0.2, -0.05, 1.5]), [0.02, 0.5, 2.0, 4.0], "mean mode variance entropy cdf icdf",
    ),
    "Weibull": ((B, [0.5, 1.0, 1.5, 3.0]), [0.02, 0.5, 2.0, 4.0], "mean variance entropy cdf icdf"),
    "Kumaraswamy": (([0.5, 1.0, 2.0, 3.0], B), SHARE, "mean variance entropy cdf icdf"),
    "ContinuousBernoulli": (([0.01, 0.4995, 0.7, 0.999],), SHARE, "mean variance entropy cdf icdf"),
    "RelaxedBernoulli": (([0.7], SHARE), SHARE, ""),
    "RelaxedOneHotCategorical": (([0.7], VECTOR), SIMPLEX, ""),
    "OneHotCategoricalStraightThrough": ((VECTOR,), [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], "mean variance entropy"),
    "VonMises": ((REAL, A), [-3.0, 0.0, 0.4, 3.1], "mean variance"),
    "LowRankMultivariateNormal": (
        ([0.5, -1.0, 2.0], [[1.0, 0.5], [0.0, 2.0], [-1.0, 0.3]], [0.5, 1.0, 2.0]), [[0.0, 1.0, 2.0], [1.0, 1.0, 1.0]],
        "mean variance entropy covariance_matrix precision_matrix scale_tril",
    ),
    "LogisticNormal": (([0.5, -1.0], [0.5, 2.0]), SIMPLEX, ""),
}  # fmt: skip


@pytest.fixture(autouse=True)
def wide_numbers():
    """GeneralizedPareto of PyTorch's compares its concentration with a number of the default dtype."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def pair(name, values, dtype="float64"):
    convert = [(lambda v, m=m: m.tensor(v, dtype=getattr(m, dtype)) if isinstance(v, list) else v) for m in (gl, torch)]
    return [getattr(module, name)(*map(f, values)) for module, f in zip((ours, theirs), convert, strict=True)]


def same(a, b, **options):
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), **{"rtol": 1e-9, "atol": 1e-11, **options})


@pytest.mark.parametrize("name", CASES)
def test_what_has_a_formula(name):
    values, at, also = CASES[name]
    a, b = pair(name, values)
    assert a.batch_shape == tuple(b.batch_shape) and a.event_shape == tuple(b.event_shape) and a.has_rsample == b.has_rsample
    x, y = gl.tensor(at, dtype=gl.float64), torch.tensor(at, dtype=torch.float64)
    same(a.log_prob(x), b.log_prob(y), rtol=1e-6 if name == "VonMises" else 1e-8, atol=1e-9)
    for what in also.split():
        if what in ("cdf", "icdf"):
            given = (x, y) if what == "cdf" else (gl.tensor(SHARE, dtype=gl.float64), torch.tensor(SHARE, dtype=torch.float64))
            found = [getattr(d, what)(v) for d, v in zip((a, b), given, strict=True)]
        else:
            found = [d.entropy() if what == "entropy" else getattr(d, what) for d in (a, b)]
        rough = name == "ContinuousBernoulli" and what in ("cdf", "icdf")  # PyTorch: uniform about 1/2
        same(*found, rtol=1e-4 if name == "VonMises" else 1e-7, atol=3e-4 if rough else 1e-9, err_msg=what)
    assert a.expand((3, *a.batch_shape)).sample((2,)).shape == tuple(b.expand((3, *b.batch_shape)).sample((2,)).shape)


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("ContinuousBernoulli",)])
def test_gradients_of_densities(name):
    values, at, _ = CASES[name]
    found = []
    for module, tensors in ((ours, gl), (theirs, torch)):
        given = [tensors.tensor(v, dtype=tensors.float64, requires_grad=True) if isinstance(v, list) else v for v in values]
        getattr(module, name)(*given).log_prob(tensors.tensor(at, dtype=tensors.float64)).sum().backward()
        found.append([g.grad for g in given if not isinstance(g, float)])
    for a, b in zip(*found, strict=True):
        same(a, b, rtol=1e-6, atol=1e-8)


PAIRS = {
    "Gamma": (A, B), "Beta": (A, B), "Exponential": (A,), "Normal": (REAL, B), "Laplace": (REAL, B), "Gumbel": (REAL, B),
    "Pareto": ([0.5, 1.0, 2.0, 3.0], [2.5, 3.5, 4.0, 8.0]), "HalfNormal": (B,), "Cauchy": (REAL, B), "Dirichlet": (VECTOR,),
    "ContinuousBernoulli": ([0.01, 0.3, 0.7, 0.999],), "Uniform": ([0.0, 0.1, -1.0, 0.2], [1.0, 0.7, 3.0, 1.5]), "Poisson": (A,),
    "Bernoulli": (SHARE,), "Chi2": (A,),
}  # fmt: skip


def test_divergences():
    compared = 0
    for one, first in PAIRS.items():
        for two, second in PAIRS.items():
            (p, p_), (q, q_) = pair(one, first), pair(two, [v[::-1] for v in second])
            try:
                want = theirs.kl_divergence(p_, q_)
            except NotImplementedError:
                continue
            except RuntimeError:  # PyTorch's own of a Beta and a Pareto
                continue
            compared += 1
            if (one, two) == ("Uniform", "ContinuousBernoulli"):
                want = torch.where((p_.low == 0) & (p_.high == 1), -p_.entropy() - p_.mean * q_.logits - q_.log_prob(0 * p_.low), want)
            if (one, two) == ("ContinuousBernoulli", "Uniform"):  # PyTorch: infinite for the very interval from 0 to 1
                want = torch.where((q_.low <= 0) & (q_.high >= 1), -p_.entropy() + (q_.high - q_.low).log(), want)
            if (one, two) in (("Uniform", "Beta"), ("Uniform", "Gamma"), ("Uniform", "Exponential")):
                want = torch.where((p_.low >= 0), want, math.inf)
            if (one == "Pareto" and two == "Uniform") or (one, two) in (("Beta", "Pareto"), ("Exponential", "Pareto"), ("Gamma", "Pareto")):
                want = torch.full_like(want, math.inf)
            same(ours.kl_divergence(p, q), want, rtol=1e-6, atol=1e-8, err_msg=f"{one} {two}")
    assert compared > 60


def test_vectors():
    values = CASES["LowRankMultivariateNormal"][0]
    others = ([1.0, 0.0, 0.0], [[0.3], [1.0], [0.5]], [1.0, 2.0, 0.4])
    (p, p_), (q, q_) = pair("LowRankMultivariateNormal", values), pair("LowRankMultivariateNormal", others)
    full, full_ = pair("MultivariateNormal", ([0.0, 1.0, 0.0], [[2.0, 0.3, 0.0], [0.3, 1.0, 0.2], [0.0, 0.2, 3.0]]))
    for a, b in (((p, q), (p_, q_)), ((p, full), (p_, full_)), ((full, q), (full_, q_))):
        same(ours.kl_divergence(*a), theirs.kl_divergence(*b), rtol=1e-7)


def test_slopes_of_gamma_variables():
    a = np.array([1.0, 1.5, 3.0, 9.0, 60.0, 1000.0])
    y = np.array([0.1, 1.2, 8.0, 8.0, 70.0, 950.0])
    want = torch._standard_gamma_grad(torch.tensor(a), torch.tensor(y)).numpy() / y
    for exact, tolerance in ((True, 4e-3), (False, 4e-3)):  # PyTorch's approximations are good to 0.2 %
        found = log_slope(gl.tensor(a), gl.tensor(np.log(y)), exact).numpy()
        np.testing.assert_allclose(found, want, rtol=tolerance)


TRANSFORMS = {
    "ExpTransform": (), "SigmoidTransform": (), "TanhTransform": (), "SoftplusTransform": (), "AffineTransform": (0.5, -2.0),
    "PowerTransform": (2.0,),
}  # fmt: skip


@pytest.mark.parametrize("name", [*TRANSFORMS, "several", "stick", "reshape", "independent"])
def test_transforms(name):
    found = []
    for module, tensors in ((ours, gl), (theirs, torch)):
        x = tensors.tensor([[0.3, 1.2, 2.0], [0.1, 0.5, 3.0]], dtype=tensors.float64)
        base = module.Normal(tensors.zeros(3, dtype=tensors.float64), 1.5 * tensors.ones(3, dtype=tensors.float64))
        if name == "several":
            t = [module.AffineTransform(1.0, 2.0), module.ExpTransform(), module.PowerTransform(0.5)]
        elif name == "stick":
            t = [module.StickBreakingTransform()]
        elif name == "reshape":
            t = [module.ReshapeTransform((3,), (3, 1)), module.ExpTransform()]
        elif name == "independent":
            t = [module.IndependentTransform(module.TanhTransform(), 1), module.AffineTransform(0.0, 3.0, event_dim=1)]
        else:
            t = [getattr(module, name)(*TRANSFORMS[name])]
        if name == "PowerTransform":
            base = module.Gamma(2.0 * tensors.ones(3, dtype=tensors.float64), tensors.ones(3, dtype=tensors.float64))
        d, whole = module.TransformedDistribution(base, t), module.ComposeTransform(t)
        y = whole(x)
        results = [y, whole.inv(y), whole.log_abs_det_jacobian(x, y), d.log_prob(y)]
        if name in TRANSFORMS and name != "PowerTransform":
            results += [d.cdf(y), d.icdf(d.cdf(y))]
        found.append((results, tuple(d.batch_shape), tuple(d.event_shape), tuple(d.expand((4, *d.batch_shape)).batch_shape)))
    assert found[0][1:] == found[1][1:]
    for a, b in zip(found[0][0], found[1][0], strict=True):
        same(a, b, rtol=1e-7)
