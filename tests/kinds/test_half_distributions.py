"""What is asked of a distribution with half parameters is computed in float32 and rounded once: all public ones, all that they answer."""

import inspect

import numpy as np
import pytest

import gradlab as gl
from gradlab import distributions as d

from kinds.halves import HALVES, ulps

A, B = np.array([0.5, 1.25, 2.5, 40.0]), np.array([0.75, 2.0, 1.0, 3.0])
REAL, SHARE = np.array([-3.0, 0.0, 0.5, 6.0]), np.array([0.03125, 0.25, 0.5, 0.9375])
COUNTS, TRUTHS = np.array([0.0, 1, 5, 40]), np.array([0.0, 1, 1, 0])
VECTOR, SIMPLEX, ONE = np.array([[0.5, 1.0, 3.0], [2.0, 2.0, 0.25]]), np.array([[0.25, 0.25, 0.5], [0.125, 0.75, 0.125]]), np.eye(3)[:2]
PLACE, TRIANGLE = np.array([0.5, -1.0, 2.0]), np.array([[1.0, 0, 0], [0.5, 2, 0], [0.25, -1, 0.5]])
ONION, DEGREES, ROUND = np.array([[1.0, 0, 0], [0.5, 0.875, 0], [0.25, 0.5, 0.75]]), np.array([3.0, 4.5]), np.eye(3) + 0.25
FACTOR, SPREAD = np.array([[1.0, 0.5], [0.0, 2.0], [-1.0, 0.25]]), np.array([0.5, 1.0, 2.0])

# Name: the distribution of some arrays' tensors, the arrays, values.
CASES = {
    "Bernoulli": (d.Bernoulli, [SHARE], TRUTHS), "Beta": (d.Beta, [A, B], SHARE),
    "Binomial": (lambda p: d.Binomial(40, p), [SHARE], COUNTS),
    "Categorical": (d.Categorical, [VECTOR], np.array([2, 0])), "Cauchy": (d.Cauchy, [REAL, B], REAL), "Chi2": (d.Chi2, [A], B),
    "ContinuousBernoulli": (d.ContinuousBernoulli, [SHARE], SHARE), "Dirichlet": (d.Dirichlet, [VECTOR], SIMPLEX),
    "Exponential": (d.Exponential, [A], B), "FisherSnedecor": (d.FisherSnedecor, [A, B], B), "Gamma": (d.Gamma, [A, B], B),
    "GeneralizedPareto": (d.GeneralizedPareto, [REAL, B, SHARE], REAL + A), "Geometric": (d.Geometric, [SHARE], COUNTS),
    "Gumbel": (d.Gumbel, [REAL, B], REAL), "HalfCauchy": (d.HalfCauchy, [B], A),
    "HalfNormal": (d.HalfNormal, [B], A), "Independent": (lambda m, s: d.Independent(d.Normal(m, s), 1), [REAL, B], REAL),
    "InverseGamma": (d.InverseGamma, [A, B], B), "Kumaraswamy": (d.Kumaraswamy, [B, A], SHARE), "Laplace": (d.Laplace, [REAL, B], REAL),
    "LogNormal": (d.LogNormal, [REAL, B / 4], A), "LogisticNormal": (d.LogisticNormal, [REAL[:2], B[:2]], SIMPLEX),
    "LowRankMultivariateNormal": (d.LowRankMultivariateNormal, [PLACE, FACTOR, SPREAD], PLACE[::-1].copy()),
    "MixtureSameFamily": (lambda w, m, s: d.MixtureSameFamily(d.Categorical(w), d.Normal(m, s)), [A, REAL, B], REAL),
    "Multinomial": (lambda p: d.Multinomial(4, p), [VECTOR], np.array([[1.0, 1, 2], [4, 0, 0]])),
    "MultivariateNormal": (lambda m, t: d.MultivariateNormal(m, scale_tril=t), [PLACE, TRIANGLE], PLACE[::-1].copy()),
    "NegativeBinomial": (d.NegativeBinomial, [A, SHARE], COUNTS), "Normal": (d.Normal, [REAL, B], A),
    "OneHotCategorical": (d.OneHotCategorical, [VECTOR], ONE), "Poisson": (d.Poisson, [A], COUNTS),
    "OneHotCategoricalStraightThrough": (d.OneHotCategoricalStraightThrough, [VECTOR], ONE), "Pareto": (d.Pareto, [B, A], 4 * A),
    "RelaxedBernoulli": (d.RelaxedBernoulli, [np.array(0.75), SHARE], SHARE),
    "RelaxedOneHotCategorical": (d.RelaxedOneHotCategorical, [np.array(0.75), VECTOR], SIMPLEX),
    "StudentT": (d.StudentT, [B, REAL, B], A),
    "TransformedDistribution": (
        lambda m, s: d.TransformedDistribution(d.Normal(m, s), [d.AffineTransform(m, s), d.SigmoidTransform()]), [REAL / 4, B], SHARE),
    "LKJCholesky": (lambda c: d.LKJCholesky(3, c), [B], ONION),
    "Wishart": (lambda f, t: d.Wishart(f, scale_tril=t), [DEGREES, TRIANGLE], ROUND),
    "Uniform": (d.Uniform, [-B, A], SHARE), "VonMises": (d.VonMises, [REAL / 2, B], REAL / 2), "Weibull": (d.Weibull, [B, A / 4], A),
}  # fmt: skip
UNITS = {"MixtureSameFamily": 4, "Multinomial": 2}  # the shares are an attribute, which is rounded
ASKED = ("mean", "mode", "variance", "stddev", "entropy", "perplexity", "log_prob", "cdf", "icdf", "rsample", "sample")


