"""Files of text as they lie about: compressed or not, with or without a byte order mark, with any line ends."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from pathlib import Path

from gradlab.data.errors import DataError

MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}

LARGEST, LOOSEST = 1 << 27, 200  # bytes that any file may unpack to; and how often its own size it may have beyond that


def content_of(path: Path, refusal: type[DataError]) -> bytes:
    """The bytes of a file, unpacked where it is compressed by gzip, whatever it is called."""
    content = path.read_bytes()
    if content[:2] != b"\x1f\x8b":
        return content
    return unpacked(content, path, refusal)


def unpacked(content: bytes, path: Path, refusal: type[DataError]) -> bytes:
    """What was compressed by gzip. A bomb, of which a few bytes would fill all memory, is refused."""
    bound = max(LARGEST, LOOSEST * len(content))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            found = file.read(bound + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise refusal(f"{path}: is compressed, and damaged: {error}") from error
    if len(found) > bound:
        raise refusal(f"{path}: {len(content):,} bytes that unpack to more than {bound:,}; if that is meant, unpack it first (gunzip)")
    return found


def marked(content: bytes) -> str:
    """The encoding that a byte order mark says; UTF-8 where there is none."""
    return next((name for mark, name in MARKS.items() if content.startswith(mark)), "utf-8")


def text_of(text: str, path: Path, refusal: type[DataError], way_out: str) -> str:
    """What was decoded, with newlines as line ends; a NUL is no text."""
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise refusal(f"{path}: holds bytes that are no text (a NUL in line {line}); {way_out}")
    return with_newlines(text)


def with_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
