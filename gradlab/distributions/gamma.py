"""The gamma distribution and what is made of gamma variables. Formulas: the definitions, and Abramowitz and Stegun, chapters 6 and 26."""

from __future__ import annotations

import math
from typing import Any

from gradlab.distributions.distribution import Distribution, broadcast
from gradlab.distributions.exp_family import ExponentialFamily
from gradlab.distributions.gamma_samples import log_gamma_samples
from gradlab.distributions.utils import log_one_plus_square
from gradlab.dtype import finfo
from gradlab.nn.functional import one_hot
from gradlab.tensor import Tensor
from gradlab.tensor.creation import full_like
from gradlab.tensor.random import randn
from gradlab.tensor.shape import stack
from gradlab.tensor.special import igamma
from gradlab.tensor.where import where


def between(x: Tensor) -> Tensor:
    """Away from 0 and 1, to which small and large numbers are rounded."""
    info = finfo(x.dtype)
    return x.clamp(info.tiny, 1 - info.eps / 2)


def from_tiny(x: Tensor) -> Tensor:
    """Away from 0, to which small numbers are rounded."""
    return x.clamp(min=finfo(x.dtype).tiny)


def log_beta(a: Tensor, b: Tensor) -> Tensor:
    """log of the beta function."""
    return a.lgamma() + b.lgamma() - (a + b).lgamma()


class Gamma(ExponentialFamily):
    """The time until an event that happens `rate` times in a unit of it has happened `concentration` times.

    >>> import gradlab as gl
    >>> g = gl.distributions.Gamma(2.0, 1.0)
    >>> g.mean, g.log_prob(gl.tensor(1.0))
    (tensor(2.), tensor(-1.))
    """

    has_rsample = True
    batched = ("concentration", "rate")

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast(concentration, rate)
        super().__init__(self.concentration.shape, (), validate_args)
        self.require((self.concentration > 0) & (self.rate > 0), "concentration and rate are positive")

    @property
    def mean(self) -> Tensor:
        """concentration / rate."""
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        """(concentration - 1) / rate, at least 0."""
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        """concentration / rate²."""
        return self.concentration / self.rate.square()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random values as a function of both parameters; see `gamma_samples`."""
        return from_tiny(log_gamma_samples(self.concentration, self._extended(sample_shape)).exp() / self.rate)

    def log_prob(self, value: Tensor) -> Tensor:
        """c log(rate) + (c - 1) log(value) - rate · value - log Γ(c)."""
        self.require(value >= 0, "a value is not negative")
        c = self.concentration
        return c.xlogy(self.rate) + (c - 1).xlogy(value) - self.rate * value - c.lgamma()

    def cdf(self, value: Tensor) -> Tensor:
        """The incomplete gamma function of rate · value."""
        self.require(value >= 0, "a value is not negative")
        return igamma(*broadcast(self.concentration, self.rate * value))

    def entropy(self) -> Tensor:
        """c - log(rate) + log Γ(c) + (1 - c) ψ(c)."""
        c = self.concentration
        return c - self.rate.log() + c.lgamma() + (1 - c) * c.digamma()


class Chi2(Gamma):
    """The sum of the squares of `df` standard normal variables.

    >>> import gradlab as gl
    >>> gl.distributions.Chi2(3.0).mean
    tensor(3.)
    """

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        (df,) = broadcast(df)
        super().__init__(0.5 * df, 0.5, validate_args)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return self.concentration * 2


class Beta(ExponentialFamily):
    """A share between 0 and 1, with a density of x^(concentration1 - 1) · (1 - x)^(concentration0 - 1) up to a factor.

    >>> import gradlab as gl
    >>> b = gl.distributions.Beta(2.0, 2.0)
    >>> b.mean, b.log_prob(gl.tensor(0.5)).exp()
    (tensor(0.5000), tensor(1.5000))
    """

    has_rsample = True
    batched = ("concentration1", "concentration0")

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast(concentration1, concentration0)
        super().__init__(self.concentration1.shape, (), validate_args)
        self.require((self.concentration1 > 0) & (self.concentration0 > 0), "concentrations are positive")

    @property
    def _dirichlet(self) -> Dirichlet:
        return Dirichlet(stack([self.concentration1, self.concentration0], -1), validate_args=False)

    @property
    def mean(self) -> Tensor:
        """c1 / (c1 + c0)."""
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        """(c1 - 1) / (c1 + c0 - 2) where both are above 1, else the end that is likelier."""
        up, down = (self.concentration1 - 1).clamp(min=0), (self.concentration0 - 1).clamp(min=0)
        ends = (self.concentration1 >= self.concentration0).to(up.dtype)
        return where(up + down > 0, up / from_tiny(up + down), ends)

    @property
    def variance(self) -> Tensor:
        """c1 c0 / (s² (s + 1)) with s = c1 + c0."""
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """The share of one gamma variable in the sum of two."""
        shape = self._extended(sample_shape)
        return between((log_gamma_samples(self.concentration1, shape) - log_gamma_samples(self.concentration0, shape)).sigmoid())

    def log_prob(self, value: Tensor) -> Tensor:
        """(c1 - 1) log(value) + (c0 - 1) log(1 - value) - log B(c1, c0)."""
        self.require((value >= 0) & (value <= 1), "a value is from 0 to 1")
        one, other = self.concentration1, self.concentration0
        return (one - 1).xlogy(value) + (other - 1).xlogy(1 - value) - log_beta(one, other)

    def entropy(self) -> Tensor:
        """log B - (c1 - 1) ψ(c1) - (c0 - 1) ψ(c0) + (s - 2) ψ(s) with s = c1 + c0."""
        one, other = self.concentration1, self.concentration0
        total = one + other
        return log_beta(one, other) - (one - 1) * one.digamma() - (other - 1) * other.digamma() + (total - 2) * total.digamma()


class Dirichlet(ExponentialFamily):
    """Shares whose sum is 1, along the last dimension of `concentration`.

    >>> import gradlab as gl
    >>> d = gl.distributions.Dirichlet(gl.tensor([1.0, 1.0, 2.0]))
    >>> d.mean, d.event_shape
    (tensor([0.2500, 0.2500, 0.5000]), (3,))
    """

    has_rsample = True
    batched = ("concentration",)

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if not isinstance(concentration, Tensor) or concentration.ndim < 1:
            raise ValueError("Dirichlet: concentration is a tensor with at least one dimension")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)
        self.require(concentration > 0, "concentration is positive")

    @property
    def mean(self) -> Tensor:
        """Each concentration's share in their sum."""
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def mode(self) -> Tensor:
        """The shares of what the concentrations have above 1; all of it for the largest where none has."""
        above = (self.concentration - 1).clamp(min=0)
        total = above.sum(-1, keepdim=True)
        largest = one_hot(self.concentration.argmax(-1), self._event_shape[0]).to(above.dtype)
        return where(total > 0, above / from_tiny(total), largest)

    @property
    def variance(self) -> Tensor:
        """m (1 - m) / (s + 1) with the mean m and the sum s."""
        mean = self.mean
        return mean * (1 - mean) / (self.concentration.sum(-1, keepdim=True) + 1)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Each gamma variable's share in their sum."""
        return from_tiny(log_gamma_samples(self.concentration, self._extended(sample_shape)).softmax(-1))

    def log_prob(self, value: Tensor) -> Tensor:
        """Σ (c - 1) log(value) + log Γ(Σ c) - Σ log Γ(c)."""
        self.require((value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-5), "a value is shares whose sum is 1")
        c = self.concentration
        return (c - 1).xlogy(value).sum(-1) + c.sum(-1).lgamma() - c.lgamma().sum(-1)

    def entropy(self) -> Tensor:
        """Σ log Γ(c) - log Γ(s) - (k - s) ψ(s) - Σ (c - 1) ψ(c) with s = Σ c."""
        c, number = self.concentration, self._event_shape[0]
        total = c.sum(-1)
        return c.lgamma().sum(-1) - total.lgamma() - (number - total) * total.digamma() - ((c - 1) * c.digamma()).sum(-1)


