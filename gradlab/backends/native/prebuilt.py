"""The machine code that a binary wheel carries: all kernels and vector functions, for each level of a processor's instructions.

It serves where there is no compiler. `gradlab.testing.prebuilt` makes it, with the list of its checksums: a library that is not as it was
made, say because an installation was cut short, is not opened.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
from pathlib import Path
from typing import Any, NamedTuple

from gradlab.advice import GradlabWarning, warn
from gradlab.kernel import source_folders

SUMS = "SHA256SUMS"
RUNTIME = "runtime"  # the pool and the guards, for any processor
SUFFIXES = {"Linux": ".so", "Darwin": ".dylib", "Windows": ".dll"}


class Level(NamedTuple):
    """Instructions that libraries are built for. number: as `gradlab_processor_level` of processor.cpp counts; lanes: numbers of float32 in
    the widest vectors."""

    name: str
    number: int
    lanes: int


LEVELS = {
    "x86_64": (Level("avx512", 3, 16), Level("avx2", 2, 8), Level("sse42", 1, 4)),
    "aarch64": (Level("neon", 1, 4),),
}
MACHINES = {"AMD64": "x86_64", "amd64": "x86_64", "arm64": "aarch64", "ARM64": "aarch64"}


def folder() -> Path | None:
    """Where the libraries lie: in the package, or in the folder that GRADLAB_PREBUILT names; "none" says that there are none."""
    given = os.environ.get("GRADLAB_PREBUILT")
    if given == "none":
        return None
    found = Path(given) if given else source_folders("cpu")[1] / "prebuilt"
    return found if found.is_dir() else None


def path(name: str) -> Path | None:
    """A library's file, which is as it was made."""
    place, suffix = folder(), SUFFIXES.get(platform.system())
    if place is None or suffix is None:
        return None
    found = place / f"{name}{suffix}"
    return found if found.is_file() and _as_it_was_made(found) else None


def sum_of(library: Path) -> str:
    """A library's line in the list of checksums, which `sha256sum --check` reads, too."""
    return f"{hashlib.sha256(library.read_bytes()).hexdigest()}  {library.name}"


@functools.cache
def _as_it_was_made(library: Path) -> bool:
    try:
        sound = sum_of(library) in (library.parent / SUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        sound = False
    if not sound:
        warn(
            GradlabWarning,
            f"the prebuilt kernels {library} are damaged (their checksum is not in {SUMS} beside them), so they are not opened and NumPy "
            "computes; install gradlab again",
        )
    return sound


@functools.cache
def runtime() -> ctypes.CDLL | None:
    """The pool that runs programs, where this package carries one that runs here."""
    found = path(RUNTIME)
    try:
        return ctypes.CDLL(str(found)) if found is not None else None
    except OSError:  # of another system, or a C library that is too old
        return None


@functools.cache
def level() -> Level | None:
    """The best level that this processor has and this package carries; None where there is no machine code. GRADLAB_LEVEL names a lower
    one, for tests."""
    library = runtime()
    if library is None:
        return None
    machine = MACHINES.get(platform.machine(), platform.machine())
    has, wanted = library.gradlab_processor_level(), os.environ.get("GRADLAB_LEVEL")
    for found in LEVELS.get(machine, ()):
        if found.number <= has and wanted in (None, found.name) and path(f"kernels-{found.name}") and path(f"loops-{found.name}"):
            return found
    return None


@functools.cache
def bfloat16() -> bool:
    """Whether this processor has the instructions for pairs of bfloat16 numbers, and the best level here has kernels with them."""
    library, found = runtime(), level()
    return library is not None and found is not None and found.name == "avx512" and bool(library.gradlab_processor_bfloat16())


def identity(level: Level) -> str:
    """A name for the kernels of a level, as this package carries them."""
    place = folder()
    sums = (place / SUMS).read_bytes() if place is not None and (place / SUMS).exists() else b""
    return f"prebuilt-{level.name}-{hashlib.sha256(sums).hexdigest()[:16]}"


@functools.cache
def libraries() -> tuple[ctypes.CDLL, ...]:
    """The libraries of that level: kernels written by hand, and what the compiler would be given as text."""
    found = level()
    if found is None:
        return ()
    return tuple(ctypes.CDLL(str(path(f"{kind}-{found.name}"))) for kind in ("kernels", "loops"))


@functools.cache
def function(name: str) -> Any:
    """A function by its name, or None."""
    for library in (*libraries(), runtime()):
        found = getattr(library, name, None)
        if found is not None:
            return found
    return None


@functools.cache
def address(name: str) -> int:
    """Where a function lies, for programs that call it; 0 for one that is not there."""
    found = function(name)
    return 0 if found is None else ctypes.cast(found, ctypes.c_void_p).value or 0


def forget() -> None:
    """Look anew: for tests that change the environment."""
    for known in (_as_it_was_made, runtime, level, bfloat16, libraries, function, address):
        known.cache_clear()
