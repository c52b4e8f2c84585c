"""Tables of hooks: functions of the user's that run at a point of the walk backward."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from gradlab.autograd.base import Differentiable

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


class Adding:
    """A hook of a leaf's AccumulateGrad among those of the leaf: runs behind them, and only where the gradient is then added to `.grad`.
    last: behind those that may still change it."""

    __slots__ = ("hook", "last")

    def __init__(self, hook: Callable[[Any], Any], last: bool) -> None:
        self.hook, self.last = hook, last

    def __call__(self, gradient: Any) -> Any:
        return self.hook(gradient)


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


def replaced(changed: Any, old: Sequence[Any], what: str) -> tuple[Any, ...]:
    """The gradients that a hook returned in place of several: as many as it was given, each None or what `checked` lets pass."""
    parts = tuple(changed) if isinstance(changed, (tuple, list)) else (changed,)
    if len(parts) != len(old):
        raise RuntimeError(f"{what}: returned {len(parts)} gradients in place of {len(old)}")
    return tuple([None if part is None else checked(part, like, what) for part, like in zip(parts, old, strict=True)])


def checked(gradient: Any, like: Any, what: str = "tensor hook") -> Any:
    """The gradient that a hook returned: a tensor of the shape, dtype and device of the one that it was given."""
    if not isinstance(gradient, Differentiable):
        raise TypeError(f"{what}: returned a {type(gradient).__name__}; return a tensor, or None to leave the gradient as it is")
    if like is None:
        raise RuntimeError(f"{what}: returned a tensor in place of a gradient that is None; leave it None")
    found: Any = gradient
    for kind, got, wanted in (
        ("shape", found._array.shape, like._array.shape), ("dtype", found.dtype, like.dtype), ("device", found.device, like.device),
    ):  # fmt: skip
        if got != wanted:
            raise RuntimeError(f"{what}: returned {kind} {got}, but the gradient has {kind} {wanted}")
    return gradient
