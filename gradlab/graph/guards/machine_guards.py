"""Conditions that say where an object is found, tested in machine code: some ten nanoseconds each where the interpreter takes forty."""

from __future__ import annotations

import ctypes
import functools
import itertools
import re
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from gradlab.autograd.base import LEAF, Differentiable
from gradlab.backends.native import compiler

_ROOT = re.compile(r"o\d+")
_STEP = re.compile(r"\.([^\W\d]\w*)|\[(?:'([^'\\]*)'|(o\d+)|(\d+))\]")
_API = (
    "PyObject_GetAttr", "PyObject_GetItem", "PyDict_GetItemWithError", "PyList_GetItem", "PyObject_Size", "Py_DecRef", "PyErr_Clear",
)  # fmt: skip
_WORD, _LOW = ctypes.sizeof(ctypes.c_size_t), 0xFFFFFFFF
ATTRIBUTE, ITEM, ENTRY, ELEMENT, WORD, SIZE = range(6)  # as in guards.cpp


class Found(NamedTuple):
    """A condition: the expression gives this very object or, where a size is given, something of that size."""

    expression: str
    expected: Any
    size: int = -1


class Word(NamedTuple):
    """A condition: a word of this object's memory is what it is now."""

    owner: Any
    number: int


class Lacks(NamedTuple):
    """A condition: the dict has no such key."""

    table: dict[Any, Any]
    key: str


Condition = Found | Word | Lacks


class _Watch(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int64), ("object", ctypes.c_void_p), ("name", ctypes.c_void_p), ("expected", ctypes.c_void_p))


class Table:
    """Rows that the machine code looks at: `test(at)` is 1 if all of them hold and 0 if one may not. It keeps nothing alive."""

    def __init__(self, size: int) -> None:
        self.rows = (_Watch * size)()
        self._whole = (ctypes.c_int64 * 3)(ctypes.addressof(_interpreter()), ctypes.addressof(self.rows), size)
        self.test, self.at = _function(), ctypes.addressof(self._whole)

    def replace(self, other: Table) -> None:
        """Take another table's rows for one's own."""
        self.rows = other.rows
        self._whole[1], self._whole[2] = ctypes.addressof(self.rows), len(self.rows)

    def set(self, row: int, kind: int, owner: int, where: int, expected: int) -> None:
        """What a row looks at: an object's address, what tells where in it, and what should be there."""
        place = self.rows[row]
        place.kind, place.object, place.name, place.expected = kind, owner, where, expected


def path(expression: str, names: Mapping[str, Any]) -> tuple[Any, list[tuple[bool, Any]]] | None:
    """The object that an expression begins with, and the steps from there: (whether by key, the attribute's name or the key).

    None for what is no such expression.
    """
    root = _ROOT.match(expression)
    if root is None:
        return None
    steps: list[tuple[bool, Any]] = []
    at = root.end()
    while at < len(expression):
        step = _STEP.match(expression, at)
        if step is None:
            return None
        attribute, key, name, index = step.groups()
        steps.append((attribute is None, names[name] if name else int(index) if index else sys.intern(attribute or key or "")))
        at = step.end()
    return (names[root.group()], steps) if steps else None


def watcher(conditions: Iterable[Condition], names: Mapping[str, Any]) -> tuple[Table, Any] | None:
    """The test of conditions, whose expressions have a `path`, and what has to live as long. names: the objects that they name.

    What lies between the first object of an expression and the last is taken to be what it is now. None if a condition does not hold now.
    """
    rows: dict[tuple[int, int, int], tuple[int, tuple[Any, ...]]] = {}  # kind, object, where -> what should be there; what is kept
    for condition in conditions:
        if isinstance(condition, Word):
            owner, index = condition
            rows[WORD, id(owner), index] = _words_of(owner, index + 1)[index], (owner,)
            continue
        if isinstance(condition, Lacks):
            table, key = condition
            rows[ENTRY, id(table), id(key)] = 0, (table, key)
            continue
        expression, expected, size = condition
        found = path(expression, names)
        assert found is not None
        now, steps = found
        for by_key, name in steps:
            try:
                last, now = now, now[name] if by_key else getattr(now, name)
            except (AttributeError, LookupError, ValueError):
                return None
            kind, where = _kind(last, by_key, name)
            rows[kind, id(last), where] = id(now), (last, name, now)
        if size >= 0:
            rows[SIZE, id(now), size] = 0, (now,)
        elif now is not expected:
            return None
    made = Table(len(rows))
    for i, ((kind, owner, where), (address, _)) in enumerate(rows.items()):
        made.set(i, kind, owner, where, address)
    return made, [x for _, kept in rows.values() for x in kept]


