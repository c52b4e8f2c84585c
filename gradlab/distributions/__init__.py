"""Probability distributions: samples, densities, entropies, divergences. Names and meanings follow `torch.distributions`.

>>> import gradlab as gl
>>> from gradlab.distributions import Categorical, Normal, kl_divergence
>>> action = Categorical(logits=gl.zeros(4, 3)).sample()
>>> action.shape
(4,)
>>> mu = gl.zeros(2, requires_grad=True)
>>> posterior = Normal(mu, gl.ones(2))
>>> loss = posterior.rsample().square().sum() + kl_divergence(posterior, Normal(0.0, 1.0)).sum()
>>> loss.backward()
"""

from __future__ import annotations

import sys
from typing import Any

from gradlab.distributions import (
    constraints as constraints,
    divergence_pairs as divergence_pairs,
    supports as supports,
    transform_domains as transform_domains,
    transforms as transforms,
)
from gradlab.distributions.categorical import Categorical, Multinomial, OneHotCategorical
from gradlab.distributions.circular import VonMises
from gradlab.distributions.constraint_registry import biject_to, transform_to
from gradlab.distributions.continuous import Cauchy, Exponential, Gumbel, Laplace, Uniform
from gradlab.distributions.discrete import Bernoulli, Binomial, Geometric, Poisson
from gradlab.distributions.distribution import Distribution
from gradlab.distributions.divergence import kl_divergence, register_kl
from gradlab.distributions.element_transforms import (
    AbsTransform,
    AffineTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StickBreakingTransform,
    TanhTransform,
)
from gradlab.distributions.exp_family import ExponentialFamily
from gradlab.distributions.gamma import Beta, Chi2, Dirichlet, Gamma, StudentT
from gradlab.distributions.gamma_ratios import FisherSnedecor, NegativeBinomial
from gradlab.distributions.joined_transforms import CatTransform, CumulativeDistributionTransform, StackTransform
from gradlab.distributions.joint import Independent, MixtureSameFamily
from gradlab.distributions.low_rank import LowRankMultivariateNormal
from gradlab.distributions.matrices import LKJCholesky, Wishart
from gradlab.distributions.matrix_transforms import CorrCholeskyTransform, LowerCholeskyTransform, PositiveDefiniteTransform
from gradlab.distributions.normal import MultivariateNormal, Normal
from gradlab.distributions.positive import GeneralizedPareto, HalfCauchy, HalfNormal, Kumaraswamy, Pareto, Weibull
from gradlab.distributions.relaxed import (
    ContinuousBernoulli,
    OneHotCategoricalStraightThrough,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
)
from gradlab.distributions.transform import (
    ComposeTransform,
    IndependentTransform,
    ReshapeTransform,
    Transform,
    identity_transform,
)
from gradlab.distributions.transformed import InverseGamma, LogisticNormal, LogNormal, TransformedDistribution
from gradlab.tensor.missing_names import absent as _absent

__all__ = [
    "AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "CatTransform", "Categorical", "Cauchy", "Chi2",
    "ComposeTransform", "ContinuousBernoulli", "CorrCholeskyTransform", "CumulativeDistributionTransform", "Dirichlet", "Distribution",
    "ExpTransform", "Exponential", "ExponentialFamily", "FisherSnedecor", "Gamma", "GeneralizedPareto", "Geometric", "Gumbel",
    "HalfCauchy", "HalfNormal",
    "Independent", "IndependentTransform", "InverseGamma", "Kumaraswamy", "LKJCholesky", "Laplace", "LogNormal", "LogisticNormal",
    "LowRankMultivariateNormal", "LowerCholeskyTransform", "MixtureSameFamily", "Multinomial", "MultivariateNormal", "NegativeBinomial",
    "Normal", "OneHotCategorical", "OneHotCategoricalStraightThrough", "Pareto", "Poisson", "PositiveDefiniteTransform",
    "PowerTransform", "RelaxedBernoulli", "RelaxedOneHotCategorical", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
    "SoftplusTransform", "StackTransform", "StickBreakingTransform", "StudentT", "TanhTransform", "Transform",
    "TransformedDistribution", "Uniform", "VonMises", "Weibull", "Wishart", "biject_to", "identity_transform", "kl_divergence",
    "register_kl", "transform_to",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    raise _absent("gradlab.distributions", name)


if (_overridable := sys.modules.get("gradlab.overrides.overridable")) is not None and _overridable.in_use():  # classes came before
    _overridable.activate()
