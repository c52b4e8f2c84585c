"""Whether what a user says of a sparse tensor is looked at."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradlab.sparse.array import Pattern

_on = False


class check_sparse_tensor_invariants:
    """Look whether indices are distinct and in order where they should be. A switch (`enable`, `disable`, `is_enabled`), a context
    manager and a decorator. That indices lie within the size is always looked at.

    >>> with gl.sparse.check_sparse_tensor_invariants():
    ...     gl.sparse.check_sparse_tensor_invariants.is_enabled()
    True
    """

    def __init__(self, enable: bool = True) -> None:
        self.state = enable
        self.before: list[bool] = []

    @staticmethod
    def is_enabled() -> bool:
        """Whether it is on."""
        return _on

    @staticmethod
    def enable() -> None:
        """Look from now on."""
        global _on
        _on = True

    @staticmethod
    def disable() -> None:
        """Do not look any more."""
        global _on
        _on = False

    def __enter__(self) -> None:
        global _on
        self.before.append(_on)
        _on = self.state

    def __exit__(self, *_: object) -> None:
        global _on
        _on = self.before.pop()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with the checks on."""

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.state):
                return function(*args, **kwargs)

        return checked


def asked(check: bool | None) -> bool:
    """Whether to look, given what a call says."""
    return _on if check is None else check


def check_order(name: str, pattern: Pattern) -> None:
    """RuntimeError unless the places are distinct and in order."""
    keys = pattern.keys()
    if not bool((keys[1:] > keys[:-1]).all()):
        raise RuntimeError(f"{name}: the places are to be distinct and in order")
