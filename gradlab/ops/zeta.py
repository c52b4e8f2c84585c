"""The zeta function of Riemann and Hurwitz, element by element, computed in float64; as an expression in kernels/special_math.h.

Source: NIST Digital Library of Mathematical Functions (DLMF) 25.11: its series term by term where few count, the rest by Euler and
Maclaurin's formula 25.11.28; left of 0 the sum over all integers without what lies left of q. The derivative by q is 25.11.17.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.ops.gamma import BERNOULLI
from gradlab.spec import broadcast

CORRECTIONS = tuple(b / math.factorial(2 * k) for k, b in enumerate(BERNOULLI, 1))
MOST = 400  # terms that are added one by one; some 180 are needed at most


def zeta_right(s: Any, q: Any) -> Any:
    """Σ (q + k)^-s over k >= 0, of s > 1 and q > 0."""
    total, q, active = np.zeros_like(q), q.copy(), np.ones(q.shape, bool)
    done = np.zeros(q.shape, bool)
    for _ in range(MOST):
        active = ~done & (q < 9 + s)
        if not active.any():
            break
        term = np.where(active, q**-s, 0)
        total += term
        done |= active & (term <= 1e-17 * total)
        q += active
    rest = ~done & np.isfinite(q) & np.isfinite(s)
    q, inverse = np.where(rest, q, 1), 1 / np.where(rest, q, 1)
    power, correction, factor = np.square(inverse), 0.0, s * inverse
    for k, b in enumerate(CORRECTIONS):
        correction = correction + b * factor
        factor = factor * ((s + 2 * k + 1) * (s + 2 * k + 2) * power)
    return total + np.where(rest, (1 / (s - 1) + inverse * (0.5 + correction)) * q ** (1 - s), 0)


def zeta_wide(s: Any, q: Any) -> Any:
    """ζ(s, q) of float64 numbers of one shape: inf at s = 1 and at q = 0, -1, -2 …; NaN for s < 1, and for q < 0 unless s is whole."""
    found = np.full(q.shape, np.nan)
    right = (s > 1) & (q > 0)
    if right.any():
        found[right] = zeta_right(s[right], q[right])
    pole = (s > 1) & (q <= 0) & (q == np.floor(q))
    left = (s > 1) & (q < 0) & ~pole & (s == np.floor(s)) & np.isfinite(s)
    if left.any():
        power, at = s[left], q[left]
        t = at - np.rint(at)
        sign = np.where(np.mod(power, 2) == 0, 1.0, -1.0)
        total = np.where(t < 0, sign, 1) * np.abs(t) ** -power + zeta_right(power, 1 + t)
        found[left] = total + np.where(t == at, 0, sign * (zeta_right(power, 1 - t) - zeta_right(power, 1 - at)))
    found[pole] = np.inf
    return np.where((s == 1) & ~np.isnan(q), np.inf, found)


def zeta_cpu(s: Any, q: Any, y: Any) -> None:
    s, q = np.broadcast_arrays(s.astype(np.float64), q.astype(np.float64))
    np.copyto(y, zeta_wide(s, q), casting="same_kind")


def zeta_rule(s: Any, q: Any) -> Any:
    """Rule: exponents and where the sum begins, broadcast."""
    return broadcast(s, q)


zeta: Op = Op("zeta", zeta_rule, cpu=zeta_cpu, cuda=Elementwise("zeta(s, q)"), promote="float", sharp=True,
              grad={"q": lambda g, s, q: -g * s * zeta(s + 1, q)})  # fmt: skip
