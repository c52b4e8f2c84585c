"""Rows without array inputs: they take a device."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.dtype import by_float32
from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.spec import Spec


def filled(*, shape: tuple[int, ...], dtype: np.dtype[Any], **_: Any) -> Spec:
    """Rule: the shape and dtype asked for."""
    return Spec(shape, dtype)


def full_cpu(y: Any, *, shape: tuple[int, ...], dtype: np.dtype[Any], value: float) -> None:
    y.fill(by_float32(value, dtype))


full = Op("full", filled, params=("shape", "value", "dtype", "device"), exact=True, cpu=full_cpu, cuda=Elementwise("value"))


def arange_rule(*, start: float, step: float, size: int, dtype: np.dtype[Any], device: Any = None) -> Spec:
    """Rule: `size` evenly spaced numbers."""
    return Spec((size,), dtype)


def arange_cpu(y: Any, *, start: float, step: float, size: int, dtype: np.dtype[Any]) -> None:
    """start + i·step, computed in float64 (or int64) and rounded once."""
    numbers: Any = np.arange(size, dtype=np.int64 if isinstance(start, int) and isinstance(step, int) else np.float64)
    y[...] = by_float32(numbers * step + start, dtype)


arange = Op("arange", arange_rule, params=("start", "step", "size", "dtype", "device"), exact=True, cpu=arange_cpu,
            cuda=Elementwise("start + index * step"))  # fmt: skip
