"""Functions of real numbers to as many digits as wanted, by mpmath: what scalar functions are measured against.

Only `python -m tests.numerics` imports this file; the tests go by the values it leaves in `points.npz`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import mpmath as mp
import numpy as np

PRECISION = 220  # bits
NAN = np.longdouble("nan")
SCALE, ALPHA = mp.mpf(1.0507009873554804934193349852946), mp.mpf(1.6732632423543772848170429916717)  # of SELU
LARGE = mp.mpf(100_000)  # from here on the first terms of an asymptotic series have more digits than float64
log1p, sqrt, pi = mp.log1p, mp.sqrt, mp.pi


def long(y: Any) -> np.longdouble:
    """A number of mpmath as NumPy's widest: 64 bits, and exponents beyond float64's."""
    if isinstance(y, mp.mpc):
        if y.imag != 0:
            return NAN
        y = y.real
    if mp.isnan(y) or mp.isinf(y):
        return np.longdouble(float(y))
    mantissa, exponent = mp.frexp(y)
    head = float(mantissa)
    wide = np.longdouble(head) + np.longdouble(float(mantissa - head))
    with np.errstate(all="ignore"):
        return np.ldexp(wide, int(max(min(exponent, 16400), -16500)))


def values(function: Callable[..., Any], inputs: Sequence[np.ndarray], more: bool = False) -> np.ndarray:
    """The function of finite numbers; NaN where it has no real value. A pole is ±∞ where mpmath has it so, else NaN."""
    found = np.empty(len(inputs[0]), np.longdouble)
    for i, x in enumerate(zip(*inputs, strict=True)):
        least = min([abs(v) for v in x if v], default=1.0)
        with mp.workprec(PRECISION + more * (90 + max(0, -math.frexp(least)[1]))):
            try:
                found[i] = long(function(*[mp.mpf(float(v)) for v in x]))
            except (ValueError, TypeError, ZeroDivisionError, mp.libmp.NoConvergence, OverflowError):
                found[i] = NAN
    return found


def complex_values(function: Callable[..., Any], inputs: Sequence[np.ndarray]) -> np.ndarray:
    """The function of complex numbers, ∞ beyond what the widest numbers hold."""
    found = np.empty(len(inputs[0]), np.clongdouble)
    for i, x in enumerate(zip(*inputs, strict=True)):
        with mp.workprec(PRECISION):
            try:
                y = mp.mpc(function(*[mp.mpc(complex(v)) for v in x]))
                found[i] = long(y.real) + 1j * long(y.imag)
            except (ValueError, ZeroDivisionError, OverflowError):
                found[i] = NAN
    return found


def slopes(function: Callable[..., Any], inputs: Sequence[np.ndarray], which: int) -> np.ndarray:
    """The partial derivative at finite numbers, by differences in many more digits; NaN where it is another one on either side."""

    def slope(*x: Any) -> Any:
        step = mp.ldexp(abs(x[which]) or mp.mpf(1), -90)
        up, down = (function(*[v + sign * step if i == which else v for i, v in enumerate(x)]) for sign in (1, -1))
        middle = function(*x)
        right, left = (up - middle) / step, (middle - down) / step
        if abs(right - left) > abs(right) * mp.mpf(2) ** -30:
            return mp.nan
        return (right + left) / 2

    return values(slope, inputs, more=True)


# ---------------------------------------------------------------- functions that mpmath has not, or not everywhere


def sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def softplus(x: Any) -> Any:
    return log1p(mp.exp(x)) if x < 0 else x + log1p(mp.exp(-x))


def gelu(x: Any) -> Any:
    return x * ndtr(x)


def gelu_tanh(x: Any) -> Any:
    return x * sigmoid(2 * sqrt(2 / pi) * (x + mp.mpf("0.044715") * x**3)) if abs(x) < LARGE else max(x, mp.mpf(0))


def mish(x: Any) -> Any:
    return x * mp.tanh(softplus(x))


def ndtr(x: Any) -> Any:
    return mp.erfc(-x / sqrt(2)) / 2 if abs(x) < LARGE else mp.mpf(x > 0)


def log_ndtr(x: Any) -> Any:
    if x < -LARGE:
        return -x * x / 2 - mp.log(-x * sqrt(2 * pi)) - 1 / (x * x)
    return mp.log(ndtr(x)) if x < 0 else log1p(-ndtr(-x))


def ndtri(p: Any) -> Any:
    if p == 1:
        return mp.inf
    if not 0 < p < 1:
        raise ValueError
    if p > 0.5:
        return -ndtri(1 - p)
    if p == 0.5:
        return mp.mpf(0)
    t = mp.sqrt(-2 * mp.log(p))
    guess = -(t - (2.30753 + 0.27061 * t) / (1 + 0.99229 * t + 0.04481 * t * t))
    for _ in range(12):  # Newton's method on the logarithm, which is nearly a parabola
        tail = ndtr(guess)
        step = mp.log(tail / p) * tail / (mp.exp(-guess * guess / 2) / sqrt(2 * pi))
        guess -= step
        if abs(step) < abs(guess) * mp.mpf(2) ** -110:
            break
    return guess


def erfinv(x: Any) -> Any:
    if abs(x) == 1:
        return x * mp.inf
    if not -1 < x < 1:
        raise ValueError
    if abs(x) < 1e-8:  # (√π/2)(x + π x³/12 + 7π² x⁵/480)
        return sqrt(pi) / 2 * (x + pi * x**3 / 12 + 7 * pi**2 * x**5 / 480)
    return ndtri((1 - abs(x)) / 2) / sqrt(2) * (-1 if x > 0 else 1)


def erfc(x: Any) -> Any:
    return mp.erfc(x) if abs(x) < LARGE else mp.mpf(2 if x < 0 else 0)


def erfcx(x: Any) -> Any:
    if x < -LARGE:
        return mp.inf
    return mp.exp(x * x) * mp.erfc(x) if x < LARGE else (1 - 1 / (2 * x * x)) / (x * sqrt(pi))


def logit(x: Any) -> Any:
    if x == 1:
        return mp.inf
    if not 0 < x < 1:
        raise ValueError
    return mp.log(x) - log1p(-x)


def lgamma(x: Any) -> Any:
    if x <= 0 and x == mp.floor(x):
        return mp.inf
    return mp.loggamma(x).real if x > 0 else mp.log(pi / abs(mp.sinpi(x))) - mp.loggamma(1 - x).real


def bessel_large(x: Any, order: int, sign: int) -> Any:
    """√(π/2)/√x times the first terms of e^∓x I or K."""
    m = mp.mpf(4 * order * order)
    found = term = mp.mpf(1)
    for k in range(1, 8):
        term *= sign * (m - (2 * k - 1) ** 2) / (k * 8 * x)
        found += term
    return found


def ie(order: int) -> Callable[[Any], Any]:
    """e^-|x| I(x)."""

    def function(x: Any) -> Any:
        a = abs(x)
        found = mp.exp(-a) * mp.besseli(order, a) if a < LARGE else bessel_large(a, order, -1) / sqrt(2 * pi * a)
        return -found if order and x < 0 else found

    return function


def i(order: int) -> Callable[[Any], Any]:
    return lambda x: mp.besseli(order, x) if abs(x) < LARGE else (mp.inf if x > 0 or not order else -mp.inf)


def _second(order: int, x: Any, sign: int) -> tuple[Any, Any]:
    """The logarithmic solution of order 0 or 1 without its constant, K for sign 1 and Y for -1: its power series (DLMF 10.8.1, 10.31.1)."""
    q, first = sign * x * x / 4, mp.besseli(order, x) if sign > 0 else mp.besselj(order, x)
    total, term, harmonic = mp.mpf(0), mp.mpf(1), mp.mpf(0)
    for n in range(1, 5000):
        total += term * (harmonic if order == 0 else 2 * (harmonic - mp.euler) + mp.mpf(1) / n)
        harmonic += mp.mpf(1) / n
        term *= q / (n * (n + order))
        if abs(term * harmonic) < mp.ldexp(1, -mp.mp.prec):
            break
    return first, total


def _hankel(order: int, x: Any, sign: int) -> tuple[Any, Any]:
    """The even and odd terms of the asymptotic series of Bessel functions at x >= 100."""
    sums, term = [mp.mpf(0), mp.mpf(0)], mp.mpf(1)
    for n in range(60):
        sums[n % 2] += term * (sign ** (n // 2))
        term *= mp.mpf(4 * order * order - (2 * n + 1) ** 2) / ((n + 1) * 8 * x)
    return sums[0], sums[1]


def ke(order: int) -> Callable[[Any], Any]:
    """e^x K(x)."""

    def function(x: Any) -> Any:
        if x < 0:
            raise ValueError
        if x > 100:
            return sum(_hankel(order, x, 1)) * sqrt(pi / (2 * x))
        with mp.workprec(mp.mp.prec + 300):
            first, total = _second(order, x, 1)
            if order == 0:
                return mp.exp(x) * (total - (mp.log(x / 2) + mp.euler) * first)
            return mp.exp(x) * (1 / x + mp.log(x / 2) * first - x / 4 * total)

    return function


def k(order: int) -> Callable[[Any], Any]:
    return lambda x: ke(order)(x) * mp.exp(-x) if x < LARGE else mp.mpf(0)


def y(order: int) -> Callable[[Any], Any]:
    """Bessel's function of the second kind."""

    def function(x: Any) -> Any:
        if x < 0:
            raise ValueError
        if x > 100:
            even, odd = _hankel(order, x, -1)
            angle = x - (2 * order + 1) * pi / 4
            return sqrt(2 / (pi * x)) * (even * mp.sin(angle) + odd * mp.cos(angle))
        with mp.workprec(mp.mp.prec + 300):
            first, total = _second(order, x, -1)
            if order == 0:
                return 2 / pi * ((mp.log(x / 2) + mp.euler) * first - total)
            return -2 / (pi * x) + 2 / pi * mp.log(x / 2) * first - x / (2 * pi) * total

    return function


