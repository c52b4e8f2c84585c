"""Rows that draw random numbers: ONNX's own generators. They draw other numbers than gradlab does, of the same distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.dtype import FLOAT32
from gradlab.onnx.emitter import Emitter, Unsupported, Wire, is_dynamic
from gradlab.onnx.registry import exports

RANDOM = frozenset((
    "random_uniform", "random_normal", "random_integers", "random_exponential", "random_permutation", "dropout", "bernoulli", "multinomial",
    "normal_of", "poisson",
))  # fmt: skip


def uniform(e: Emitter, shape: tuple[int, ...], low: float, high: float, kind: str = "RandomUniform") -> Any:
    """Numbers in [low, high), or normal ones, in float32."""
    names: dict[str, Any] = {"low": low, "high": high} if kind == "RandomUniform" else {"mean": low, "scale": high}
    if any(map(is_dynamic, shape)) or 0 in shape:
        zeros = e.expand(e.number(0.0, FLOAT32), shape)
        return e(f"{kind}Like", zeros, dtype=FLOAT32, **names)
    return e(kind, dtype=FLOAT32, shape=list(shape), **names) if shape else e.squeeze(e(kind, dtype=FLOAT32, shape=[1], **names), 0)


@exports("random_uniform", wide=False)
def random_uniform(e: Emitter, state: Wire, *, shape: Any, dtype: Any, offset: int, low: float, high: float) -> Any:
    """RandomUniform."""
    return uniform(e, shape, float(low), float(high))


@exports("random_normal", wide=False)
def random_normal(e: Emitter, state: Wire, *, shape: Any, dtype: Any, offset: int, mean: float, std: float) -> Any:
    """RandomNormal."""
    return uniform(e, shape, float(mean), float(std), "RandomNormal")


@exports("random_integers", wide=False)
def random_integers(e: Emitter, state: Wire, *, shape: Any, dtype: Any, offset: int, low: int, high: int) -> Any:
    """Uniform numbers, cut."""
    if high - low > 1 << 24:
        raise Unsupported("random integers from a range above 2^24: ONNX draws uniform numbers in float32")
    found = e("Min", e("Floor", uniform(e, shape, 0.0, 1.0) * float(high - low)), float(high - low - 1))
    return e.cast(found, np.dtype(np.int64)) + low


@exports("random_exponential", wide=False)
def random_exponential(e: Emitter, state: Wire, *, shape: Any, dtype: Any, offset: int, rate: float) -> Any:
    """-log(1 - u) / rate"""
    return e("Log", 1.0 - uniform(e, shape, 0.0, 1.0)) * (-1 / rate)


@exports("random_permutation", wide=False)
def random_permutation(e: Emitter, state: Wire, *, shape: Any, dtype: Any, offset: int) -> Any:
    """The order of uniform numbers."""
    if not is_dynamic(shape[0]) and shape[0] == 0:
        return e.constant([], np.dtype(dtype))
    return e("TopK", uniform(e, shape, 0.0, 1.0), e.ints([shape[0]]), outputs=2, axis=0)[1]


@exports("dropout")
def dropout(e: Emitter, x: Wire, state: Wire, *, p: float, offset: int) -> Any:
    """Dropout in training."""
    if p >= 1:
        return x * 0.0
    return e("Dropout", x, e.number(p, FLOAT32), e.constant(True))


@exports("bernoulli")
def bernoulli(e: Emitter, p: Wire, state: Wire, *, dtype: Any, offset: int) -> Any:
    """Uniform numbers below p: by ONNX's own definition its Bernoulli gives 1 where they are above, and ONNX Runtime follows it."""
    p = e.cast(p, FLOAT32)
    return e.cast(e("Less", e("RandomUniformLike", p, low=0.0, high=1.0), p), np.dtype(dtype))


@exports("normal_of")
def normal_of(e: Emitter, mean: Wire, std: Wire, state: Wire, *, dtype: Any, offset: int) -> Any:
    """Normal numbers, scaled and moved."""
    drawn = uniform(e, e.outputs[0].shape, 0.0, 1.0, "RandomNormal")
    return e.cast(drawn, mean.dtype) * std + mean


@exports("multinomial")
def multinomial(e: Emitter, weights: Wire, state: Wire, *, samples: int, replacement: bool, offset: int) -> Any:
    """The largest of log(weight) + Gumbel noise, each drawn anew with replacement, the first few without."""
    shape = weights.shape or ()
    logs = e("Log", weights)
    tiny = float(np.finfo(np.float32).tiny)
    if not replacement:
        noise = -e("Log", -e("Log", e("Max", uniform(e, shape, 0.0, 1.0), tiny)))
        return e("TopK", logs + e.cast(noise, weights.dtype), e.ints([samples]), outputs=2, axis=-1)[1]
    wide = (*shape[:-1], samples, shape[-1])
    noise = -e("Log", -e("Log", e("Max", uniform(e, wide, 0.0, 1.0), tiny)))
    return e("ArgMax", e.unsqueeze(logs, len(shape) - 1) + e.cast(noise, weights.dtype), axis=-1, keepdims=0)


