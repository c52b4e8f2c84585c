"""Which kernels eager rows may use in this process: those that lay ready when it first asked, and no others until it ends.

A kernel that became ready in the middle of a run would change the last bits of what is computed from then on. So a process looks once, at
its first large operation, for the list that `gradlab warm` leaves beside the libraries when all of them are there. Where there is none,
NumPy computes until the process ends, and a process of its own, of low priority, compiles for the next ones.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gradlab.backends.native import compiler, prebuilt, seals, toolchain
from gradlab.backends.native.compile_jobs import works
from gradlab.backends.native.lowering import named
from gradlab.backends.native.thresholds import switch_off, switched_on
from gradlab.backends.native.toolchain import CompileError, CompilerMissing, cache_directory

SWITCH = "GRADLAB_NATIVE"
TOGETHER = 64  # generated kernels in one library


class State(NamedTuple):
    """What is known of the kernels for eager rows.

    libraries  of each kernel the file that it lies in, where they were compiled here
    why        what is missing, if they are not ready
    begin      whether compiling them would help
    carried    without a compiler: the name of what the package carries prebuilt, which serves instead
    """

    libraries: dict[str, str]
    why: str = ""
    begin: bool = False
    carried: str = ""

    @property
    def ready(self) -> bool:
        """Whether there are kernels."""
        return bool(self.libraries or self.carried)


def wanted() -> bool:
    """Whether eager rows are to use kernels: not with GRADLAB_NATIVE=0."""
    return os.environ.get(SWITCH, "1") not in ("0", "off", "no")


def list_file() -> Path:
    """Where the list of kernels for these sources and this processor is, or would be. CompileError without a cache."""
    sources = [(str(p), s.st_size, s.st_mtime_ns) for p in _sources() for s in [p.stat()]]
    sanitized = filter(None, [os.environ.get("GRADLAB_SANITIZE")])  # libraries that no other process can open
    hashed = compiler.hashed("sealed", repr(sources), compiler.processor(), *compiler.FLAGS, *sanitized)
    return cache_directory("programs") / f"eager-{hashed}.json"


def _sources() -> list[Path]:
    """The files that decide what is on the list: the kernels, and what writes the texts of the others: rows and lowerings. One list for
    each state of them, so that after an update a row with another text, or a new one, does not find an older list and go without."""
    package = Path(__file__).resolve().parents[2]
    written = [*compiler.KERNELS.glob("*.*"), *compiler.SHARED.glob("*.h")]
    writers = [p for room in ("backends/native", "backends/cuda", "ops", ".") for p in package.joinpath(room).glob("*.py")]
    return sorted([*written, *writers, *package.glob("backends/native/*/*.py"), *package.glob("ops/*/*.py")])


def looked_up() -> State:
    """What lies ready now."""
    if not wanted():
        return State({}, f"{SWITCH}=0")
    if not compiler.compiles():
        level = prebuilt.level()
        return State({}, carried=prebuilt.identity(level)) if level is not None else State({}, "there is no C++ compiler")
    try:
        place = list_file()
    except CompileError as error:
        return State({}, str(error))
    found = seals.read(place)
    if found is None:
        return State({}, "not compiled yet; `gradlab warm` compiles them", True)
    libraries = {kernel: str(place.parent / name) for kernel, name in found.get("libraries", {}).items()}
    if not libraries:
        return State({}, f"could not be compiled: {found.get('error', '')}")
    if not all(seals.intact(Path(path)) for path in set(libraries.values())):
        return State({}, "libraries are missing or damaged; `gradlab warm` compiles them", True)
    return State(libraries)


@functools.cache
def state() -> State:
    """What this process uses, as it was when it first asked. If that is nothing yet, compiling begins in the background."""
    found = looked_up()
    if found.begin:
        begin_in_background()
    return found


NUMPY = "numpy"


def in_use() -> str:
    """What eager rows of this process compute with, in a word that a run keeps beside its state: the list of kernels, or "numpy"."""
    found = state()
    return found.carried or list_file().stem if switched_on() and found.ready else NUMPY


def go_on_with(word: str) -> bool:
    """Compute as the process did that left this word, so that a run which is gone on with has the bits of one that was not interrupted.
    False where its kernels are not here."""
    if word == NUMPY:
        switch_off()
    return word == in_use()


@functools.cache
def address(kernel: str) -> int | None:
    """The address of a kernel; None where it does not lie ready."""
    found = library(kernel)
    return None if found is None else ctypes.cast(getattr(found, kernel), ctypes.c_void_p).value


def library(kernel: str) -> ctypes.CDLL | None:
    """The library that a kernel lies in; None where there is none, or where it was taken away or damaged since the list was read."""
    if state().carried:
        return next((found for found in (*prebuilt.libraries(), prebuilt.runtime()) if hasattr(found, kernel)), None)
    path = state().libraries.get(kernel)
    try:
        return None if path is None else compiler.loaded(Path(path))
    except CompileError:
        return None


def begin_in_background() -> None:
    """Start `gradlab warm` as a process of its own, which outlives this one; it lowers its own priority. Nothing is said of failures."""
    if not sys.executable or not hasattr(os, "posix_spawn") or not compiler.compiles():
        return
    package = str(Path(__file__).resolve().parents[3])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), SWITCH: "0"}
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    with suppress(OSError):
        os.posix_spawn(sys.executable, [sys.executable, "-m", "gradlab", "warm", "--background"], environment, file_actions=null)


def build(texts: Sequence[str]) -> int:
    """Compile the kernels written by hand and those of the texts, and leave the list. How many there are. CompileError where it fails."""
    try:
        toolchain.compiler()
    except CompilerMissing as error:
        raise CompileError(str(error)) from None
    target = list_file()
    libraries: dict[str, str] = {}
    jobs = []
    for file, names in compiler.by_hand().items():
        jobs.append(compiler.job("", file))
        libraries.update(dict.fromkeys(names, jobs[-1].target.name))
    for chunk in chunks(texts):
        jobs.append(compiler.job("\n".join(text for _, text in chunk), ""))
        libraries.update((name, jobs[-1].target.name) for name, _ in chunk)
    try:
        works.finish(jobs)
    except CompileError as error:
        seals.write(target, {"error": str(error)[:2000]})
        raise
    seals.write(target, {"libraries": libraries})
    return len(libraries)


def chunks(texts: Iterable[str]) -> list[list[tuple[str, str]]]:
    """Kernels with their names, by name, so many at a time."""
    found = sorted({named(text) for text in texts})
    return [found[i : i + TOGETHER] for i in range(0, len(found), TOGETHER)]
