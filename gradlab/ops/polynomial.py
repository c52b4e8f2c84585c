"""Orthogonal polynomials of whole degrees and their derivatives, element by element, computed in float64: one row for twelve families.

Source: NIST Digital Library of Mathematical Functions (DLMF): the three-term recurrences of table 18.9.1, differentiated where a
derivative is asked for; Chebyshev's polynomials of higher degree between -1 and 1 by cosines, 18.5.1 to 18.5.4, which lose less there. As
an expression in kernels/polynomial_math.h. """

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.spec import Spec, broadcast

KINDS = (
    "chebyshev_t", "chebyshev_u", "chebyshev_v", "chebyshev_w", "shifted_chebyshev_t", "shifted_chebyshev_u", "shifted_chebyshev_v",
    "shifted_chebyshev_w", "hermite_h", "hermite_he", "laguerre_l", "legendre_p",
)  # fmt: skip
HERMITE_H, HERMITE_HE, LAGUERRE, LEGENDRE = 8, 9, 10, 11
MOST = 7  # derivatives
BY_ANGLE = 8  # from a higher degree on
HIGHEST = 10_000  # degree by recurrence, which has no digits left beyond


def polynomial_rule(x: Spec, n: Spec, *, kind: int, derivative: int) -> Spec:
    """Rule: arguments and degrees, broadcast."""
    if not 0 <= kind < len(KINDS):
        raise TypeError(f"there are {len(KINDS)} families of polynomials, not one of the number {kind}")
    if derivative > MOST:
        raise TypeError(f"derivatives up to the {MOST}th are offered, not the {derivative}th")
    return broadcast(x, n)


def _by_angle(kind: int, x: Any, n: Any) -> Any:
    angle = np.arccos(x)
    if kind == 0:
        return np.cos(n * angle)
    if kind == 1:
        return np.sin((n + 1) * angle) / np.sin(angle)
    half = 0.5 * angle
    return np.cos((n + 0.5) * angle) / np.cos(half) if kind == 2 else np.sin((n + 0.5) * angle) / np.sin(half)


def _step(kind: int, x: Any, k: int) -> tuple[Any, float, float, float]:
    """How p of degree k and the one before make the next: factor of p, its slope, factor of the one before, divisor."""
    if kind < HERMITE_H:
        return 2 * x, 2.0, 1.0, 1.0
    if kind == HERMITE_H:
        return 2 * x, 2.0, 2.0 * k, 1.0
    if kind == HERMITE_HE:
        return x, 1.0, k, 1.0
    if kind == LAGUERRE:
        return (2 * k + 1) - x, -1.0, k, k + 1.0
    return (2 * k + 1) * x, 2 * k + 1.0, k, k + 1.0


def _start(kind: int, x: Any) -> tuple[Any, float]:
    """The polynomial of degree 1, and its slope."""
    if kind in (0, HERMITE_HE, LEGENDRE):
        return x, 1.0
    if kind == LAGUERRE:
        return 1 - x, -1.0
    return 2 * x + {2: -1.0, 3: 1.0}.get(kind, 0.0), 2.0


def polynomial(x: Any, n: Any, kind: int, derivative: int) -> Any:
    """p(x) of degree n (cut to a whole number), or its derivative of that order; 0 for a negative degree, NaN where the recurrence leaves
    float64's range. float64, of one shape."""
    n = np.trunc(n)
    scale = 1.0
    if 4 <= kind < HERMITE_H:
        kind, x, scale = kind - 4, 2 * x - 1, 2.0**derivative
    found = np.where(n < derivative, 0.0, np.ones_like(x) if derivative == 0 else np.zeros_like(x))
    degrees = np.where(np.isnan(x) | np.isnan(n), 0, n)
    if derivative == 0 and kind < 4:
        turned = (degrees > BY_ANGLE) & (np.abs(x) < 1)
        if turned.any():
            found[turned] = _by_angle(kind, x[turned], n[turned])
            degrees = np.where(turned, 0, degrees)
    found[degrees > HIGHEST] = np.nan
    degrees = np.where(degrees > HIGHEST, 0, degrees)
    before: list[Any] = [np.ones_like(x)] + [np.zeros_like(x)] * derivative
    first, slope = _start(kind, x)
    now: list[Any] = [first, np.full_like(x, slope), *([np.zeros_like(x)] * derivative)][: derivative + 1]
    top, k = float(np.max(degrees, initial=0)), 1
    while k <= top:
        found = np.where(degrees == k, now[derivative], found)
        factor, slope, back, divisor = _step(kind, x, k)
        following = []
        for d in range(derivative + 1):
            value = factor * now[d] - back * before[d]
            following.append((value + d * slope * now[d - 1] if d else value) / divisor)
        before, now = now, following
        k += 1
        if k % 64 == 0 and np.isnan(now[derivative][degrees >= k]).all():  # beyond float64's range
            found = np.where(degrees >= k, np.nan, found)
            break
    return scale * np.where(np.isnan(x) | np.isnan(n), np.nan, found)


def polynomial_cpu(x: Any, n: Any, y: Any, *, kind: int, derivative: int) -> None:
    x, n = np.broadcast_arrays(x.astype(np.float64), n.astype(np.float64))
    np.copyto(y, polynomial(x, n, kind, derivative), casting="same_kind")


orthogonal_polynomial: Op = Op(
    "orthogonal_polynomial", polynomial_rule, params=("kind", "derivative"), cpu=polynomial_cpu, promote="float", sharp=True,
    cuda=Elementwise("orthogonal(int(kind), int(derivative), x, n)"),
    grad={"x": lambda g, x, n, kind, derivative: g * orthogonal_polynomial(x, n, kind=kind, derivative=derivative + 1)},
)  # fmt: skip
