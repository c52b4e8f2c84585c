"""The modified Bessel functions of the first kind, of order 0 and 1, element by element, computed in float64.

Source: NIST Digital Library of Mathematical Functions (DLMF): the power series 10.25.2 up to an argument of 8, from there on a fit of
√x e^-x I(x), as of Hankel's expansion 10.40.1; derivatives 10.29.3 and 10.29.2. As expressions in kernels/bessel_math.h.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.ops.bessel_tables import I0_FAR, I1_FAR
from gradlab.ops.special import blocks, horner
from gradlab.spec import same

NEAR = 8.0


def near(order: int, a: Any) -> Any:
    """I(a) of 0 <= a <= NEAR by the power series of (a/2)²; its terms are all positive, so nothing cancels."""
    t = np.square(0.5 * a)
    top = float(t.max(initial=0.0))
    coefficients, term, total, k = [1.0], 1.0, 1.0, 0
    while term > 1e-18 * total:
        k += 1
        coefficients.append(1 / (math.factorial(k) * math.factorial(k + order)))
        term = coefficients[-1] * top**k
        total += term
    return horner(t, tuple(reversed(coefficients))) * (0.5 * a) ** order


def far(order: int, a: Any) -> Any:
    """e^-a · I(a) of a > NEAR; 0 at infinity."""
    return horner(2 * (NEAR / a) - 1, (I0_FAR, I1_FAR)[order]) / np.sqrt(a)


def bessel_i(order: int, x: Any, scaled: bool) -> Any:
    """I(x), or e^-|x| · I(x), of float64 numbers."""
    a = np.abs(x)
    small = a <= NEAR
    found = np.empty_like(a)
    inner, outer = a[small], a[~small]
    found[small] = near(order, inner) * (np.exp(-inner) if scaled else 1.0)
    if outer.size:
        tail = far(order, outer)
        if not scaled:
            half = np.exp(0.5 * outer)  # in two steps: e^a overflows before I(a) does
            tail = np.where(np.isinf(outer), np.inf, tail * half * half)
        found[~small] = tail
    return np.copysign(found, x) if order else found


def _cpu(order: int, scaled: bool) -> Any:
    def cpu(x: Any, y: Any) -> None:
        for part, out in blocks(x, y):
            np.copyto(out, bessel_i(order, part.astype(np.float64), scaled), casting="same_kind")

    return cpu


def _ratio(y: Any, x: Any) -> Any:
    """I1(x) / x: where x is tiny its limit 1/2, since y may have been rounded to 0; 0 where y overflows, as I0 does."""
    tiny = x.abs() < 1e-18
    return (y / x.masked_fill(tiny, 1)).masked_fill(tiny, 0.5).masked_fill(y.isinf() & x.isfinite(), 0)


i0: Op = Op("i0", same, cpu=_cpu(0, False), cuda=Elementwise("bessel_i0(x)"), promote="float",
            grad={"x": lambda g, x: g * i1(x)})  # fmt: skip
i0e: Op = Op("i0e", same, cpu=_cpu(0, True), cuda=Elementwise("bessel_i0e(x)"), promote="float", sharp=True,
             grad={"x": lambda g, x, y: g * (i1e(x) - x.sign() * y)})  # fmt: skip
i1: Op = Op("i1", same, cpu=_cpu(1, False), cuda=Elementwise("bessel_i1(x)"), promote="float", sharp=True,
            grad={"x": lambda g, x, y: g * (i0(x) - _ratio(y, x))})  # fmt: skip
i1e: Op = Op("i1e", same, cpu=_cpu(1, True), cuda=Elementwise("bessel_i1e(x)"), promote="float", sharp=True,
             grad={"x": lambda g, x, y: g * (i0e(x) - _ratio(y, x) - x.sign() * y)})  # fmt: skip
