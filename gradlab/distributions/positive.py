"""Distributions of positive numbers and of shares whose quantiles are known. Formulas: the definitions."""

from __future__ import annotations

import math
from typing import Any

from gradlab.distributions.continuous import EULER, Cauchy, Exponential, Uniform
from gradlab.distributions.distribution import Distribution, broadcast
from gradlab.distributions.element_transforms import AbsTransform, AffineTransform, ExpTransform, PowerTransform
from gradlab.distributions.gamma import between, from_tiny
from gradlab.distributions.normal import Normal
from gradlab.distributions.transformed import Formulated
from gradlab.dtype import finfo
from gradlab.tensor import Tensor
from gradlab.tensor.creation import full_like, ones_like
from gradlab.tensor.random import rand
from gradlab.tensor.where import where


class _Half(Formulated):
    """The distance from 0 of a variable around it."""

    base: type[Normal | Cauchy]

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        (scale,) = broadcast(scale)
        super().__init__(self.base(full_like(scale, 0.0), scale, validate_args), AbsTransform(), validate_args)

    scale = property(lambda self: self.base_dist.scale)

    @property
    def mode(self) -> Tensor:
        """0."""
        return full_like(self.base_dist.scale, 0.0)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random values as a function of the scale."""
        return self.base_dist.rsample(sample_shape).abs()

    def log_prob(self, value: Tensor) -> Tensor:
        """Twice the density."""
        self.require(value >= 0, "a value is not negative")
        found = self.base_dist.log_prob(value) + math.log(2)
        return where(value >= 0, found, full_like(found, -math.inf))

    def cdf(self, value: Tensor) -> Tensor:
        """2 · the base's - 1."""
        return (2 * self.base_dist.cdf(value) - 1).clamp(min=0)

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`."""
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        """That of the base - log(2)."""
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(_Half):
    """The distance of a normal variable from its mean.

    >>> import gradlab as gl
    >>> gl.distributions.HalfNormal(1.0).mean
    tensor(0.7979)
    """

    base = Normal

    @property
    def mean(self) -> Tensor:
        """scale · √(2/π)."""
        return self.base_dist.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        """scale² (1 - 2/π)."""
        return self.base_dist.variance * (1 - 2 / math.pi)


class HalfCauchy(_Half):
    """The distance of a Cauchy variable from its middle.

    >>> import gradlab as gl
    >>> gl.distributions.HalfCauchy(1.0).cdf(gl.tensor(1.0))
    tensor(0.5000)
    """

    base = Cauchy

    @property
    def mean(self) -> Tensor:
        """Infinite."""
        return full_like(self.base_dist.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        """Infinite."""
        return self.base_dist.variance


class Pareto(Formulated):
    """Numbers above `scale` whose density falls as x^-(alpha + 1).

    >>> import gradlab as gl
    >>> gl.distributions.Pareto(1.0, 3.0).mean
    tensor(1.5000)
    """

    batched = ("scale", "alpha", "base_dist")

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast(scale, alpha)
        base = Exponential(self.alpha, validate_args=False)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args)
        self.require((self.scale > 0) & (self.alpha > 0), "scale and alpha are positive")

    @property
    def mean(self) -> Tensor:
        """alpha · scale / (alpha - 1); infinite for alpha <= 1."""
        found = self.alpha * self.scale / (self.alpha - 1)
        return where(self.alpha > 1, found, full_like(found, math.inf))

    @property
    def mode(self) -> Tensor:
        """scale."""
        return self.scale

    @property
    def variance(self) -> Tensor:
        """scale² alpha / ((alpha - 1)² (alpha - 2)); infinite for alpha <= 2."""
        a = self.alpha
        found = self.scale.square() * a / ((a - 1).square() * (a - 2))
        return where(a > 2, found, full_like(found, math.inf))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random values as a function of both parameters."""
        return self.icdf(rand(*self._extended(sample_shape), dtype=self.scale.dtype, device=self.scale.device))

    def log_prob(self, value: Tensor) -> Tensor:
        """log(alpha) + alpha log(scale) - (alpha + 1) log(value)."""
        self.require(value >= self.scale, "a value is at least the scale")
        found = self.alpha.log() + self.alpha * self.scale.log() - (self.alpha + 1) * value.log()
        return where(value < self.scale, full_like(found, -math.inf), found)

    def cdf(self, value: Tensor) -> Tensor:
        """1 - (scale / value)^alpha; 0 below the scale."""
        return -(self.alpha * (self.scale / value.maximum(self.scale)).log()).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`."""
        return self.scale * (-(-value).log1p() / self.alpha).exp()

    def entropy(self) -> Tensor:
        """log(scale / alpha) + 1 + 1/alpha."""
        return (self.scale / self.alpha).log() + 1 + self.alpha.reciprocal()


class GeneralizedPareto(Distribution):
    """What lies above a threshold `loc`, with a `concentration` that is 0 for an exponential tail and negative for one that ends.

    Formulas: Coles, An Introduction to Statistical Modeling of Extreme Values (2001), chapter 4.

    >>> import gradlab as gl
    >>> gl.distributions.GeneralizedPareto(0.0, 1.0, gl.tensor([0.0, 0.5])).mean
    tensor([1., 2.])
    """

    has_rsample = True
    batched = ("loc", "scale", "concentration")

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.concentration = broadcast(loc, scale, concentration)
        super().__init__(self.loc.shape, (), validate_args)
        self.require(self.scale > 0, "scale is positive")

    @property
    def mean(self) -> Tensor:
        """loc + scale / (1 - concentration); NaN from a concentration of 1 on."""
        found = self.loc + self.scale / (1 - self.concentration)
        return where(self.concentration < 1, found, full_like(found, math.nan))

    @property
    def mode(self) -> Tensor:
        """loc."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """scale² / ((1 - concentration)² (1 - 2 concentration)); NaN from a concentration of 1/2 on."""
        c = self.concentration
        found = self.scale.square() / ((1 - c).square() * (1 - 2 * c))
        return where(c < 0.5, found, full_like(found, math.nan))

    def _excess(self, value: Tensor) -> Tensor:
        """log(1 + cz) / c of z = (value - loc) / scale, which is z - cz²/2 + c²z³/3 where c is next to 0; beyond the ends as at them."""
        z, c = ((value - self.loc) / self.scale).clamp(min=0), self.concentration
        flat = (c * z).abs() < finfo(z.dtype).eps ** (1 / 3)
        safe, near = where(flat, 1.0, c), where(flat, z, 0.0)
        return where(flat, near * (1 - c * near * (0.5 - c * near / 3)), (safe * where(flat, 0.0, z)).clamp(min=-1).log1p() / safe)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random values as a function of all parameters."""
        return self.icdf(rand(*self._extended(sample_shape), dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value: Tensor) -> Tensor:
        """-log(scale) - (1 + c) log(1 + cz) / c."""
        ends = where(self.concentration < 0, self.loc - self.scale / self.concentration, math.inf)
        outside = (value < self.loc) | (value > ends)
        inside = (value >= self.loc) & (value <= ends)
        self.require(inside, "a value is at least loc, and at most loc - scale / concentration where the concentration is negative")
        found = -self.scale.log() - (1 + self.concentration) * self._excess(where(outside, self.loc, value))
        return where(outside, full_like(found, -math.inf), found)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """log(1 - cdf(value)) = -log(1 + cz) / c."""
        return -self._excess(value)

    def log_cdf(self, value: Tensor) -> Tensor:
        """log(cdf(value))."""
        return self.cdf(value).log()

    def cdf(self, value: Tensor) -> Tensor:
        """1 - (1 + cz)^(-1/c)."""
        return -(-self._excess(value)).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`: loc + scale ((1 - value)^-c - 1) / c."""
        steps, c = -(-value).log1p(), self.concentration
        flat = (c * steps).abs() < finfo(steps.dtype).eps ** (1 / 3)
        safe = where(flat, 1.0, c)
        curved = (safe * where(flat, 0.0, steps)).expm1() / safe
        return self.loc + self.scale * where(flat, steps * (1 + c * steps * (0.5 + c * steps / 6)), curved)

    def entropy(self) -> Tensor:
        """log(scale) + concentration + 1."""
        return self.scale.log() + self.concentration + 1


class Weibull(Formulated):
    """scale · an exponential variable to the power 1/concentration.

    >>> import gradlab as gl
    >>> gl.distributions.Weibull(2.0, 1.0).mean
    tensor(2.)
    """

    batched = ("scale", "concentration", "concentration_reciprocal", "base_dist")

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(ones_like(self.scale), validate_args=False)
        super().__init__(base, [PowerTransform(self.concentration_reciprocal), AffineTransform(0, self.scale)], validate_args)
        self.require((self.scale > 0) & (self.concentration > 0), "scale and concentration are positive")

    def _moment(self, n: int) -> Tensor:
        return (1 + n / self.concentration).lgamma().exp()

    @property
    def mean(self) -> Tensor:
        """scale · Γ(1 + 1/concentration)."""
        return self.scale * self._moment(1)

    @property
    def mode(self) -> Tensor:
        """scale · ((c - 1)/c)^(1/c); 0 for a concentration c <= 1."""
        c = self.concentration
        return self.scale * ((c - 1) / c).clamp(min=0) ** c.reciprocal()

    @property
    def variance(self) -> Tensor:
        """scale² (Γ(1 + 2/c) - Γ(1 + 1/c)²)."""
        return self.scale.square() * (self._moment(2) - self._moment(1).square())

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random values as a function of both parameters."""
        return self.icdf(rand(*self._extended(sample_shape), dtype=self.scale.dtype, device=self.scale.device))

    def log_prob(self, value: Tensor) -> Tensor:
        """log(c / scale) + (c - 1) log(value / scale) - (value / scale)^c."""
        self.require(value > 0, "a value is positive")
        ratio = value / self.scale
        return (self.concentration / self.scale).log() + (self.concentration - 1).xlogy(ratio) - ratio**self.concentration

    def cdf(self, value: Tensor) -> Tensor:
        """1 - exp(-(value / scale)^c); 0 of what is negative."""
        return -(-((value.clamp(min=0) / self.scale) ** self.concentration)).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`."""
        return self.scale * from_tiny(-(-value).log1p()) ** self.concentration.reciprocal()

    def entropy(self) -> Tensor:
        """Euler's constant · (1 - 1/c) + log(scale / c) + 1."""
        return EULER * (1 - self.concentration.reciprocal()) + (self.scale / self.concentration).log() + 1


class Kumaraswamy(Formulated):
    """A share between 0 and 1 with the distribution function 1 - (1 - x^concentration1)^concentration0.

    >>> import gradlab as gl
    >>> gl.distributions.Kumaraswamy(1.0, 1.0).mean
    tensor(0.5000)
    """

    batched = ("concentration1", "concentration0", "base_dist")

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast(concentration1, concentration0)
        zero = full_like(self.concentration0, 0.0)
        powers = [PowerTransform(c.reciprocal()) for c in (self.concentration0, self.concentration1)]
        base = Uniform(zero, ones_like(zero), validate_args=False)
        super().__init__(base, [powers[0], AffineTransform(1.0, -1.0), powers[1]], validate_args)
        self.require((self.concentration1 > 0) & (self.concentration0 > 0), "concentrations are positive")

    def _moment(self, n: int) -> Tensor:
        a, b = 1 + n / self.concentration1, self.concentration0
        return b * (a.lgamma() + b.lgamma() - (a + b).lgamma()).exp()

    @property
    def mean(self) -> Tensor:
        """b · B(1 + 1/a, b) with a = concentration1, b = concentration0."""
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        """((a - 1)/(ab - 1))^(1/a) for a, b of at least 1, not both 1; else NaN."""
        a, b = self.concentration1, self.concentration0
        found = ((a - 1) / (a * b - 1)).clamp(min=0) ** a.reciprocal()
        return where((a >= 1) & (b >= 1) & (a * b > 1), found, full_like(found, math.nan))

    @property
    def variance(self) -> Tensor:
        """The second moment - the mean²."""
        return self._moment(2) - self._moment(1).square()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random values as a function of both parameters."""
        u = rand(*self._extended(sample_shape), dtype=self.concentration1.dtype, device=self.concentration1.device)
        return between(self.icdf(u))

    def log_prob(self, value: Tensor) -> Tensor:
        """log(ab) + (a - 1) log(value) + (b - 1) log(1 - value^a)."""
        self.require((value >= 0) & (value <= 1), "a value is from 0 to 1")
        a, b = self.concentration1, self.concentration0
        return (a * b).log() + (a - 1).xlogy(value) + (b - 1).xlogy(1 - value**a)

    def cdf(self, value: Tensor) -> Tensor:
        """1 - (1 - value^a)^b; 0 below 0 and 1 above 1."""
        return -(self.concentration0 * (-(value.clamp(0, 1)**self.concentration1)).log1p()).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`."""
        inner = -((-value).log1p() / self.concentration0).expm1()
        return inner.clamp(min=finfo(inner.dtype).tiny) ** self.concentration1.reciprocal()

    def entropy(self) -> Tensor:
        """1 - 1/b + (1 - 1/a) (ψ(b + 1) + Euler's constant) - log(ab)."""
        a, b = self.concentration1, self.concentration0
        return 1 - b.reciprocal() + (1 - a.reciprocal()) * ((b + 1).digamma() + EULER) - (a * b).log()
