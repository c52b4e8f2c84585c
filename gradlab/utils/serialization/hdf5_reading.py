"""The program that reads an HDF5 file: its bytes come in, arrays and a description of them go out.

A process of its own, since HDF5's library in C ends the process that it is in, or goes round in circles, where a file is damaged.

What it writes: the arrays one after another as `.npy`, then the tree as JSON, then the length of that in 8 bytes. In the tree a group is
{"group": {name: ...}}, an array {"array": [its first byte, the byte after it]}, a text {"text": ...}, nothing null; instead of a tree
{"refused": why}.
"""

import importlib
import io
import json
import sys
from typing import Any, BinaryIO

import numpy as np

PACKED = 2000  # times the file's size, which a dataset may take
ENTRIES = 1_000_000  # of all groups together


class Refused(Exception):
    """The file holds what is not read; the message says what."""


class Reader:
    """Writes the arrays of a file where it finds them."""

    def __init__(self, h5py: Any, size: int, out: BinaryIO) -> None:
        self.h5py, self.size, self.out, self.entries, self.place = h5py, size, out, 0, 0

    def group(self, group: Any, open_groups: tuple[Any, ...]) -> dict[str, Any]:
        if group.id in open_groups:
            raise Refused(f"is damaged: the group {group.name} contains itself")
        found: dict[str, Any] = {}
        for key in group:
            self.entries += 1
            if self.entries > ENTRIES:
                raise Refused(f"has more than {ENTRIES:,} entries")
            if not isinstance(group.get(key, getlink=True), self.h5py.HardLink):
                continue  # soft links are other names, and external ones of other files
            child = group[key]
            if isinstance(child, self.h5py.Group):
                found[key] = self.group(child, (*open_groups, group.id))
            elif isinstance(child, self.h5py.Dataset):
                found[key] = self.dataset(child)
        return {"group": found}

    def dataset(self, dataset: Any) -> dict[str, Any] | None:
        if dataset.external or dataset.is_virtual:
            raise Refused(f"cannot be read: {dataset.name} lies in another file; read it with h5py where you trust it")
        if dataset.shape is None:
            return None
        if dataset.nbytes > PACKED * self.size:
            raise Refused(f"cannot be read: {dataset.name} takes {dataset.nbytes:,} bytes, more than such a file holds")
        if self.h5py.check_string_dtype(dataset.dtype) is not None:
            text = dataset.asstr(errors="replace")[()]
            return {"text": text} if isinstance(text, str) else self.array(text.astype(str))
        if dataset.dtype.hasobject:
            kind = f"{dataset.dtype}, which is no array of numbers or text"
            raise Refused(f"cannot be read: {dataset.name} is of type {kind}; read it with h5py")
        return self.array(np.asarray(dataset[()]))

    def array(self, array: Any) -> dict[str, Any]:
        np.lib.format.write_array(written := io.BytesIO(), array, allow_pickle=False)
        begin, self.place = self.place, self.place + self.out.write(written.getbuffer())
        return {"array": [begin, self.place]}


def main(given: BinaryIO, out: BinaryIO) -> None:
    h5py, content = importlib.import_module("h5py"), given.read()
    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            tree: Any = Reader(h5py, len(content), out).group(file, ())
    except Refused as error:
        tree = {"refused": str(error)}
    except Exception as error:  # h5py raises whatever the library says
        tree = {"refused": f"is a damaged HDF5 file: {type(error).__name__}: {str(error)[:300]}"}
    text = json.dumps(tree).encode()
    out.write(text + len(text).to_bytes(8, "little"))
    out.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
