"""Distributions of what a transform makes of another distribution's values, with those of normal and gamma variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradlab.autograd.mode import no_grad
from gradlab.distributions.distribution import Distribution, readable
from gradlab.distributions.element_transforms import ExpTransform, PowerTransform, StickBreakingTransform
from gradlab.distributions.gamma import Gamma
from gradlab.distributions.joint import Independent, summed
from gradlab.distributions.normal import Normal
from gradlab.distributions.transform import ComposeTransform, Transform
from gradlab.dtype import finfo
from gradlab.tensor import Tensor
from gradlab.tensor.creation import full_like
from gradlab.tensor.where import where


class TransformedDistribution(Distribution):
    """What one transform, or several one after the other, make of the values of `base_distribution`.

    >>> from gradlab.distributions import AffineTransform, Normal, TransformedDistribution
    >>> t = TransformedDistribution(Normal(0.0, 1.0), [AffineTransform(3.0, 2.0)])
    >>> t.log_prob(gl.tensor(3.0)), Normal(3.0, 2.0).log_prob(gl.tensor(3.0))
    (tensor(-1.6121), tensor(-1.6121))
    """

    batched: Sequence[str] = ("base_dist",)
    base_dist: Any

    def __init__(
        self, base_distribution: Distribution, transforms: Transform | Sequence[Transform], validate_args: bool | None = None
    ) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise ValueError("TransformedDistribution: transforms is a Transform or a list of them")
        whole = ComposeTransform(self.transforms)
        shape = (*base_distribution.batch_shape, *base_distribution.event_shape)
        if len(shape) < whole.dim_in:
            raise ValueError(f"TransformedDistribution: {whole.dim_in} dimensions are one value, but the base has shape {shape}")
        after = whole.forward_shape(shape)
        before = whole.inverse_shape(after)
        if before != shape:
            base_distribution = base_distribution.expand(before[: len(before) - len(base_distribution.event_shape)])
        more = whole.dim_in - len(base_distribution.event_shape)
        self.base_dist = Independent(base_distribution, more) if more > 0 else base_distribution
        dims = whole.dim_out + max(len(self.base_dist.event_shape) - whole.dim_in, 0)
        cut = len(after) - dims
        super().__init__(after[:cut], after[cut:], validate_args)

    has_rsample = property(lambda self: self.base_dist.has_rsample)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Random values, outside of the graph."""
        with no_grad():
            x = self.base_dist.sample(sample_shape)
            for t in self.transforms:
                x = t(x)
            return x

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random values as a function of the base's parameters and the transforms'."""
        x = self.base_dist.rsample(sample_shape)
        for t in self.transforms:
            x = t(x)
        return x

    def log_prob(self, value: Tensor) -> Tensor:
        """The base's at the value before the transforms, less the logarithm of how they stretch space."""
        if self._validate_args and readable():
            self.require(self.support.check(value), f"a value is within the support, {self.support!r}")
        found: Any = 0.0
        dims, y = len(self._event_shape), value
        for t in reversed(self.transforms):
            x = t._inv_call(y)
            dims += t.dim_in - t.dim_out
            found = found - summed(t.log_abs_det_jacobian(x, y), dims - t.dim_in)
            y = x
        return found + summed(self.base_dist.log_prob(y), dims - len(self.base_dist.event_shape))

    def _sign(self) -> Any:
        sign = ComposeTransform(self.transforms).sign
        return 0.5 * (sign - 1), sign  # sign · p + (1 - sign)/2: p where they rise, 1 - p where they fall

    def cdf(self, value: Tensor) -> Tensor:
        """The base's at the value before the transforms."""
        for t in reversed(self.transforms):
            value = t._inv_call(value)
        shift, sign = self._sign()
        return sign * (self.base_dist.cdf(value) + shift)

    def icdf(self, value: Tensor) -> Tensor:
        """The transforms of the base's."""
        shift, sign = self._sign()
        x = self.base_dist.icdf(sign * value - shift)
        for t in self.transforms:
            x = t(x)
        return x


