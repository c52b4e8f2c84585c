"""Backends that tell an observer of the mode when an operation begins and ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from gradlab import dispatch
from gradlab.autograd.mode import current, enter, leave
from gradlab.op import Op
from gradlab.tensor.convert import transfer


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

    def __call__(self, op: Op, inputs: list[Any], result: Any, params: Any) -> None:
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

    def from_numpy(self, array: Any, device: Any) -> Any:
        """A copy to a GPU is an event as well, in the stream that it is made in."""
        watcher = current().observer
        if not isinstance(watcher, Watcher) or not hasattr(self.inner, "driver"):
            return self.inner.from_numpy(array, device)
        begun, found = watcher.begin(transfer, self.inner, [array]), None
        try:
            found = self.inner.from_numpy(array, device)
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
    devices, mine = dict(dispatch._by_device), {}

    def time_all() -> None:
        for kind, backend in list(dispatch._by_type.items()):
            if not backend.staged and not isinstance(backend, TimedBackend):
                mine[kind] = backend
                dispatch.register(kind, TimedBackend(backend))

    def timed(load: Callable[[], Any]) -> Any:
        backend = load()  # a device that is used for the first time makes its arrays known now
        time_all()
        return backend if isinstance(backend, TimedBackend) else TimedBackend(backend)

    time_all()
    for device, load in devices.items():
        dispatch.register_device(device, partial(timed, load))
    try:
        yield
    finally:
        for kind, backend in mine.items():
            dispatch.register(kind, backend)
        for device, load in devices.items():
            dispatch.register_device(device, load)
