"""A body that a trace runs once more where gradients are differentiated: it sees what it saw, whatever has been bound since."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import CellType
from typing import Any

from gradlab.autograd.errors import GraphError
from gradlab.autograd.mode import current, enter, leave
from gradlab.graph.control.body_tracer import Inner
from gradlab.graph.staging.symbol import Symbol

_EMPTY = object()


class RunAgain:
    """A function as it is now: in later calls the variables of enclosing functions and autocast are those of now.

    `h = cond(p, lambda: h * 2, lambda: -h)` binds `h` anew before a backward runs the functions again.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.autocast = function, current().autocast
        self.cells = [(cell, _content(cell)) for cell in _cells(function)]

    def __call__(self, *arguments: Any) -> Any:
        with self._as_it_was():
            return self.function(*arguments)

    @contextmanager
    def _as_it_was(self) -> Iterator[None]:
        found = [(cell, _content(cell)) for cell, _ in self.cells]
        token = enter(current().replace(autocast=self.autocast))
        try:
            _fill(self.cells)
            yield
        finally:
            _fill(found)
            leave(token)


class Captured:
    """What traces of bodies used from outside: what a later trace uses of the trace around is among it, or GraphError."""

    def __init__(self, what: str, traces: Iterable[Inner]) -> None:
        self.what = what
        self.known = [t._array for inner in traces for t, _ in inner.captured]

    def check(self, later: Iterable[Inner]) -> None:
        """Look at what the later traces used. (Arrays are also constants, which a body makes anew.)"""
        known = {id(array) for array in self.known}
        for array in (t._array for inner in later for t, _ in inner.captured):
            if type(array) is Symbol and id(array) not in known:
                raise GraphError(
                    f"{self.what}: gradients of gradients run its body once more, and it uses another tensor from outside (of shape "
                    f"{tuple(array.shape)}) than in the forward; pass what it uses as operands"
                )


def _cells(function: Any) -> list[CellType]:
    """The variables of enclosing functions that a function uses, itself or by functions that it finds there."""
    found: dict[int, CellType] = {}
    waiting, seen = [function], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, functools.partial):
            waiting += [one.func, *one.args, *one.keywords.values()]
            continue
        inside = getattr(getattr(one, "__func__", one), "__closure__", None)
        for cell in inside if isinstance(inside, tuple) else ():
            found[id(cell)] = cell
            if callable(content := _content(cell)):
                waiting.append(content)
    return [*found.values()]


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY


def _fill(cells: list[tuple[CellType, Any]]) -> None:
    for cell, content in cells:
        if content is not _EMPTY:
            cell.cell_contents = content
        elif _content(cell) is not _EMPTY:
            del cell.cell_contents