def polygamma(n: int, x: Any) -> Any:
    """Below 0 by reflection; the derivatives of the cotangent c are polynomials of c, since c' = -π(1 + c²)."""
    if x > 0:
        return mp.polygamma(n, x)
    if x == mp.floor(x):
        return mp.nan if n == 0 else (-1) ** (n + 1) * mp.inf
    c, powers = mp.cot(pi * x), [mp.mpf(0), mp.mpf(1)]
    for _ in range(n):
        slope = [i * p for i, p in enumerate(powers)][1:]
        powers = [-pi * sum(s[i] for s in ([*slope, 0, 0], [0, 0, *slope])) for i in range(len(slope) + 2)]
    return -pi * sum(p * c**i for i, p in enumerate(powers)) + (-1) ** n * mp.polygamma(n, 1 - x)


def gammainc(a: Any, x: Any) -> Any:
    if a < 0 or x < 0:
        raise ValueError
    return mp.gammainc(a, 0, x, regularized=True)


def gammaincc(a: Any, x: Any) -> Any:
    if a < 0 or x < 0:
        raise ValueError
    return mp.gammainc(a, x, mp.inf, regularized=True)


def zeta(s: Any, q: Any) -> Any:
    if s <= 1 or (q < 0 and s != mp.floor(s)):
        raise ValueError
    return mp.zeta(s, q)


