"""Checkpoints that several processes write into one folder, and any number of them read: `gradlab.distributed.checkpoint`.

A folder has a file of each process that had something to write, and `checkpoint.json`, which says where each key is. A key that several
processes have (a model's parameters under `DistributedDataParallel`, the whole state dict of `FullyShardedDataParallel`) is written by the
first of them. The files are gradlab's (`gl.save`), not PyTorch's `.distcp`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradlab.autograd.mode import no_grad
from gradlab.distributed import all_gather_object, barrier, get_rank, is_initialized
from gradlab.distributed.futures import Future
from gradlab.distributed.groups import member
from gradlab.tensor import Tensor
from gradlab.utils.atomic import write_text
from gradlab.utils.serialization import load as load_file, save as save_file

INDEX = "checkpoint.json"
_SEPARATOR = "."


class CheckpointException(Exception):
    """A checkpoint cannot be written or read; the text says which key or file."""


class FileSystemWriter:
    """A folder to write to, as `storage_writer=`. Other arguments of PyTorch's change nothing."""

    def __init__(self, path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        self.path = Path(path)


class FileSystemReader(FileSystemWriter):
    """A folder to read from, as `storage_reader=`."""


def _folder(name: str, checkpoint_id: Any, storage: FileSystemWriter | None) -> Path:
    if checkpoint_id is None and storage is None:
        raise CheckpointException(f"{name}: give checkpoint_id, the folder")
    return Path(checkpoint_id) if checkpoint_id is not None else storage.path  # type: ignore[union-attr]


def _leaves(state: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[str, Any]]:
    """What is in nested dicts, by path; an object with a `state_dict()` stands for that."""
    if isinstance(state, dict) and state:
        for key, value in state.items():
            yield from _leaves(value, (*at, key))
    elif not isinstance(state, (dict, Tensor)) and callable(getattr(state, "state_dict", None)):
        yield from _leaves(state.state_dict(), at)
    else:
        yield _SEPARATOR.join(map(str, at)), state


def _everywhere(value: Any, group: Any) -> list[Any]:
    if not is_initialized():
        return [value]
    found = member(group, "checkpoint")
    every = [None] * (1 if found is None else found.size())
    all_gather_object(every, value, group)
    return every


def save(
    state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None, storage_writer: FileSystemWriter | None = None,
    planner: Any = None, process_group: Any = None, no_dist: bool = False, **options: Any,
) -> None:  # fmt: skip
    """Write a state dict (nested, or objects that have a `state_dict()`) into a folder; all processes of the group call it.

    The folder is whole when it has its `checkpoint.json`, which is written last; one that was there is replaced. no_dist: this process
    alone writes.
    """
    folder = _folder("save", checkpoint_id, storage_writer)
    own = dict(_leaves(state_dict))
    alone = no_dist or not is_initialized()
    every = [list(own)] if alone else _everywhere(list(own), process_group)
    rank = 0 if alone else get_rank(process_group)
    owner: dict[str, int] = {}
    for r, keys in enumerate(every):
        for key in keys:
            owner.setdefault(key, r)
    if rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / INDEX).unlink(missing_ok=True)
        for old in folder.glob("part-*.pt"):
            old.unlink()
    if not alone:
        barrier(process_group)
    mine = {key: value for key, value in own.items() if owner[key] == rank}
    if mine:
        save_file(mine, folder / f"part-{rank}.pt")
    if not alone:
        barrier(process_group)
    if rank == 0:
        index = {"format": 1, "keys": {key: f"part-{r}.pt" for key, r in owner.items()}}
        write_text(folder / INDEX, json.dumps(index, indent=1) + "\n")
    if not alone:
        barrier(process_group)


def async_save(state_dict: dict[str, Any], **options: Any) -> Future[None]:
    """`save`, which has ended when it returns, as a future."""
    future: Future[None] = Future()
    save(state_dict, **options)
    future.set_result(None)
    return future


def load(
    state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None, storage_reader: FileSystemWriter | None = None,
    planner: Any = None, process_group: Any = None, no_dist: bool = False, **options: Any,
) -> None:  # fmt: skip
    """Read what a state dict has keys for: tensors are written in place, other values replaced, objects load it by `load_state_dict`.

    CheckpointException where the folder is no whole checkpoint, a key is missing, or a tensor's shape differs.
    """
    folder = _folder("load", checkpoint_id, storage_reader)
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))["keys"]
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointException(f"load: {folder} is no whole checkpoint: {error}") from error
    parts: dict[str, Any] = {}

    def value(key: str) -> Any:
        if key not in index:
            raise CheckpointException(f"load: {folder} has no key {key!r}")
        name = Path(str(index[key])).name
        if name not in parts:
            parts[name] = load_file(folder / name, map_location="cpu")
        return parts[name][key]

    with no_grad():
        _fill(state_dict, (), value)


def _fill(state: Any, at: tuple[Any, ...], value: Any) -> None:
    for key, old in list(state.items()):
        path = (*at, key)
        name = _SEPARATOR.join(map(str, path))
        if isinstance(old, dict) and old:
            _fill(old, path, value)
        elif isinstance(old, Tensor):
            found = value(name)
            if not isinstance(found, Tensor) or found.shape != old.shape:
                said = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
                raise CheckpointException(f"load: {name} is {said} in the checkpoint, and {tuple(old.shape)} here")
            old.copy_(found.to(old.device, old.dtype))
        elif not isinstance(old, dict) and callable(getattr(old, "state_dict", None)):
            inner = old.state_dict()
            _fill(inner, path, value)
            old.load_state_dict(inner)
        else:
            state[key] = value(name)
