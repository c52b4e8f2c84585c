"""Arrays as NumPy writes them, `.npy` and `.npz`: plain ones, since what a pickle in such a file says would run code."""

from __future__ import annotations

import ast
import io
import re
import zipfile
import zlib
from typing import Any

import numpy as np

from gradlab.dtype import from_numpy
from gradlab.spec import count
from gradlab.tensor.creation import from_numpy as tensor_of
from gradlab.utils.serialization.archive import DAMAGED
from gradlab.utils.serialization.errors import FileFormatError, brief
from gradlab.utils.serialization.location import located

MAGIC = b"\x93NUMPY"
_HEADER = 1 << 16  # bytes of a header at most
_LONG = re.compile(r"\b(\d+)L\b")  # a number of Python 2
_LENGTHS = {1: 2, 2: 4, 3: 4}  # bytes of the header's length by the format's version


def as_loaded(array: Any, map_location: Any) -> Any:
    """A tensor, or the array itself where tensors have no such type: text, dates, structured numbers, uint16."""
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    try:
        from_numpy(array.dtype)
    except TypeError:
        return array
    return located(tensor_of(array), "cpu", map_location)


def from_npy(content: bytes, name: str, map_location: Any) -> Any:
    """The array of a `.npy` file. FileFormatError, naming the file."""
    return as_loaded(_array(content, name), map_location)


def _array(content: bytes, name: str) -> Any:
    width = _LENGTHS.get(content[6]) if len(content) > 8 else 0
    if not width:
        raise FileFormatError(f"load: {name} is a damaged .npy file, or of a version of the format that is not known")
    begin = 8 + width
    length = int.from_bytes(content[8:begin], "little")
    if length > _HEADER or begin + length > len(content):
        raise FileFormatError(f"load: {name} is a damaged .npy file: its header should have {length} bytes")
    try:
        text = content[begin : begin + length].decode("utf-8" if content[6] == 3 else "ascii").strip()
        header = ast.literal_eval(_LONG.sub(r"\1", text))
        shape, fortran = header["shape"], header["fortran_order"]
        dtype = np.lib.format.descr_to_dtype(header["descr"])
        if type(shape) is not tuple or not all(type(size) is int and size >= 0 for size in shape) or type(fortran) is not bool:
            raise ValueError(f"a shape {shape!r}")
    except (SyntaxError, *DAMAGED) as error:
        raise FileFormatError(f"load: {name} is a damaged .npy file: its header has no meaning ({type(error).__name__})") from None
    if dtype.hasobject:
        raise FileFormatError(
            f"load: {name} holds an array of Python objects, which NumPy writes as a pickle, and reading that runs code. Save numbers or "
            f"text, or read it with numpy.load(…, allow_pickle=True) where you trust it"
        )
    body = content[begin + length :]
    if not dtype.itemsize or count(shape) * dtype.itemsize != len(body):
        raise FileFormatError(
            f"load: {name} is damaged or cut short: its {len(body)} bytes are no array of shape {shape} and dtype {dtype}"
        )
    return np.frombuffer(bytearray(body), dtype).reshape(shape, order="F" if fortran else "C")


def from_npz(content: bytes, name: str, map_location: Any) -> dict[str, Any]:
    """The arrays of an `.npz` file by name. Packed ones take at most a thousand times the file's size, as much as packing saves."""
    found: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            if sum(entry.compress_size for entry in entries) > len(content):
                raise FileFormatError(f"load: {name} is damaged: its arrays lie over one another")
            for entry in entries:
                if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or not entry.filename.endswith(".npy"):
                    raise FileFormatError(f"load: {name} holds {entry.filename!r}, which is no array as numpy.savez writes them")
                key = entry.filename.removesuffix(".npy")
                found[key] = as_loaded(_array(archive.read(entry), f"the array {key!r} of {name}"), map_location)
    except FileFormatError:
        raise
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError, zlib.error, *DAMAGED) as error:
        raise FileFormatError(f"load: {name} is a damaged .npz file: {brief(error)}") from None
    return found
