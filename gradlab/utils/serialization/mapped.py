"""safetensors files as memory: tensors that are read from the disk where they are used, and share the system's cache of files.

What is written to them stays in this process (the mapping is private). The checksum is not looked at, which would read all of the file;
what the header says of its tensors is.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from gradlab.dtype import named
from gradlab.spec import count
from gradlab.utils.serialization.errors import FileFormatError, shown
from gradlab.utils.serialization.plain import CODES, built, header_of


def is_mappable(path: str) -> bool:
    """Whether this is a safetensors file, by its beginning."""
    with open(path, "rb") as file:
        return file.read(9)[8:9] == b"{"


def from_mapped(path: str, map_location: Any) -> Any:
    """What was saved in a safetensors file. FileFormatError, naming the file, where it is damaged or cut short."""
    with open(path, "rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    header: Any = header_of(memory, path)
    begin = 8 + int.from_bytes(memory[:8], "little")
    arrays = {key: _array(memory, begin, key, entry, path) for key, entry in header.items() if key != "__metadata__"}
    return built(header, arrays, path, map_location)


def _array(memory: Any, begin: int, key: str, entry: Any, path: str) -> Any:
    try:
        code, shape, (first, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not all(type(n) is int and 0 <= n < 1 << 62 for n in (*shape, first, end)):
            raise ValueError
    except (TypeError, KeyError, ValueError):
        raise FileFormatError(f"load: {path} is damaged: its entry {shown(key)} has no meaning") from None
    if code not in CODES:
        raise FileFormatError(f"load: {path} holds a tensor {shown(key)} of type {shown(code)}, which gradlab does not have")
    dtype = named(CODES[code]).dtype
    size = count(shape) * dtype.itemsize
    if end - first != size or begin + end > len(memory):
        raise FileFormatError(f"load: {path} is damaged: its tensor {shown(key)} of {size} bytes lies from {first} to {end}")
    if not size:
        return np.empty(shape, dtype)
    if (begin + first) % dtype.itemsize:  # as no writer does; kernels count on it
        return np.frombuffer(bytearray(memory[begin + first : begin + end]), dtype).reshape(shape)
    return np.frombuffer(memory, dtype, count(shape), begin + first).reshape(shape)
