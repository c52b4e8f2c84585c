"""What reading a file can say."""

from __future__ import annotations

import pickle


class FileFormatError(ValueError):
    """A file that `load` cannot read: damaged, cut short, or of another kind."""


class UnsafeFileError(FileFormatError, pickle.UnpicklingError):
    """A file that names a class or a function whose code reading it would run."""
