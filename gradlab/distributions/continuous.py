"""Distributions of real numbers other than the normal ones. Formulas: Abramowitz and Stegun, chapter 26, and the definitions."""

from __future__ import annotations

import math
from typing import Any

from gradlab.distributions.distribution import Distribution, broadcast
from gradlab.distributions.element_transforms import AffineTransform, ExpTransform
from gradlab.distributions.exp_family import ExponentialFamily
from gradlab.distributions.normal import LocationScale
from gradlab.distributions.transformed import Formulated
from gradlab.distributions.utils import log_one_plus_square
from gradlab.dtype import finfo
from gradlab.tensor import Tensor
from gradlab.tensor.creation import full_like, ones_like
from gradlab.tensor.random import rand
from gradlab.tensor.where import where

EULER = 0.57721566490153286


class Laplace(LocationScale):
    """The double exponential distribution around `loc`.

    >>> import gradlab as gl
    >>> gl.distributions.Laplace(0.0, 1.0).log_prob(gl.tensor([0.0, 1.0]))
    tensor([-0.6931, -1.6931])
    """

    def _standard(self, shape: Any) -> Tensor:
        u = self._uniform(shape) - 0.5
        return -u.sign() * (-2 * u.abs()).log1p()

    @property
    def variance(self) -> Tensor:
        """2 scale²."""
        return 2 * self.scale.square()

    def log_prob(self, value: Tensor) -> Tensor:
        """-|z| - log(2 scale)."""
        return -self._check(value).abs() - (2 * self.scale).log()

    def cdf(self, value: Tensor) -> Tensor:
        """exp(z)/2 below loc, 1 - exp(-z)/2 above."""
        z = self._check(value)
        return 0.5 - 0.5 * z.sign() * (-z.abs()).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`."""
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self) -> Tensor:
        """1 + log(2 scale)."""
        return 1 + (2 * self.scale).log()


class Cauchy(LocationScale):
    """The ratio of two normal variables; it has neither mean nor variance.

    >>> import gradlab as gl
    >>> gl.distributions.Cauchy(0.0, 1.0).cdf(gl.tensor(1.0))
    tensor(0.7500)
    """

    def _standard(self, shape: Any) -> Tensor:
        return ((self._uniform(shape) - 0.5) * math.pi).tan()

    @property
    def mean(self) -> Tensor:
        """NaN."""
        return full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        """Infinite."""
        return full_like(self.loc, math.inf)

    def log_prob(self, value: Tensor) -> Tensor:
        """-log(π scale (1 + z²))."""
        return -math.log(math.pi) - self.scale.log() - log_one_plus_square(self._check(value))

    def cdf(self, value: Tensor) -> Tensor:
        """atan(z)/π + 1/2."""
        return self._check(value).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`."""
        return self.loc + self.scale * ((value - 0.5) * math.pi).tan()

    def entropy(self) -> Tensor:
        """log(4π scale)."""
        return math.log(4 * math.pi) + self.scale.log()


class Uniform(Distribution):
    """Every number from `low` to below `high` alike.

    >>> import gradlab as gl
    >>> gl.distributions.Uniform(0.0, 4.0).entropy()
    tensor(1.3863)
    """

    has_rsample = True
    batched = ("low", "high")

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast(low, high)
        super().__init__(self.low.shape, (), validate_args)
        self.require(self.low < self.high, "low is below high")

    @property
    def mean(self) -> Tensor:
        """The middle."""
        return (self.low + self.high) / 2

    @property
    def mode(self) -> Tensor:
        """NaN: all are alike."""
        return full_like(self.high, math.nan)

    @property
    def variance(self) -> Tensor:
        """width²/12."""
        return (self.high - self.low).square() / 12

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random values as a function of low and high."""
        u = rand(*self._extended(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + u * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        """-log(width)."""
        self.require((value >= self.low) & (value <= self.high), "a value is from low to high")
        inside = (value >= self.low) & (value < self.high)
        density = -(self.high - self.low).log()
        return where(inside, density, full_like(density, -math.inf))

    def cdf(self, value: Tensor) -> Tensor:
        """The part below."""
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`."""
        return self.low + value * (self.high - self.low)

    def entropy(self) -> Tensor:
        """log(width)."""
        return (self.high - self.low).log()


class Exponential(ExponentialFamily):
    """The time until an event that happens `rate` times in a unit of it.

    >>> import gradlab as gl
    >>> gl.distributions.Exponential(2.0).mean
    tensor(0.5000)
    """

    has_rsample = True
    batched = ("rate",)

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast(rate)
        super().__init__(self.rate.shape, (), validate_args)
        self.require(self.rate > 0, "rate is positive")

    @property
    def mean(self) -> Tensor:
        """1/rate."""
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        """0."""
        return full_like(self.rate, 0)

    @property
    def variance(self) -> Tensor:
        """1/rate²."""
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random values as a function of the rate."""
        u = rand(*self._extended(sample_shape), dtype=self.rate.dtype, device=self.rate.device)
        return -(-u).log1p() / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        """log(rate) - rate · value."""
        self.require(value >= 0, "a value is not negative")
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        """1 - exp(-rate · value); 0 of what is negative."""
        return -(-self.rate * value).clamp(max=0).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`."""
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        """1 - log(rate)."""
        return 1 - self.rate.log()


class Gumbel(LocationScale, Formulated):
    """The distribution of a maximum: loc - scale · log(-log(u)).

    >>> import gradlab as gl
    >>> gl.distributions.Gumbel(0.0, 1.0).log_prob(gl.tensor(0.0))
    tensor(-1.)
    """

    batched = ("loc", "scale", "base_dist")

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast(loc, scale)
        info = finfo(self.loc.dtype)
        base = Uniform(full_like(self.loc, info.tiny), full_like(self.loc, 1 - info.eps), validate_args=False)
        log = ExpTransform().inv
        steps = [log, AffineTransform(0, -ones_like(self.scale)), log, AffineTransform(self.loc, -self.scale)]
        Formulated.__init__(self, base, steps, validate_args)
        self.require(self.scale > 0, "scale is positive")

    def _standard(self, shape: Any) -> Tensor:
        return -(-self._uniform(shape).log()).log()

    @property
    def mean(self) -> Tensor:
        """loc + scale · Euler's constant."""
        return self.loc + self.scale * EULER

    @property
    def variance(self) -> Tensor:
        """π²/6 scale²."""
        return self.scale.square() * (math.pi**2 / 6)

    def log_prob(self, value: Tensor) -> Tensor:
        """-z - exp(-z) - log(scale)."""
        z = self._check(value)
        return -z - (-z).exp() - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        """exp(-exp(-z))."""
        return (-(-self._check(value)).exp()).exp()

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`."""
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Tensor:
        """1 + Euler's constant + log(scale)."""
        return self.scale.log() + (1 + EULER)
