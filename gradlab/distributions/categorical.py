"""Distributions of classes, given by probabilities or by logits along the last dimension."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradlab.distributions.discrete import GivenEither, clamped, one_of
from gradlab.distributions.distribution import Distribution, broadcast
from gradlab.distributions.rounding import derived
from gradlab.dtype import finfo, int64
from gradlab.nn.functional import one_hot
from gradlab.spec import broadcast_shapes
from gradlab.tensor import Tensor
from gradlab.tensor.creation import arange, full_like
from gradlab.tensor.random import multinomial
from gradlab.tensor.rounding import rounds_once


@rounds_once
def _shares(probs: Tensor) -> Tensor:
    """Probabilities that add up to 1."""
    return probs / probs.sum(-1, keepdim=True)


@rounds_once
def _log_shares(logits: Tensor) -> Tensor:
    """Logarithms of probabilities that add up to 1."""
    return logits - logits.logsumexp(-1, keepdim=True)


class Categorical(GivenEither):
    """A class from 0, with probabilities proportional to `probs`, or to exp(`logits`), along the last dimension.

    >>> import gradlab as gl
    >>> c = gl.distributions.Categorical(probs=gl.tensor([1.0, 3.0]))
    >>> c.probs, c.log_prob(gl.tensor(1))
    (tensor([0.2500, 0.7500]), tensor(-0.2877))
    """

    has_enumerate_support = True
    batched = ("probs", "logits")

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None) -> None:
        one_of(type(self).__name__, probs, logits)
        given: Any = logits if probs is None else probs
        if not isinstance(given, Tensor) or given.ndim < 1:
            raise ValueError(f"{type(self).__name__}: probs and logits are tensors with at least one dimension")
        super().__init__(given.shape[:-1], (), validate_args)
        if probs is not None:
            self.require((probs >= 0) & (probs.sum(-1, keepdim=True) > 0), "probs are not negative, and not all 0")
            self.probs = _shares(probs)
        else:
            self.require(~given.isnan(), "logits are no NaN")
            self.logits = _log_shares(given)

    @derived
    def probs(self) -> Tensor:
        """The probabilities."""
        found: Tensor = self._logits.softmax(-1)
        return found

    @derived
    def logits(self) -> Tensor:
        """Their logarithms."""
        return clamped(self._probs).log()

    @property
    def num_events(self) -> int:
        """The number of classes."""
        return int(self._param.shape[-1])

    @property
    def _num_events(self) -> int:
        return self.num_events

    @property
    def mean(self) -> Tensor:
        """NaN: classes have no mean."""
        return full_like(self.probs[..., 0], float("nan"))

    @property
    def mode(self) -> Tensor:
        """The likeliest class."""
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Tensor:
        """NaN: classes have no distances."""
        return full_like(self.probs[..., 0], float("nan"))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Classes, int64."""
        sample_shape, number = tuple(sample_shape), 1
        for size in sample_shape:
            number *= size
        rows = self.probs.detach().reshape(-1, self.num_events)
        return multinomial(rows, number, True).mT.reshape(*sample_shape, *self._batch_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """The class's logit, -inf where its probability is 0."""
        whole = (value >= 0) & (value < self.num_events) & (value == value.floor())
        self.require(whole, f"a value is a class from 0 to {self.num_events - 1}")
        given = self._param
        shape = broadcast_shapes(value.shape, given.shape[:-1])
        index = value.to(int64).expand(shape).unsqueeze(-1)
        found = given.expand(*shape, self.num_events).gather(-1, index).squeeze(-1)
        return found if self._probs is None else found.log()

    def entropy(self) -> Tensor:
        """-Σ p log(p)."""
        logits = self.logits
        return -(self.probs * logits.clamp(min=finfo(logits.dtype).min)).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All classes."""
        values = arange(self.num_events, device=self.probs.device).reshape(-1, *[1] * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values


class OfClasses(Distribution):
    """Base of distributions that a `Categorical` gives the probabilities of."""

    batched = ("_categorical",)
    _categorical: Categorical

    probs = property(lambda self: self._categorical.probs)
    logits = property(lambda self: self._categorical.logits)
    param_shape = property(lambda self: self._categorical.param_shape)
    _param = property(lambda self: self._categorical._param)


class OneHotCategorical(OfClasses):
    """As `Categorical`, with a vector for a class: 1 at its place, else 0.

    >>> import gradlab as gl
    >>> gl.distributions.OneHotCategorical(probs=gl.tensor([1.0, 3.0])).log_prob(gl.tensor([0.0, 1.0]))
    tensor(-0.2877)
    """

    has_enumerate_support = True

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None) -> None:
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, (self._categorical.num_events,), validate_args)

    @property
    def mean(self) -> Tensor:
        """The probabilities."""
        return self.probs

    @property
    def mode(self) -> Tensor:
        """The likeliest class."""
        return one_hot(self.probs.argmax(-1), self._event_shape[0]).to(self.probs.dtype)

    @property
    def variance(self) -> Tensor:
        """probs (1 - probs)."""
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Vectors of the parameters' dtype."""
        return one_hot(self._categorical.sample(sample_shape), self._event_shape[0]).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """The class's logit."""
        self.require((value.sum(-1) == 1) & ((value == 0) | (value == 1)).all(-1), "a value is a vector with one 1")
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        """-Σ p log(p)."""
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All classes' vectors."""
        values = one_hot(arange(self._event_shape[0], device=self.probs.device), self._event_shape[0]).to(self.probs.dtype)
        values = values.reshape(self._event_shape[0], *[1] * len(self._batch_shape), self._event_shape[0])
        return values.expand(self._event_shape[0], *self._batch_shape, self._event_shape[0]) if expand else values


class Multinomial(OfClasses):
    """How often each class occurs among `total_count` draws.

    >>> import gradlab as gl
    >>> m = gl.distributions.Multinomial(2, gl.tensor([0.5, 0.5]))
    >>> m.log_prob(gl.tensor([1.0, 1.0])).exp(), m.sample().sum()
    (tensor(0.5000), tensor(2.))
    """

    def __init__(
        self, total_count: int = 1, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(total_count, (int, np.integer)) or total_count < 0:
            raise ValueError(f"Multinomial: total_count is an integer that is not negative, not {total_count!r}")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, (self._categorical.num_events,), validate_args)

    @property
    def mean(self) -> Tensor:
        """total_count · probs."""
        return self.total_count * self._categorical.probs

    @property
    def variance(self) -> Tensor:
        """total_count · probs (1 - probs)."""
        return self.total_count * self._categorical.probs * (1 - self._categorical.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Counts of the parameters' dtype."""
        drawn = self._categorical.sample((self.total_count, *tuple(sample_shape)))
        return one_hot(drawn, self._event_shape[0]).sum(0).to(self._categorical.probs.dtype)

    def entropy(self) -> Tensor:
        """n H(probs) - log n! + Σ E[log count!]; each count is a binomial number."""
        n, p = self.total_count, self._categorical.probs
        counts = arange(n + 1, dtype=p.dtype, device=p.device).reshape(-1, *[1] * len(p.shape))
        whole = float(math.lgamma(n + 1))
        ways = whole - (counts + 1).lgamma() - (n - counts + 1).lgamma()
        chance = (ways + counts.xlogy(p) + (n - counts).xlogy(1 - p)).exp()
        return n * self._categorical.entropy() - whole + (chance * (counts + 1).lgamma()).sum((0, -1))

    def log_prob(self, value: Tensor) -> Tensor:
        """log of the multinomial coefficient + Σ value · log(probs)."""
        self.require((value >= 0).all(-1) & (value.sum(-1) == self.total_count), "a value is counts whose sum is total_count")
        coefficient = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        if self._categorical._probs is not None:
            return coefficient + value.xlogy(self._categorical._probs).sum(-1)
        logits, value = broadcast(self._categorical.logits, value)
        return coefficient + (logits.masked_fill((value == 0) & (logits == -float("inf")), 0) * value).sum(-1)
