"""HDF5 files, as Keras, MATLAB (7.3) and many laboratories write them, through h5py where it is installed."""

from __future__ import annotations

import importlib
import importlib.util
import io
from typing import Any

import numpy as np

from gradlab.utils.serialization.errors import FileFormatError, brief
from gradlab.utils.serialization.numpy_files import as_loaded

MAGIC = b"\x89HDF\r\n\x1a\n"
_PLACES = (0, 512, 1024, 2048, 4096)  # a file may begin with a block of the user's
_PACKED = 2000  # times the file's size, which a dataset may take
_ENTRIES = 1_000_000  # of all groups together


def is_hdf5(content: bytes) -> bool:
    return any(content.startswith(MAGIC, place) for place in _PLACES)


def from_hdf5(content: bytes, name: str, map_location: Any) -> Any:
    """The datasets as tensors, in dictionaries as their groups are. FileFormatError, naming the file; attributes and links are left out."""
    if importlib.util.find_spec("h5py") is None:
        raise FileFormatError(f"load: {name} is an HDF5 file, which h5py reads, and that is not installed: pip install h5py")
    h5py = importlib.import_module("h5py")
    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            return _Reader(h5py, name, len(content), map_location).group(file, ())
    except FileFormatError:
        raise
    except Exception as error:  # h5py raises whatever the library says
        raise FileFormatError(f"load: {name} is a damaged HDF5 file: {brief(error)}") from None


class _Reader:
    def __init__(self, h5py: Any, name: str, size: int, map_location: Any) -> None:
        self.h5py, self.name, self.size, self.map_location, self.entries = h5py, name, size, map_location, 0

    def group(self, group: Any, open_groups: tuple[Any, ...]) -> dict[str, Any]:
        if group.id in open_groups:
            raise FileFormatError(f"load: {self.name} is damaged: the group {group.name} contains itself")
        found = {}
        for key in group:
            self.entries += 1
            if self.entries > _ENTRIES:
                raise FileFormatError(f"load: {self.name} has more than {_ENTRIES:,} entries")
            if not isinstance(group.get(key, getlink=True), self.h5py.HardLink):
                continue  # soft links are other names, and external ones of other files
            child = group[key]
            if isinstance(child, self.h5py.Group):
                found[key] = self.group(child, (*open_groups, group.id))
            elif isinstance(child, self.h5py.Dataset):
                found[key] = self.dataset(child)
        return found

    def dataset(self, dataset: Any) -> Any:
        if dataset.external or dataset.is_virtual:
            raise FileFormatError(f"load: {self.name}: {dataset.name} lies in another file; read it with h5py where you trust it")
        if dataset.shape is None:
            return None
        if dataset.nbytes > _PACKED * self.size:
            raise FileFormatError(f"load: {self.name}: {dataset.name} takes {dataset.nbytes:,} bytes, more than such a file holds")
        if self.h5py.check_string_dtype(dataset.dtype) is not None:
            text = dataset.asstr(errors="replace")[()]
            return text if isinstance(text, str) else text.astype(str)
        if dataset.dtype.hasobject:
            kind = f"{dataset.dtype}, which is no array of numbers or text"
            raise FileFormatError(f"load: {self.name}: {dataset.name} is of type {kind}; read it with h5py")
        return as_loaded(np.asarray(dataset[()]), self.map_location)
