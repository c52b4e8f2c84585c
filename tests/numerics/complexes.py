"""Functions of complex numbers: the distance in the plane from the exact result, in units in the last place of its magnitude."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from numerics.scalars import named


@dataclass(frozen=True)
class Complex:
    """A function of finite complex numbers; `span` bounds their magnitude where the result would overflow or turn without end."""

    name: str
    call: Callable[..., Any]
    exact: str
    count: int = 1
    span: float = np.inf
    cuts: bool = False  # on the axes the result depends on the sign of a zero


def c(name: str, exact: str, count: int = 1, span: float = np.inf, cuts: bool = False) -> Complex:
    return Complex(f"complex {name}", named(name), exact, count, span, cuts)


COMPLEX = {
    entry.name: entry
    for entry in [
        c("abs", "abs(x)"), c("angle", "mp.arg(x)"), c("sgn", "x / abs(x)"), c("exp", "mp.exp(x)", span=80), c("log", "mp.log(x)"),
        c("sqrt", "mp.sqrt(x)"), c("sin", "mp.sin(x)", span=80), c("cos", "mp.cos(x)", span=80), c("tan", "mp.tan(x)", span=80),

             c("sinh", "mp.sinh(x)", span=80), c("cosh", "mp.cosh(x)", span=80), c("tanh", "mp.tanh(x)", span=80),
        *(c(f"a{name}", f"mp.a{name}(x)", span=1e8, cuts=True) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")),
        c("reciprocal", "1 / x"), c("square", "x * x"), c("sigmoid", "1 / (1 + mp.exp(-x))", span=80), c("add", "a + b", 2),
        c("mul", "a * b", 2), c("div", "a / b", 2), c("pow", "mp.exp(b * mp.log(a))", 2, 20),
    ]
}  # fmt: skip


def points(entry: Complex, dtype: str) -> list[np.ndarray]:
    """Arguments whose parts the dtype has exactly: of all magnitudes, of one's own size, real and imaginary ones."""
    r = np.random.default_rng(len(entry.name) + entry.count)
    kind = np.finfo(dtype)
    high = min(float(np.log2(kind.max)) / 2, float(np.log2(entry.span)))
    found = []
    for _ in range(entry.count):
        ranges = ((-high, high), (-4, min(4, high)))
        wide, middle = (np.exp2(r.uniform(low, top, (120, 2))) * r.choice([-1, 1], (120, 2)) for low, top in ranges)
        axis = np.concatenate([middle[:40] * [1, 0], middle[40:80] * [0, 1]])
        parts = np.concatenate([wide, middle, axis, [[1, 0], [-1, 0], [0, 1], [0, -1], [0.5, 0.5]]]).astype(dtype).astype(np.float64)
        inside = (np.hypot(*parts.T) <= entry.span) & (np.all(parts != 0, axis=1) | (not entry.cuts))
        parts[~inside] = [0.75, -0.25]
        found.append(parts[:, 0] + 1j * parts[:, 1])
    return found


def distances(got: np.ndarray, want: np.ndarray, dtype: str) -> np.ndarray:
    """In units in the last place of the exact result's magnitude; ∞ where one is not finite and the other is."""
    kind = np.finfo(dtype)
    size = np.abs(want)
    unit = np.ldexp(np.longdouble(1), np.maximum(np.frexp(size)[1] - 1, kind.minexp) - kind.nmant)
    with np.errstate(all="ignore"):
        apart = np.abs(got.astype(np.clongdouble) - want) / unit
    return np.where(np.isnan(apart), np.inf, apart).astype(np.float64)
