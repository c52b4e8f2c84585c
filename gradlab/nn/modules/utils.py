"""A number as many times as there are dimensions, as layers written for PyTorch make of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def _ntuple(n: int) -> Callable[[Any], tuple[Any, ...]]:
    """The function that makes n of one value, and a tuple of a sequence."""
    return lambda x: tuple(x) if isinstance(x, Iterable) else (x,) * n


_single, _pair, _triple, _quadruple = map(_ntuple, (1, 2, 3, 4))
