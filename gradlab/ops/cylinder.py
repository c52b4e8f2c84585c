"""Bessel functions of orders 0 and 1, of the first and second kind, modified ones of the second kind, and the spherical one of order 0.

Source: NIST Digital Library of Mathematical Functions (DLMF). Up to 5 a fit in x² (whose first zeros are factors of their own), of the
second kind beside the logarithm (10.8); from there on 10.17.3 and 10.17.4, a modulus times cosines of a phase, with fits in place of their
asymptotic series and the phase's cosine by that of x, so that none is rounded. K: 10.31.1 and 10.31.2 up to 1, e^-x/√x times a fit beyond.
Derivatives 10.6.2, 10.6.3 and 10.29.2, 10.29.3. Computed in float64; as expressions in kernels/bessel_math.h.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.ops import bessel_tables as tables
from gradlab.ops.special import blocks, horner
from gradlab.spec import same

EULER = 0.5772156649015329
NEAR = (tables.J0_NEAR, tables.J1_NEAR)
NEAR_SECOND = (tables.Y0_NEAR, tables.Y1_NEAR)
MODULUS = ((tables.P0_FAR, tables.Q0_FAR), (tables.P1_FAR, tables.Q1_FAR))
DECAY = (tables.K0_FAR, tables.K1_FAR)
TERMS = 11  # of the series about 0, up to 1


def argument(t: Any) -> Any:
    """What a fit takes, for t from 0 to 1."""
    return 2 * t - 1


def without(x: Any, zeros: tuple[tuple[float, float], ...], mirrored: bool) -> Any:
    """The product of the distances from zeros (in two parts each), and from their mirror images."""
    product = 1.0
    for high, low in zeros:
        product = product * ((x - high) - low)
        if mirrored:
            product = product * (x + high)
    return product


def first_near(order: int, a: Any) -> Any:
    """J(a) of 0 <= a <= 5."""
    found = without(a, (tables.J0_ZEROS, tables.J1_ZEROS)[order], True) * horner(argument(np.square(a) / 25), NEAR[order])
    return a * found if order else found


def second_near(order: int, x: Any) -> Any:
    """Y(x) of 0 < x <= 5."""
    rest = horner(argument(np.square(x) / 25), NEAR_SECOND[order])
    logarithm = np.log(x) * first_near(order, x)
    return (2 / math.pi) * (logarithm - 1 / x) + x * rest if order else (2 / math.pi) * logarithm + rest


def far(order: int, a: Any, second: bool) -> Any:
    """J(a) or Y(a) of a > 5; 0 at infinity."""
    u = argument(np.square(5 / a))
    p, q = (horner(u, table) for table in MODULUS[order])
    q = q / a
    finite = np.where(np.isinf(a), 0, a)
    c, s = np.cos(finite), np.sin(finite)
    cosine, sine = (s - c, -(s + c)) if order else (c + s, s - c)
    return (p * sine + q * cosine if second else p * cosine - q * sine) / np.sqrt(math.pi * a)


def piecewise(x: Any, limit: float, below: Callable[[Any], Any], above: Callable[[Any], Any]) -> Any:
    """below(x) up to the limit (and of NaN), above(x) from there on."""
    outer = x > limit
    if not outer.any():
        return below(x)
    found = np.empty_like(x)
    found[outer], found[~outer] = above(x[outer]), below(x[~outer])
    return found


def bessel_j(order: int, x: Any) -> Any:
    """J(x) of float64 numbers."""
    found = piecewise(np.abs(x), 5.0, lambda a: first_near(order, a), lambda a: far(order, a, False))
    return np.where(np.signbit(x), -found, found) if order else found


def bessel_y(order: int, x: Any) -> Any:
    """Y(x) of float64 numbers: -inf at 0, NaN below."""
    found = piecewise(x, 5.0, lambda z: second_near(order, np.where(z > 0, z, 1)), lambda z: far(order, z, True))
    return np.where(x > 0, found, np.where(x == 0, -np.inf, np.nan))


def series_k(order: int, x: Any) -> Any:
    """K(x) of 0 < x <= 1: the terms are all of one sign but for the leading 1/x of order 1."""
    level, t = -np.log(0.5 * x) - EULER, 0.25 * np.square(x)
    term, harmonic = np.ones_like(x), 0.5 if order else 0.0
    total = level + harmonic
    for k in range(1, TERMS):
        term = term * (t / (k * (k + order)))
        harmonic += 0.5 / k + 0.5 / (k + 1) if order else 1 / k
        total = total + term * (level + harmonic)
    return 1 / x - 0.5 * x * total if order else total


def bessel_k(order: int, x: Any, scaled: bool) -> Any:
    """K(x), or e^x · K(x), of float64 numbers: inf at 0, NaN below."""

    def near(z: Any) -> Any:
        z = np.where(z > 0, z, 1)
        return series_k(order, z) * np.exp(z) if scaled else series_k(order, z)

    def beyond(z: Any) -> Any:
        found = horner(argument(1 / z), DECAY[order]) / np.sqrt(z)
        return found if scaled else found * np.exp(-z)

    found = piecewise(x, 1.0, near, beyond)
    return np.where(x > 0, found, np.where(x == 0, np.inf, np.nan))


def spherical(x: Any) -> Any:
    """sin(x) / x of float64 numbers."""
    safe = np.where((x == 0) | np.isinf(x), 1, x)
    return np.where(x == 0, 1, np.where(np.isinf(x), 0, np.sin(safe) / safe))


def _cpu(function: Callable[..., Any], *options: Any) -> Callable[[Any, Any], None]:
    def cpu(x: Any, y: Any) -> None:
        for part, out in blocks(x, y):
            np.copyto(out, function(*options[:1], part.astype(np.float64), *options[1:]), casting="same_kind")

    return cpu


def _row(name: str, function: Any, options: tuple[Any, ...], expression: str, slope: Any) -> Op:
    cpu, cuda = _cpu(function, *options), Elementwise(f"{expression}(x)")
    return Op(name, same, cpu=cpu, cuda=cuda, promote="float", sharp=True, grad={"x": slope})


def _over(y: Any, x: Any, at_zero: float) -> Any:
    """y / x, its limit at 0 where x is tiny: y may have been rounded to 0 there."""
    tiny = x.abs() < 1e-18
    return (y / x.masked_fill(tiny, 1)).masked_fill(tiny, at_zero)


bessel_j0 = _row("bessel_j0", bessel_j, (0,), "bessel_j0", lambda g, x: -g * bessel_j1(x))
bessel_j1: Op = _row("bessel_j1", bessel_j, (1,), "bessel_j1", lambda g, x, y: g * (bessel_j0(x) - _over(y, x, 0.5)))
bessel_y0 = _row("bessel_y0", bessel_y, (0,), "bessel_y0", lambda g, x: -g * bessel_y1(x))
bessel_y1: Op = _row("bessel_y1", bessel_y, (1,), "bessel_y1", lambda g, x, y: g * (bessel_y0(x) - y / x))
bessel_k0 = _row("modified_bessel_k0", bessel_k, (0, False), "bessel_k0", lambda g, x: -g * bessel_k1(x))
bessel_k1: Op = _row("modified_bessel_k1", bessel_k, (1, False), "bessel_k1", lambda g, x, y: -g * (bessel_k0(x) + y / x))
bessel_k0e: Op = _row("scaled_modified_bessel_k0", bessel_k, (0, True), "bessel_k0e", lambda g, x, y: g * (y - bessel_k1e(x)))
bessel_k1e: Op = _row("scaled_modified_bessel_k1", bessel_k, (1, True), "bessel_k1e",
                      lambda g, x, y: g * (y - bessel_k0e(x) - y / x))  # fmt: skip
spherical_j0 = _row("spherical_bessel_j0", spherical, (), "spherical_j0", lambda g, x, y: g * _spherical_slope(x, y))


def _spherical_slope(x: Any, y: Any) -> Any:
    """(cos x - y) / x, which cancels about 0, where the series -x/3 + x³/30 - … has few terms."""
    near = x.abs() < 0.5
    t = x * x
    series = x * (-1 / 3 + t * (1 / 30 + t * (-1 / 840 + t * (1 / 45360 + t * (-1 / 3991680 + t * (1 / 518918400))))))
    return series.where(near, (x.cos() - y) / x.masked_fill(near, 1))
