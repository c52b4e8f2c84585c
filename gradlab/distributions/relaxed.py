"""Distributions of classes with gradients: relaxed to numbers between, passed straight through, or on the numbers between 0 and 1.

Relaxed ones: C. Maddison, A. Mnih and Y. W. Teh, "The concrete distribution", 2017; E. Jang, S. Gu and B. Poole, "Categorical
reparameterization with Gumbel-softmax", 2017. Continuous Bernoulli: G. Loaiza-Ganem and J. P. Cunningham, 2019.
"""

from __future__ import annotations

import math
from typing import Any

from gradlab.distributions.categorical import Categorical, OfClasses, OneHotCategorical
from gradlab.distributions.discrete import _Binary, clamped, softplus
from gradlab.distributions.distribution import broadcast
from gradlab.distributions.element_transforms import ExpTransform, SigmoidTransform
from gradlab.distributions.exp_family import ExponentialFamily
from gradlab.distributions.gamma import between, from_tiny
from gradlab.distributions.transformed import Formulated
from gradlab.dtype import from_numpy, promote
from gradlab.nn.functional import binary_cross_entropy_with_logits
from gradlab.tensor import Tensor
from gradlab.tensor.creation import full_like
from gradlab.tensor.random import rand
from gradlab.tensor.where import where


