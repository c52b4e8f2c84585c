"""Distributions of whole numbers, those of trials given by a probability or by its log-odds."""

from __future__ import annotations

from typing import Any

from gradlab.distributions.distribution import Distribution, broadcast
from gradlab.distributions.exp_family import ExponentialFamily
from gradlab.distributions.rounding import derived
from gradlab.dtype import finfo, from_numpy, promote
from gradlab.nn.functional import logsigmoid
from gradlab.special import xlog1py
from gradlab.tensor import Tensor
from gradlab.tensor.creation import arange, full_like, zeros_like
from gradlab.tensor.random import bernoulli, poisson, rand
from gradlab.tensor.where import where


def clamped(probs: Tensor) -> Tensor:
    """Away from 0 and 1, where logarithms are infinite."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


def one_of(name: str, probs: Any, logits: Any) -> None:
    """Raise ValueError unless exactly one is given."""
    if (probs is None) == (logits is None):
        raise ValueError(f"{name}: either probs or logits is given")


class GivenEither(Distribution):
    """A distribution that was given probabilities or logits."""

    _probs: Any = property(lambda self: self.__dict__.get("probs"))  # what was given, or None
    _logits: Any = property(lambda self: self.__dict__.get("logits"))

    @property
    def _param(self) -> Tensor:
        found: Tensor = self._logits if self._probs is None else self._probs
        return found

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter that was given."""
        return self._param.shape


class Odds(GivenEither):
    """With the probability of a success, `probs`, or its log-odds, `logits`; each is computed of the other."""

    @derived
    def probs(self) -> Tensor:
        """The probability of a success."""
        found: Tensor = self._logits.sigmoid()
        return found

    @derived
    def logits(self) -> Tensor:
        """log(probs / (1 - probs))."""
        p = clamped(self._probs)
        return p.log() - (-p).log1p()

    def _give(self, probs: Any, given: Tensor) -> None:
        """Keep the parameter under its own name: the probability, or the log-odds where there is none."""
        self.__dict__["logits" if probs is None else "probs"] = given

    @property
    def _failure(self) -> Tensor:
        """1 - probs, in its own digits where logits are given."""
        return (-self._logits).sigmoid() if self._probs is None else 1 - self._probs

    @property
    def _odds(self) -> Tensor:
        """probs / (1 - probs)."""
        return self._logits.exp() if self._probs is None else self._probs / (1 - self._probs)

    def _weighted(self, successes: Any, failures: Any) -> Tensor:
        """successes · log(probs) + failures · log(1 - probs), in which nothing of what cannot be counts nothing."""
        if self._probs is not None:
            return successes.xlogy(self._probs) + xlog1py(failures, -self._probs)
        found: Tensor = _times(successes, logsigmoid(self._logits)) + _times(failures, logsigmoid(-self._logits))
        return found


def _times(count: Any, logarithm: Any) -> Any:
    return count * where((count == 0) & logarithm.isinf(), 0.0, logarithm)


class _Binary(Odds):
    """With nothing else."""

    batched: tuple[str, ...] = ("probs", "logits")

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        one_of(type(self).__name__, probs, logits)
        (given,) = broadcast(logits if probs is None else probs)
        self._give(probs, given)
        super().__init__(given.shape, (), validate_args)
        if probs is not None:
            self.require((given >= 0) & (given <= 1), "probs are from 0 to 1")

    def _binary_entropy(self) -> Tensor:
        return -self._weighted(self.probs, self._failure)