def fmod(a: Any, b: Any) -> Any:
    """a - b·trunc(a/b), exactly."""
    with mp.workprec(2400):
        return a - b * _whole(a / b)


def _whole(x: Any) -> Any:
    return mp.floor(x) if x >= 0 else mp.ceil(x)


def floor_divide(a: Any, b: Any) -> Any:
    with mp.workprec(2400):
        return mp.floor(a / b)


def remainder(a: Any, b: Any) -> Any:
    with mp.workprec(2400):
        return a - b * mp.floor(a / b)


def power(a: Any, b: Any) -> Any:
    if a < 0 and b != mp.floor(b):
        raise ValueError
    negative = a < 0 and mp.fmod(b, 2) != 0
    found = mp.exp(b * mp.log(abs(a)))
    return -found if negative else found


def logaddexp(a: Any, b: Any) -> Any:
    return max(a, b) + log1p(mp.exp(-abs(a - b)))


def function(text: str, count: int) -> Callable[..., Any]:
    """The function of an entry's text, of x, or of a and b."""
    names = {**globals(), "exact": SimpleNamespace(**globals())}
    return eval(f"lambda {'x' if count == 1 else 'a, b'}: {text}", names)  # the table's own text


def round_even(x: Any) -> Any:
    return mp.nint(x)
