"""Kinds of calls of a compiled function: the first of each kind runs eagerly."""

from __future__ import annotations

import functools
import sys
import warnings
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType, MethodType
from typing import Any

from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import Mode
from gradlab.graph.guards.contents import is_dataclass
from gradlab.graph.guards.freeze import Same, freeze, short
from gradlab.graph.guards.sources import is_opaque
from gradlab.graph.staging.tree import fields_of, flatten

_KEPT = 64
_MANY = 8  # kinds in a row that are normal
_GENERATOR = 0x20 | 0x80 | 0x200  # flags of the code of generators and coroutines
_RUNNING = (GeneratorType, CoroutineType, AsyncGeneratorType)


class Signatures:
    """The kinds of calls that were seen."""

    def __init__(self) -> None:
        self._known: dict[Any, None] = {}
        self._last: Any = None
        self._new = 0  # calls of a new kind since something was traced

    def is_new(self, title: str, args: tuple[Any, ...], kwargs: dict[str, Any], mode: Mode) -> bool:
        """Whether there was no call of this kind yet; warns where all calls are of new kinds, so that nothing is ever compiled."""
        found = (*map(_picture, args), *((k, _picture(v)) for k, v in kwargs.items()), mode.recording)
        if found in self._known:
            self._new = 0
            return False
        self._known[found] = None
        if len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]
        self._new += 1
        if self._new == _MANY and self._last is not None:
            warnings.warn(
                f"compile: {title} was called with {_MANY} kinds of arguments and runs eagerly, as the first call of each kind does"
                f"{self._difference(found, args, kwargs)}. Pass what changes as a tensor (also in tuples, lists, dicts and dataclasses), "
                f"or pad to fewer shapes",
                stacklevel=4,
            )
        self._last = found
        return True

    def _difference(self, found: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        values = [*((f"argument {i}", v) for i, v in enumerate(args)), *((f"argument {k}", v) for k, v in kwargs.items())]
        if len(found) == len(self._last):
            for (label, value), now, was in zip(values, found, self._last, strict=False):
                if now != was:
                    return f"; {label} changes, now it is {short(value)}"
        return ""


def _picture(value: Any) -> Any:
    """What a call's kind is told by, of one argument."""
    if isinstance(value, Differentiable):
        return ("tensor", value._array.shape, value._array.dtype, value._edge is None, type(value._array))
    if isinstance(value, (list, tuple)):
        return (type(value), tuple(map(_picture, value)))
    if isinstance(value, dict):
        return (type(value), tuple((k, _picture(v)) for k, v in value.items()))
    if is_dataclass(type(value)) and flatten(value)[0]:
        return (type(value), tuple((k, _picture(v)) for k, v in fields_of(value).items()))
    return Same(value) if is_opaque(value) else freeze(value)


def name_of(function: Any, compiled: Any) -> str:
    """The function's name where it leads to what `compile` made of it, as with a decorated function; "" elsewhere."""
    name: str = getattr(function, "__qualname__", "")
    found: Any = sys.modules.get(getattr(function, "__module__", None) or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is compiled else ""


def check_callable(function: Any) -> None:
    """TypeError for what `compile` cannot stand for: a class, a generator, a coroutine, something that is no function."""
    if isinstance(function, type):
        raise TypeError(f"compile: a function or an instance of a module, not the class {function.__name__}; compile what it makes")
    inner = _code_of(function)
    if isinstance(function, _RUNNING) or (inner is not None and inner.__code__.co_flags & _GENERATOR):
        raise TypeError(
            f"compile: {getattr(inner or function, '__qualname__', function)} is a generator or a coroutine, which a program cannot be: it "
            f"stops between its results. Compile what it does in each step, or return all results in a list"
        )
    if not callable(function):
        raise TypeError(f"compile: a function or a module, not {type(function).__name__}")


def _code_of(function: Any) -> FunctionType | None:
    """The Python function behind a method, a partial function or an object that can be called; None where there is none."""
    while not isinstance(function, FunctionType):
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        else:
            found = next((vars(c)["__call__"] for c in type(function).__mro__ if "__call__" in vars(c)), None)
            return found if isinstance(found, FunctionType) else None
    return function
