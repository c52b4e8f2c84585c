"""Special functions by formulas, and integers' divisors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab.onnx.emitter import Emitter, Wire
from gradlab.onnx.expression import erfc, log1p
from gradlab.onnx.registry import exports
from gradlab.ops.gamma import AT_TWO, BERNOULLI, LARGE, cotangent_derivative
from gradlab.ops.special import WICHURA_A, WICHURA_B, WICHURA_C, WICHURA_D, WICHURA_E, WICHURA_F

# ---------------------------------------------------------------- the gamma function (formulas and sources: gradlab/ops/gamma.py)


def horner(t: Any, coefficients: Any) -> Any:
    """The polynomial of `t`, coefficients from the highest power down."""
    total = t * coefficients[0]
    for c in coefficients[1:-1]:
        total = (total + c) * t
    return total + coefficients[-1]


def series(x: Any, numbers: Any, power: Any, step: Any) -> Any:
    """x + Σ numbers[k] · power · step^k"""
    for number in numbers:
        x = x + power * number
        power = power * step
    return x


def turn(e: Emitter, x: Wire) -> Any:
    """π times the distance from the nearest integer."""
    return (x - e("Round", x)) * math.pi


@exports("lgamma")
def lgamma(e: Emitter, x: Wire) -> Any:
    """log |Γ(x)|: moved down to 1.5 … 2.5 and a series there, Stirling's series for large numbers, reflection for negative ones."""
    left = e("LessOrEqual", x, -0.5)
    right = e.where(left, 1.0 - x, x)
    large = e("GreaterOrEqual", right, float(LARGE))
    base: Any = e.where(large, 2.0, right)
    product: Any = e.where(large, 1.0, 1.0 + base * 0.0)
    for _ in range(LARGE - 2):
        down = e("Greater", base, 2.5)
        base = e.where(down, base - 1.0, base)
        product = e.where(down, product * base, product)
    small, tiny = e("Less", base, 1.5), e("Less", base, 0.5)
    z = base - e.where(tiny, 0.0, e.where(small, e.number(1.0, x.dtype), e.number(2.0, x.dtype)))
    found = z * horner(z, AT_TWO[::-1]) + e("Log", product)
    found = e.where(small, found - log1p(e, z), found)
    found = e.where(tiny, found - e("Log", e("Abs", base)), found)
    safe = e.where(large, right, float(LARGE))
    stirling = (safe - 0.5) * (e("Log", safe) - 1.0) + 0.5 * (math.log(2 * math.pi) - 1)
    inverse = 1.0 / safe
    stirling = series(stirling, [b / (2 * k * (2 * k - 1)) for k, b in enumerate(BERNOULLI, 1)], inverse, inverse * inverse)
    found = e.where(large, stirling, found)
    found = e.where(left, math.log(math.pi) - e("Log", e("Abs", e("Sin", turn(e, x)))) - found, found)
    pole = e("And", e("LessOrEqual", x, 0.0), e("Equal", x, e("Floor", x)))
    return e.where(e("Or", e("IsInf", x), pole), math.inf, found)


@exports("digamma")
def digamma(e: Emitter, x: Wire) -> Any:
    """The derivative of log Γ."""
    left = e("Less", x, 0.5)
    right = e.where(left, 1.0 - x, x)
    low = e("Less", right, float(LARGE))
    base = e.where(low, right + float(LARGE), right)
    inverse = 1.0 / (base * base)
    found = series(e("Log", base) - 0.5 / base, [-b / (2 * k) for k, b in enumerate(BERNOULLI, 1)], inverse, inverse)
    for k in range(LARGE):
        found = found - e.where(low, 1.0 / (right + float(k)), 0.0)
    found = e.where(left, found - math.pi / e("Tan", turn(e, x)), found)
    found = e.where(e("And", e("Less", x, 0.0), e("Equal", x, e("Floor", x))), math.nan, found)
    found = e.where(e("Equal", x, 0.0), -1.0 / x, found)
    return e.where(e("Equal", x, math.inf), math.inf, found)


