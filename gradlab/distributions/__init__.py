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

from typing import Any

from gradlab.distributions.classes import Categorical, Multinomial, OneHotCategorical
from gradlab.distributions.continuous import (
    Cauchy,
    Exponential,
    Gumbel,
    Laplace,
    Uniform,
)
from gradlab.distributions.discrete import (
    Bernoulli,
    Binomial,
    Geometric,
    Poisson,
)
from gradlab.distributions.distribution import Distribution
from gradlab.distributions.divergence import kl_divergence, register_kl
from gradlab.distributions.joint import Independent, MixtureSameFamily
from gradlab.distributions.normal import LogNormal, MultivariateNormal, Normal
from gradlab.tensor.missing import absent as _absent

__all__ = [
    "Bernoulli", "Binomial", "Categorical", "Cauchy", "Distribution", "Exponential", "Geometric", "Gumbel", "Independent", "Laplace",
    "LogNormal", "MixtureSameFamily", "Multinomial", "MultivariateNormal", "Normal", "OneHotCategorical", "Poisson", "Uniform",
    "kl_divergence", "register_kl",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    raise _absent("gradlab.distributions", name)
