"""Gamma variables as functions of their concentration, from which those of Beta, Dirichlet, Student and others are made.

Values: G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables", 2000. Of TRIES proposals, all drawn at once so that
nothing depends on values, the first that is accepted counts; one is accepted with a probability of 0.95 or more, so that the last has to
count unseen once in 10^8 values. Below 1 a variable is that of the concentration + 1 times u^(1 / concentration), taken as logarithms,
which do not underflow.

Gradients: M. Figurnov, S. Mohamed and A. Mnih, "Implicit reparameterization gradients", 2018: of y with the distribution function P(a, y)
and the density p, dy/da = -(∂P/∂a) / p. With t = y·exp(±v/a) in the integral of (log t - ψ(a))·p(t) over the side of y that is away from a
    dlog y/da = 1/a ∫ (±(log y - ψ(a)) + v/a) · exp(±v - y·(exp(±v/a) - 1)) dv,  v from 0 on, + where y > a,
whose integrand falls from its start; Gauss and Legendre's rule over the part that counts gives 7 digits with 20 points, 13 with 48. Where
a and y are below 1, parts of it would nearly cancel; there the series of P, Γ(a) P = y^a Σ (-y)^n / (n! (a + n)), is differentiated:
    dlog y/da = exp(y) · (R₂ - R₁/a - (log y - ψ(a + 1)) · (1/a + R₁)),  R_k = Σ (-y)^n / (n! (a + n)^k) from n = 1 on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.autograd.function import Function
from gradlab.dtype import FLOAT64, float64
from gradlab.tensor import Tensor
from gradlab.tensor.creation import arange, ones_like, tensor
from gradlab.tensor.random import rand, randn
from gradlab.tensor.where import where

TRIES = 6
_RULES: dict[bool, Any] = {  # nodes and weights on (-1, 1), and how far the integrand's logarithm falls over the part that counts
    exact: (np.polynomial.legendre.leggauss(points), drop) for exact, points, drop in ((False, 20, 22.0), (True, 48, 40.0))
}


def log_gamma_samples(concentration: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Logarithms of gamma variables of rate 1, of that shape, as a function of the concentration (broadcast against it)."""
    a = concentration.to(float64).expand(shape)
    u = rand(*shape, dtype=float64, device=a.device).clamp(min=float(np.finfo(FLOAT64).tiny))
    found: Any = _LogGamma.apply(a, u, concentration.dtype == float64)
    return found.to(concentration.dtype)


def _proposed(a: Tensor) -> Tensor:
    """Logarithms of gamma variables for concentrations of at least 1."""
    dtype: dict[str, Any] = {"dtype": float64, "device": a.device}
    d = a - 1 / 3
    z = randn(TRIES, *a.shape, **dtype)
    v = (1 + z / (9 * d).sqrt()) ** 3
    log_v = where(v > 0, v, ones_like(v)).log()
    u = rand(TRIES, *a.shape, **dtype)
    accepted = (v > 0) & (u.log() < 0.5 * z.square() + d * (1 - v + log_v))
    found = log_v[TRIES - 1]
    for i in range(TRIES - 2, -1, -1):
        found = where(accepted[i], log_v[i], found)
    return d.log() + found


class _LogGamma(Function):
    """log y of a."""

    generate_vmap_rule = False

    @staticmethod
    def forward(ctx: Any, a: Tensor, u: Tensor, exact: bool) -> Tensor:
        small = a < 1
        y = _proposed(where(small, a + 1, a)) + where(small, u.log() / a, 0.0)
        ctx.save_for_backward(a, y)
        ctx.exact = exact
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        a, y = ctx.saved_tensors
        return g * log_slope(a, y, ctx.exact), None, None


def log_slope(a: Tensor, log_y: Tensor, exact: bool) -> Tensor:
    """dlog y/da at the same quantile, in float64; exact: to 13 digits, else to 7."""
    near = (a < 1) & (log_y < 0)
    far = _by_integral(where(near, 1.0, a), where(near, 1.0, log_y), exact)
    return where(near, _by_series(where(near, a, 0.5), where(near, log_y, -1.0)), far)


def _by_series(a: Tensor, log_y: Tensor) -> Tensor:
    n = arange(1, 20, dtype=float64, device=a.device)
    y, below = log_y.exp(), a.unsqueeze(-1) + n
    terms = (-y).unsqueeze(-1) ** n / ((n + 1).lgamma().exp() * below)
    first, second = terms.sum(-1), (terms / below).sum(-1)
    return y.exp() * (second - first / a - (log_y - (a + 1).digamma()) * (a.reciprocal() + first))


def _by_integral(a: Tensor, log_y: Tensor, exact: bool) -> Tensor:
    (nodes, weights), drop = _RULES[exact]
    y = log_y.exp()
    sign, steep = where(y > a, ones_like(a), -ones_like(a)), (1 - y / a).abs()
    width = (2 * drop / (steep + (steep.square() + 2 * drop * y / a.square()).sqrt())).detach()
    width = where(sign > 0, width, (width * (1 + 0.5 * width / a)).minimum(drop + y)).detach()
    v = width.unsqueeze(-1) * tensor(0.5 * (nodes + 1), dtype=float64, device=a.device)
    a_, y_, sign_ = a.unsqueeze(-1), y.unsqueeze(-1), sign.unsqueeze(-1)
    inside = (sign * (log_y - a.digamma())).unsqueeze(-1) + v / a_
    inside = inside * (sign_ * v - y_ * (sign_ * v / a_).expm1()).exp()
    return (inside * tensor(0.5 * weights, dtype=float64, device=a.device)).sum(-1) * width / a
