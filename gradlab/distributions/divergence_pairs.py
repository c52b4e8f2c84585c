"""The Kullback-Leibler divergences of further pairs, and of distributions of different kinds. Formulas: integrals of p · (log p - log q).

Where q is of another kind than p it is the expected -log q of values from p, by its moments, less the entropy of p.
"""

from __future__ import annotations

import math
from typing import Any

from gradlab.distributions.continuous import EULER, Cauchy, Exponential, Gumbel, Laplace, Uniform
from gradlab.distributions.discrete import Bernoulli, Binomial, Poisson
from gradlab.distributions.divergence import register_kl
from gradlab.distributions.gamma import Beta, Dirichlet, Gamma, log_beta
from gradlab.distributions.low_rank import LowRankMultivariateNormal
from gradlab.distributions.normal import HALF_LOG_TWO_PI, MultivariateNormal, Normal
from gradlab.distributions.positive import HalfNormal, Pareto
from gradlab.distributions.relaxed import ContinuousBernoulli
from gradlab.tensor import Tensor
from gradlab.tensor.creation import full_like
from gradlab.tensor.where import where

# ---------------------------------------------------------------- of one kind


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    return b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma() + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    total = p.concentration1 + p.concentration0
    found = log_beta(q.concentration1, q.concentration0) - log_beta(p.concentration1, p.concentration0)
    for a, b in ((p.concentration1, q.concentration1), (p.concentration0, q.concentration0)):
        found = found + (a - b) * (a.digamma() - total.digamma())
    return found


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    parts = b.lgamma() - a.lgamma() + (a - b) * (a.digamma() - total.digamma().unsqueeze(-1))
    return total.lgamma() - b.sum(-1).lgamma() + parts.sum(-1)


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio - 1 - ratio.log())


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    found = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return where(p.scale >= q.scale, found, full_like(found, math.inf))


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    return ((p.scale + q.scale).square() + (p.loc - q.loc).square()).log() - (4 * p.scale * q.scale).log()


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
@register_kl(Beta, ContinuousBernoulli)
def _continuous_bernoulli(p: Any, q: ContinuousBernoulli) -> Tensor:
    return -p.entropy() - p.mean * q.logits - q.log_prob(full_like(q.logits, 0.0))


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous_bernoulli(p: Uniform, q: ContinuousBernoulli) -> Tensor:
    found = _continuous_bernoulli(p, q)
    return where((p.low >= 0) & (p.high <= 1), found, full_like(found, math.inf))


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _vectors(p: Any, q: Any) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(f"kl_divergence: vectors of {p.event_shape[0]} and of {q.event_shape[0]} numbers")
    precision, gap = q.precision_matrix, (q.loc - p.loc).unsqueeze(-1)
    trace = (precision * p.covariance_matrix).sum((-2, -1))
    distance = (gap.mT @ precision @ gap).squeeze(-1).squeeze(-1)
    return q.half_log_det() - p.half_log_det() + 0.5 * (trace + distance - p.event_shape[0])


# ---------------------------------------------------------------- of two kinds


def _to_normal(p: Any, q: Normal) -> Tensor:
    spread = (p.variance + (p.mean - q.loc).square()) / q.scale.square()
    return 0.5 * spread + q.scale.log() + HALF_LOG_TWO_PI - p.entropy()


def _to_exponential(p: Any, q: Exponential) -> Tensor:
    return _positive(p, q.rate * p.mean - q.rate.log() - p.entropy())


def _to_gamma(p: Any, q: Gamma) -> Tensor:
    c = q.concentration
    return _positive(p, q.rate * p.mean - (c - 1) * _mean_log(p) + c.lgamma() - c * q.rate.log() - p.entropy())


def _to_uniform(p: Any, q: Uniform) -> Tensor:
    found = (q.high - q.low).log() - p.entropy()
    return where((q.low <= 0) & (q.high >= 1), found, full_like(found, math.inf))


