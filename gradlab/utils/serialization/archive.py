"""The zip archives that PyTorch's `torch.save` writes, record by record."""

from __future__ import annotations

import io
import struct
import sys
import zipfile

from gradlab.utils.serialization.errors import FileFormatError, brief

ZIP = b"PK\x03\x04"
# What happens when a pickle's instructions do not fit together, whichever way they were damaged.
DAMAGED = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError, MemoryError, struct.error)


class Archive:
    """The records of a zip archive."""

    def __init__(self, content: bytes) -> None:
        try:
            self.zip = zipfile.ZipFile(io.BytesIO(content))
            names = self.zip.namelist()
        except (zipfile.BadZipFile, NotImplementedError, *DAMAGED) as error:
            raise FileFormatError(f"it is a damaged zip archive, or cut short: {brief(error)}") from None
        tops = [name.removesuffix("data.pkl") for name in names if name.endswith("/data.pkl")]
        if not tops or sum(entry.compress_size for entry in self.zip.infolist()) > len(content):
            raise FileFormatError("it is no archive of torch.save, or a damaged one")
        self.top = tops[0]
        order = self.record("byteorder") if f"{self.top}byteorder" in names else b"little"
        self.swapped = order != sys.byteorder.encode()

    def record(self, name: str) -> bytes:
        try:
            entry = self.zip.getinfo(f"{self.top}{name}")
            if entry.compress_type != zipfile.ZIP_STORED:
                raise FileFormatError(f"its record {name!r} is compressed, which torch.save never does")
            return self.zip.read(entry)
        except KeyError:
            raise FileFormatError(f"its record {name!r} is missing") from None
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError, struct.error) as error:
            raise FileFormatError(f"its record {name!r} is damaged: {brief(error)}") from None
