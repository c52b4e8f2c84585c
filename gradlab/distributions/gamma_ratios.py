"""Distributions with gamma variables inside: ratios of two, and counts whose rate is one. Formulas: the definitions."""

from __future__ import annotations

import math
from typing import Any

from gradlab.distributions.discrete import Odds, one_of
from gradlab.distributions.distribution import Distribution, broadcast
from gradlab.distributions.gamma import Gamma, from_tiny, log_beta
from gradlab.distributions.gamma_samples import log_gamma_samples
from gradlab.tensor import Tensor
from gradlab.tensor.creation import full_like
from gradlab.tensor.random import poisson
from gradlab.tensor.where import where


class FisherSnedecor(Distribution):
    """The ratio of the mean squares of `df1` and of `df2` standard normal variables.

    >>> import gradlab as gl
    >>> gl.distributions.FisherSnedecor(2.0, 4.0).mean
    tensor(2.)
    """

    has_rsample = True
    batched = ("df1", "df2")

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast(df1, df2)
        super().__init__(self.df1.shape, (), validate_args)
        self.require((self.df1 > 0) & (self.df2 > 0), "df1 and df2 are positive")

    @property
    def _gamma1(self) -> Gamma:
        return Gamma(self.df1 * 0.5, self.df1, validate_args=False)

    @property
    def _gamma2(self) -> Gamma:
        return Gamma(self.df2 * 0.5, self.df2, validate_args=False)

    @property
    def mean(self) -> Tensor:
        """df2 / (df2 - 2); NaN for df2 <= 2."""
        return where(self.df2 > 2, self.df2 / (self.df2 - 2), full_like(self.df2, math.nan))

    @property
    def mode(self) -> Tensor:
        """(df1 - 2)/df1 · df2/(df2 + 2); NaN for df1 <= 2."""
        found = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return where(self.df1 > 2, found, full_like(found, math.nan))

    @property
    def variance(self) -> Tensor:
        """2 df2² (df1 + df2 - 2) / (df1 (df2 - 2)² (df2 - 4)); NaN for df2 <= 4."""
        one, two = self.df1, self.df2
        found = 2 * two.square() * (one + two - 2) / (one * (two - 2).square() * (two - 4))
        return where(two > 4, found, full_like(found, math.nan))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random values as a function of both parameters."""
        shape = self._extended(sample_shape)
        one, two = ((log_gamma_samples(0.5 * df, shape) - (0.5 * df).log()) for df in (self.df1, self.df2))
        return from_tiny((one - two).exp())

    def log_prob(self, value: Tensor) -> Tensor:
        """a log(df1/df2) + (a - 1) log(value) - (a + b) log(1 + value · df1/df2) - log B(a, b) with a = df1/2, b = df2/2."""
        self.require(self.support.check(value), "a value is above 0")
        a, b, ratio = 0.5 * self.df1, 0.5 * self.df2, self.df1 / self.df2
        return a * ratio.log() + (a - 1).xlogy(value) - (a + b) * (ratio * value).log1p() - log_beta(a, b)


class NegativeBinomial(Odds):
    """The number of successes before `total_count` failures, any positive number: Poisson counts whose rate is a gamma variable.

    >>> import gradlab as gl
    >>> gl.distributions.NegativeBinomial(1.0, 0.5).log_prob(gl.tensor([0.0, 1.0])).exp()
    tensor([0.5000, 0.2500])
    """

    batched = ("total_count", "probs", "logits")

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        one_of("NegativeBinomial", probs, logits)
        self.total_count, given = broadcast(total_count, logits if probs is None else probs)
        self.total_count = self.total_count.to(given.dtype)
        self._give(probs, given)
        super().__init__(given.shape, (), validate_args)
        self.require(self.total_count >= 0, "total_count is not negative")
        if probs is not None:
            self.require((given >= 0) & (given < 1), "probs are from 0 to below 1")

    @property
    def _gamma(self) -> Gamma:
        return Gamma(self.total_count, (-self.logits).exp(), validate_args=False)

    @property
    def mean(self) -> Tensor:
        """total_count · probs / (1 - probs)."""
        return self.total_count * self._odds

    @property
    def mode(self) -> Tensor:
        """The whole part of (total_count - 1) · probs / (1 - probs), at least 0."""
        return ((self.total_count - 1) * self._odds).floor().clamp(min=0)

    @property
    def variance(self) -> Tensor:
        """mean / (1 - probs)."""
        return self.mean / self._failure

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Whole numbers of the parameters' dtype."""
        shape = self._extended(sample_shape)
        count = self.total_count.detach()
        rate = (log_gamma_samples(from_tiny(count), shape) + self._odds.detach().log()).exp()
        return poisson(where(count > 0, rate, full_like(rate, 0.0)))

    def log_prob(self, value: Tensor) -> Tensor:
        """log of the binomial coefficient + total_count · log(1 - probs) + value · log(probs)."""
        self.require(self.support.check(value), "a value is a whole number, not negative")
        count = self.total_count
        coefficient = (count + value).lgamma() - (1 + value).lgamma() - count.lgamma()
        coefficient = where(count + value == 0, full_like(coefficient, 0.0), coefficient)
        return coefficient + self._weighted(value.to(count.dtype), count)