class StudentT(Distribution):
    """loc + scale · a normal variable over the root of a Chi2 variable's mean square, with `df` degrees of freedom.

    >>> import gradlab as gl
    >>> gl.distributions.StudentT(4.0).variance
    tensor(2.)
    """

    has_rsample = True
    batched = ("df", "loc", "scale")

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = broadcast(df, loc, scale)
        super().__init__(self.df.shape, (), validate_args)
        self.require((self.df > 0) & (self.scale > 0), "df and scale are positive")

    @property
    def _chi2(self) -> Chi2:
        return Chi2(self.df, validate_args=False)

    @property
    def mean(self) -> Tensor:
        """loc; NaN for df <= 1."""
        return where(self.df > 1, self.loc, full_like(self.loc, math.nan))

    @property
    def mode(self) -> Tensor:
        """loc."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """scale² df / (df - 2); infinite for df <= 2, NaN for df <= 1."""
        df = self.df
        finite = self.scale.square() * df / (df - 2)
        return where(df > 2, finite, where(df > 1, full_like(df, math.inf), full_like(df, math.nan)))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random values as a function of the three parameters."""
        shape = self._extended(sample_shape)
        z = randn(*shape, dtype=self.loc.dtype, device=self.loc.device)
        half = 0.5 * self.df
        return self.loc + self.scale * z * (-0.5 * (log_gamma_samples(half, shape) - half.log())).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        """-(df + 1)/2 · log(1 + z²/df) - log(scale) - log(df)/2 - log B(1/2, df/2)."""
        self.require(~value.isnan(), "a value is a real number, not NaN")
        z, half = (value - self.loc) / self.scale, 0.5 * self.df
        norm = self.scale.log() + 0.5 * self.df.log() + log_beta(full_like(half, 0.5), half)
        return -(half + 0.5) * log_one_plus_square(z / self.df.sqrt()) - norm

    def entropy(self) -> Tensor:
        """log(scale) + (df + 1)/2 · (ψ((df + 1)/2) - ψ(df/2)) + log(df)/2 + log B(1/2, df/2)."""
        half = 0.5 * self.df
        spread = (half + 0.5) * ((half + 0.5).digamma() - half.digamma())
        return self.scale.log() + spread + 0.5 * self.df.log() + log_beta(full_like(half, 0.5), half)