class Bernoulli(_Binary, ExponentialFamily):
    """1 with the probability `probs`, else 0.

    >>> import gradlab as gl
    >>> b = gl.distributions.Bernoulli(gl.tensor([0.5, 0.9]))
    >>> b.log_prob(gl.tensor([1.0, 1.0]))
    tensor([-0.6931, -0.1054])
    """

    has_enumerate_support = True

    @property
    def mean(self) -> Tensor:
        """probs."""
        return self.probs

    @property
    def variance(self) -> Tensor:
        """probs (1 - probs)."""
        return self.probs * (1 - self.probs)

    @property
    def mode(self) -> Tensor:
        """1 where probs is more than 1/2, 0 where it is less; NaN at 1/2, which has two."""
        return (self.probs > 0.5).to(self.probs.dtype).masked_fill(self.probs == 0.5, float("nan"))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """0s and 1s of the parameters' dtype."""
        return bernoulli(self.probs.detach().expand(self._extended(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        """log(probs) at 1, log(1 - probs) at 0; -inf for what cannot be."""
        self.require((value == 0) | (value == 1), "a value is 0 or 1")
        value = value.to(from_numpy(promote(self.probs._array.dtype, value._array.dtype)))
        return self._weighted(value, 1 - value)

    def entropy(self) -> Tensor:
        """-Σ p log(p) of both values."""
        return self._binary_entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """0 and 1."""
        both = arange(2, dtype=self.probs.dtype, device=self.probs.device).reshape(2, *[1] * len(self._batch_shape))
        return both.expand(2, *self._batch_shape) if expand else both


class Geometric(_Binary):
    """The number of failures before the first success.

    >>> import gradlab as gl
    >>> gl.distributions.Geometric(0.5).log_prob(gl.tensor([0.0, 1.0]))
    tensor([-0.6931, -1.3863])
    """

    @property
    def mean(self) -> Tensor:
        """1/probs - 1."""
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        """0."""
        return zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        """(1/probs - 1) / probs."""
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Whole numbers of the parameters' dtype."""
        p = self.probs.detach()
        u = rand(*self._extended(sample_shape), dtype=p.dtype, device=p.device).clamp(min=finfo(p.dtype).tiny)
        return (u.log() / (-p).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        """value · log(1 - probs) + log(probs)."""
        self.require(self.support.check(value), "a value is a whole number, not negative")
        return self._weighted(full_like(value, 1.0), value)

    def entropy(self) -> Tensor:
        """That of one trial, divided by probs: -log(probs) - (1 - probs) / probs · log(1 - probs)."""
        p = self.probs
        rest = self._weighted(zeros_like(p), self._failure) / p.masked_fill(p == 0, 1)
        return where(p == 0, 1.0, -rest) - self._weighted(full_like(p, 1.0), zeros_like(p))


class Binomial(_Binary):
    """The number of successes among `total_count` trials: one number for the whole batch, or a tensor of them.

    >>> import gradlab as gl
    >>> gl.distributions.Binomial(2, gl.tensor(0.5)).log_prob(gl.tensor([0.0, 1.0, 2.0])).exp()
    tensor([0.2500, 0.5000, 0.2500])
    >>> gl.distributions.Binomial(gl.tensor([1, 10]), 0.5).mean
    tensor([0.5000, 5.0000])
    """

    has_enumerate_support = True
    batched = ("total_count", *_Binary.batched)

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        one_of("Binomial", probs, logits)
        self._most = None if isinstance(total_count, Tensor) else total_count  # a number is known in a trace, too
        count, given = broadcast(total_count, logits if probs is None else probs)
        self.total_count = count.to(given.dtype)
        super().__init__(None if probs is None else given, given if probs is None else None, validate_args)
        if self._most is None:
            self.require((count >= 0) & (count == count.floor()), "total_count is whole numbers, not negative")
        elif self._most < 0 or self._most % 1:
            raise ValueError(f"Binomial: total_count is whole numbers, not negative: {self._most!r}")

    @property
    def mean(self) -> Tensor:
        """total_count · probs."""
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        """The whole part of (total_count + 1) · probs, at most total_count."""
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Tensor:
        """total_count · probs (1 - probs)."""
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Whole numbers of the parameters' dtype. Of a tensor of counts, the largest is read."""
        shape, most = self._extended(sample_shape), self._largest()
        probs = self.probs.detach()
        if self._most is None:
            trial = arange(most, device=self.total_count.device).reshape(-1, *[1] * len(self._batch_shape)) < self.total_count
            probs = where(trial, probs, 0.0).reshape(most, *[1] * (len(shape) - len(self._batch_shape)), *self._batch_shape)
        return bernoulli(probs.expand(most, *shape)).sum(0)

    def _largest(self) -> int:
        found = self._most if self._most is not None else self.total_count.max() if self.total_count.numel() else 0
        return int(found)

    def log_prob(self, value: Tensor) -> Tensor:
        """log of the binomial coefficient + value · log(probs) + (total_count - value) · log(1 - probs)."""
        self.require((value >= 0) & (value <= self.total_count) & (value == value.floor()), "a value is from 0 to total_count")
        n = self.total_count
        rest = n - value
        coefficient = (n + 1).lgamma() - (value + 1).lgamma() - (rest + 1).lgamma()
        return coefficient + self._weighted(value, rest)

    def entropy(self) -> Tensor:
        """-Σ p log(p) over all values."""
        values = self._values()
        found = self.log_prob(values.clamp(max=self.total_count))
        return -where(values <= self.total_count, _times(found.exp(), found), 0.0).sum(0)

    def _values(self) -> Tensor:
        """0 to the largest count, along a new first dimension."""
        values = arange(self._largest() + 1, dtype=self.probs.dtype, device=self.probs.device)
        return values.reshape(-1, *[1] * len(self._batch_shape))

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """0 to total_count. NotImplementedError where the counts differ."""
        if self._most is None and bool((self.total_count != self.total_count.max()).any()):
            raise NotImplementedError("Binomial: the counts differ, so that there is no one list of values; take one count at a time")
        return self._values().expand(-1, *self._batch_shape) if expand else self._values()


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x))."""
    return -logsigmoid(-x)


class Poisson(ExponentialFamily):
    """The number of events that happen `rate` times on average.

    >>> import gradlab as gl
    >>> gl.distributions.Poisson(2.0).log_prob(gl.tensor(0.0))
    tensor(-2.)
    """

    batched = ("rate",)

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast(rate)
        super().__init__(self.rate.shape, (), validate_args)
        self.require(self.rate >= 0, "rate is not negative")

    @property
    def mean(self) -> Tensor:
        """rate."""
        return self.rate

    @property
    def mode(self) -> Tensor:
        """The whole part of the rate."""
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        """rate."""
        return self.rate

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Whole numbers of the parameters' dtype."""
        return poisson(self.rate.detach().expand(self._extended(sample_shape)).contiguous())

    def log_prob(self, value: Tensor) -> Tensor:
        """value · log(rate) - rate - log(value!)."""
        self.require(self.support.check(value), "a value is a whole number, not negative")
        return value.xlogy(self.rate) - self.rate - (value + 1).lgamma()
