"""Backends that tell an observer of the mode when an operation begins and ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gradlab import dispatch
from gradlab.autograd.mode import current, enter, leave
from gradlab.op import Op


class Watcher:
    """An observer that is told the beginning and the end of each row, and of ranges, too."""

    node: Any = None  # in backward, the node whose gradients are computed; the walk sets it

    def begin(self, op: Op, backend: Any, arrays: list[Any]) -> Any:
        """Before a row runs; what it returns is given to `end`."""

    def end(self, begun: Any, result: Any) -> None:
        """After a row has run; result is None where it raised."""

    def push(self, name: str, kind: str = "range") -> None:
        """A range begins."""

    def pop(self) -> None:
        """The innermost range ends."""

    def __call__(self, op: Op, inputs: list[Any], result: Any) -> None:
        """After an operation; the mode's observer."""


class TimedBackend:
    """A backend that reports to the mode's observer, where that is a Watcher."""

    def __init__(self, backend: Any) -> None:
        self.inner = backend
        self.staged = backend.staged

    def run(self, op: Op, arrays: list[Any], params: dict[str, Any]) -> Any:
        watcher = current().observer
        if not isinstance(watcher, Watcher):
            return self.inner.run(op, arrays, params)
        begun, found = watcher.begin(op, self.inner, arrays), None
        try:
            found = self.inner.run(op, arrays, params)
        finally:
            watcher.end(begun, found)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@contextmanager
def observing(watcher: Watcher) -> Iterator[None]:
    """Within the block, the watcher observes."""
    with watched():
        token = enter(current().replace(observer=watcher))
        try:
            yield
        finally:
            leave(token)


@contextmanager
def watched() -> Iterator[None]:
    """Within the block, the backends of arrays with values report to watchers."""
    types, devices = dict(dispatch._by_type), dict(dispatch._by_device)
    for kind, backend in types.items():
        if not backend.staged:
            dispatch.register(kind, TimedBackend(backend))
    for device, load in devices.items():
        dispatch.register_device(device, lambda load=load: TimedBackend(load()))  # type: ignore[misc]
    try:
        yield
    finally:
        for kind, backend in types.items():
            dispatch.register(kind, backend)
        for device, load in devices.items():
            dispatch.register_device(device, load)
