"""The gamma function's logarithm and its derivatives, element by element, computed in float64; as expressions in kernels/special_math.h.

Sources: M. Abramowitz and I. A. Stegun, "Handbook of Mathematical Functions" (1964): the series about 2 and Stirling's, 6.1.33 and 6.1.41,
the latter's derivative 6.3.18, recurrence 6.1.15 and 6.3.5, reflection 6.1.17, 6.3.7 and 6.4.7; the polygamma functions by Euler and
Maclaurin's sum, 23.1.30.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.ops.special import horner
from gradlab.spec import Spec, same

# Bernoulli's numbers B2, B4, …
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
STIRLING = tuple(b / (2 * k * (2 * k - 1)) for k, b in reversed(list(enumerate(BERNOULLI, 1))))  # of 1/x², the highest power first
BLOCK = 1 << 13  # elements at a time
LARGE = 10  # from here on the series in 1/x has float64's accuracy
# 1 - Euler's constant, then (-1)^k (zeta(k) - 1) / k: log Γ(2 + z) / z by powers of z
AT_TWO = (
    0.42278433509846713, 0.3224670334241132, -0.0673523010531981, 0.020580808427784546, -0.007385551028673986, 0.0028905103307415234,
    -0.001192753911703261, 0.0005096695247430425, -0.00022315475845357939, 9.945751278180853e-05, -4.492623673813314e-05,
    2.050721277567069e-05, -9.439488275268397e-06, 4.374866789907488e-06, -2.039215753801366e-06, 9.55141213040742e-07,
    -4.492469198764566e-07, 2.1207184805554665e-07, -1.0043224823968099e-07, 4.7698101693639804e-08, -2.2711094608943164e-08,
    1.0838659214896955e-08, -5.183475041970047e-09, 2.4836745438024785e-09, -1.1921401405860912e-09, 5.731367241678862e-10,
    -2.7595228851242334e-10,
)  # fmt: skip


def lifted(x: Any, steps: int) -> Any:
    """Numbers below `steps`, raised by as much as the recurrences take steps."""
    return np.where(x < steps, x + steps, x)


def reflected(x: Any) -> tuple[Any, Any]:
    """Where x lies left of 1/2, and 1 - x there."""
    left = x < 0.5
    return left, np.where(left, 1 - x, x)


def turn(x: Any) -> Any:
    """π times the distance from the nearest integer: sines of it keep their accuracy."""
    return np.pi * (x - np.rint(x))


def stirling(x: Any) -> Any:
    """log Γ(x) of x >= LARGE."""
    total = (x - 0.5) * (np.log(x) - 1) + 0.5 * (math.log(2 * math.pi) - 1)
    power, inverse = 1 / x, 1 / np.square(x)
    for k, b in enumerate(BERNOULLI, 1):
        total = total + b / (2 * k * (2 * k - 1)) * power
        power = power * inverse
    return total


def lgamma_cpu(x: Any, y: Any) -> None:
    flat, out = x.reshape(-1), y.reshape(-1)
    for start in range(0, flat.size, BLOCK):
        part = slice(start, start + BLOCK)
        wide = flat[part].astype(np.float64)
        if x.dtype == np.float64:
            out[part] = log_of_gamma(wide)
            continue
        found = lifted_log_of_gamma(wide)
        rest = ~((wide > 0) & (wide < 1e6) & (np.abs(found) > 1e-4))
        if rest.any():
            found[rest] = log_of_gamma(wide[rest])
        np.copyto(out[part], found, casting="same_kind")


def lifted_log_of_gamma(x: Any) -> Any:
    """log Γ(x) of 0 < x < 1e6 as log Γ(x + 9) - log(x (x + 1) … (x + 8)), off by less than 1e-14: enough for float32 but near its zeros."""
    product, z = x * (x + 1), x + 2
    for _ in range(LARGE - 3):
        product *= z
        z += 1
    inverse = 1 / z
    square = np.square(inverse)
    found = horner(square, STIRLING)
    found *= inverse
    np.log(product, product)
    found -= product
    np.log(z, product)
    product -= 1
    z -= 0.5
    product *= z
    found += product
    found += 0.5 * (math.log(2 * math.pi) - 1)
    return found


def log_of_gamma(wide: Any) -> Any:
    """log Γ(x) of float64 numbers."""
    left = wide <= -0.5
    right = np.where(left, 1 - wide, wide)
    large = right >= LARGE
    base, product = np.where(large, 2.0, right), np.ones_like(right)
    for _ in range(LARGE - 2):
        down = base > 2.5
        base = np.where(down, base - 1, base)
        product = np.where(down, product * base, product)
    small, tiny = base < 1.5, base < 0.5
    z = base - np.where(tiny, 0, np.where(small, 1, 2))
    found = z * horner(z, AT_TWO[::-1]) + np.log(product)
    found = np.where(small, found - np.log1p(z), found)
    found = np.where(tiny, found - np.log(np.abs(base)), found)
    found = np.where(large, stirling(np.where(large, right, LARGE)), found)
    found = np.where(left, math.log(math.pi) - np.log(np.abs(np.sin(turn(wide)))) - found, found)
    return np.where(np.isinf(wide) | ((wide <= 0) & (wide == np.floor(wide))), np.inf, found)


def digamma_cpu(x: Any, y: Any) -> None:
    wide = x.astype(np.float64)
    left, right = reflected(wide)
    base, steps = lifted(right, LARGE), LARGE
    low = right < LARGE
    found = np.log(base) - 0.5 / base
    inverse = 1 / np.square(base)
    power = inverse
    for k, b in enumerate(BERNOULLI, 1):
        found = found - b / (2 * k) * power
        power = power * inverse
    for k in range(steps):
        found = found - np.where(low, 1 / (right + k), 0)
    found = np.where(left, found - np.pi / np.tan(turn(wide)), found)
    found = np.where((wide < 0) & (wide == np.floor(wide)), np.nan, found)
    found = np.where(wide == 0, np.copysign(np.inf, -wide), found)
    np.copyto(y, np.where(wide == np.inf, np.inf, found), casting="same_kind")


def cotangent_derivative(n: int, c: Any) -> Any:
    """The n-th derivative of the cotangent, as a polynomial of the cotangent c, since c' = -(1 + c²)."""
    coefficients = [0.0, 1.0]
    for _ in range(n):
        slope = [k * a for k, a in enumerate(coefficients)][1:]
        coefficients = [-(a + b) for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope], strict=True)]
    return horner(c, tuple(reversed(coefficients)))