@exports("polygamma")
def polygamma(e: Emitter, x: Wire, *, n: int) -> Any:
    """The n-th derivative of digamma: Euler and Maclaurin's sum of 1 / (x + k)^(n + 1)."""
    left = e("Less", x, 0.0)
    right = e.where(left, 1.0 - x, x)
    s, steps = n + 1, LARGE + n
    low = e("Less", right, float(steps))
    base = e.where(low, right + float(steps), right)
    found = e("Pow", base, float(1 - s)) * (1 / (s - 1)) + e("Pow", base, float(-s)) * 0.5
    factor, power, square = float(s), e("Pow", base, float(-s - 1)), base * base
    for k, b in enumerate(BERNOULLI, 1):
        found = found + power * (b / math.factorial(2 * k) * factor)
        factor *= (s + 2 * k - 1) * (s + 2 * k)
        power = power / square
    for k in range(steps):
        found = found + e.where(low, e("Pow", right + float(k), float(-s)), 0.0)
    sign = -1.0 if n % 2 == 0 else 1.0
    found = found * (sign * math.factorial(n))
    slope = [float(c) for c in cotangent_coefficients(n)]
    mirrored = found * -sign - horner(1.0 / e("Tan", turn(e, x)), slope) * math.pi ** (n + 1)
    pole = e("And", e("LessOrEqual", x, 0.0), e("Equal", x, e("Floor", x)))
    return e.where(pole, sign * math.inf, e.where(left, mirrored, found))


def cotangent_coefficients(n: int) -> Any:
    """The n-th derivative of the cotangent as a polynomial of it, from the highest power down: fitted exactly through its own values."""
    at = np.arange(n + 2.0)
    return np.round(np.polyfit(at, cotangent_derivative(n, at), n + 1))


# ---------------------------------------------------------------- the normal distribution


def scaled_tail(e: Emitter, x: Wire) -> Any:
    """e^(x²)·erfc(x) of x >= 0: the Chebyshev fit of `erfc` without its e^(-x²)."""
    t = 1.0 / (x * 0.5 + 1.0)
    coefficients = (0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368)
    return t * e("Exp", horner(t, (*coefficients, -1.26551223)))


@exports("erfcx")
def erfcx(e: Emitter, x: Wire) -> Any:
    """e^(x²)·erfc(x)"""
    below = e("Min", x, 0.5)
    return e.where(e("Greater", x, 0.5), scaled_tail(e, e("Max", x, 0.0)), e("Exp", below * below) * erfc(e, below))


@exports("log_ndtr")
def log_ndtr(e: Emitter, x: Wire) -> Any:
    """The logarithm of the normal distribution: below -1 by the scaled tail, whose exponent comes back exactly."""
    z = e("Max", x * -math.sqrt(0.5), 0.0)
    low = e("Log", scaled_tail(e, z) * 0.5) - x * x * 0.5
    return e.where(e("Less", x, -1.0), low, log1p(e, erfc(e, x * math.sqrt(0.5)) * -0.5))


def quantile(e: Emitter, q: Any, rest: Any) -> Any:
    """The normal quantile of 1/2 + q, with what is left to 0 or 1, by Wichura's three ranges (gradlab/ops/special.py)."""
    r = 0.180625 - q * q
    centre = q * (horner(r, WICHURA_A) / horner(r, WICHURA_B))
    s = e("Sqrt", -e("Log", rest))
    near, far = s - 1.6, s - 5.0
    close = horner(near, WICHURA_C) / horner(near, WICHURA_D)
    tail = e.where(e("LessOrEqual", s, 5.0), close, horner(far, WICHURA_E) / horner(far, WICHURA_F))
    tail = e.where(e("IsInf", s), math.inf, tail)
    tail = e.where(e("Less", q, 0.0), -tail, tail)
    return e.where(e("LessOrEqual", e("Abs", q), 0.425), centre, tail)


