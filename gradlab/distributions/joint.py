"""Distributions made of others: of several independent values as one, and mixtures."""

from __future__ import annotations

from typing import Any

from gradlab.distributions.categorical import Categorical
from gradlab.distributions.distribution import Distribution
from gradlab.tensor import Tensor
from gradlab.tensor.size import Size


def summed(x: Tensor, dims: int) -> Tensor:
    """Over the last dimensions."""
    return x.flatten(-dims).sum(-1) if dims else x


class Independent(Distribution):
    """The last dimensions of another's batch are one value: log_prob and entropy are summed over them.

    >>> import gradlab as gl
    >>> d = gl.distributions.Independent(gl.distributions.Normal(gl.zeros(3), gl.ones(3)), 1)
    >>> d.batch_shape, d.event_shape, d.log_prob(gl.zeros(3))
    ((), (3,), tensor(-2.7568))
    """

    batched = ("base_dist",)

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None) -> None:
        rank = len(base_distribution.batch_shape)
        if not 0 <= reinterpreted_batch_ndims <= rank:
            raise ValueError(f"Independent: reinterpreted_batch_ndims is 0 to {rank}, not {reinterpreted_batch_ndims}")
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, reinterpreted_batch_ndims
        shape, cut = (*base_distribution.batch_shape, *base_distribution.event_shape), rank - reinterpreted_batch_ndims
        super().__init__(shape[:cut], shape[cut:], validate_args)

    has_rsample = property(lambda self: self.base_dist.has_rsample)
    has_enumerate_support = property(lambda self: self.base_dist.has_enumerate_support)
    mean = property(lambda self: self.base_dist.mean)
    mode = property(lambda self: self.base_dist.mode)
    variance = property(lambda self: self.base_dist.variance)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """As the base."""
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """As the base."""
        return self.base_dist.rsample(sample_shape)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """The base's values. NotImplementedError where batch dimensions became part of one value, whose combinations are too many."""
        if self.reinterpreted_batch_ndims:
            raise NotImplementedError("Independent: enumerate_support does not combine a batch's values; enumerate the base's")
        return self.base_dist.enumerate_support(expand)

    def _check_shape(self, value: Any) -> None:
        """The base looks at it: as in PyTorch, a value that only broadcasts is one for all that are one event."""

    def log_prob(self, value: Tensor) -> Tensor:
        """The base's, summed."""
        return summed(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        """The base's, summed."""
        return summed(self.base_dist.entropy(), self.reinterpreted_batch_ndims)


class MixtureSameFamily(Distribution):
    """One of several distributions of a kind, the last dimension of `component_distribution`'s batch, chosen by a `Categorical`.

    >>> import gradlab as gl
    >>> from gradlab.distributions import Categorical, MixtureSameFamily, Normal
    >>> m = MixtureSameFamily(Categorical(gl.ones(2)), Normal(gl.tensor([-1.0, 1.0]), gl.ones(2)))
    >>> m.mean, m.variance
    (tensor(0.), tensor(2.))
    """

    def __init__(
        self, mixture_distribution: Categorical, component_distribution: Distribution, validate_args: bool | None = None
    ) -> None:
        batch = component_distribution.batch_shape
        if not isinstance(mixture_distribution, Categorical) or not isinstance(component_distribution, Distribution):
            raise ValueError("MixtureSameFamily: a Categorical and a Distribution are expected")
        if not batch or batch[-1] != mixture_distribution.num_events:
            raise ValueError(f"MixtureSameFamily: {mixture_distribution.num_events} weights for components of batch shape {batch}")
        self.mixture_distribution, self.component_distribution = mixture_distribution, component_distribution
        super().__init__(batch[:-1], component_distribution.event_shape, validate_args)

    _mixture_distribution = property(lambda self: self.mixture_distribution)
    _component_distribution = property(lambda self: self.component_distribution)
    _num_component = property(lambda self: self.mixture_distribution.num_events)
    _event_ndims = property(lambda self: len(self._event_shape))

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """Its components and weights, expanded."""
        shape = Size(batch_shape)
        twin = super().expand(shape, _instance)
        twin.component_distribution = self.component_distribution.expand((*shape, self._num_component))
        twin.mixture_distribution = self.mixture_distribution.expand(shape)
        return twin

    def _weighted(self, x: Tensor) -> Tensor:
        dims = len(self._event_shape)
        probs = self.mixture_distribution.probs
        return (probs.reshape(*probs.shape, *[1] * dims) * x).sum(-1 - dims)

    @property
    def mean(self) -> Tensor:
        """The weighted mean."""
        return self._weighted(self.component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        """The weighted variance + the variance of the means."""
        means = self.component_distribution.mean
        middle = self._weighted(means).unsqueeze(-1 - len(self._event_shape))
        return self._weighted(self.component_distribution.variance) + self._weighted((means - middle).square())

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """A component's value each."""
        dims = len(self._event_shape)
        values = self.component_distribution.sample(sample_shape)
        chosen = self.mixture_distribution.expand(self._batch_shape).sample(sample_shape)
        index = chosen.reshape(*chosen.shape, 1, *[1] * dims).expand(*chosen.shape, 1, *self._event_shape)
        return values.gather(-1 - dims, index).squeeze(-1 - dims)

    def log_prob(self, value: Tensor) -> Tensor:
        """log Σ of the weighted densities."""
        parts = self.component_distribution.log_prob(value.unsqueeze(-1 - len(self._event_shape)))
        return (parts + self.mixture_distribution.probs.log()).logsumexp(-1)

    def cdf(self, value: Tensor) -> Tensor:
        """The weighted ones."""
        return (self.component_distribution.cdf(value.unsqueeze(-1)) * self.mixture_distribution.probs).sum(-1)