def _to_gumbel(p: Any, q: Gumbel) -> Tensor:
    slope = q.scale.reciprocal()
    return q.scale.log() + (p.mean - q.loc) * slope + (q.loc * slope + _log_mean_exp(p, -slope)).exp() - p.entropy()


def _positive(p: Any, found: Tensor) -> Tensor:
    """Infinite for what is uniform also below 0."""
    return where(p.low >= 0, found, full_like(found, math.inf)) if isinstance(p, Uniform) else found


def _mean_log(p: Any) -> Tensor:
    """The expected logarithm."""
    if isinstance(p, Exponential):
        return -EULER - p.rate.log()
    if isinstance(p, Gamma):
        return p.concentration.digamma() - p.rate.log()
    if isinstance(p, Beta):
        return p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    if isinstance(p, Pareto):
        return p.scale.log() + p.alpha.reciprocal()
    return (p.high.xlogy(p.high) - p.low.xlogy(p.low)) / (p.high - p.low) - 1


def _log_mean_exp(p: Any, t: Tensor) -> Tensor:
    """The logarithm of the expected exp(t · x), for t < 0."""
    if isinstance(p, Normal):
        return t * p.loc + 0.5 * (t * p.scale).square()
    if isinstance(p, Exponential):
        return -(-t / p.rate).log1p()
    if isinstance(p, Gamma):
        return -p.concentration * (-t / p.rate).log1p()
    return t * p.low + (-(t * (p.high - p.low)).expm1() / (-t * (p.high - p.low))).log()


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Tensor:
    gap = p.loc - q.loc
    t = gap / p.scale
    distance = p.scale * math.sqrt(2 / math.pi) * (-0.5 * t.square()).exp() + gap * (t * math.sqrt(0.5)).erf()
    return distance / q.scale + (2 * q.scale).log() - p.entropy()


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return q.rate - p.probs.xlogy(q.rate) - p.entropy()


@register_kl(Uniform, Beta)
def _uniform_beta(p: Uniform, q: Beta) -> Tensor:
    mirrored = Uniform(1 - p.high, 1 - p.low, validate_args=False)
    logs = (q.concentration1 - 1) * _mean_log(p) + (q.concentration0 - 1) * _mean_log(mirrored)
    found = log_beta(q.concentration1, q.concentration0) - logs - p.entropy()
    return where((p.low >= 0) & (p.high <= 1), found, full_like(found, math.inf))


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Uniform, q: Pareto) -> Tensor:
    found = (q.alpha + 1) * _mean_log(p) - q.alpha.log() - q.alpha * q.scale.log() - p.entropy()
    return where(p.low >= q.scale, found, full_like(found, math.inf))


def _infinite(p: Any, q: Any) -> Tensor:
    """p has values where q has none."""
    found = p.mean + q.mean
    return full_like(found, math.inf)


kind: Any
other: Any
for kind in (Exponential, Gamma, Gumbel, Laplace, Uniform, Beta, Pareto, ContinuousBernoulli, HalfNormal):
    register_kl(kind, Normal)(_to_normal)
for kind in (Gamma, Beta, Pareto, Uniform, ContinuousBernoulli):
    register_kl(kind, Exponential)(_to_exponential)
for kind in (Exponential, Beta, Pareto, Uniform):
    register_kl(kind, Gamma)(_to_gamma)
for kind in (Beta, ContinuousBernoulli):
    register_kl(kind, Uniform)(_to_uniform)
for kind in (Normal, Exponential, Gamma, Uniform):
    register_kl(kind, Gumbel)(_to_gumbel)
for kinds, others in (
    ((Normal, Laplace, Gumbel), (Exponential, Gamma, Pareto, Beta, ContinuousBernoulli, Uniform)),
    ((Exponential, Gamma, Pareto), (Uniform, Beta, ContinuousBernoulli)),
    ((Exponential, Gamma, Beta, ContinuousBernoulli), (Pareto,)),
    ((Poisson,), (Bernoulli, Binomial)),
):
    for kind in kinds:
        for other in others:
            register_kl(kind, other)(_infinite)
