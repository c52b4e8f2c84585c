"""Nested arguments and results: tuples, lists, named tuples and dicts of leaves, taken apart and put together."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

LEAF = "leaf"
Structure = Any  # LEAF, or (type, keys or None, structures)


def is_container(value: Any) -> bool:
    """Whether a value is taken apart. Everything else, None included, is a leaf."""
    return isinstance(value, (tuple, list)) or type(value) in (dict, OrderedDict)


def children(value: Any) -> Sequence[Any]:
    """The parts of a container."""
    return list(value.values()) if isinstance(value, dict) else value


def flatten(value: Any) -> tuple[list[Any], Structure]:
    """The leaves in order, and the structure around them (comparable with ==)."""
    if not is_container(value):
        return [value], LEAF
    found = [flatten(v) for v in children(value)]
    keys = tuple(value) if isinstance(value, dict) else None
    return [leaf for leaves, _ in found for leaf in leaves], (type(value), keys, tuple(s for _, s in found))


def unflatten(structure: Structure, leaves: Sequence[Any]) -> Any:
    """The inverse of `flatten`."""
    return _built(structure, iter(leaves))


def _built(structure: Structure, waiting: Iterator[Any]) -> Any:
    if structure == LEAF:
        return next(waiting)
    kind, keys, parts = structure
    built = [_built(part, waiting) for part in parts]
    if keys is not None:
        return kind(zip(keys, built, strict=True))
    return kind(*built) if hasattr(kind, "_fields") else kind(built)


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """The same nesting with `function` of each leaf."""
    leaves, structure = flatten(value)
    return unflatten(structure, [function(leaf) for leaf in leaves])


def spread(prefix: Any, structure: Structure, what: str) -> list[Any]:
    """For each leaf of the structure the entry of `prefix` (None, a number, or nested the same way) that stands over it. ValueError if
    they do not nest alike."""
    if structure == LEAF:
        if is_container(prefix):
            raise ValueError(f"{what} nests deeper than what it is for: {prefix!r} stands for one value")
        return [prefix]
    _, keys, parts = structure
    if not is_container(prefix):
        return [entry for part in parts for entry in spread(prefix, part, what)]
    given = children(prefix)
    if len(given) != len(parts) or (keys is not None) != isinstance(prefix, dict) or (keys is not None and set(keys) != set(prefix)):
        raise ValueError(f"{what} does not nest like what it is for: {prefix!r} for {len(parts)} parts{f' {list(keys)}' if keys else ''}")
    ordered = [prefix[key] for key in keys] if keys is not None else given
    return [entry for one, part in zip(ordered, parts, strict=True) for entry in spread(one, part, what)]
