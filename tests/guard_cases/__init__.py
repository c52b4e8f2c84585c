"""Changes that a compiled program's conditions are there for: one case for each condition, tried by `test_guard_conditions.py`.

A case makes a function, its arguments (or what makes them), and what changes something, which may give other arguments or a context for the
last call. It is tried where its words stand in the text of the call that adds a condition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import gradlab as gl

CASES: list[tuple[str, Callable[[], tuple[Any, ...]]]] = []


def case(*words: str) -> Callable[[Callable[[], tuple[Any, ...]]], Callable[[], tuple[Any, ...]]]:
    def keep(make: Callable[[], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
        CASES.extend((w, make) for w in words)
        return make

    return keep


def numbered(*shape: int) -> gl.Tensor:
    """A tensor of its own, no view."""
    return gl.arange(1.0, int(np.prod(shape)) + 1).reshape(shape).clone()


def given(function: Callable[..., Any], before: Any, after: Any) -> tuple[Any, ...]:
    """A case in which only the arguments change."""
    return function, before, lambda: after


class Keywords(dict):
    """Keyword arguments of the last call."""


class Holder:
    """An object with a number."""

    def __init__(self, k: Any) -> None:
        self.k = k
