"""The incomplete gamma functions, as shares of the whole, element by element, computed in float64.

Source: NIST Digital Library of Mathematical Functions (DLMF): the series 8.11.4 left of a + 1, the continued fraction 8.9.2 right of it
(evaluated by Lentz's algorithm), for small arguments the alternating series 8.7.1 of the upper share; from a = 100 on the integral 8.2.1
itself, over the part that counts, by Gauss and Legendre's rule of 48 points. The derivative is 8.8.13. As expressions in
kernels/special_math.h.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.ops.gamma import BERNOULLI, lgamma, lgamma_cpu
from gradlab.spec import broadcast

LARGE = 100.0  # from here on by quadrature: series and fraction would take √a steps
STIRLING = 10.0
STEPS = 600
DROP = 60.0  # how far the integrand's logarithm falls over the part that counts


@functools.cache
def quadrature() -> tuple[Any, Any]:
    """Nodes and weights of Gauss and Legendre on [-1, 1]; made where they are needed: NumPy's polynomials load in five milliseconds."""
    return np.polynomial.legendre.leggauss(48)


def excess(x: Any, a: Any) -> Any:
    """u - 1 - log u of u = x / a, without cancellation about 1."""
    m, u = (x - a) / a, x / a
    r = m / (2 + m)
    s = np.square(r)
    total = np.zeros_like(r)
    for k in range(19, 1, -2):
        total = total * s + 1 / k
    return np.where(np.abs(m) < 0.3, r * m - 2 * r * s * total, u - 1 - np.log(u))


def logarithm_of_gamma(a: Any) -> Any:
    found = np.empty_like(a)
    lgamma_cpu(a, found)
    return found


def stirling_rest(a: Any) -> Any:
    """log Γ(a) less (a - 1/2) log a - a + log(2π)/2, for a >= STIRLING: DLMF 5.11.1."""
    total, power = np.zeros_like(a), 1 / a
    for k, b in enumerate(BERNOULLI, 1):
        total = total + b / (2 * k * (2 * k - 1)) * power
        power = power / np.square(a)
    return total


def factor(a: Any, x: Any) -> Any:
    """x^a · e^-x / Γ(a + 1) of positive numbers."""
    big = np.maximum(a, STIRLING)
    large = np.exp(-big * excess(x, big) - stirling_rest(big)) / np.sqrt(2 * np.pi * big)
    low = np.minimum(a, STIRLING)
    small = np.exp(low * np.log(x) - x - logarithm_of_gamma(low + 1))
    return np.where(a >= STIRLING, large, small)


def by_series(a: Any, x: Any) -> Any:
    """The lower share, for x < a + 1."""
    term = total = np.ones_like(x)
    for n in range(1, STEPS):
        term = term * (x / (a + n))
        total = total + term
        if not (term > 1e-17 * total).any():
            break
    return factor(a, x) * total


def by_fraction(a: Any, x: Any) -> Any:
    """The upper share, for x >= a + 1."""
    tiny = 1e-300
    b = x + 1 - a
    c, d = np.full_like(x, 1 / tiny), 1 / b
    total, done = d, np.zeros(x.shape, bool)
    for n in range(1, STEPS):
        step = -n * (n - a)
        b = b + 2
        d, c = step * d + b, b + step / c
        d, c = np.where(np.abs(d) < tiny, tiny, d), np.where(np.abs(c) < tiny, tiny, c)
        d = 1 / d
        change = d * c
        total = np.where(done, total, total * change)  # further steps would only add up their rounding
        done |= np.abs(change - 1) < 4e-16
        if done.all():
            break
    return factor(a, x) * a * total


def by_powers(a: Any, x: Any) -> Any:
    """The upper share of x < 1, a < 1, where 1 less the lower one would cancel."""
    start = a * np.log(x) - logarithm_of_gamma(a + 1)
    term, total = np.ones_like(x), np.zeros_like(x)
    for n in range(1, 25):
        term = term * (-x / n)
        total = total + term * (a / (a + n))
    return -np.expm1(start) - np.exp(start) * total


def by_quadrature(a: Any, x: Any) -> Any:
    """The upper share for x > a, the lower one otherwise, for a >= LARGE."""
    slope = np.abs(x - a) / x
    width = 2 * DROP / (slope + np.sqrt(np.square(slope) + 2 * DROP * (a / x / x)))
    width = np.where(x > a, width, -np.minimum(width, x))
    nodes, weights = quadrature()
    t = x[:, None] + width[:, None] * (0.5 * (nodes + 1))
    inside = np.exp(-a[:, None] * excess(t, a[:, None])) / t
    scale = np.sqrt(a / (2 * np.pi)) * np.exp(-stirling_rest(a))
    return np.abs(width) * 0.5 * scale * (inside @ weights)


def shares(a: Any, x: Any) -> tuple[Any, Any]:
    """The lower and the upper share of float64 vectors."""
    lower, upper = np.full_like(x, np.nan), np.full_like(x, np.nan)
    inner = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)

    def put(where: Any, method: Any, target: Any, other: Any) -> None:
        if where.any():
            found = np.clip(method(a[where], x[where]), 0, 1)
            target[where], other[where] = found, 1 - found

    low = inner & (a < LARGE)
    powers = low & (a < 1) & (x < 1)
    put(low & (x < a + 1), by_series, lower, upper)
    put(low & (x >= a + 1), by_fraction, upper, lower)
    if powers.any():
        upper[powers] = by_powers(a[powers], x[powers])
    put(inner & (a >= LARGE) & (x > a), by_quadrature, upper, lower)
    put(inner & (a >= LARGE) & (x <= a), by_quadrature, lower, upper)
    none = ((x == 0) & (a > 0)) | (np.isposinf(a) & (x >= 0) & np.isfinite(x))
    whole = (np.isposinf(x) & (a >= 0) & np.isfinite(a)) | ((a == 0) & (x > 0))
    lower[none], upper[none] = 0, 1
    lower[whole], upper[whole] = 1, 0
    return lower, upper


BLOCK = 1 << 12


def _cpu(which: int) -> Any:
    def cpu(a: Any, b: Any, y: Any) -> None:
        first, second = (np.broadcast_to(v, y.shape).reshape(-1) for v in (a, b))
        out = y.reshape(-1)
        for start in range(0, out.size, BLOCK):
            part = slice(start, start + BLOCK)
            found = shares(first[part].astype(np.float64), second[part].astype(np.float64))[which]
            np.copyto(out[part], found, casting="same_kind")

    return cpu


def _density(a: Any, x: Any) -> Any:
    """x^(a - 1) · e^-x / Γ(a)."""
    return ((a - 1).xlogy(x) - x - lgamma(a)).exp()


def _no_gradient(g: Any) -> None:
    """By the first argument there is none: the public functions refuse to record one."""


igamma = Op("igamma", broadcast, cpu=_cpu(0), cuda=Elementwise("igamma(a, b)"), promote="float",
            grad={"a": _no_gradient, "b": lambda g, a, b: g * _density(a, b)})  # fmt: skip
igammac = Op("igammac", broadcast, cpu=_cpu(1), cuda=Elementwise("igammac(a, b)"), promote="float",
             grad={"a": _no_gradient, "b": lambda g, a, b: -(g * _density(a, b))})  # fmt: skip

