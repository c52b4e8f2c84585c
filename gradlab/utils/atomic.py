"""Files that are written whole or not at all.

A program that is killed, or that fills the disk, while it writes a checkpoint must leave the previous one as it was.
So the new content goes to a temporary file in the same folder, is forced to the disk, and takes the name in one step.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file to write to; when the block ends well, it becomes `path`, replacing what was there.

    When the block raises, or the disk is full (OSError), `path` is untouched and the temporary file is gone.
    """
    target = Path(os.path.realpath(path))  # what a link points to is replaced, not the link
    # Hidden, and with a suffix of its own, so that no pattern such as *.safetensors finds half a file.
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        # "x" never follows a link that somebody else placed there, and leaves the permissions to the umask.
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Forces a folder's new name to the disk, where the system lets a folder be opened (Windows does not)."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Like Path.write_bytes, but whole or not at all."""
    with replacing(path) as file:
        file.write(content)


def write_text(path: str | os.PathLike[str], content: str) -> None:
    """Like Path.write_text in UTF-8 with plain newlines, but whole or not at all."""
    write_bytes(path, content.encode("utf-8"))
