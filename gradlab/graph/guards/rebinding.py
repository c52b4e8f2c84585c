"""Tensors that a function binds anew, as `self.count = self.count + 1` does: further arguments and results of what is traced.

A replay reads what the places hold before it runs, and lets them hold the new tensors after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import CodeType
from typing import Any

from gradlab.graph.calls.higher_order import Gradients
from gradlab.graph.guards.contents import attributes
from gradlab.graph.guards.sources import CELL, GONE, Item, instructions_of, resolve
from gradlab.graph.staging.tree import LEAF, flatten
from gradlab.nn.module import Module


class Held:
    """A place that a function gives another tensor: an entry of a dict (a module's table, an object's, a module's globals) or a cell.

    read  whether the function looks at it before; what is only written is no argument
    """

    __slots__ = ("key", "label", "name", "owner", "read")

    def __init__(self, owner: Any, key: Any, label: str, name: Any) -> None:
        self.owner, self.key, self.label, self.name = owner, key, label, name
        self.read = False

    @property
    def number(self) -> tuple[int, Any]:
        """What tells it from other places."""
        return id(self.owner), self.key

    def get(self) -> Any:
        """What it holds, or GONE."""
        if self.key is CELL:
            return resolve(self.owner, (CELL,))
        return self.owner.get(self.key, GONE)

    def put(self, value: Any) -> None:
        """Let it hold that."""
        if self.key is CELL:
            self.owner.cell_contents = value
        else:
            self.owner[self.key] = value


def of_module(module: Module, key: str) -> Held | None:
    """A module's buffer or attribute as a place."""
    known = module.__dict__
    for table in (known["_buffers"], known):
        if key in table:
            return Held(table, key, f"{type(module).__name__}.{key}", key)
    return None


def place_at(root: Any, path: tuple[Any, ...], label: str) -> Held | None:
    """A path's end as a place; None where it is none that could be bound anew without running anybody's code."""
    owner, last = resolve(root, path[:-1]), path[-1]
    if type(last) is Item:
        return Held(owner, last.key, label, last.key) if type(owner) is dict and last.key in owner else None
    if last == CELL:
        return Held(owner, CELL, label, label)
    if isinstance(owner, Module):
        return of_module(owner, last)
    inside = attributes(owner)
    return Held(inside, last, label, last) if type(inside) is dict and last in inside else None


def is_filled(before: dict[Any, Any], now: Any) -> bool:
    """Whether a table got entries, or first values in the place of None, and lost none: a memory of what was computed."""
    return type(now) is dict and bool(before or now) and all(now.get(k, GONE) is v or v is None for k, v in before.items())


def can_be_bound(was: Any, now: Any) -> bool:
    """Whether a place went from tensors (or None) to other tensors, which a replay can do again."""
    return now is not was and _tensors_alone(was) and _tensors_alone(now)


def _tensors_alone(value: Any) -> bool:
    return value is not GONE and _is_of_tensors(flatten(value)[1])


def _is_of_tensors(structure: Any) -> bool:
    if structure == LEAF:
        return True
    if structure[0] == "value":
        return structure[1] is None
    return all(map(_is_of_tensors, structure[-1]))


def looks_at(name: Any, codes: Iterable[CodeType], users: Iterable[CodeType]) -> bool:
    """Whether some code loads an attribute, an entry or a variable that is not its own of that name, or a user's may do so by a name that
    is computed."""
    return any(name in _loaded(code) for code in codes) or any(not _BY_NAME.isdisjoint(code.co_names) for code in users)


_BY_NAME = frozenset(("getattr", "__dict__", "vars", "buffers", "named_buffers", "state_dict", "globals", "locals"))


def _loaded(code: CodeType) -> set[Any]:
    found: set[Any] = set()
    for x in instructions_of(code):
        if x.opname.startswith("LOAD") and not x.opname.startswith(("LOAD_CONST", "LOAD_FAST")):
            found.update(x.argval if type(x.argval) is tuple else (x.argval,))
        elif x.opname == "LOAD_CONST" and type(x.argval) is str:  # an entry of a dict
            found.add(x.argval)
    return found


class Holding:
    """A function with what it binds anew as further arguments and results: from (*args, *held) to (result, [held])."""

    def __init__(self, function: Callable[..., Any], places: Sequence[Held]) -> None:
        self.function, self.places = function, places
        self.reading = [p for p in places if p.read]
        self.kept: list[Held] = []  # places that the last run left as they were
        self.__qualname__ = getattr(function, "__qualname__", None) or type(function).__name__

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
        count = len(args) - len(self.reading)
        before = [p.get() for p in self.places]
        for place, value in zip(self.reading, args[count:]):
            place.put(value)
        started = [p.get() for p in self.places]
        try:
            result = self.function(*args[:count], **kwargs)
            found = [p.get() for p in self.places]
        finally:
            for place, value in zip(self.places, before):
                place.put(value)
        self.kept = [p for p, a, b in zip(self.places, started, found) if a is b]
        return result, found

    def given(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """A call's positional arguments, and what the places hold."""
        return (*args, *(p.get() for p in self.reading))

    def bind(self, found: Sequence[Any]) -> None:
        """Let the places hold what a run has made."""
        for place, value in zip(self.places, found, strict=True):
            place.put(value)


def places_of(function: Any) -> Sequence[Held]:
    """What a function that is to be traced holds."""
    if isinstance(function, Gradients):
        function = function.function
    return function.places if isinstance(function, Holding) else ()
