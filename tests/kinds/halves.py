"""A call in a half type beside the same call in float32, rounded at its end: results and gradients, in units of the last place."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from typing import Any

import numpy as np

import gradlab as gl
from gradlab.autograd.mode import current, enter
from gradlab.backends.native.thresholds import kernels_for
from gradlab.dtype import HALF

from kinds.calls import CALLS, Call, converted, parts
from kinds.catalogue.giving import Fixed

HALVES = (gl.float16, gl.bfloat16)
SIZES = ("1e-4", "1", "3e2", "top")  # what the largest value of each argument becomes; of "1" all stay as they are
FUNCTIONS = {call.name.partition(".")[2] for call in CALLS if not call.name.startswith("Tensor.")}
# A method is the function of its name; those that have none, and writing in place, are calls of their own.
OWN = [
    call for call in CALLS
    if not call.marks & {"making", "integer"} and not (call.name.startswith("Tensor.") and call.name[len("Tensor."):] in FUNCTIONS)
]  # fmt: skip
# Rows that round nothing: each element of the result is one of an input, or is exact.
PICKING = {"neg", "abs", "relu", "clamp", "sign", "floor", "ceil", "trunc", "round", "maximum", "minimum", "fmax", "fmin", "copysign"}


def sized(array: np.ndarray, size: str, dtype: Any) -> np.ndarray:
    """Values of that size which the half type has exactly; those of the table at size 1."""
    largest = float(np.abs(array).max(initial=0)) or 1.0
    if size != "1":
        array = array * (0.9 * gl.finfo(dtype).max if size == "top" else float(size)) / largest
    return np.asarray(array).astype(dtype.dtype).astype(np.float64)


def at_size(call: Call, size: str, dtype: Any) -> Call:
    """The call with its float arguments brought to a size."""

    def scaled(array: np.ndarray) -> np.ndarray:
        if array.dtype != np.float64:
            return array
        found = sized(array, size, dtype)
        return found.view(Fixed) if isinstance(array, Fixed) else found

    return dataclasses.replace(call, arguments=converted(call.arguments, scaled), options=converted(call.options, scaled))


def results(call: Call, dtype: Any) -> tuple[list[gl.Tensor], list[gl.Tensor | None]]:
    """What the call gives on tensors of `dtype`, and the gradients of its arguments for random gradients of its results."""
    args, options = call.tensors(dtype, requires_grad="plain" not in call.marks)
    inputs = [t for t in parts([list(args), options]) if t.requires_grad]
    found = parts(call.on(args, options))
    outputs = [t for t in found if t.requires_grad]
    if not outputs:
        return found, []
    draws = np.random.default_rng(7)
    seeds = [gl.tensor(np.round(draws.uniform(0.5, 1.5, t.shape) * 16) / 16, dtype=t.dtype) for t in outputs]
    return found, list(gl.autograd.grad(outputs, inputs, seeds, allow_unused=True))


def _ordered(x: np.ndarray) -> np.ndarray:
    """Integers in the order of floating point numbers, one apart where these are neighbours."""
    bits = {2: np.int16, 4: np.int32, 8: np.int64}[x.dtype.itemsize]
    whole = np.ascontiguousarray(x).view(bits).astype(np.int64).reshape(x.shape)
    return np.where(whole < 0, np.iinfo(bits).min - whole, whole)


def ulps(found: Any, expected: Any, of_largest: bool = False) -> float:
    """How far a tensor is from `expected`, rounded to its type, in units of the last place: of each element, or of the largest one."""
    dtype = found.dtype
    a, b = found.detach().numpy(), expected.detach().to(dtype).numpy()
    if not dtype.is_floating_point:
        return 0.0 if np.array_equal(a, b, equal_nan=True) else np.inf  # complex ones are NaN where a sum is beyond float32
    x, y = a.astype(np.float64), b.astype(np.float64)
    if not np.array_equal(np.isnan(x), np.isnan(y)):
        return np.inf
    if of_largest and np.isfinite(x).all() and np.isfinite(y).all():
        unit = max(np.abs(y).max(initial=0), gl.finfo(dtype).tiny) * gl.finfo(dtype).eps
        return float(np.abs(x - y).max(initial=0) / unit)
    return float(np.where(np.isnan(x), 0, np.abs(_ordered(a) - _ordered(b))).max(initial=0))


def apart(call: Call, size: str, dtype: Any, of_largest: bool = False) -> tuple[float, float]:
    """How far result and gradients in the half type are from those in float32, rounded at the end; an error of both is no distance.

    At the top of bfloat16 float32 sums overflow on the way or not by the order of their terms, and kernels of machine code, which half
    types have none of, add in another one (Winograd's convolutions even other terms): there both sides are NumPy's (docs/numerics.md).
    """
    with kernels_for(False) if size == "top" else nullcontext():
        return _apart(at_size(call, size, dtype), dtype, of_largest)


def _apart(call: Call, dtype: Any, of_largest: bool) -> tuple[float, float]:
    try:
        expected, others = results(call, gl.float32)
    except (RuntimeError, ValueError, IndexError) as error:  # values that the function refuses
        try:
            results(call, dtype)
        except type(error):
            return 0.0, 0.0
        raise
    found, gradients = results(call, dtype)
    assert len(found) == len(expected)
    assert [g is None for g in gradients] == [g is None for g in others]
    slopes = [(f, e) for f, e in zip(gradients, others, strict=True) if f is not None]
    first, second = (
        max((ulps(f, e, of_largest) for f, e in pairs), default=0.0) for pairs in (list(zip(found, expected, strict=True)), slopes)
    )
    return first, second


class Roundings:
    """Within the block, the names of the rows whose results are rounded to a half type: for each result once."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.node: Any = None

    def __call__(self, op: Any, inputs: Any, result: Any, params: Any) -> None:
        picks = op.view or op.name in PICKING
        narrowing = op.name == "cast" and inputs[0]._array.dtype not in HALF
        if not picks and (narrowing or not op.exact):
            outs = result if isinstance(result, tuple) else (result,)
            self.names += [op.name] * sum(getattr(out, "dtype", None) in HALF for out in outs)

    def __enter__(self) -> Roundings:
        self.mode = current()
        enter(self.mode.replace(observer=self))
        return self

    def __exit__(self, *_: object) -> None:
        enter(self.mode)
