"""Resampling along one dimension (interpolation, adaptive averages, reflecting borders) and its adjoint."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work
from gradlab.dtype import FLOATING
from gradlab.spec import Spec, count

METHODS = {
    "reflect": 0, "replicate": 1, "circular": 2, "nearest": 3, "nearest-exact": 3, "area": 4, "linear": 5, "cubic": 6,
    "linear-antialias": 7, "cubic-antialias": 8,
}  # fmt: skip
INT32 = np.dtype(np.int32)
LARGEST = 2**31 - 1


class Plan(NamedTuple):
    """A table as the kernels take it: the bytes of `Resampling`, the numbers of inputs and outputs, and the most taps of an output."""

    packed: bytes
    inputs: int
    outputs: int
    most: int


def plan(table: tuple[Any, ...]) -> Plan:
    """The plan of a row's table: (kind, inputs, outputs, …)."""
    kind, inputs, outputs, *rest = table
    method, low, aligned, scale = METHODS[kind], 0, False, 0.0
    if method <= 2:
        low = rest[0]
    elif method != 4:
        scale = float(rest[0])
        aligned = bool(rest[1]) if len(rest) > 1 else False
    if method <= 3:
        most = 1
    elif method == 4:
        most = min(inputs, -(-inputs // outputs) + 1)
    elif method <= 6:
        most = 2 if method == 5 else 4
    else:
        most = min(inputs, int(2 * (method - 6) * max(scale, 1.0)) + 2)
    packed = struct.pack("6i2d", inputs, outputs, most, method, low, aligned, scale, 0.5 if kind == "nearest-exact" else 0.0)
    return Plan(packed, inputs, outputs, most)


def _taps(work: Work, found: Plan, dtype: Any) -> tuple[Any, Any, Any]:
    """Index, weight and number of taps of each output, in scratch memory."""
    wide = work.wide(dtype)
    shape = (found.outputs, found.most)
    index, weight, used = work.empty(shape, INT32), work.empty(shape, wide), work.empty(shape[:1], INT32)
    work.launch(work.kernel("resample.cu", "taps", wide), -(-found.outputs // 256), 256, index, weight, used, found.packed)
    return index, weight, used


def _index(*sizes: int) -> str:
    return "unsigned int" if max(sizes) <= LARGEST else "long long"


def resample(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x,), (y,), dim = inputs, outputs, params["dim"]
    if not y.size:
        return
    found = plan(params["table"])
    function = work.kernel("resample.cu", "resample", y.dtype, _index(y.size))
    work.each(function, y.size, work.contiguous(x), y, *_taps(work, found, y.dtype), found.packed, count(y.shape[dim + 1 :]))


def resample_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (dy,), (y,), dim = inputs, outputs, params["dim"]
    if not y.size:
        return
    found = plan(params["table"])
    taps = _taps(work, found, y.dtype)
    first, last = work.empty((found.inputs,), INT32), work.empty((found.inputs,), INT32)
    work.launch(work.kernel("resample.cu", "tapped", work.wide(y.dtype)), -(-found.inputs // 8), 256, *taps, first, last, found.packed)
    function = work.kernel("resample.cu", "resample_backward", y.dtype, _index(y.size))
    work.each(function, y.size, work.contiguous(dy), y, *taps, first, last, found.packed, count(y.shape[dim + 1 :]))


def takes(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
    """Tables whose taps are counted in 32 bits, also twice as many; borders and nearest of any dtype but bool."""
    found = plan(params["table"])
    return max(found.inputs, found.outputs) <= LARGEST // 2 and (outs[0].dtype in FLOATING or outs[0].dtype.kind in "iu")


RULES = {("resample.cu", "resample"): Rule(resample, takes), ("resample.cu", "resample_backward"): Rule(resample_backward, takes)}
