"""The incomplete gamma functions, in float64: the lower share's series where x < a + 1, the upper share's continued fraction elsewhere.

Sources: DLMF 8.7.1 and 8.9.2; W. J. Lentz's way to evaluate the fraction, as in W. H. Press and others, "Numerical Recipes" (2nd edition,
1992), section 6.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gradlab.dtype import FLOAT64
from gradlab.onnx.emitter import Emitter, Wire
from gradlab.onnx.registry import exports
from gradlab.onnx.rows.linalg import loop
from gradlab.onnx.rows.special import lgamma

TERMS = 400  # enough for a up to some thousands
TINY = 1e-300


def lower_series(e: Emitter, a: Any, x: Any) -> Any:
    """1 + x / (a + 1) + x² / ((a + 1)(a + 2)) + …"""
    one = x * 0.0 + 1.0

    def step(at: Emitter, k: Any, a: Any, x: Any, term: Any, total: Any) -> Sequence[Any]:
        new = term * x / (a + (at.cast(k, FLOAT64) + 1.0))
        return [at("Identity", a), at("Identity", x), new, total + new]

    return loop(e, TERMS, [a, x, one, one], step)[3]


def upper_fraction(e: Emitter, a: Any, x: Any) -> Any:
    """1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / (x + 5 - a - …)))"""

    def guarded(at: Emitter, v: Any) -> Any:
        return at.where(at("Less", at("Abs", v), TINY), TINY, v)

    def step(at: Emitter, k: Any, a: Any, b: Any, c: Any, d: Any, h: Any) -> Sequence[Any]:
        i = at.cast(k, FLOAT64) + 1.0
        top = i * (a - i)
        new_b = b + 2.0
        new_d = 1.0 / guarded(at, top * d + new_b)
        new_c = guarded(at, new_b + top / c)
        return [at("Identity", a), new_b, new_c, new_d, h * (new_c * new_d)]

    b = x + 1.0 - a
    d = 1.0 / guarded(e, b)
    return loop(e, TERMS, [a, b, x * 0.0 + 1 / TINY, d, d], step)[4]


def share(upper: bool) -> Callable[..., Any]:
    """A converter of igamma or igammac."""

    def converter(e: Emitter, a: Wire, x: Wire) -> Any:
        shape = e.outputs[0].shape
        a, x = (e.cast(e.expand(v, shape), FLOAT64) for v in (a, x))
        wrong = e("Not", e("And", e("Greater", a, 0.0), e("Greater", x, 0.0)))
        wide = e("Or", e("IsInf", a), e("IsInf", x))
        odd = e("Or", wrong, wide)
        a_in, x_in = e.where(odd, 1.0, a), e.where(odd, 1.0, x)
        front = e("Exp", a_in * e("Log", x_in) - x_in - lgamma(e, a_in + 1.0))
        low = e("Less", x_in, a_in + 1.0)
        lower = front * lower_series(e, a_in, e.where(low, x_in, 1.0))
        rest = front * a_in * upper_fraction(e, a_in, e.where(low, a_in + 2.0, x_in))
        found = e.where(low, 1.0 - lower, rest) if upper else e.where(low, lower, 1.0 - rest)
        a_inf, x_inf = e("Equal", a, math.inf), e("Equal", x, math.inf)
        nothing = e("And", e("Equal", x, 0.0), e("Greater", a, 0.0))
        nothing = e("Or", nothing, e("And", a_inf, e("And", e("GreaterOrEqual", x, 0.0), e("Not", x_inf))))
        infinite = e("And", x_inf, e("And", e("GreaterOrEqual", a, 0.0), e("Not", a_inf)))
        whole = e("Or", infinite, e("And", e("Equal", a, 0.0), e("Greater", x, 0.0)))
        none, all_ = (1.0, 0.0) if upper else (0.0, 1.0)
        return e.where(nothing, none, e.where(whole, all_, e.where(odd, math.nan, found)))

    return converter


exports("igamma")(share(False))
exports("igammac")(share(True))
