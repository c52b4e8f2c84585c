"""What each distribution's arguments and values may be: `arg_constraints` and `support` of the classes, in one table."""

from __future__ import annotations

import math
from typing import Any

from gradlab.distributions import constraints as c
from gradlab.distributions.categorical import Categorical, Multinomial, OneHotCategorical
from gradlab.distributions.circular import VonMises
from gradlab.distributions.continuous import Cauchy, Exponential, Gumbel, Laplace, Uniform
from gradlab.distributions.discrete import Bernoulli, Binomial, Geometric, Poisson
from gradlab.distributions.distribution import Distribution
from gradlab.distributions.gamma import Beta, Chi2, Dirichlet, Gamma, StudentT
from gradlab.distributions.gamma_ratios import FisherSnedecor, NegativeBinomial
from gradlab.distributions.joint import Independent, MixtureSameFamily
from gradlab.distributions.low_rank import LowRankMultivariateNormal
from gradlab.distributions.matrices import LKJCholesky, Wishart
from gradlab.distributions.normal import MultivariateNormal, Normal
from gradlab.distributions.positive import GeneralizedPareto, HalfCauchy, HalfNormal, Kumaraswamy, Pareto, Weibull
from gradlab.distributions.relaxed import (
    ContinuousBernoulli,
    ExpRelaxedCategorical,
    LogitRelaxedBernoulli,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
)
from gradlab.distributions.transformed import InverseGamma, LogisticNormal, LogNormal
from gradlab.tensor.where import where

_ODDS = {"probs": c.unit_interval, "logits": c.real}
_CLASSES = {"probs": c.simplex, "logits": c.real_vector}
_PLACE = {"loc": c.real, "scale": c.positive}
_UP_TO_COUNT = c.dependent_property(lambda self: c.integer_interval(0, self.total_count), is_discrete=True)
_MATRICES = {"covariance_matrix": c.positive_definite, "precision_matrix": c.positive_definite, "scale_tril": c.lower_cholesky}


def _positive(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, c.positive)




def _above_threshold(self: GeneralizedPareto) -> c.Constraint:
    """From loc on, to the end that a negative concentration has."""
    ends = where(self.concentration < 0, self.loc - self.scale / self.concentration, math.inf)
    return c.interval(self.loc, ends)


# The class, its arguments, its values.
SUPPORTS: tuple[tuple[type[Distribution], dict[str, Any], Any], ...] = (
    (Bernoulli, _ODDS, c.boolean),
    (Beta, _positive("concentration1", "concentration0"), c.unit_interval),
    (Binomial, {"total_count": c.nonnegative_integer, **_ODDS}, _UP_TO_COUNT),
    (Categorical, _CLASSES, c.dependent_property(lambda self: c.integer_interval(0, self.num_events - 1), is_discrete=True)),
    (Cauchy, _PLACE, c.real),
    (Chi2, _positive("df"), c.nonnegative),
    (ContinuousBernoulli, _ODDS, c.unit_interval),
    (Dirichlet, {"concentration": c.independent(c.positive, 1)}, c.simplex),
    (ExpRelaxedCategorical, _CLASSES, c.real_vector),
    (Exponential, _positive("rate"), c.nonnegative),
    (FisherSnedecor, _positive("df1", "df2"), c.positive),
    (Gamma, _positive("concentration", "rate"), c.nonnegative),
    (
        GeneralizedPareto,
        {"loc": c.real, "scale": c.positive, "concentration": c.real},
        c.dependent_property(_above_threshold),
    ),
    (Geometric, _ODDS, c.nonnegative_integer),
    (Gumbel, _PLACE, c.real),
    (HalfCauchy, _positive("scale"), c.nonnegative),
    (HalfNormal, _positive("scale"), c.nonnegative),
    (Independent, {}, c.dependent_property(lambda self: c.independent(self.base_dist.support, self.reinterpreted_batch_ndims))),
    (InverseGamma, _positive("concentration", "rate"), c.positive),
    (Kumaraswamy, _positive("concentration1", "concentration0"), c.unit_interval),
    (Laplace, _PLACE, c.real),
    (LogitRelaxedBernoulli, _ODDS, c.real),
    (LogNormal, _PLACE, c.positive),
    (LogisticNormal, _PLACE, c.simplex),
    (
        LowRankMultivariateNormal,
        {"loc": c.real_vector, "cov_factor": c.independent(c.real, 2), "cov_diag": c.independent(c.positive, 1)},
        c.real_vector,
    ),
    (LKJCholesky, _positive("concentration"), c.corr_cholesky),
    (MixtureSameFamily, {}, c.dependent_property(lambda self: c.MixtureSameFamilyConstraint(self.component_distribution.support))),
    (Multinomial, _CLASSES, c.dependent_property(lambda self: c.multinomial(self.total_count), is_discrete=True, event_dim=1)),
    (MultivariateNormal, {"loc": c.real_vector, **_MATRICES}, c.real_vector),
    (
        NegativeBinomial,
        {"total_count": c.greater_than_eq(0), "probs": c.half_open_interval(0.0, 1.0), "logits": c.real},
        c.nonnegative_integer,
    ),
    (Normal, _PLACE, c.real),
    (OneHotCategorical, _CLASSES, c.one_hot),
    (Pareto, _positive("alpha", "scale"), c.dependent_property(lambda self: c.greater_than_eq(self.scale))),
    (Poisson, {"rate": c.nonnegative}, c.nonnegative_integer),
    (RelaxedBernoulli, _ODDS, c.unit_interval),
    (RelaxedOneHotCategorical, _CLASSES, c.simplex),
    (StudentT, {"df": c.positive, **_PLACE}, c.real),
    (Uniform, {"low": c.dependent, "high": c.dependent}, c.dependent_property(lambda self: c.interval(self.low, self.high))),
    (VonMises, {"loc": c.real, "concentration": c.positive}, c.real),
    (Wishart, {"df": c.greater_than(0), **_MATRICES}, c.positive_definite),
    (Weibull, _positive("scale", "concentration"), c.positive),
)

for _kind, _arguments, _values in SUPPORTS:
    _kind.arg_constraints, _kind.support = _arguments, _values
