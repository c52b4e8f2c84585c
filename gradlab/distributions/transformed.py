"""Distributions of what a transform makes of another distribution's values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradlab.autograd.mode import no_grad
from gradlab.distributions.distribution import Distribution
from gradlab.distributions.element_transforms import StickBreakingTransform
from gradlab.distributions.joint import Independent, summed
from gradlab.distributions.normal import Normal
from gradlab.distributions.transform import ComposeTransform, Transform
from gradlab.tensor import Tensor


class TransformedDistribution(Distribution):
    """What one transform, or several one after the other, make of the values of `base_distribution`.

    >>> from gradlab.distributions import AffineTransform, Normal, TransformedDistribution
    >>> t = TransformedDistribution(Normal(0.0, 1.0), [AffineTransform(3.0, 2.0)])
    >>> t.log_prob(gl.tensor(3.0)), Normal(3.0, 2.0).log_prob(gl.tensor(3.0))
    (tensor(-1.6121), tensor(-1.6121))
    """

    batched = ("base_dist",)

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
        self.has_rsample = self.base_dist.has_rsample

    def expand(self, batch_shape: Any, _instance: Any = None) -> TransformedDistribution:
        """The same distribution with its parameters expanded to that batch shape. _instance: an empty object that becomes it."""
        whole, shape = ComposeTransform(self.transforms), tuple(batch_shape)
        before = whole.inverse_shape((*shape, *self._event_shape))
        base = self.base_dist.expand(before[: len(before) - len(self.base_dist.event_shape)])
        if _instance is None:
            return TransformedDistribution(base, self.transforms, self._validate_args)
        TransformedDistribution.__init__(_instance, base, self.transforms, self._validate_args)
        _instance.__dict__.update({name: value for name, value in self.__dict__.items() if name not in _instance.__dict__})
        found: TransformedDistribution = _instance
        return found

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


class LogisticNormal(TransformedDistribution):
    """Shares whose sum is 1, made of normal variables by breaking a stick; one more than `loc` has numbers.

    >>> from gradlab.distributions import LogisticNormal
    >>> LogisticNormal(gl.zeros(3), gl.ones(3)).sample().shape
    (4,)
    """

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args)
        super().__init__(base if base.batch_shape else base.expand((1,)), StickBreakingTransform(), validate_args)

    loc = property(lambda self: self.base_dist.base_dist.loc)
    scale = property(lambda self: self.base_dist.base_dist.scale)
