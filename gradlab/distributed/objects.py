"""Collectives of any objects that can be pickled. What a process gets from itself is a copy, as from another."""

from __future__ import annotations

import pickle
from typing import Any

from gradlab.distributed.collectives import _here, _root


def _sent(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def _places(name: str, argument: str, values: Any, size: int) -> None:
    if not isinstance(values, list):
        raise TypeError(f"{name}: {argument} is a list, not {type(values).__name__}")
    if len(values) != size:
        raise ValueError(f"{name}: {argument} has one place for each of the {size} processes, not {len(values)}")


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Put every process's object into the list of each, in the order of their ranks."""
    if (found := _here(group, "all_gather_object")) is not None:
        _places("all_gather_object", "object_list", object_list, found.size())
        object_list[found.rank()] = _sent(obj)


def gather_object(
    obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None, group: Any = None, group_dst: int | None = None
) -> None:
    """Put every process's object into the list of process `dst`; the others give None for it."""
    if (found := _here(group, "gather_object")) is not None and found.rank() == _root("gather_object", found, dst, group_dst):
        _places("gather_object", "object_gather_list", object_gather_list, found.size())
        assert object_gather_list is not None
        object_gather_list[found.rank()] = _sent(obj)


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None
) -> None:
    """Put the objects of process `src`'s list into that of every other."""
    if (found := _here(group, "broadcast_object_list")) is not None:
        _root("broadcast_object_list", found, src, group_src)
        if not isinstance(object_list, list):
            raise TypeError(f"broadcast_object_list: a list of objects, not {type(object_list).__name__}")
        pickle.dumps(object_list)


def scatter_object_list(
    scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None, src: int | None = None, group: Any = None,
    group_src: int | None = None,
) -> None:  # fmt: skip
    """Put the i-th object of process `src`'s list into the first place of process i's; the others give None for that list."""
    if (found := _here(group, "scatter_object_list")) is None:
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("scatter_object_list: scatter_object_output_list is a list with a first place")
    if found.rank() == _root("scatter_object_list", found, src, group_src):
        _places("scatter_object_list", "scatter_object_input_list", scatter_object_input_list, found.size())
        assert scatter_object_input_list is not None
        scatter_object_output_list[0] = _sent(scatter_object_input_list[found.rank()])
