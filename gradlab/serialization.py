"""Saving and reading, under PyTorch's name of the place: `gradlab.save` and `gradlab.load`, and which classes a file may name."""

from __future__ import annotations

from typing import Any

from gradlab.tensor.missing_names import absent as _absent
from gradlab.utils.serialization import (
    FileFormatError as FileFormatError,
    UnsafeFileError as UnsafeFileError,
    add_safe_globals as add_safe_globals,
    clear_safe_globals as clear_safe_globals,
    get_safe_globals as get_safe_globals,
    get_unsafe_globals_in_checkpoint as get_unsafe_globals_in_checkpoint,
    load as load,
    safe_globals as safe_globals,
    save as save,
)


def __getattr__(name: str) -> Any:
    raise _absent("gradlab.serialization", name)
