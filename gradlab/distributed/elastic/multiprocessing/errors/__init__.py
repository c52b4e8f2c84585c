"""`@record` around a script's main function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def record(fn: F, error_handler: Any = None) -> F:
    """The function itself: what a process raises, its log and the other processes say (docs/distributed.md)."""
    return fn
