"""Runs Python with a sanitizer underneath, so that kernels compiled with it can be loaded, and reads what the sanitizer reports.

    run_sanitized(["script.py"], sanitize="address,undefined").reports
    python -m gradlab.backends.cuda.emulator address,undefined script.py       # the same from the shell

A sanitizer has to be in a process from its first instruction, hence the child process. Its kernels are compiled with the sanitizer
because the child finds GRADLAB_SANITIZE in its environment.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gradlab.backends.native import toolchain

SANITIZERS = ("", "address", "undefined", "address,undefined", "thread")

# A symbol that tells whether the sanitizer is in the process.
_SYMBOLS = {"address": "__asan_init", "undefined": "__ubsan_handle_type_mismatch_v1_abort", "thread": "__tsan_init"}
_LIBRARIES = {"address": "libasan.so", "undefined": "libubsan.so", "thread": "libtsan.so"}

_KINDS = (
    re.compile(r"ERROR: AddressSanitizer: (?P<kind>[\w-]+)"),
    re.compile(r"WARNING: ThreadSanitizer: (?P<kind>[\w ]+?) \("),
    re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):\d+: runtime error: (?P<kind>[^\n]+)"),
)
_FRAME = re.compile(r"^\s*#\d+ .*?(?P<file>[^\s:]+):(?P<line>\d+)(?::\d+)?(?: \(|$)")
_UNRESOLVED = re.compile(r"^\s*#\d+ .*\((?P<library>[^()\s]+\.so)\+(?P<offset>0x[0-9a-f]+)\)$")
_NO_KERNELS = (".h", ".cpp", ".hpp", ".c", ".S", ".inc")
_ADDRESS_NO_RANDOMIZE = 0x0040000


class Report(NamedTuple):
    """One error: its kind in the sanitizer's words, and the innermost place in a kernel's source."""

    kind: str
    file: str | None
    line: int | None


class Sanitized(NamedTuple):
    """What a sanitized process said: its exit code, everything it printed, and the errors in it."""

    returncode: int
    output: str
    reports: tuple[Report, ...]


def run_sanitized(
    arguments: Sequence[str],
    *,
    sanitize: str = "address,undefined",
    timeout: float = 600,
    keep_going: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Sanitized:
    """Run `python *arguments` under a sanitizer: a script and its arguments, ["-c", code] or ["-m", module].

    By default the process ends at the first error of the address sanitizer; with `keep_going` it reports and goes on, as the other
    sanitizers always do. Raises RuntimeError where this machine's compiler has no such sanitizer.
    """
    child = {**os.environ, **sanitized_environment(sanitize, keep_going), **(environment or {})}
    fixed = _without_randomized_addresses if sanitize == "thread" and platform.system() == "Linux" else None
    done = subprocess.run(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        timeout=timeout,
        env=child,
        preexec_fn=fixed,  # the child becomes another program at once
    )
    return Sanitized(done.returncode, done.stdout, tuple(reports_in(done.stdout)))


def sanitized_environment(sanitize: str, keep_going: bool = False) -> dict[str, str]:
    """The variables that a process under a sanitizer needs."""
    if sanitize not in SANITIZERS or not sanitize:
        raise ValueError(f"sanitize is {sanitize!r}; it may be {', '.join(SANITIZERS[1:])}")
    return {
        "GRADLAB_SANITIZE": sanitize,
        "LD_PRELOAD": " ".join(_library(name) for name in sanitize.split(",")),
        # Python and NumPy never free all they allocate.
        "ASAN_OPTIONS": f"detect_leaks=0:exitcode=66:halt_on_error={int(not keep_going)}:handle_segv=1:detect_stack_use_after_return=0",
        "UBSAN_OPTIONS": f"print_stacktrace=0:halt_on_error={int(not keep_going)}:exitcode=66",
        "TSAN_OPTIONS": "exitcode=66:halt_on_error=0:history_size=2:report_signal_unsafe=0:suppress_equal_addresses=0",
        # Small blocks of Python's own allocator would hide what is allocated where.
        "PYTHONMALLOC": "malloc",
    }


def require(sanitize: str) -> None:
    """Raise RuntimeError unless this process has the sanitizers in it."""
    library = ctypes.CDLL(None)
    for name in filter(None, sanitize.split(",")):
        if not hasattr(library, _SYMBOLS[name]):
            raise RuntimeError(
                f"kernels under the {name} sanitizer can be loaded only in a process that was started with it: "
                f"python -m gradlab.backends.cuda.emulator {sanitize} script.py"
            )


def _library(name: str) -> str:
    """The sanitizer's library, as the compiler knows it."""
    if platform.system() != "Linux" or toolchain.compiler().is_zig or "clang" in toolchain.compiler().version:
        raise RuntimeError("kernels run under sanitizers with GNU's compiler on Linux only; install g++ or let CXX name it")
    path = toolchain.run([f"-print-file-name={_LIBRARIES[name]}"], "a question").strip()
    if not Path(path).is_absolute():
        raise RuntimeError(f"this machine's compiler has no {name} sanitizer ({_LIBRARIES[name]}); on Debian it comes with g++")
    return path


def _without_randomized_addresses() -> None:
    """The thread sanitizer of some compilers needs memory where it expects it. Where this is not allowed, it may still work."""
    ctypes.CDLL(None).personality(_ADDRESS_NO_RANDOMIZE)


def reports_in(output: str) -> list[Report]:
    """The errors in what a sanitized process printed."""
    found: list[Report] = []
    for line in output.splitlines():
        start = next(filter(None, (pattern.search(line) for pattern in _KINDS)), None)
        if start:
            place = start.groupdict()
            found.append(Report(place["kind"], place.get("file"), int(place["line"]) if place.get("line") else None))
            continue
        if found and found[-1].file is None:
            file, number = _place(line)
            if file and not file.endswith(_NO_KERNELS):
                found[-1] = Report(found[-1].kind, file, number)
    return found


def _place(line: str) -> tuple[str, int]:
    """File and line in a line of a stack trace. The sanitizers know no libraries that were loaded after their first report."""
    frame = _FRAME.match(line)
    if frame:
        return os.path.normpath(frame["file"]), int(frame["line"])
    unresolved = _UNRESOLVED.match(line)
    if unresolved and Path(unresolved["library"]).name.startswith("program-"):
        library = toolchain.cache_directory() / Path(unresolved["library"]).name
        return toolchain.source_line(library, int(unresolved["offset"], 16))
    return "", 0