class Formulated(TransformedDistribution):
    """One whose samples, densities and quantiles have formulas of their own, more accurate than the steps of its transforms."""

    has_rsample = True

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Random values, outside of the graph."""
        with no_grad():
            return self.rsample(sample_shape)


class LogisticNormal(TransformedDistribution):
    """Shares whose sum is 1, made of normal variables by breaking a stick; one more than `loc` has numbers.

    >>> from gradlab.distributions import LogisticNormal
    >>> LogisticNormal(gl.zeros(3), gl.ones(3)).sample().shape
    (4,)
    """

    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args)
        super().__init__(base if base.batch_shape else base.expand((1,)), StickBreakingTransform(), validate_args)

    loc = property(lambda self: self.base_dist.base_dist.loc)
    scale = property(lambda self: self.base_dist.base_dist.scale)


class LogNormal(Formulated):
    """exp of a normal variable.

    >>> import gradlab as gl
    >>> gl.distributions.LogNormal(0.0, 1.0).mean
    tensor(1.6487)
    """

    base_dist: Normal

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args), ExpTransform(), validate_args)

    loc = property(lambda self: self.base_dist.loc)
    scale = property(lambda self: self.base_dist.scale)

    @property
    def mean(self) -> Tensor:
        """exp(loc + scale²/2)."""
        return (self.base_dist.loc + self.base_dist.variance / 2).exp()

    @property
    def mode(self) -> Tensor:
        """exp(loc - scale²)."""
        return (self.base_dist.loc - self.base_dist.variance).exp()

    @property
    def variance(self) -> Tensor:
        """(exp(scale²) - 1) exp(2 loc + scale²)."""
        squared = self.base_dist.variance
        return squared.expm1() * (2 * self.base_dist.loc + squared).exp()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random values as a function of loc and scale."""
        return self.base_dist.rsample(sample_shape).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        """That of the logarithm, less the logarithm."""
        self.require(value > 0, "a value is positive")
        return self.base_dist.log_prob(value.log()) - value.log()

    def cdf(self, value: Tensor) -> Tensor:
        """That of the logarithm; 0 of what is negative."""
        return self.base_dist.cdf(value.clamp(min=0).log())

    def icdf(self, value: Tensor) -> Tensor:
        """exp of the normal quantile."""
        return self.base_dist.icdf(value).exp()

    def entropy(self) -> Tensor:
        """The normal one + loc."""
        return self.base_dist.entropy() + self.base_dist.loc


class InverseGamma(Formulated):
    """1 / a gamma variable: `rate` is the scale.

    >>> import gradlab as gl
    >>> gl.distributions.InverseGamma(3.0, 4.0).mean
    tensor(2.)
    """

    base_dist: Gamma

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args)
        super().__init__(base, PowerTransform(-base.rate.new_ones(())), validate_args)

    concentration = property(lambda self: self.base_dist.concentration)
    rate = property(lambda self: self.base_dist.rate)

    @property
    def mean(self) -> Tensor:
        """rate / (c - 1), infinite for c <= 1."""
        c = self.base_dist.concentration
        return where(c > 1, self.base_dist.rate / (c - 1).clamp(min=finfo(c.dtype).tiny), full_like(c, math.inf))

    @property
    def mode(self) -> Tensor:
        """rate / (c + 1)."""
        return self.base_dist.rate / (self.base_dist.concentration + 1)

    @property
    def variance(self) -> Tensor:
        """rate² / ((c - 1)² (c - 2)), infinite for c <= 2."""
        c = self.base_dist.concentration
        found = self.base_dist.rate.square() / ((c - 1).square() * (c - 2))
        return where(c > 2, found, full_like(c, math.inf))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random values as a function of both parameters."""
        return self.base_dist.rsample(sample_shape).reciprocal()

    def log_prob(self, value: Tensor) -> Tensor:
        """c log(rate) - (c + 1) log(value) - rate / value - log Γ(c)."""
        self.require(value > 0, "a value is positive")
        c, rate = self.base_dist.concentration, self.base_dist.rate
        return c * rate.log() - (c + 1) * value.log() - rate / value - c.lgamma()

    def cdf(self, value: Tensor) -> Tensor:
        """1 - that of the gamma variable at 1 / value."""
        return 1 - self.base_dist.cdf(value.reciprocal())

    def entropy(self) -> Tensor:
        """c + log(rate) + log Γ(c) - (1 + c) ψ(c)."""
        c = self.base_dist.concentration
        return c + self.base_dist.rate.log() + c.lgamma() - (1 + c) * c.digamma()
