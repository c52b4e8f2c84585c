"""Where scalar functions are measured, and how far a result is from the exact one."""

from __future__ import annotations

import zlib
from typing import Any

import ml_dtypes
import numpy as np

from numerics.scalars import Scalar

DTYPES = ("float32", "float64", "float16", "bfloat16")
INF = np.inf


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype of that name, bfloat16 among them."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def _draws(entry: Scalar, dtype: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(f"{entry.name} {dtype}".encode()))


def _special(dtype: str) -> np.ndarray:
    kind = ml_dtypes.finfo(numpy_dtype(dtype))
    tiny, largest, least, eps = float(kind.tiny), float(kind.max), float(kind.smallest_subnormal), float(kind.eps)
    sizes = [least, 3 * least, tiny - least, tiny, 3 * tiny, eps, 0.1, 0.5, 1 - eps / 2, 1, 1 + eps, 1.5, 2, 3, 4, 5, 7.5, 10, 20, 50, 88,
             104, 170, largest ** 0.5, largest / 2, largest]  # fmt: skip
    return np.array([0.0, -0.0, INF, -INF, np.nan, *sizes, *(-s for s in sizes)])


def _random(entry: Scalar, dtype: str, r: np.random.Generator, n: int) -> np.ndarray:
    kind = ml_dtypes.finfo(numpy_dtype(dtype))
    low, high = np.log2(float(kind.smallest_subnormal)), np.log2(min(float(kind.max), entry.span))
    parts = [
        np.exp2(r.uniform(low, high, n)) * r.choice([-1, 1], n),
        np.exp2(r.uniform(-12, min(8, high), n)) * r.choice([-1, 1], n),
        *(r.uniform(-s, s, n // 2) for s in (1, 10, 100) if s <= entry.span),
        r.integers(-20, 21, n // 8).astype(float),
    ]
    close = [point + np.exp2(-r.uniform(1, 2 + int(kind.nmant), n // 4)) * r.choice([-1, 1], n // 4) for point in entry.near]
    return np.concatenate([*parts, *close])


def points(entry: Scalar, dtype: str) -> list[np.ndarray]:
    """The arguments, as float64 numbers that the dtype has exactly."""
    r = _draws(entry, dtype)
    n = {"float32": 200, "float64": 80}.get(dtype, 40)
    special = _special(dtype)
    if entry.count == 1:
        found = [np.concatenate([special, _random(entry, dtype, r, n)])]
    else:
        n //= 2
        size = np.abs(special)
        some = special[np.isin(size, [0, INF, 0.5, 1, 2, 3, 20]) | np.isnan(special) | (size > 1e4) | (size < 1e-4)]
        crossed = [v.ravel() for v in np.meshgrid(some, some)]
        draws = [r.permutation(_random(entry, dtype, r, n)) for _ in range(2)]
        like = draws[0] * (1 + np.exp2(-r.uniform(0, 20, len(draws[0]))) * r.choice([-1, 1], len(draws[0])))
        middle = [np.exp2(r.uniform(-6, 6, 2 * n)) * r.choice([-1, 1], 2 * n) for _ in range(2)]
        found = [np.concatenate(v) for v in zip(crossed, draws, middle, [draws[0], like], strict=True)]
    if entry.positive:
        found = [np.abs(v) for v in found]
    with np.errstate(all="ignore"):
        found = [v.astype(numpy_dtype(dtype)).astype(np.float64) for v in found]
    kept = np.ones(len(found[0]), bool)
    for v in found:
        kept &= ~(np.isfinite(v) & (np.abs(v) > entry.span))
    return [v[kept] for v in found]


def errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """How far `got`, of a floating point dtype, is from the exact numbers, in units of the last place of the exact one, and of the smallest
    numbers below the normal ones. ∞ counts as the number after the largest; NaN where either is NaN."""
    kind = ml_dtypes.finfo(got.dtype)
    beyond = np.ldexp(np.longdouble(1), kind.maxexp)
    with np.errstate(all="ignore"):
        a = np.clip(got.astype(np.float64).astype(np.longdouble), -beyond, beyond)
        b = np.clip(want.astype(np.longdouble), -beyond, beyond)
        exponent = np.maximum(np.minimum(np.frexp(b)[1] - 1, kind.maxexp - 1), kind.minexp)
        return (np.abs(a - b) / np.ldexp(np.longdouble(1), exponent - kind.nmant)).astype(np.float64)


def wrong(got: np.ndarray, want: np.ndarray, found: np.ndarray, edge: np.ndarray) -> np.ndarray:
    """Where a result is of another kind than the exact one: NaN or a number, ∞ or a finite one (but within 2 units), or at edges the sign
    of a zero."""
    nan = np.isnan(got.astype(np.float64)) != np.isnan(want)
    with np.errstate(all="ignore"):
        rounded = np.asarray(want, np.float64).astype(got.dtype).astype(np.float64)
    one, other = got.astype(np.float64), rounded
    infinite = (np.isinf(one) != np.isinf(other)) & ~(found <= 2)
    opposite = np.isinf(one) & np.isinf(other) & (one != other)
    zero = edge & (one == 0) & (other == 0) & (np.signbit(one) != np.signbit(other))
    return nan | infinite | opposite | zero