def uniform_inside(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Uniform numbers that are neither 0 nor 1."""
    return clamped(rand(*shape, dtype=like.dtype, device=like.device))


class LogitRelaxedBernoulli(_Binary):
    """Logistic variables around `logits`, divided by the temperature: the log-odds of the values of `RelaxedBernoulli`.

    >>> import gradlab as gl
    >>> gl.distributions.relaxed.LogitRelaxedBernoulli(0.5, probs=gl.tensor([0.1, 0.9])).rsample().shape
    (2,)
    """

    has_rsample = True

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        (self.temperature,) = broadcast(temperature)
        super().__init__(probs, logits, validate_args)
        self.require(self.temperature > 0, "temperature is positive")

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random values as a function of the parameter and the temperature."""
        logits = self.logits
        u = uniform_inside(logits, self._extended(sample_shape))
        return (u.log() - (-u).log1p() + logits) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        """log(T) + d - 2 log(1 + exp(d)) with d = logits - T · value."""
        self.require(~value.isnan(), "a value is a real number, not NaN")
        d = self.logits - self.temperature * value
        return self.temperature.log() + d - 2 * softplus(d)


class RelaxedBernoulli(Formulated):
    """Numbers between 0 and 1 that are nearly 0 or 1 where `temperature` is low: the sigmoid of logistic variables around `logits`.

    >>> import gradlab as gl
    >>> r = gl.distributions.RelaxedBernoulli(0.5, probs=gl.tensor([0.1, 0.9]))
    >>> r.rsample().shape
    (2,)
    """

    base_dist: LogitRelaxedBernoulli

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits, validate_args), SigmoidTransform(), validate_args)

    temperature = property(lambda self: self.base_dist.temperature)
    probs = property(lambda self: self.base_dist.probs)
    logits = property(lambda self: self.base_dist.logits)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random values as a function of the parameter and the temperature."""
        return between(self.base_dist.rsample(sample_shape).sigmoid())

    def log_prob(self, value: Tensor) -> Tensor:
        """That of the log-odds, less log(value (1 - value))."""
        self.require((value > 0) & (value < 1), "a value is between 0 and 1")
        log, rest = value.log(), (-value).log1p()
        return self.base_dist.log_prob(log - rest) - log - rest


class ExpRelaxedCategorical(OfClasses):
    """The logarithms of the shares of `RelaxedOneHotCategorical`: the logarithmic softmax of (logits + Gumbel variables) / temperature.

    >>> import gradlab as gl
    >>> gl.distributions.relaxed.ExpRelaxedCategorical(0.5, logits=gl.zeros(4, 3)).rsample().shape
    (4, 3)
    """

    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        (self.temperature,) = broadcast(temperature)
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, (self._categorical.num_events,), validate_args)
        self.require(self.temperature > 0, "temperature is positive")

    def _scores(self, sample_shape: Any) -> Tensor:
        logits = self._categorical.logits
        gumbel = -(-uniform_inside(logits, self._extended(sample_shape)).log()).log()
        return (logits + gumbel) / self.temperature

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random values as a function of the parameters and the temperature."""
        return self._scores(sample_shape).log_softmax(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """log Γ(k) + (k - 1) log(T) + Σ log softmax(logits - T · value)."""
        logits, log = broadcast(self._categorical.logits, value)
        number = self._event_shape[0]
        score = (logits - log * self.temperature).log_softmax(-1).sum(-1)
        return score + math.lgamma(number) + (number - 1) * self.temperature.log()


class RelaxedOneHotCategorical(Formulated):
    """Shares whose sum is 1, nearly one of them all where `temperature` is low: the softmax of (logits + Gumbel variables) / temperature.

    >>> import gradlab as gl
    >>> r = gl.distributions.RelaxedOneHotCategorical(0.5, logits=gl.zeros(4, 3))
    >>> r.rsample().sum(-1).shape, r.event_shape
    ((4,), (3,))
    """

    base_dist: ExpRelaxedCategorical

    def __init__(
        self, temperature: Any, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        super().__init__(ExpRelaxedCategorical(temperature, probs, logits, validate_args), ExpTransform(), validate_args)

    temperature = property(lambda self: self.base_dist.temperature)
    probs = property(lambda self: self.base_dist.probs)
    logits = property(lambda self: self.base_dist.logits)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random values as a function of the parameters and the temperature."""
        return from_tiny(self.base_dist._scores(sample_shape).softmax(-1))

    def log_prob(self, value: Tensor) -> Tensor:
        """That of the logarithms, less their sum."""
        self.require((value > 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-5), "a value is shares whose sum is 1")
        log = value.log()
        return self.base_dist.log_prob(log) - log.sum(-1)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """As `OneHotCategorical`, and `rsample` has the gradient of the probabilities (Y. Bengio, N. Léonard and A. Courville, 2013).

    >>> import gradlab as gl
    >>> logits = gl.zeros(3, requires_grad=True)
    >>> y = gl.distributions.OneHotCategoricalStraightThrough(logits=logits).rsample()
    >>> y.sum(), y.requires_grad
    (tensor(1., grad_fn=<SumBackward0>), True)
    """

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Vectors of 0s and a 1, with the gradient of the probabilities."""
        probs = self.probs
        return self.sample(sample_shape) + (probs - probs.detach())


class ContinuousBernoulli(_Binary, ExponentialFamily):
    """Numbers from 0 to 1 with a density of probs^x · (1 - probs)^(1 - x) up to a factor. lims: between these, probs are taken for 1/2.

    >>> import gradlab as gl
    >>> gl.distributions.ContinuousBernoulli(gl.tensor([0.5, 0.2])).log_prob(gl.tensor(0.5))
    tensor([0.0000, -0.0780])
    """

    has_rsample = True

    def __init__(
        self, probs: Any = None, logits: Any = None, lims: tuple[float, float] = (0.499, 0.501), validate_args: bool | None = None
    ) -> None:
        super().__init__(probs, logits, validate_args)
        self._lims = lims

    def _split(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Where probs is not about 1/2; probs, replaced elsewhere; the log-odds of these; probs - 1/2."""
        p = clamped(self.probs)
        far = (p <= self._lims[0]) | (p > self._lims[1])
        safe = where(far, p, full_like(p, self._lims[0]))
        return far, safe, safe.log() - (-safe).log1p(), p - 0.5

    def _log_norm(self) -> Tensor:
        far, p, odds, x = self._split()
        s = x.square()
        return where(far, odds.abs().log() - (2 * p - 1).abs().log(), math.log(2) + (4 / 3 + 104 / 45 * s) * s)

    @property
    def mean(self) -> Tensor:
        """p/(2p - 1) - 1/log-odds, 1/2 in the middle."""
        far, p, odds, x = self._split()
        return where(far, p / (2 * p - 1) - odds.reciprocal(), 0.5 + (1 / 3 + 16 / 45 * x.square()) * x)

    @property
    def variance(self) -> Tensor:
        """p(p - 1)/(2p - 1)² + 1/log-odds², 1/12 in the middle."""
        far, p, odds, x = self._split()
        s = x.square()
        return where(far, p * (p - 1) / (2 * p - 1).square() + odds.pow(-2), 1 / 12 - (1 / 15 - 128 / 945 * s) * s)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random values as a function of the parameter."""
        return self.icdf(rand(*self._extended(sample_shape), dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Tensor) -> Tensor:
        """value · log(probs) + (1 - value) · log(1 - probs) + the logarithm of the factor."""
        self.require((value >= 0) & (value <= 1), "a value is from 0 to 1")
        logits, value = broadcast(self.logits, value)
        kind = from_numpy(promote(logits._array.dtype, value._array.dtype))
        return self._log_norm() - binary_cross_entropy_with_logits(logits.to(kind), value.to(kind), reduction="none")

    def cdf(self, value: Tensor) -> Tensor:
        """(p^value (1 - p)^(1 - value) + p - 1)/(2p - 1), value - (2p - 1) · value (1 - value) in the middle."""
        far, p, _, x = self._split()
        inside = value.clamp(0, 1)
        found = (p**inside * (1 - p) ** (1 - inside) + p - 1) / (2 * p - 1)
        return where(far, found, inside - 2 * x * inside * (1 - inside)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`."""
        far, p, odds, x = self._split()
        return where(far, ((-p + value * (2 * p - 1)).log1p() - (-p).log1p()) / odds, value + 2 * x * value * (1 - value))

    def entropy(self) -> Tensor:
        """-mean · log-odds - log(1 - probs) - the logarithm of the factor."""
        p = clamped(self.probs)
        return -self.mean * (p.log() - (-p).log1p()) - self._log_norm() - (-p).log1p()