def cotangent(x: Any) -> Any:
    """The cotangent of πx, which is 0 halfway between integers."""
    return np.where(np.abs(x - np.rint(x)) == 0.5, 0, 1 / np.tan(turn(x)))


def polygamma_cpu(x: Any, y: Any, *, n: int) -> None:
    """(-1)^(n+1) n! Σ 1 / (x + k)^(n+1) over k >= 0."""
    wide = x.astype(np.float64)
    left = wide < 0
    right = np.where(left, 1 - wide, wide)
    s, steps = n + 1, LARGE + n
    base, low = lifted(right, steps), right < steps
    found = base ** (1 - s) / (s - 1) + 0.5 * base**-s
    factor, power = float(s), base ** (-s - 1)
    for k, b in enumerate(BERNOULLI, 1):
        found = found + b / math.factorial(2 * k) * factor * power
        factor *= (s + 2 * k - 1) * (s + 2 * k)
        power = power / np.square(base)
    for k in range(steps):
        found = found + np.where(low, 1 / (right + k) ** s, 0)
    sign = -1.0 if n % 2 == 0 else 1.0
    found = found * (sign * math.factorial(n))
    mirrored = (1.0 if n % 2 == 0 else -1.0) * found - math.pi ** (n + 1) * cotangent_derivative(n, cotangent(wide))
    found = np.where(left, mirrored, found)
    pole = (wide <= 0) & (wide == np.floor(wide))
    np.copyto(y, np.where(pole, sign * np.inf, found), casting="same_kind")


def polygamma_rule(x: Spec, *, n: int) -> Spec:
    """Rule: the output is like the input."""
    return x


lgamma = Op("lgamma", same, cpu=lgamma_cpu, cuda=Elementwise("lgamma(x)"), promote="float", grad={"x": lambda g, x: g * digamma(x)})
digamma: Op = Op("digamma", same, cpu=digamma_cpu, cuda=Elementwise("digamma(x)"), promote="float",
                 grad={"x": lambda g, x: g * polygamma(x, n=1)})  # fmt: skip
polygamma: Op = Op("polygamma", polygamma_rule, params=("n",), cpu=polygamma_cpu, cuda=Elementwise("polygamma(int(n), x)"), promote="float",
                   grad={"x": lambda g, x, n: g * polygamma(x, n=n + 1)})  # fmt: skip
