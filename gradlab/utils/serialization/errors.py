"""What reading a file can say."""

from __future__ import annotations

import pickle
from typing import Any


class FileFormatError(ValueError):
    """A file that `load` cannot read: damaged, cut short, or of another kind."""


class UnsafeFileError(FileFormatError, pickle.UnpicklingError):
    """A file that names a class or a function whose code reading it would run."""


def shown(value: Any) -> str:
    """A file's value in a message: short, whatever it is made of, since the same part may stand in it billions of times."""
    if type(value) is tuple and len(value) < 10 and all(type(part) is int for part in value):
        return f"({', '.join(map(shown, value))})"
    if value is not None and type(value) not in (bool, int, float, str, bytes):
        return f"a {type(value).__name__}"
    if type(value) is int and value.bit_length() > 200:
        return "a huge number"
    return repr(value[:60] if isinstance(value, (str, bytes)) else value)


def brief(error: BaseException) -> str:
    """What another library says of a file, which may repeat its bytes."""
    text = str(error)
    return text if len(text) <= 200 else f"{text[:200]}…"
