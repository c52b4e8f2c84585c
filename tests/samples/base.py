"""What a sample is: inputs and parameters with which a row is run through every check of `test_ops.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Sample:
    """Inputs as NumPy arrays (float64 where floating point; integers and bools as they are), Python numbers or None.

    reference: what the result should be, `reference(*arrays, **params)` in float64; for several outputs a tuple. None: the row's `cpu`
    is a NumPy ufunc and is its own reference.
    gradients: which orders are compared with finite differences (0 where the row has none, or the point is not smooth).
    dtypes: the floating point dtypes that the row takes besides float64.
    """

    inputs: tuple[Any, ...]
    params: dict[str, Any] = field(default_factory=dict)
    reference: Callable[..., Any] | None = None
    gradients: int = 2
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16")
    strided: bool = True  # also run on non-contiguous copies of the inputs
    fresh: Callable[[np.random.Generator], tuple[Any, ...]] | None = None  # other inputs of the same Specs, for traced replay
    note: str = ""


def sample(*inputs: Any, reference: Callable[..., Any] | None = None, **options: Any) -> Sample:
    """A Sample; keyword arguments that are not fields of Sample are the row's parameters."""
    known = {k: options.pop(k) for k in ("gradients", "dtypes", "strided", "fresh", "note") if k in options}
    return Sample(inputs, options, reference, **known)


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    """Normally distributed float64 numbers."""
    return np.random.default_rng([seed, *shape]).normal(scale=scale, size=shape)


def uniform(low: float, high: float, *shape: int, seed: int = 0) -> Any:
    """Uniformly distributed float64 numbers."""
    return np.random.default_rng([seed, *shape]).uniform(low, high, size=shape)


def integers(low: int, high: int, *shape: int, seed: int = 0) -> Any:
    """int64 numbers in [low, high)."""
    return np.random.default_rng([seed, *shape]).integers(low, high, size=shape)


def distinct(*shape: int, seed: int = 0, gap: float = 0.1) -> Any:
    """float64 numbers of which no two are closer than `gap`: for sorting, maxima and other points where equal values are not smooth."""
    count = int(np.prod(shape, dtype=int))
    return (np.random.default_rng([seed, *shape]).permutation(count) * gap - count * gap / 2).reshape(shape)