@exports("ndtri")
def ndtri(e: Emitter, x: Wire) -> Any:
    """The normal quantile; infinite at 0 and 1, NaN beyond."""
    return quantile(e, x - 0.5, e("Min", x, 1.0 - x))


@exports("erfinv")
def erfinv(e: Emitter, x: Wire) -> Any:
    """The quantile of (1 + x)/2, over √2."""
    return quantile(e, x * 0.5, 0.5 - e("Abs", x) * 0.5) * math.sqrt(0.5)


# ---------------------------------------------------------------- Bessel functions (DLMF 10.25.2 and 10.40.1)

NEAR, NEAR_TERMS = 30.0, 50  # up to there the series, whose terms Hankel's expansion replaces beyond


def bessel(order: int, scaled: bool) -> Callable[..., Any]:
    """A converter of I of order 0 or 1, or of e^-|x| I: the power series up to NEAR, of (x / NEAR)², then Hankel's expansion."""

    def converter(e: Emitter, x: Wire) -> Any:
        a = e("Abs", x)
        small = e("LessOrEqual", a, NEAR)
        inner = e("Min", a, NEAR)
        t, top = inner * (1 / NEAR), (0.5 * NEAR) ** 2
        terms = [top**k / (math.factorial(k) * math.factorial(k + order)) for k in range(NEAR_TERMS)]
        near = horner(t * t, terms[::-1])
        near = near if order == 0 else near * inner * 0.5
        outer = e("Max", a, NEAR)
        inverse = 1.0 / (outer * 8.0)
        factors = [1.0]
        for k in range(1, 12):
            factors.append(factors[-1] * ((2 * k - 1) ** 2 - 4 * order**2) / k)
        far = horner(inverse, factors[::-1]) / e("Sqrt", outer * (2 * math.pi))
        if scaled:
            near = near * e("Exp", -inner)
        else:
            half = e("Exp", outer * 0.5)  # in two steps: e^a overflows before I(a) does
            far = e.where(e("IsInf", outer), math.inf, far * half * half)
        found = e.where(small, near, far)
        return found if order == 0 else found * e("Sign", x)

    return converter


for _order in (0, 1):
    exports(f"i{_order}")(bessel(_order, False))
    exports(f"i{_order}e")(bessel(_order, True))


# ---------------------------------------------------------------- divisors


def greatest(e: Emitter, a: Wire, b: Wire) -> Any:
    """Euclid's algorithm as a Loop until every remainder is 0; of 64-bit numbers it takes at most 91 steps."""
    a, b = e("Abs", a), e("Abs", b)
    zero = a * 0 + b * 0  # both in the common shape
    a, b = a + zero, b + zero
    with e.inside() as inner:
        turn_, going = inner.entry(np.dtype(np.int64), ()), inner.entry(np.dtype(bool), ())
        p, q = inner.entry(a.dtype), inner.entry(a.dtype)
        done = inner("Equal", q, 0)
        rest = inner("Mod", p, inner.where(done, 1, q))
        new_p, new_q = inner.where(done, p, q), inner.where(done, 0, rest)
        body = inner.graph([turn_, going, p, q], [inner("Identity", going), new_p, new_q])
    return e("Loop", e.number(92, np.dtype(np.int64)), e.constant(True), a, b, outputs=2, dtype=a.dtype, body=body)[0]


@exports("gcd")
def gcd(e: Emitter, a: Wire, b: Wire) -> Any:
    """The greatest common divisor."""
    return greatest(e, a, b)


@exports("lcm")
def lcm(e: Emitter, a: Wire, b: Wire) -> Any:
    """The least common multiple."""
    divisor = greatest(e, a, b)
    return e("Abs", a * e("Div", b, e("Max", divisor, 1)))
