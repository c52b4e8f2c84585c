"""What a trace meets that is another thing at each call, so that no program can stand for it: clocks, and iterators that are moved on."""

from __future__ import annotations

import datetime
import dis
import gc
import glob
import os
import time
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import Any

STEPPED = 0x20 | 0x80 | 0x200  # flags of the code of generators and coroutines
CLOCKS = {
    getattr(time, name)
    for name in (
        "time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "process_time_ns", "localtime",
        "gmtime", "ctime", "strftime",
    )
} | {datetime.datetime.now, datetime.datetime.utcnow, datetime.datetime.today, datetime.date.today}
_FILES = ("exists", "lexists", "isfile", "isdir", "getsize", "getmtime", "getatime", "getctime", "samefile")  # of os.path
_OF_FILES = (os.listdir, os.scandir, os.stat, os.lstat, os.access, os.walk, glob.glob, glob.iglob)
OF_PATHS = ("read_text", "read_bytes", "exists", "is_file", "is_dir", "stat", "iterdir", "glob")  # methods of pathlib's
_BATCH = "the function takes batches from a DataLoader, and a replay would take the same ones again. Take them outside and pass them in"


def reads_clock(function: Any) -> str:
    """Why one of CLOCKS that the user's code calls cannot be traced."""
    owner = function.__self__
    name = f"{owner.__name__}.{function.__name__}"
    return f"the function reads the clock ({name}), and a replay would not read it again. Read it outside"


def reads_outside(function: Any, given: Sequence[Any]) -> str:
    """Why a function that the user's code calls with positional arguments cannot be traced, as of files; "" if it can."""
    module, name = getattr(function, "__module__", None), getattr(function, "__name__", "")  # `pathlib._local` since Python 3.13
    if function is open:
        mode = given[1] if len(given) > 1 else "r"
        what = "a file" if not isinstance(mode, str) or not {"r", "+"}.isdisjoint(mode) else ""
    elif function in (os.urandom, input) or (module in ("uuid", "secrets") and not isinstance(function, type)):
        what = "what the system gives"
    elif isinstance(module, str) and module.startswith("pathlib") and name in OF_PATHS:
        what = "the file system"
    else:
        what = "the file system" if (module in ("genericpath", "posixpath", "ntpath") and name in _FILES) or function in _OF_FILES else ""
    return what and f"the function reads {what} ({name}), and a replay would not read it again. Read it outside"


class Young:
    """Tells objects made in a trace, and what watches it: the collector has not looked at the first yet."""

    def __init__(self, watching: object) -> None:
        self._ids, self._watching = set[int](), id(watching)  # by its number: it holds this

    def __call__(self, value: Any) -> bool:
        if not self._ids:
            self._ids = {self._watching, *map(id, gc.get_objects(generation=0))}
        return id(value) in self._ids


class Iterators:
    """Tells generators that were there before the trace from those that it makes."""

    def __init__(self) -> None:
        self._made: dict[int, FrameType] = {}
        self._starts: dict[CodeType, int] = {}

    def moved(self, frame: FrameType) -> str:
        """Why a Python function that starts or goes on cannot be traced; "" if it can."""
        code = frame.f_code
        if code.co_name in ("__next__", "__iter__") and frame.f_globals.get("__name__", "").startswith("gradlab.utils.data"):
            return _BATCH
        if not code.co_flags & STEPPED or id(frame) in self._made:
            return ""
        if frame.f_lasti <= self._start(code):
            self._made[id(frame)] = frame
            return ""
        if frame.f_globals.get("__name__", "").startswith("gradlab.utils.data"):
            return _BATCH
        return (
            f"the function takes the next value of a generator ({code.co_qualname}) that was there before, and a replay would take the "
            f"same one again. Take it outside and pass it in"
        )

    def _start(self, code: CodeType) -> int:
        """Where a generator's code begins to run at its first step: at the first instruction that marks a resumption."""
        found = self._starts.get(code)
        if found is None:
            instructions = dis.get_instructions(code)
            found = self._starts[code] = next((i.offset for i in instructions if i.opname == "RESUME"), 0)
        return found

    def clear(self) -> None:
        """Let go of the frames."""
        self._made.clear()
