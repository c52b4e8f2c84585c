"""Nested arguments and results: lists, tuples, named tuples and dicts of tensors, taken apart and put together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradlab.autograd.base import Differentiable

LEAF = "tensor"


def flatten(value: Any) -> tuple[list[Any], Any]:
    """The tensors in order, and the structure around them (comparable with ==). Other values are part of the structure."""
    if isinstance(value, Differentiable):
        return [value], LEAF
    if isinstance(value, (list, tuple)):
        parts = [flatten(v) for v in value]
        return [t for found, _ in parts for t in found], (type(value), tuple(s for _, s in parts))
    if isinstance(value, dict):
        parts = [flatten(v) for v in value.values()]
        return [t for found, _ in parts for t in found], (dict, tuple(value), tuple(s for _, s in parts))
    return [], ("value", value)


def unflatten(structure: Any, tensors: list[Any]) -> Any:
    """The inverse of `flatten`."""
    return _built(structure, iter(tensors))


def _built(part: Any, waiting: Iterator[Any]) -> Any:
    if part == LEAF:
        return next(waiting)
    kind = part[0]
    if kind == "value":
        return part[1]
    if kind is dict:
        return {k: _built(s, waiting) for k, s in zip(part[1], part[2], strict=True)}
    children = [_built(s, waiting) for s in part[1]]
    return kind(*children) if hasattr(kind, "_fields") else kind(children)
