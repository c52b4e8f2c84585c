"""Nested arguments and results: lists, tuples, named tuples, dicts and dataclasses of tensors, taken apart and put together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from gradlab.autograd.base import Differentiable
from gradlab.graph.guards.contents import is_dataclass

LEAF = "tensor"


def flatten(value: Any) -> tuple[list[Any], Any]:
    """The tensors in order, and the structure around them (comparable with ==). Other values are part of the structure.

    An instance of a dataclass is taken apart if there are tensors in it.
    """
    if isinstance(value, Differentiable):
        return [value], LEAF
    if isinstance(value, (list, tuple)):
        parts = [flatten(v) for v in value]
        return [t for found, _ in parts for t in found], (type(value), tuple(s for _, s in parts))
    if isinstance(value, dict):
        parts = [flatten(v) for v in value.values()]
        return [t for found, _ in parts for t in found], (type(value), tuple(value), tuple(s for _, s in parts))
    if is_dataclass(type(value)):
        fields = fields_of(value)
        parts = [flatten(v) for v in fields.values()]
        tensors = [t for found, _ in parts for t in found]
        if tensors:
            return tensors, (type(value), tuple(fields), tuple(s for _, s in parts))
    return [], ("value", value)


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of an instance of a dataclass."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if hasattr(value, field.name)}


def has_keys(kind: Any) -> bool:
    """Whether a structure of this kind has keys: (kind, keys, parts), where others are (kind, parts)."""
    return kind is dict or (isinstance(kind, type) and (issubclass(kind, dict) or is_dataclass(kind)))


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
    """A dict of that kind, or an instance of that dataclass, with these entries."""
    if kind is dict:
        return entries
    made: Any = object.__new__(kind) if not issubclass(kind, dict) else kind.__new__(kind)
    for key, value in entries.items():
        if issubclass(kind, dict):
            made[key] = value
        else:
            object.__setattr__(made, key, value)  # also of a frozen one
    return made
