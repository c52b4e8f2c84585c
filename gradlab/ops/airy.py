"""The Airy function Ai and its derivative, element by element, computed in float64; as expressions in kernels/bessel_math.h.

Source: NIST Digital Library of Mathematical Functions (DLMF): to the right K of order 1/3 and 2/3, 9.6.2 and 9.6.3; to the left modulus and
phase, 9.7.9 and 9.7.10, with fits in place of the asymptotic series; a fit between, whose zeros are factors of their own. Ai'' = x Ai.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.ops import bessel_tables as tables
from gradlab.ops.cylinder import argument, without
from gradlab.ops.special import blocks, horner
from gradlab.spec import same

RIGHT, LEFT = 1.35, -3.25  # between them lies the fit about 0


def airy(x: Any, derivative: bool) -> Any:
    """Ai(x), or its derivative, of float64 numbers; 0 at ±inf, where the derivative is 0 and NaN."""
    found = np.full_like(x, np.nan)
    right, left = x > RIGHT, x < LEFT
    middle = (x >= LEFT) & (x <= RIGHT)
    for where, function in ((right, _right), (left, _left), (middle, _middle)):
        if where.any():
            found[where] = function(x[where], derivative)
    return found


def _middle(x: Any, derivative: bool) -> Any:
    u = (x + 0.95) / 2.35
    if derivative:
        return without(x, tables.AIRY_PRIME_ZEROS, False) * horner(u, tables.AIRY_PRIME_MIDDLE)
    return without(x, tables.AIRY_ZEROS, False) * horner(u, tables.AIRY_MIDDLE)


def _right(x: Any, derivative: bool) -> Any:
    x = np.minimum(x, 150.0)  # where it is 0 already
    root = np.sqrt(x)
    zeta = (2 / 3) * x * root
    table = tables.AIRY_PRIME_RIGHT if derivative else tables.AIRY_RIGHT
    found = horner(argument(1 / zeta), table) * (np.exp(-zeta) / np.sqrt(zeta) * (1 / (math.pi * math.sqrt(3))))
    return -x * found if derivative else root * found


def _left(x: Any, derivative: bool) -> Any:
    finite = np.where(np.isinf(x), LEFT, x)
    root = np.sqrt(-finite)
    zeta = (2 / 3) * -finite * root
    u = argument(np.square(3.9 / zeta))
    c, s = np.cos(zeta), np.sin(zeta)
    if derivative:
        wave = (s - c) * horner(u, tables.AIRY_R) - (c + s) * (horner(u, tables.AIRY_S) / zeta)
        found = wave * np.sqrt(root) / math.sqrt(2 * math.pi)
    else:
        wave = (c + s) * horner(u, tables.AIRY_P) + (s - c) * (horner(u, tables.AIRY_Q) / zeta)
        found = wave / np.sqrt(root) / math.sqrt(2 * math.pi)
    return np.where(np.isinf(x), np.nan if derivative else 0.0, found)


def _cpu(derivative: bool) -> Any:
    def cpu(x: Any, y: Any) -> None:
        for part, out in blocks(x, y):
            np.copyto(out, airy(part.astype(np.float64), derivative), casting="same_kind")

    return cpu


airy_ai = Op("airy_ai", same, cpu=_cpu(False), cuda=Elementwise("airy_ai(x)"), promote="float", sharp=True,
             grad={"x": lambda g, x: g * airy_ai_prime(x)})  # fmt: skip
airy_ai_prime: Op = Op("airy_ai_prime", same, cpu=_cpu(True), cuda=Elementwise("airy_ai_prime(x)"), promote="float", sharp=True,
                       grad={"x": lambda g, x: g * x * airy_ai(x)})  # fmt: skip
