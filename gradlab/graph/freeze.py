"""Python values as something that can be compared later: plain values by value and type, everything else by identity."""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from gradlab.autograd.base import Differentiable
from gradlab.device import Device

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), range, slice, np.dtype, np.generic, Device)
_CODE = (FunctionType, BuiltinFunctionType, MethodType, ModuleType, type, Differentiable)
_SMALL_ARRAY = 4096  # bytes; a larger NumPy array is told by its identity
_MANY = 10_000  # entries of a container that are looked at


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


def freeze(value: Any, depth: int = 4) -> Any:
    """A comparable picture of `value`: containers and instances of users' classes to a depth, the rest by value or identity."""
    if isinstance(value, PLAIN):
        return (type(value).__name__, repr(value))
    if depth == 0 or isinstance(value, _CODE) or _is_ours(value):
        if isinstance(value, MethodType):  # bound methods are made anew at each access
            return ("method", Same(value.__self__), Same(value.__func__))
        return Same(value)
    if isinstance(value, np.ndarray):
        return ("array", value.shape, value.dtype.str, value.tobytes()) if value.nbytes <= _SMALL_ARRAY else Same(value)
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, len(value), *(freeze(v, depth - 1) for v in value[:_MANY]))
    if isinstance(value, dict):
        entries = list(value.items())[:_MANY]
        return (type(value).__name__, len(value), *((freeze(k, depth - 1), freeze(v, depth - 1)) for k, v in entries))
    if isinstance(value, (set, frozenset)):
        return (type(value).__name__, len(value), frozenset(freeze(v, depth - 1) for v in value))
    inside = getattr(value, "__dict__", None)
    if inside and not hasattr(value, "__wrapped__"):
        return (Same(value), *((k, freeze(v, depth - 2 if depth > 1 else 0)) for k, v in inside.items()))
    return Same(value)


def _is_ours(value: Any) -> bool:
    """Modules, optimizers and the like, also of users' classes: what is read of them is guarded by itself (see reads.py)."""
    return any(cls.__module__.startswith("gradlab") for cls in type(value).__mro__)


def short(value: Any, limit: int = 60) -> str:
    """The value in an error message."""
    if isinstance(value, Differentiable):
        return f"a tensor of shape {tuple(value._array.shape)}"
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
