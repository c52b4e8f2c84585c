"""Directions: the von Mises distribution on the circle.

Samples: D. J. Best and N. I. Fisher, "Efficient simulation of the von Mises distribution", 1979. Of TRIES proposals, all drawn at once, the
first that is accepted counts; one is accepted with a probability of 0.65 or more.
"""

from __future__ import annotations

import math
from typing import Any

from gradlab.distributions.distribution import Distribution, broadcast
from gradlab.dtype import float64
from gradlab.special import i0e, i1e
from gradlab.tensor import Tensor
from gradlab.tensor.random import rand
from gradlab.tensor.where import where

TRIES = 20


class VonMises(Distribution):
    """An angle around `loc`, from -π to π; the larger `concentration`, the nearer.

    >>> import gradlab as gl
    >>> v = gl.distributions.VonMises(0.0, 2.0)
    >>> v.variance, v.log_prob(gl.tensor(0.0))
    (tensor(0.3022), tensor(-0.6619))
    """

    batched = ("loc", "concentration")

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast(loc, concentration)
        super().__init__(self.loc.shape, (), validate_args)
        self.require(self.concentration > 0, "concentration is positive")

    @property
    def mean(self) -> Tensor:
        """loc, the mean direction."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """loc."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """1 - I1(concentration) / I0(concentration), the circular variance."""
        return 1 - i1e(self.concentration) / i0e(self.concentration)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Angles from -π to π, of the parameters' dtype."""
        shape = self._extended(sample_shape)
        k = self.concentration.detach().to(float64)
        dtype: dict[str, Any] = {"dtype": float64, "device": self.loc.device}
        tau = 1 + (1 + 4 * k.square()).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        r = where(k < 1e-5, 1 / k + k, (1 + rho.square()) / (2 * rho))
        z = (math.pi * rand(TRIES, *shape, **dtype)).cos()
        f = (1 + r * z) / (r + z)
        c = k * (r - f)
        u = rand(TRIES, *shape, **dtype)
        accepted = (c * (2 - c) - u > 0) | ((c / u).log() + 1 - c >= 0)
        found = f[TRIES - 1]
        for i in range(TRIES - 2, -1, -1):
            found = where(accepted[i], f[i], found)
        side = (rand(*shape, **dtype) - 0.5).sign()
        angle = side * found.clamp(-1, 1).acos() + self.loc.detach()
        return ((angle + math.pi) % (2 * math.pi) - math.pi).to(self.loc.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """concentration · (cos(value - loc) - 1) - log(2π · exp(-concentration) I0(concentration))."""
        self.require(~value.isnan(), "a value is a real number, not NaN")
        return self.concentration * ((value - self.loc).cos() - 1) - math.log(2 * math.pi) - i0e(self.concentration).log()
