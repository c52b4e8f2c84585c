"""Tables of hooks: functions of the user's that run at a point of the walk backward."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

next_key = itertools.count().__next__  # a key is never used again, so that a handle removes its own hook only


class RemovableHandle:
    """What registering a hook returns: `remove()` takes the hook away again; also a context manager."""

    others: Sequence[RemovableHandle] = ()  # what goes with it

    def __init__(self, table: dict[int, Any], key: int) -> None:
        self._table, self._key = table, key

    @property
    def id(self) -> int:
        """The key of the hook in its table."""
        return self._key

    def remove(self) -> None:
        """Take the hook away."""
        self._table.pop(self._key, None)
        for handle in self.others:
            handle.remove()

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def add_hook(table: dict[int, Any], hook: Callable[..., Any]) -> RemovableHandle:
    """Put a hook at the end of a table. Raises TypeError for what cannot be called."""
    if not callable(hook):
        raise TypeError(f"a hook is a function, not {type(hook).__name__}")
    key = next_key()
    table[key] = hook
    return RemovableHandle(table, key)


class Sight:
    """A hook that only looks, and is also told of a gradient that nobody computed (None)."""

    __slots__ = ("see",)

    def __init__(self, see: Callable[[Any], None]) -> None:
        self.see = see

    def __call__(self, gradient: Any) -> None:
        self.see(gradient)


class Hooks:
    """Hooks of one node: on the gradient of each output, before the node runs, and after; and who retains an output's gradient."""

    __slots__ = ("after", "before", "outputs", "retained")

    def __init__(self) -> None:
        self.outputs: dict[int, dict[int, Any]] = {}
        self.retained: dict[int, Any] = {}
        self.before: dict[int, Any] = {}
        self.after: dict[int, Any] = {}


def hooks_of(node: Any) -> Hooks:
    """The node's hooks, made on first use."""
    if node.hooks is None:
        node.hooks = Hooks()
    return node.hooks
