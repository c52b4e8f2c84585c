"""The normal distribution and its kin, and what all distributions with a place and a scale have. Formulas: the definitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradlab import linalg
from gradlab.distributions.distribution import Distribution, broadcast
from gradlab.distributions.exp_family import ExponentialFamily
from gradlab.distributions.rounding import derived
from gradlab.spec import broadcast_shapes
from gradlab.tensor import Tensor
from gradlab.tensor.creation import eye
from gradlab.tensor.random import rand, randn

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
TINY = 1e-12  # that a uniform number stays away from 0 and 1, where quantiles are infinite


class LocationScale(Distribution):
    """Of loc + scale · a standard variable."""

    has_rsample = True
    batched: Sequence[str] = ("loc", "scale")

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)
        self.require(self.scale > 0, "scale is positive")

    def _check(self, value: Tensor) -> Tensor:
        self.require(~value.isnan(), "a value is a real number, not NaN")
        return (value - self.loc) / self.scale

    def _standard(self, shape: Any) -> Tensor:
        raise NotImplementedError

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random values as a function of loc and scale."""
        return self.loc + self.scale * self._standard(self._extended(sample_shape))

    def _uniform(self, shape: Any) -> Tensor:
        return rand(*shape, dtype=self.loc.dtype, device=self.loc.device).clamp(TINY, 1 - 1e-7)

    @property
    def mean(self) -> Tensor:
        """loc."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """loc."""
        return self.loc


class Normal(LocationScale, ExponentialFamily):
    """The normal distribution with mean `loc` and standard deviation `scale`.

    >>> import gradlab as gl
    >>> n = gl.distributions.Normal(0.0, gl.tensor([1.0, 2.0]))
    >>> n.log_prob(gl.tensor(0.0))
    tensor([-0.9189, -1.6121])
    >>> n.rsample((5,)).shape
    (5, 2)
    """

    def _standard(self, shape: Any) -> Tensor:
        return randn(*shape, dtype=self.loc.dtype, device=self.loc.device)

    @property
    def stddev(self) -> Tensor:
        """scale."""
        return self.scale

    @property
    def variance(self) -> Tensor:
        """scale²."""
        return self.scale.square()

    def log_prob(self, value: Tensor) -> Tensor:
        """-z²/2 - log(scale) - log(2π)/2."""
        return -0.5 * self._check(value).square() - self.scale.log() - HALF_LOG_TWO_PI

    def cdf(self, value: Tensor) -> Tensor:
        """By the error function."""
        return 0.5 * (self._check(value) / -math.sqrt(2)).erfc()

    def icdf(self, value: Tensor) -> Tensor:
        """By the inverse error function."""
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        """1/2 + log(2π)/2 + log(scale)."""
        return 0.5 + HALF_LOG_TWO_PI + self.scale.log()


def keep_given(of: Distribution, shape: tuple[int, ...], covariance: Any, precision: Any, factor: Any) -> None:
    """Keep that of the three that was given as it is, expanded; the others are computed when they are asked for."""
    for name, given in (("covariance_matrix", covariance), ("precision_matrix", precision), ("scale_tril", factor)):
        if given is not None:
            of.__dict__[name] = given.expand(shape)


def cholesky_factor(covariance: Tensor | None, precision: Tensor | None, factor: Tensor | None) -> Tensor:
    """The covariance's lower Cholesky factor, of whichever is given."""
    if covariance is not None:
        return linalg.cholesky(covariance)
    if precision is not None:
        # With P = UᵀU for a lower triangular U, which is the Cholesky factor read from behind, the covariance is U⁻¹ U⁻ᵀ.
        lower = linalg.cholesky(precision.flip(-2, -1)).flip(-2, -1).mT
        one = eye(lower.shape[-1], dtype=lower.dtype, device=lower.device).expand(lower.shape)
        return linalg.solve_triangular(lower, one, upper=False)
    assert factor is not None
    return factor


class MultivariateNormal(Distribution):
    """Vectors with a mean and one of: a covariance matrix, its inverse, its lower Cholesky factor.

    >>> import gradlab as gl
    >>> n = gl.distributions.MultivariateNormal(gl.zeros(2), gl.eye(2))
    >>> n.log_prob(gl.zeros(2)), n.sample((3,)).shape
    (tensor(-1.8379), (3, 2))
    """

    has_rsample = True
    batched = ("loc", "scale_tril", "covariance_matrix", "precision_matrix")
    _unbroadcasted_scale_tril: Tensor  # all else is computed of it, also for a subclass that only sets this one

    def __init__(
        self, loc: Tensor, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None, validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(loc, Tensor) or loc.ndim < 1:
            raise ValueError("MultivariateNormal: loc has at least one dimension")
        given = [m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None]
        if len(given) != 1:
            raise ValueError("MultivariateNormal: exactly one of covariance_matrix, precision_matrix and scale_tril is given")
        if given[0].ndim < 2 or given[0].shape[-2:] != (loc.shape[-1],) * 2:
            raise ValueError(f"MultivariateNormal: a matrix of shape {given[0].shape} for vectors of {loc.shape[-1]} numbers")
        size = loc.shape[-1]
        batch = broadcast_shapes(given[0].shape[:-2], loc.shape[:-1])
        self.loc = loc.expand(*batch, size)
        keep_given(self, (*batch, size, size), covariance_matrix, precision_matrix, scale_tril)
        super().__init__(batch, (size,), validate_args)
        self._unbroadcasted_scale_tril = cholesky_factor(covariance_matrix, precision_matrix, scale_tril)
        self.require(self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1) > 0, "the Cholesky factor has a positive diagonal")

    @derived
    def scale_tril(self) -> Tensor:
        """The covariance's Cholesky factor L."""
        return self._unbroadcasted_scale_tril.expand(*self._batch_shape, *self._event_shape, *self._event_shape)

    @derived
    def covariance_matrix(self) -> Tensor:
        """L Lᵀ."""
        factor = self._unbroadcasted_scale_tril
        return (factor @ factor.mT).expand(*self._batch_shape, *self._event_shape, *self._event_shape)

    @derived
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        factor = self._unbroadcasted_scale_tril
        return linalg.inv(factor @ factor.mT).expand(*self._batch_shape, *self._event_shape, *self._event_shape)

    @property
    def mean(self) -> Tensor:
        """loc."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """loc."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The covariance's diagonal."""
        return self._unbroadcasted_scale_tril.square().sum(-1).expand(*self._batch_shape, *self._event_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Random vectors as a function of the parameters."""
        noise = randn(*self._extended(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self._unbroadcasted_scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def half_log_det(self) -> Tensor:
        """Half the logarithm of the covariance's determinant."""
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1).expand(self._batch_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """-(mᵀm)/2 - log det(L) - d log(2π)/2, with L m = value - loc."""
        self.require(~value.isnan(), "a value is a real vector, without NaN")
        shift = (value - self.loc).to(self.loc.dtype).unsqueeze(-1)
        factor = self._unbroadcasted_scale_tril.expand(*shift.shape[:-2], *self._event_shape, *self._event_shape)
        m = linalg.solve_triangular(factor, shift, upper=False).squeeze(-1)
        return -0.5 * m.square().sum(-1) - self.half_log_det() - self._event_shape[0] * HALF_LOG_TWO_PI

    def entropy(self) -> Tensor:
        """log det(L) + d (1 + log(2π))/2."""
        return self.half_log_det() + self._event_shape[0] * (0.5 + HALF_LOG_TWO_PI)
