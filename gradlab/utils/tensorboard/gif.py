"""Moving pictures as GIF files: https://www.w3.org/Graphics/GIF/spec-gif89a.txt, with its appendix F on LZW."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_LEVELS = (6, 7, 6)  # of red, green and blue: 252 colours
_CLEAR, _END, _FIRST, _MOST = 256, 257, 258, 4096


def gif(frames: NDArray[np.uint8], fps: float) -> bytes:
    """Frames (time, height, width, channels) of 1 or 3 channels, in 256 greys or in 252 colours, repeated for ever."""
    _, height, width, channels = frames.shape
    if channels == 1:
        palette, indices = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, 1), frames[..., 0]
    else:
        palette, indices = _coloured(frames)
    hundredths = max(1, round(100 / fps))
    found = [b"GIF89a", struct.pack("<HHBBB", width, height, 0xF7, 0, 0), palette.tobytes().ljust(768, b"\0")]
    found.append(b"\x21\xff\x0bNETSCAPE2.0\x03\x01\0\0\0")
    for frame in indices:
        found.append(struct.pack("<BBBBHBB", 0x21, 0xF9, 4, 0, hundredths, 0, 0))
        found.append(struct.pack("<BHHHHB", 0x2C, 0, 0, width, height, 0) + b"\x08" + b"".join(_blocks(_packed(_codes(frame.tobytes())))))
    return b"".join(found) + b"\x3b"


def _coloured(frames: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """A palette of evenly spaced colours, and the nearest one of each pixel."""
    steps = [np.linspace(0, 255, n).round().astype(np.uint8) for n in _LEVELS]
    palette = np.stack(np.meshgrid(*steps, indexing="ij"), -1).reshape(-1, 3)
    nearest = [np.rint(frames[..., i] / 255 * (n - 1)).astype(np.int64) for i, n in enumerate(_LEVELS)]
    return palette, ((nearest[0] * _LEVELS[1] + nearest[1]) * _LEVELS[2] + nearest[2]).astype(np.uint8)


def _codes(content: bytes) -> Iterator[tuple[int, int]]:
    """LZW codes, each with its number of bits."""
    single = {bytes([i]): i for i in range(256)}
    table, size = dict(single), 9
    yield _CLEAR, size
    known = b""
    for i in range(len(content)):
        longer = known + content[i : i + 1]
        if longer in table:
            known = longer
            continue
        yield table[known], size
        code = _FIRST + len(table) - 256
        if code < _MOST:
            table[longer] = code
            size += code == 1 << size
        else:
            yield _CLEAR, size
            table, size = dict(single), 9
        known = content[i : i + 1]
    yield table[known], size
    yield _END, size


def _packed(codes: Iterator[tuple[int, int]]) -> bytes:
    """Bits from the lowest on."""
    out, held, count = bytearray(), 0, 0
    for code, size in codes:
        held |= code << count
        count += size
        while count >= 8:
            out.append(held & 255)
            held, count = held >> 8, count - 8
    return bytes(out) + (bytes([held]) if count else b"")


def _blocks(content: bytes) -> Iterator[bytes]:
    for at in range(0, len(content), 255):
        part = content[at : at + 255]
        yield bytes([len(part)]) + part
    yield b"\0"