def answers(name, dtype, wide):
    """What a distribution answers, with the gradients of its parameters; of `wide`, computed in float32 from the same numbers."""
    make, arrays, values = CASES[name]

    def tensor(array):
        found = gl.tensor(array, dtype=dtype if array.dtype == np.float64 else None)
        return found.float() if wide and array.dtype == np.float64 else found

    parameters = [tensor(a).requires_grad_() for a in arrays]
    distribution = make(*parameters)
    given = {"log_prob": tensor(values), "cdf": tensor(values), "icdf": tensor(SHARE), "rsample": (5,), "sample": (5,)}
    found = {}
    for what in ASKED:
        gl.manual_seed(3)
        try:
            result = getattr(distribution, what)
            result = result(*([given[what]] if what in given else [])) if callable(result) else result
        except NotImplementedError:
            continue
        found[what] = result, []
        if result.requires_grad:
            found[what] = result, gl.autograd.grad(result.sum(), parameters, allow_unused=True, retain_graph=True)
    return found


def test_every_distribution_is_asked():
    public = {n for n in dir(d) if inspect.isclass(getattr(d, n)) and issubclass(getattr(d, n), d.Distribution)}
    assert set(CASES) == public - {"Distribution", "ExponentialFamily"}


@pytest.mark.parametrize("dtype", HALVES, ids=repr)
@pytest.mark.parametrize("name", CASES)
def test_answers_are_those_of_float32_rounded(name, dtype, monkeypatch):
    monkeypatch.setattr(d.Distribution, "_validate_args", False)
    halves, wide = answers(name, dtype, False), answers(name, dtype, True)
    assert halves.keys() == wide.keys() and "log_prob" in wide
    for what, (expected, slopes) in wide.items():
        found, gradients = halves[what]
        assert found.dtype == (dtype if expected.dtype == gl.float32 else expected.dtype)
        assert ulps(found, expected) <= 1, what
        cancelled = what == "rsample" and name in ("RelaxedOneHotCategorical", "LogisticNormal", "Dirichlet")  # the sum is 1
        for g, e in zip(gradients, slopes, strict=True):
            assert (g is None) == (e is None)
            assert g is None or cancelled or ulps(g, e) <= UNITS.get(name, 1), what


@pytest.mark.parametrize("dtype", HALVES, ids=repr)
@pytest.mark.parametrize("name", ["Normal", "Gamma", "Beta", "Categorical", "MultivariateNormal", "StudentT"])
def test_divergences_are_those_of_float32_rounded(name, dtype):
    make, arrays, _ = CASES[name]
    found = []
    for wide in (False, True):
        p, q = (make(*[t.float() if wide else t for t in (gl.tensor(a * scale, dtype=dtype) for a in arrays)]) for scale in (1, 0.75))
        try:
            found.append(d.kl_divergence(p, q))
        except NotImplementedError:
            return
    assert found[0].dtype == dtype and ulps(*found) <= 1
