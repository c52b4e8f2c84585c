"""Random rows: each kernel computes its own words of the stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.work import THREADS, Work
from gradlab.dtype import FLOAT32, FLOATING, bfloat16, float16
from gradlab.spec import Spec

PER_THREAD = 8
BITS = {FLOAT32: 24, float16.dtype: 11, bfloat16.dtype: 8}


def _each(work: Work, function: Any, count: int, *values: Any) -> None:
    if count:
        work.launch(function, -(-count // (THREADS * PER_THREAD)), THREADS, *values, count)


def _state(work: Work, state: Any) -> Any:
    return work.contiguous(state)


def uniform(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (state,), (y,) = inputs, outputs
    low, high = params["low"], params["high"]
    scalar = y.dtype.type
    below = np.nextafter(scalar(high), scalar(low)) if high > low else scalar(low)
    numbers = (np.float64(low), np.float64(high - low), np.float64(below))
    unit = int(low == 0 and high == 1)
    function = work.kernel("random.cu", "uniform", y.dtype)
    _each(work, function, y.size, _state(work, state), y, params["offset"], BITS.get(y.dtype, 53), *numbers, unit)


def normal(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (state,), (y,) = inputs, outputs
    function = work.kernel("random.cu", "normal", y.dtype)
    _each(work, function, y.size, _state(work, state), y, params["offset"], np.float64(params["mean"]), np.float64(params["std"]))


def normal_of(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (mean, std, state), (y,) = inputs, outputs
    mean, std = (work.contiguous(work.broadcast(x, y.shape)) for x in (mean, std))
    _each(work, work.kernel("random.cu", "normal_of", y.dtype, mean.dtype), y.size, mean, std, _state(work, state), y, params["offset"])


def integers(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (state,), (y,) = inputs, outputs
    low, size = params["low"], params["high"] - params["low"]
    low = (low + 2**63) % 2**64 - 2**63
    function = work.kernel("random.cu", "integers", y.dtype)
    _each(work, function, y.size, _state(work, state), y, params["offset"], low, np.uint64(size % 2**64))


def exponential(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (state,), (y,) = inputs, outputs
    function = work.kernel("random.cu", "exponential", y.dtype)
    _each(work, function, y.size, _state(work, state), y, params["offset"], np.float64(params["rate"]))


def dropout(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x, state), (y,), p = inputs, outputs, params["p"]
    limit = min(int(p * 2**32 + 0.5), 2**32 - 1) if p < 1 else 2**32  # as the CPU's `threshold`
    scale = np.float64(1 / (1 - p) if p < 1 else 0)
    function = work.kernel("random.cu", "dropout", y.dtype)
    _each(work, function, y.size, work.contiguous(x), _state(work, state), y, params["offset"], limit, scale)


def bernoulli(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (p, state), (y,) = inputs, outputs
    _each(work, work.kernel("random.cu", "bernoulli", y.dtype, p.dtype), y.size, work.contiguous(p), _state(work, state), y, params["offset"])


def same_means(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
    """Mean and standard deviation of one type."""
    mean, std = specs[0], specs[1]
    return mean is not None and std is not None and mean.dtype == std.dtype and mean.dtype in FLOATING


RULES = {
    ("random.cu", "uniform"): Rule(uniform), ("random.cu", "normal"): Rule(normal), ("random.cu", "normal_of"): Rule(normal_of, same_means),
    ("random.cu", "integers"): Rule(integers), ("random.cu", "exponential"): Rule(exponential), ("random.cu", "dropout"): Rule(dropout),
    ("random.cu", "bernoulli"): Rule(bernoulli),
}  # fmt: skip
