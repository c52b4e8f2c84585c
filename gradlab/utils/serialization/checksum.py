"""The checksum of the safetensors files that gradlab writes: a flipped byte, wherever it is, is found when the file is read.

It is the SHA-256 of the whole file, as 64 hexadecimal digits in the header's metadata, which stand as zeros while it is taken. To other
readers of safetensors it is one more text among the metadata.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from gradlab.utils.serialization.errors import FileFormatError

KEY = "gradlab.sha256"
_BLANK = "0" * 64


def sealed(content: bytes) -> bytes:
    """The same file with its checksum. Its metadata is sorted, since safetensors writes it in an order by chance: equal objects make
    equal files here."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header["__metadata__"] = dict(sorted({**header.get("__metadata__", {}), KEY: _BLANK}.items()))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the tensors after it stay aligned
    head, tensors = len(text).to_bytes(8, "little") + text, memoryview(content)[end:]
    blank = f'"{KEY}":"{_BLANK}"'.encode()
    return b"".join((head.replace(blank, blank.replace(_BLANK.encode(), _digest(head, tensors)), 1), tensors))


def check(content: bytes, metadata: dict[str, Any], name: str) -> None:
    """FileFormatError, naming the file, where its checksum is not that of what it holds. A file without one passes."""
    if KEY not in metadata:
        return
    given, end = str(metadata[KEY]).encode(), 8 + int.from_bytes(content[:8], "little")
    if len(given) != len(_BLANK) or _digest(content[:end].replace(given, _BLANK.encode(), 1), memoryview(content)[end:]) != given:
        raise FileFormatError(
            f"load: {name} is damaged: its checksum is not that of what it holds, so bytes have changed since gradlab "
            f"wrote it; take another copy"
        )


def _digest(head: bytes, tensors: memoryview) -> bytes:
    found = hashlib.sha256(head)
    found.update(tensors)
    return found.hexdigest().encode()
