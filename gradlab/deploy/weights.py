"""The weights file: a header of 64 bytes, a table of 192 bytes for each array, then the arrays, each at a multiple of 64 bytes.

Header (numbers in the byte order of the machine that wrote them, little endian on all that are tested):

| at | what |
|---|---|
| 0 | `GLWEIGHT` |
| 8 | uint32 version, 1 |
| 12 | uint32 0x01020304: reads otherwise on a machine of the other byte order |
| 16 | uint64 size of the whole file |
| 24 | uint32 number of arrays |
| 28 | uint32 size of a table entry, 192 |
| 32 | uint64 fingerprint of the program's table: names, dtypes, shapes, places |
| 40 | uint32 CRC-32 of the table |

Entry: name (88 bytes, ended by zeros), uint32 dtype code (`types.TYPES`), uint32 number of dimensions, int64 sizes [8], uint64 offset,
uint64 size in bytes, uint32 CRC-32 of the array's bytes, 12 bytes of zeros.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradlab.deploy.types import Unsupported, ctype

HEADER, ENTRY, ALIGNMENT = 64, 192, 64
ORDER = 0x01020304


@dataclass
class Weights:
    """Arrays with their places in the file. Equal arrays are kept once."""

    names: list[str] = field(default_factory=list)
    arrays: list[Any] = field(default_factory=list)
    _known: dict[Any, int] = field(default_factory=dict)

    def add(self, name: str, array: Any) -> int:
        """The array's number."""
        array = np.ascontiguousarray(array)
        if array.ndim > 8:
            raise Unsupported(f"a constant of {array.ndim} dimensions")
        key = (array.dtype.name, array.shape, hashlib.sha256(array.tobytes()).digest())
        if key not in self._known:
            self._known[key] = len(self.arrays)
            self.names.append(f"{name}.{len(self.arrays)}")
            self.arrays.append(array)
        return self._known[key]

    def offsets(self) -> list[int]:
        """Where each array begins."""
        at = _up(HEADER + ENTRY * len(self.arrays))
        found = []
        for array in self.arrays:
            found.append(at)
            at = _up(at + array.nbytes)
        return found

    @property
    def size(self) -> int:
        """Of the file."""
        at = self.offsets()
        return _up(at[-1] + self.arrays[-1].nbytes) if at else _up(HEADER)

    def entries(self) -> list[bytes]:
        """The table without the checksums: what a program is compiled with."""
        found = []
        for name, array, offset in zip(self.names, self.arrays, self.offsets()):
            sizes = (*array.shape, *(0,) * (8 - array.ndim))
            found.append(struct.pack("<88sII8qQQ", name.encode()[:87], ctype(array.dtype).code, array.ndim, *sizes, offset, array.nbytes))
        return found

    @property
    def fingerprint(self) -> int:
        """Of names, dtypes, shapes and places."""
        return int.from_bytes(hashlib.sha256(b"".join(self.entries())).digest()[:8], "little")

    def bytes(self) -> bytes:
        """The file."""
        checksums = [zlib.crc32(a.tobytes()) for a in self.arrays]
        table = b"".join(e + struct.pack("<I12x", c) for e, c in zip(self.entries(), checksums))
        header = struct.pack(
            "<8sIIQIIQI20x", b"GLWEIGHT", 1, ORDER, self.size, len(self.arrays), ENTRY, self.fingerprint, zlib.crc32(table)
        )
        out = bytearray(self.size)
        out[: HEADER + len(table)] = header + table
        for offset, array in zip(self.offsets(), self.arrays):
            out[offset : offset + array.nbytes] = array.tobytes()
        return bytes(out)


def _up(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
