"""Nested arguments and results: lists, tuples, named tuples, dicts and dataclasses of tensors, taken apart and put together. In results,
objects of other classes as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from gradlab.autograd.base import Differentiable
from gradlab.graph.guards.contents import attributes, is_dataclass

LEAF = "tensor"


def flatten(value: Any, opens: Callable[[Any], bool] | None = None) -> tuple[list[Any], Any]:
    """The tensors in order, and the structure around them (comparable with ==). Other values are part of the structure.

    An instance of a dataclass is taken apart if there are tensors in it, one of another class where `opens` says so.
    """
    if isinstance(value, Differentiable):
        return [value], LEAF
    if isinstance(value, (list, tuple)):
        parts = [flatten(v, opens) for v in value]
        return [t for found, _ in parts for t in found], (type(value), tuple(s for _, s in parts))
    if isinstance(value, dict):
        parts = [flatten(v, opens) for v in value.values()]
        return [t for found, _ in parts for t in found], (type(value), tuple(value), tuple(s for _, s in parts))
    if is_dataclass(type(value)) or (opens is not None and opens(value)):
        fields = fields_of(value) if is_dataclass(type(value)) else attributes(value)
        parts = [flatten(v, opens) for v in fields.values()]
        tensors = [t for found, _ in parts for t in found]
        if tensors:
            return tensors, (type(value), tuple(fields), tuple(s for _, s in parts))
    return [], ("value", value)


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of an instance of a dataclass."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if hasattr(value, field.name)}


def has_keys(kind: Any) -> bool:
    """Whether a structure of this kind has keys: (kind, keys, parts), where others are (kind, parts)."""
    return isinstance(kind, type) and not issubclass(kind, (list, tuple))


def unflatten(structure: Any, tensors: list[Any]) -> Any:
    """The inverse of `flatten`."""
    return _built(structure, iter(tensors))


def _built(part: Any, waiting: Iterator[Any]) -> Any:
    if part == LEAF:
        return next(waiting)
    kind = part[0]
    if kind == "value":
        return part[1]
    if has_keys(kind):
        return with_keys(kind, {k: _built(s, waiting) for k, s in zip(part[1], part[2], strict=True)})
    children = [_built(s, waiting) for s in part[1]]
    return kind(*children) if hasattr(kind, "_fields") else kind(children)


def with_keys(kind: type, entries: dict[Any, Any]) -> Any:
    """A dict of that kind, or an instance of that class, with these entries."""
    if kind is dict:
        return entries
    made = empty(kind)
    if not issubclass(kind, dict) and not is_dataclass(kind):
        attributes(made).update(entries)
        return made
    for key, value in entries.items():
        if issubclass(kind, dict):
            made[key] = value
        else:
            object.__setattr__(made, key, value)  # also of a frozen one
    return made


def empty(kind: type) -> Any:
    """An instance without entries or attributes, whose `__init__` has not run. TypeError for classes made of other built-in types."""
    return (kind if issubclass(kind, (dict, SimpleNamespace)) else object).__new__(kind)
