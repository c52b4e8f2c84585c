"""Whose code it is: the library's and the standard library's, or the user's."""

from __future__ import annotations

import os
from pathlib import Path
from types import CodeType, FrameType

from gradlab.autograd.position import PACKAGE

_STDLIB = str(Path(os.__file__).parent) + os.sep  # sysconfig says the same, and reads a megabyte of other facts
_SITE = tuple(_STDLIB + name for name in ("site-packages", "dist-packages"))
_known_files: dict[str, bool] = {}


def is_library_file(file: str) -> bool:
    """Whether a file belongs to gradlab or the standard library."""
    found = _known_files.get(file)
    if found is None:
        found = file.startswith((PACKAGE, "<frozen", "<gradlab")) or (file.startswith(_STDLIB) and not file.startswith(_SITE))
        _known_files[file] = found
    return found


def is_generated(frame: FrameType) -> bool:
    """Whether this is a method that a dataclass or a named tuple of the library was given: its file is "<string>"."""
    name = frame.f_globals.get("__name__", "")
    return frame.f_code.co_filename.startswith("<") and isinstance(name, str) and name.startswith(("gradlab.", "namedtuple_"))


def is_library(code: CodeType) -> bool:
    """Whether the code is gradlab's own or the standard library's."""
    return is_library_file(code.co_filename)
