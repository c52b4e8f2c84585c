"""Files that are written whole or not at all.

A program that is killed, or that fills the disk, while it writes a checkpoint must leave the previous one as it was.
So the new content goes to a temporary file in the same folder, is forced to the disk, and takes the name in one step.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_writing: set[Path] = set()  # this process's temporary files


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file to write to; when the block ends well, it becomes `path`, replacing what was there.

    When the block raises, or the disk is full (OSError), `path` is untouched and the temporary file is gone.
    """
    target = Path(os.path.realpath(path))  # what a link points to is replaced, not the link
    _clear_leftovers(target)
    # Hidden, and with a suffix of its own, so that no pattern such as *.safetensors finds half a file.
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    _writing.add(temporary)
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
    finally:
        _writing.discard(temporary)
    sync_folder(target.parent)


def _clear_leftovers(target: Path) -> None:
    """Takes away what processes that were killed while they wrote this file have left, each as large as the file."""
    if os.name != "posix":
        return
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        found = re.fullmatch(r"(\d+)-[0-9a-f]{8}", left.name[len(target.name) + 2 : -len(".tmp")])
        if found and left not in _writing and not _runs(int(found[1])):
            left.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    """Whether another process of that number runs."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


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
