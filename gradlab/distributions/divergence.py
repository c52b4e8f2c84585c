"""The Kullback-Leibler divergence of pairs of distributions. Formulas: integrals of p · (log p - log q), by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from gradlab import linalg
from gradlab.distributions.categorical import Categorical, OneHotCategorical
from gradlab.distributions.continuous import Exponential, Gumbel, Laplace, Uniform
from gradlab.distributions.discrete import Bernoulli, Binomial, Geometric, Poisson
from gradlab.distributions.distribution import Distribution
from gradlab.distributions.joint import Independent, summed
from gradlab.distributions.normal import MultivariateNormal, Normal
from gradlab.distributions.rounding import unit
from gradlab.distributions.transformed import LogNormal, TransformedDistribution
from gradlab.nn.functional import logsigmoid, softplus
from gradlab.tensor import Tensor
from gradlab.tensor.creation import full_like
from gradlab.tensor.where import where

F = TypeVar("F", bound=Callable[..., Any])
_RARE = -40.0  # log-odds
_known: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[F], F]:
    """A decorator: the function of (p, q) is `kl_divergence` for such a pair, and for subclasses that have none of their own.

    >>> from gradlab.distributions import Uniform, kl_divergence, register_kl
    >>> class Mine(Uniform):
    ...     pass
    >>> @register_kl(Mine, Mine)
    ... def nothing(p, q):
    ...     return 0 * p.low
    >>> kl_divergence(Mine(0.0, 1.0), Mine(0.0, 2.0))
    tensor(0.)
    """

    def kept(function: F) -> F:
        _known[type_p, type_q] = function
        return function

    return kept


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The expected log p - log q of values from p, for each distribution of the batch. NotImplementedError for a pair without a formula.

    >>> from gradlab.distributions import Normal, kl_divergence
    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0))
    tensor(0.5000)
    """
    for a in type(p).__mro__:
        for b in type(q).__mro__:
            if (a, b) in _known:
                return unit(_known[a, b])(p, q)
    raise NotImplementedError(
        f"kl_divergence: no formula for {type(p).__name__} and {type(q).__name__}; register_kl adds one, or average "
        "p.log_prob(x) - q.log_prob(x) over samples x of p"
    )


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - ratio.log())


@register_kl(LogNormal, LogNormal)
def _log_normal(p: LogNormal, q: LogNormal) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    """Of the bases, where both go through the same transforms."""
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("kl_divergence: the two go through different transforms; register_kl adds a formula for their classes")
    dims = len(p.event_shape) + sum(t.dim_in - t.dim_out for t in p.transforms)
    return summed(kl_divergence(p.base_dist, q.base_dist), dims - len(p.base_dist.event_shape))


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, gap = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + gap / q.scale + ratio * (-gap / p.scale).exp() - 1


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, shift, euler = p.scale / q.scale, (q.loc - p.loc) / q.scale, 0.57721566490153286
    return -ratio.log() - shift + ratio * euler + (shift + (1 + ratio).lgamma()).exp() - (1 + euler)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return found.masked_fill((q.low > p.low) | (q.high < p.high), float("inf"))


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(f"kl_divergence: vectors of {p.event_shape[0]} and of {q.event_shape[0]} numbers")
    factor = linalg.solve_triangular(q.scale_tril, p.scale_tril, upper=False)
    shift = linalg.solve_triangular(q.scale_tril, (q.loc - p.loc).unsqueeze(-1), upper=False).squeeze(-1)
    distance = factor.square().sum((-2, -1)) + shift.square().sum(-1) - p.event_shape[0]
    return q.half_log_det() - p.half_log_det() + 0.5 * distance


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    return p._weighted(p.probs, p._failure) - q._weighted(p.probs, p._failure)


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    known = p._most is not None and q._most is not None  # in a trace, too, where tensors have no values
    if p._most != q._most if known else bool((p.total_count != q.total_count).any()):
        raise ValueError(f"kl_divergence: binomials of {p.total_count} and of {q.total_count} trials")
    return p.total_count * _bernoulli(p, q)  # type: ignore[arg-type]


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    if p._logits is None:
        return -p.entropy() - q._weighted(full_like(p.probs, 1.0), 1 / p._odds)
    rare = p._logits < _RARE  # there the odds are the probability, which may underflow: a ratio of two is taken by logarithms
    usual = Geometric(logits=p._logits.masked_fill(rare, 0.0), validate_args=False)
    found = -usual.entropy() - q._weighted(full_like(usual.probs, 1.0), 1 / usual._odds)
    one, other = p._logits.masked_fill(~rare, _RARE), q.logits
    least = other < _RARE
    ratio = where(least, other, softplus(other.masked_fill(least, 0.0)).log()) - one
    return where(rare, one - logsigmoid(other) + ratio.exp() - 1, found)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    parts = where(p.probs == 0, p.probs * 0, p.probs * (p.logits - q.logits))
    return parts.masked_fill((q.probs == 0) & (p.probs > 0), float("inf")).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate.xlogy(p.rate) - p.rate.xlogy(q.rate) - (p.rate - q.rate)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("kl_divergence: of two Independent with different numbers of dimensions")
    return summed(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
