"""Collectives of any objects that can be pickled. What a process gets from itself is a copy, as from another.

Pickles are bytes: their lengths travel first, then they do. A pickle runs code when it is read: they are for the program's own processes.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab.autograd.record import wrap
from gradlab.distributed.collectives import _here, _root
from gradlab.distributed.groups import ProcessGroup
from gradlab.distributed.messages import recv, send

_TAG = 1 << 13  # of messages that hold objects


def _places(name: str, argument: str, values: Any, size: int) -> None:
    if not isinstance(values, list):
        raise TypeError(f"{name}: {argument} is a list, not {type(values).__name__}")
    if len(values) != size:
        raise ValueError(f"{name}: {argument} has one place for each of the {size} processes, not {len(values)}")


def _exchanged(group: ProcessGroup, sent: Sequence[bytes]) -> list[bytes]:
    """`sent[i]` goes to process i; returns what came from each."""
    one = (1,) * group.size()
    lengths, coming = np.array([len(x) for x in sent], np.int64), np.empty(group.size(), np.int64)
    group.transport.all_to_all(lengths, coming, one, one)
    give, take = tuple(lengths.tolist()), tuple(coming.tolist())
    bytes_in = np.empty(sum(take), np.uint8)
    group.transport.all_to_all(np.frombuffer(b"".join(sent), np.uint8), bytes_in, give, take)
    ends = np.cumsum(take)
    return [bytes_in[end - size : end].tobytes() for size, end in zip(take, ends, strict=True)]


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Put every process's object into the list of each, in the order of their ranks."""
    if (found := _here(group, "all_gather_object")) is not None:
        _places("all_gather_object", "object_list", object_list, found.size())
        object_list[:] = map(pickle.loads, _exchanged(found, [pickle.dumps(obj)] * found.size()))


def gather_object(
    obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None, group: Any = None, group_dst: int | None = None
) -> None:
    """Put every process's object into the list of process `dst`; the others give None for it."""
    if (found := _here(group, "gather_object")) is None:
        return
    root = _root("gather_object", found, dst, group_dst)
    if found.rank() == root:
        _places("gather_object", "object_gather_list", object_gather_list, found.size())
    text = pickle.dumps(obj)
    came = _exchanged(found, [text if r == root else b"" for r in range(found.size())])
    if found.rank() == root:
        assert object_gather_list is not None
        object_gather_list[:] = map(pickle.loads, came)


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None
) -> None:
    """Put the objects of process `src`'s list into that of every other."""
    if (found := _here(group, "broadcast_object_list")) is None:
        return
    root = _root("broadcast_object_list", found, src, group_src)
    if not isinstance(object_list, list):
        raise TypeError(f"broadcast_object_list: a list of objects, not {type(object_list).__name__}")
    text = pickle.dumps(object_list) if found.rank() == root else b""
    came = pickle.loads(_exchanged(found, [text] * found.size())[root])
    if len(came) != len(object_list):
        raise ValueError(f"broadcast_object_list: rank {found.ranks[root]} has a list of {len(came)}, this one of {len(object_list)}")
    if found.rank() != root:
        object_list[:] = came


def scatter_object_list(
    scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None, src: int | None = None, group: Any = None,
    group_src: int | None = None,
) -> None:  # fmt: skip
    """Put the i-th object of process `src`'s list into the first place of process i's; the others give None for that list."""
    if (found := _here(group, "scatter_object_list")) is None:
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("scatter_object_list: scatter_object_output_list is a list with a first place")
    root = _root("scatter_object_list", found, src, group_src)
    sent = [b""] * found.size()
    if found.rank() == root:
        _places("scatter_object_list", "scatter_object_input_list", scatter_object_input_list, found.size())
        sent = [pickle.dumps(value) for value in scatter_object_input_list or ()]
    scatter_object_output_list[0] = pickle.loads(_exchanged(found, sent)[root])


def send_object_list(
    object_list: list[Any], dst: int | None = None, group: Any = None, device: Any = None, group_dst: int | None = None,
    use_batch: bool = False,
) -> None:  # fmt: skip
    """Send the objects of a list to process `dst`, which calls `recv_object_list`."""
    text = np.frombuffer(pickle.dumps(list(object_list)), np.uint8).copy()
    send(wrap(np.array([len(text)], np.int64)), dst, group, _TAG, group_dst)
    send(wrap(text), dst, group, _TAG, group_dst)


def recv_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None,
    use_batch: bool = False,
) -> int:  # fmt: skip
    """Put what a process sends with `send_object_list` into a list as long. Returns the sender's rank, -1 outside of the group."""
    size = wrap(np.zeros(1, np.int64))
    sender = recv(size, src, group, _TAG, group_src)
    if sender < 0:
        return sender
    text = wrap(np.empty(int(size._array[0]), np.uint8))
    recv(text, sender if group_src is None else None, group, _TAG, group_src)
    found = pickle.loads(text._array.tobytes())
    if len(found) != len(object_list):
        raise ValueError(f"recv_object_list: rank {sender} sends a list of {len(found)}, this one has {len(object_list)} places")
    object_list[:] = found
    return sender
