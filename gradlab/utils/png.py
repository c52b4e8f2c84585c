"""Pictures as PNG files, without any dependency."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray


def png(image: NDArray[np.uint8]) -> bytes:
    """A PNG file of an image, uint8 (height, width, 1, 3 or 4): the format's three chunks, rows without a filter (ISO/IEC 15948)."""
    height, width, channels = image.shape

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    rows = np.zeros((height, 1 + width * channels), np.uint8)
    rows[:, 1:] = image.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows.tobytes())) + chunk(b"IEND", b"")
