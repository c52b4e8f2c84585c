"""Random rows: each kernel computes its own words of the stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import THREADS, Work
from gradlab.dtype import FLOAT64, FLOATING
from gradlab.kernel import dropped_below


def _each(work: Work, function: Any, count: int, per_thread: int, *values: Any) -> None:
    """A thread for each `per_thread` elements: what four words make."""
    if count:
        work.launch(function, -(-count // (THREADS * per_thread)), THREADS, *values, count)


def uniform(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (state,), (y,) = inputs, outputs
    low, high = params["low"], params["high"]
    scalar = y.dtype.type
    below = np.nextafter(scalar(high), scalar(low)) if high > low else scalar(low)
    numbers = (np.float64(low), np.float64(high - low), np.float64(below))
    function = work.kernel("random.cu", "uniform", y.dtype, low == 0 and high == 1)
    _each(work, function, y.size, 4 if y.dtype == FLOAT64 else 8, work.contiguous(state), y, params["offset"], *numbers)


def normal(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (state,), (y,) = inputs, outputs
    function = work.kernel("random.cu", "normal", y.dtype)
    moments = np.float64(params["mean"]), np.float64(params["std"])
    _each(work, function, y.size, 4, work.contiguous(state), y, params["offset"], *moments)


def normal_of(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (mean, std, state), (y,) = inputs, outputs
    if mean.dtype != std.dtype or mean.dtype not in FLOATING:
        mean, std = (work.converted(x, FLOAT64) for x in (mean, std))  # what the kernel computes in
    mean, std = (work.contiguous(work.broadcast(x, y.shape)) for x in (mean, std))
    site = work.faults.values("normal: standard deviations are not negative")
    function = work.kernel("random.cu", "normal_of", y.dtype, mean.dtype)
    _each(work, function, y.size, 4, mean, std, work.contiguous(state), y, params["offset"], work.faults.record, site)
    work.faults.check()


def integers(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (state,), (y,) = inputs, outputs
    low, size = params["low"], params["high"] - params["low"]
    low = (low + 2**63) % 2**64 - 2**63
    function = work.kernel("random.cu", "integers", y.dtype)
    _each(work, function, y.size, 4, work.contiguous(state), y, params["offset"], low, np.uint64(size % 2**64))


def exponential(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (state,), (y,) = inputs, outputs
    function = work.kernel("random.cu", "exponential", y.dtype)
    _each(work, function, y.size, 4, work.contiguous(state), y, params["offset"], np.float64(params["rate"]))


def dropout(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x, state), (y,), p = inputs, outputs, params["p"]
    limit = dropped_below(p)
    scale = np.float64(1 / (1 - p) if p < 1 else 0)
    x = work.contiguous(x)
    function = work.kernel("random.cu", "dropout", y.dtype, work.pointer(x) % 16 == 0)
    _each(work, function, y.size, 8, x, work.contiguous(state), y, params["offset"], np.uint64(limit), scale)


def bernoulli(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (p, state), (y,) = (work.contiguous(a) for a in inputs), outputs
    site = work.faults.values("bernoulli: probabilities lie between 0 and 1")
    function = work.kernel("random.cu", "bernoulli", y.dtype, p.dtype)
    _each(work, function, y.size, 8, p, state, y, params["offset"], work.faults.record, site)
    work.faults.check()


RULES = {
    ("random.cu", "uniform"): Rule(uniform), ("random.cu", "normal"): Rule(normal), ("random.cu", "normal_of"): Rule(normal_of),
    ("random.cu", "integers"): Rule(integers), ("random.cu", "exponential"): Rule(exponential), ("random.cu", "dropout"): Rule(dropout),
    ("random.cu", "bernoulli"): Rule(bernoulli),
}  # fmt: skip
