"""Python values as something that can be compared later: plain values by value and type, everything else by identity."""

from __future__ import annotations

import ctypes
import functools
import marshal
import os
import random
import warnings
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Set
from hashlib import blake2b
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import numpy as np

from gradlab.autograd.base import Differentiable
from gradlab.device import Device
from gradlab.graph.guards.contents import attributes, built_in, defines, items, length, members

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), range, slice, np.dtype, np.generic, Device)
_CODE = (FunctionType, BuiltinFunctionType, MethodType, ModuleType, type, Differentiable)
DATA: Any = ctypes.c_int.__mro__[-2]  # of all values of ctypes
_NESTING = (list, tuple, dict, deque)
_SMALL_ARRAY = 4096  # bytes; of a larger NumPy array a digest is kept
_MANY = 10_000  # entries of a container that are looked at one by one


class Same:
    """Stands for one object: equal only to a Same of that very object, which it keeps alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is Same and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return short(self.value)


def is_plain(value: Any) -> bool:
    """Whether a value is compared by value and cannot be changed in place."""
    return isinstance(value, PLAIN)


def is_fixed(value: Any) -> bool:
    """Whether a value is plain, or a tuple of nothing else: the same object is then the same value."""
    return isinstance(value, PLAIN) or (type(value) is tuple and all(map(is_fixed, value)))


def is_told(value: Any) -> bool:
    """Whether the same object is the same value: it is fixed, or a tuple of what is, and of what is compared by identity."""
    return is_fixed(value) or (type(value) is tuple and all(is_fixed(v) or type(freeze(v)) is Same for v in value))


def freeze(value: Any, depth: int = 8, without: Set[tuple[int, Any]] = frozenset()) -> Any:
    """A comparable picture of `value`: containers and instances of users' classes to a depth, the rest by value or identity.

    without: entries of dicts, and of objects' `__dict__`, that are left out: the dict's id and the key.
    """
    if isinstance(value, PLAIN):
        return (type(value).__name__, (repr if type(value) in PLAIN else built_in(value).__repr__)(value))
    if depth <= 0 or isinstance(value, _CODE) or _is_ours(value):
        if depth == 0 and isinstance(value, _NESTING):
            return _nested(value, without)
        if isinstance(value, MethodType):  # bound methods are made anew at each access
            return ("method", Same(value.__self__), Same(value.__func__))
        return Same(value)
    if isinstance(value, np.ndarray):
        content: Any = value.tobytes() if value.nbytes <= _SMALL_ARRAY else blake2b(np.ascontiguousarray(value).data).digest()
        return ("array", value.shape, value.dtype.str, content)
    if isinstance(value, (list, tuple, deque)):
        number = length(value)
        rest = () if number <= _MANY else _rest(value, depth - 1)
        return (type(value).__name__, number, *(freeze(v, depth - 1, without) for v in islice(members(value), _MANY)), *rest)
    if isinstance(value, (dict, MappingProxyType)):
        entries = _entries(value, without)
        number = length(value)
        return (type(value).__name__, number, *((freeze(k, depth - 1), freeze(v, depth - 1, without)) for k, v in entries))
    if isinstance(value, (set, frozenset)):
        return (type(value).__name__, length(value), frozenset(freeze(v, depth - 1) for v in members(value)))
    if isinstance(value, (bytearray, array, memoryview, DATA)):
        return (type(value).__name__, bytes(value))
    if isinstance(value, (random.Random, np.random.Generator, np.random.RandomState)):
        return (Same(value), _state(value))
    if isinstance(value, functools.partial):
        return ("partial", *(freeze(v, depth - 1, without) for v in (value.func, value.args, value.keywords)))
    kind = type(value)
    if kind is type(os.environ):
        return ("environ", *value.items())
    inside = attributes(value)
    if inside and not ("__wrapped__" in inside or defines(kind, "__wrapped__")):
        own: Any = kind if _is_frozen(kind) else value  # an instance that cannot change is its fields
        return (Same(own), *((k, freeze(v, depth - 4 if depth > 4 else -1, without)) for k, v in _entries(inside, without)))
    if defines(kind, "__next__") and kind.__module__ in ("builtins", "itertools"):
        return (Same(value), _position(value))
    return Same(value)


def _nested(value: Any, without: Set[tuple[int, Any]]) -> Any:
    """A picture of containers far inside, each of them once: they may hold one another, or themselves."""
    met, waiting, found = {id(value): 0}, [value], []
    for one in waiting:
        picture: list[Any] = [type(one).__name__]
        for v in (part for entry in _entries(one, without) for part in entry) if isinstance(one, dict) else members(one):
            if isinstance(v, _NESTING):
                if id(v) not in met:
                    met[id(v)] = len(met)
                    waiting.append(v)
                picture.append(("container", met[id(v)]))
            else:
                picture.append(freeze(v, 1, without))
        found.append(tuple(picture))
    return tuple(found)


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate() if type(generator) is random.Random else Same(generator)
    return freeze(generator.bit_generator.state if isinstance(generator, np.random.Generator) else generator.get_state(legacy=False))


def _entries(table: Mapping[Any, Any], without: Set[tuple[int, Any]]) -> Iterable[tuple[Any, Any]]:
    if not without:
        return items(table)
    number = id(table)
    return [(k, v) for k, v in items(table) if (number, k) not in without]


def _rest(values: Any, depth: int) -> tuple[Any, ...]:
    """What is behind the first entries of a long list: of numbers and strings a digest."""
    rest = tuple(islice(members(values), _MANY, None))
    try:
        return (blake2b(marshal.dumps(rest)).digest(),)
    except ValueError:
        return tuple(freeze(v, depth) for v in rest)


def _is_frozen(kind: type) -> bool:
    """Whether this is a dataclass whose instances cannot change, and whose fields are all that there is to them."""
    return defines(kind, "__dataclass_params__") and kind.__dataclass_params__.frozen and kind.__dataclass_params__.eq  # type: ignore[attr-defined]


def _position(iterator: Any) -> Any:
    """Where a built-in iterator stands, as far as it says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of itertools
        try:
            return freeze(tuple(iterator.__reduce__()[1:]), 4)
        except (TypeError, AttributeError):
            return repr(iterator) if type(iterator).__module__ == "itertools" else ""


def _is_ours(value: Any) -> bool:
    """Modules, optimizers and the like, also of users' classes: what is read of them is guarded by itself (see reads.py)."""
    return any(cls.__module__.startswith("gradlab") for cls in type(value).__mro__)


def short(value: Any, limit: int = 60) -> str:
    """The value in an error message."""
    if isinstance(value, Differentiable):
        return f"a tensor of shape {tuple(value._array.shape)}"
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
