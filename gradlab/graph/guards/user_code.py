"""Whose code it is: the library's and the standard library's, or the user's."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from types import CodeType, FrameType

from gradlab.call_site import PACKAGE
from gradlab.graph.guards.unrepeatable import STEPPED

_STDLIB = str(Path(os.__file__).parent) + os.sep  # sysconfig says the same, and reads a megabyte of other facts
_SITE = tuple(_STDLIB + name for name in ("site-packages", "dist-packages"))
# Rooms of the library whose methods are never those of a module or an optimizer.
_ENGINE = tuple(
    str(Path(PACKAGE, place)) + (os.sep if place.endswith("/") else "")
    for place in (
        "autograd/", "backends/", "ops/", "tensor/", "device.py", "dispatch.py", "op.py", "spec.py", "graph/ir/graph.py",
        "graph/staging/compile_tracer.py", "graph/staging/symbol_strides.py", "graph/staging/symbol.py", "graph/staging/tracer.py",
    )
)  # fmt: skip
_DATA = str(Path(PACKAGE, "utils", "data"))
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


IGNORED, METHOD, USER, STEPS = 0, 1, 2, 4  # nothing; the library's method; the user's function; also: a generator's or iterator's
IMPORTS = -1  # a module is looked for and run: by hooks, of which pytest's holds all there is, and once, whatever is called later
_FIND_AND_LOAD = importlib._bootstrap._find_and_load.__code__  # type: ignore[attr-defined]


def kind_of(frame: FrameType) -> int:
    """What a call of a frame's code may tell of what the user's code reads."""
    code, names = frame.f_code, frame.f_code.co_varnames
    if code is _FIND_AND_LOAD:
        return IMPORTS
    if code.co_filename.startswith(_ENGINE) or is_generated(frame):
        return IGNORED
    ours = is_library(code)
    steps = code.co_flags & STEPPED or code.co_name in ("__next__", "__iter__")
    stepped = STEPS if steps and (not ours or code.co_filename.startswith(_DATA)) else 0
    return ((METHOD if code.co_argcount and names[0] == "self" else IGNORED) if ours else USER) + stepped
