"""A call in a half type beside the same call in float32, rounded at its end: results and gradients, in units of the last place."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import gradlab as gl

from kinds.calls import CALLS, Call, converted, parts
from kinds.catalogue.giving import Fixed

HALVES = (gl.float16, gl.bfloat16)
SIZES = ("1e-4", "1", "3e2", "top")  # what the largest value of each argument becomes; of "1" all stay as they are
ROUNDED = [call for call in CALLS if not call.marks & {"random", "making", "integer"}]


def sized(array: np.ndarray, size: str, dtype: Any) -> np.ndarray:
    """Values of that size which the half type has exactly; those of the table at size 1."""
    largest = float(np.abs(array).max(initial=0)) or 1.0
    if size != "1":
        array = array * (0.9 * gl.finfo(dtype).max if size == "top" else float(size)) / largest
    return np.asarray(array).astype(dtype.dtype).astype(np.float64)


def at_size(call: Call, size: str, dtype: Any) -> Call:
    def scaled(array: np.ndarray) -> np.ndarray:
        if array.dtype != np.float64:
            return array
        found = sized(array, size, dtype)
        return found.view(Fixed) if isinstance(array, Fixed) else found

    return dataclasses.replace(call, arguments=converted(call.arguments, scaled), options=converted(call.options, scaled))


def leaves(value: Any) -> list[gl.Tensor]:
    return [t for t in parts(value) if t.requires_grad]


def results(call: Call, dtype: Any) -> tuple[list[gl.Tensor], list[gl.Tensor | None]]:
    """What the call gives on tensors of `dtype`, and the gradients of its arguments for random gradients of its results."""
    args, options = call.tensors(dtype, requires_grad="plain" not in call.marks)
    found = parts(call.on(args, options))
    inputs = leaves([list(args), options])
    outputs = [t for t in found if t.requires_grad]
    if not outputs:
        return found, []
    draws = np.random.default_rng(7)
    seeds = [gl.tensor(np.round(draws.uniform(0.5, 1.5, t.shape) * 16) / 16, dtype=t.dtype) for t in outputs]
    return found, list(gl.autograd.grad(outputs, inputs, seeds, allow_unused=True))


def ulps(found: Any, expected: Any) -> float:
    """The largest distance between two tensors, in units of the last place of the first one's type; `expected` is rounded to it."""
    dtype = found.dtype
    a, b = found.detach().numpy(), expected.detach().to(dtype).numpy()
    if not dtype.is_floating_point:
        return 0.0 if np.array_equal(a, b) else np.inf
    bits = {2: np.int16, 4: np.int32, 8: np.int64}[dtype.itemsize]
    nan = np.isnan(a.astype(np.float64))
    if not np.array_equal(nan, np.isnan(b.astype(np.float64))):
        return np.inf

    def ordered(x: np.ndarray) -> np.ndarray:
        whole = np.ascontiguousarray(x).view(bits).astype(np.int64).reshape(x.shape)
        return np.where(whole < 0, np.iinfo(bits).min - whole, whole)

    apart = np.where(nan, 0, np.abs(ordered(a) - ordered(b)))
    return float(apart.max(initial=0))


def apart(call: Call, size: str, dtype: Any) -> tuple[float, float]:
    """How far result and gradients in the half type are from those in float32, rounded at the end."""
    call = at_size(call, size, dtype)
    found, gradients = results(call, dtype)
    expected, others = results(call, gl.float32)
    assert len(found) == len(expected) and len(gradients) == len(others)
    worst = max((ulps(f, e) for f, e in zip(found, expected, strict=True)), default=0.0)
    assert [g is None for g in gradients] == [g is None for g in others]
    return worst, max((ulps(f, e) for f, e in zip(gradients, others, strict=True) if f is not None), default=0.0)