def can_watch() -> bool:
    """Whether there is a compiler, and an interpreter that shows its functions."""
    return hasattr(ctypes, "pythonapi") and all(hasattr(ctypes.pythonapi, name) for name in _API) and compiler.available()


def _kind(owner: Any, by_key: bool, name: Any) -> tuple[int, int]:
    """How to look, and what tells the machine code where."""
    if type(owner) is list and type(name) is int:
        return ELEMENT, name
    if by_key:
        return ENTRY if type(owner) is dict and type(name) is str else ITEM, id(name)
    if isinstance(owner, Differentiable) and name in words():
        return WORD, words()[name]
    if type(owner) is types.CellType and name in cell_words():
        return WORD, cell_words()[name]
    return ATTRIBUTE, id(name)


@functools.cache
def words() -> dict[str, int]:
    """Where a tensor keeps its slots, in words; empty if that does not show."""
    marks = {"_array": np.empty(()), "_edge": LEAF, "_meta": object()}
    probe: Any = Differentiable()
    for name, mark in marks.items():
        setattr(probe, name, mark)
    return _found(probe, marks)


@functools.cache
def cell_words() -> dict[str, int]:
    """The same of what a closure's cell holds."""
    probe = types.CellType(object())
    return _found(probe, {"cell_contents": probe.cell_contents})


@functools.cache
def function_words() -> dict[str, int]:
    """The same of a function's code and defaults."""

    def probe(positional: float = 0.5, *, named: float = 0.5) -> None: ...

    return _found(probe, {name: getattr(probe, name) for name in ("__code__", "__defaults__", "__kwdefaults__")})


@functools.cache
def object_words() -> dict[str, int]:
    """Where an object says of what class it is, where a dict says how many entries it has, and a class of which version it is.

    A class has another version whenever an attribute of it, or of a class above it, was set since one was last looked up.
    """
    kind = type("kind", (), {})
    seen = []
    for value in range(4):
        kind.value = value  # type: ignore[attr-defined]
        getattr(kind, "value")  # noqa: B009 - which gives it a version
        seen.append(_words_of(kind, object.__sizeof__(kind) // _WORD))
    grown = [i for i in range(len(seen[0])) if all(0 < a[i] & _LOW < b[i] & _LOW for a, b in itertools.pairwise(seen[1:]))]
    used = [i for i, word in enumerate(_words_of(dict.fromkeys(range(123)), 4)) if word == 123]
    own = [i for i, word in enumerate(_words_of(kind(), 2)) if word == id(kind)]
    clear = len(grown) == len(used) == len(own) == 1
    return {"class": own[0], "entries": used[0], "version": grown[0]} if clear else {}


def version(kind: type) -> int:
    """A class's version; 0 where it has none, so that changes do not show."""
    where = object_words().get("version")
    if where is None:
        return 0
    getattr(kind, "__init_subclass__")  # noqa: B009 - which gives it a version
    return _words_of(kind, where + 1)[where] & _LOW


def _found(probe: Any, marks: Mapping[str, Any]) -> dict[str, int]:
    words = _words_of(probe, type(probe).__basicsize__ // _WORD)
    clear = all(words.count(id(mark)) == 1 for mark in marks.values())
    return {name: words.index(id(mark)) for name, mark in marks.items()} if clear else {}


def _words_of(value: Any, count: int) -> list[int]:
    return list((ctypes.c_size_t * count).from_address(id(value)))


@functools.cache
def _interpreter() -> Any:
    """The interpreter's functions, as a table for the machine code."""
    return (ctypes.c_void_p * len(_API))(*(ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in _API))


@functools.cache
def _function() -> Any:
    """The machine code, called with the interpreter's lock held."""
    library = compiler.guards()
    library.gradlab_watch.argtypes = [ctypes.c_void_p]
    library.gradlab_watch.restype = ctypes.c_int64
    return library.gradlab_watch
