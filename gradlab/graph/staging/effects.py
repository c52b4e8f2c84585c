"""What a traced function may give and do to its arguments: a replay gives the tensors again, and nothing else anew."""

from __future__ import annotations

from collections.abc import Container, Iterator
from types import AsyncGeneratorType, CoroutineType, GeneratorType, SimpleNamespace
from typing import Any

from gradlab.autograd.base import Differentiable
from gradlab.graph.guards.contents import MUTABLE, attribute, attributes, members, refill
from gradlab.graph.guards.freeze import freeze, is_plain
from gradlab.graph.guards.sources import is_instance
from gradlab.graph.guards.unrepeatable import Young
from gradlab.graph.staging.symbol import Symbol, TraceError
from gradlab.graph.staging.tree import LEAF, empty, flatten

_DEEP = 3  # levels of objects that are searched for tensors


class Arguments:
    """A trace's arguments as they were before it, apart from tensors: `changed()` tells which are not so any more, and puts them back."""

    def __init__(self, positional: list[Any], named: dict[str, Any]) -> None:
        labelled = [*((f"argument {i}", v) for i, v in enumerate(positional)), *((f"argument {k}", v) for k, v in named.items())]
        self._all = [(label, v, freeze(v)) for label, v in labelled if not is_plain(v) and not isinstance(v, Differentiable)]
        self._objects = [(v.__dict__, v.__dict__.copy()) for _, v, _ in self._all if is_instance(v)]

    def changed(self) -> list[str]:
        """The arguments that the function changed; objects get their attributes back."""
        found = [label for label, v, picture in self._all if freeze(v) != picture]
        if found:
            for inside, before in self._objects:
                refill(inside, before)
        return found


def taken_apart(result: Any, tracer: Any) -> tuple[list[Any], Any]:
    """`flatten` of a traced function's result, and of the objects in it that were made in the trace: a replay makes them anew, as
    `copy.copy` would. An object that is met again (it may lead back to itself) would become two, and is left to `check_result`.
    """
    before, young = set(map(id, tracer.before())), Young(tracer)
    opened: set[int] = set()

    def opens(value: Any) -> bool:
        if id(value) in opened or not (is_instance(value) and _is_record(type(value)) and young(value)):
            return False
        if not _holds_symbols(value, _DEEP, before):
            return False
        opened.add(id(value))
        return True

    return flatten(result, opens)


def _is_record(kind: type) -> bool:
    """Whether instances of a class are their attributes, and nothing else."""
    own = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__", "__getattribute__", "__del__")
    users = [each.__dict__ for each in kind.__mro__[:-1] if each is not SimpleNamespace]
    if any(known.get("__slots__") or any(name in known for name in own) for known in users):
        return False
    try:
        return type(empty(kind)) is kind
    except TypeError:  # what is made of another built-in type, or is abstract
        return False


def check_result(structure: Any) -> None:
    """TraceError where a result holds the trace's tensors in something that a replay cannot make again."""
    for value in _values(structure):
        kind = type(value).__name__
        if isinstance(value, (GeneratorType, CoroutineType, AsyncGeneratorType)):
            raise TraceError(f"compile: the function returns a {kind}, which a replay could not run; return a list or a tuple")
        if _holds_symbols(value, _DEEP):
            raise TraceError(
                f"compile: the function returns tensors in an object of type {kind}, which a replay could not make anew; return them in "
                f"tuples, lists, dicts, dataclasses, or in an object that is nothing but its attributes and is there once"
            )


def _values(structure: Any) -> Iterator[Any]:
    if structure == LEAF:
        return
    if structure[0] == "value":
        if not is_plain(structure[1]):
            yield structure[1]
        return
    for part in structure[-1]:
        yield from _values(part)


def _holds_symbols(value: Any, depth: int, but: Container[int] = ()) -> bool:
    """Whether there are tensors of the trace in it, apart from some that are given by their ids."""
    if isinstance(value, Differentiable):
        return type(value._array) is Symbol and id(value) not in but
    if depth == 0 or is_plain(value):
        return False
    if isinstance(value, (*MUTABLE, tuple, frozenset)):
        return any(_holds_symbols(v, depth - 1, but) for v in members(value))
    slots = [attribute(value, name) for cls in type(value).__mro__ for name in cls.__dict__.get("__slots__", ())]
    inside = list(attributes(value).values()) if is_instance(value) else []
    return any(_holds_symbols(v, depth - 1, but) for v in (*inside, *slots))
