"""The C++ compiler of the machine, and where programs that it has built are kept."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gradlab.backends.cuda.driver import CompileError as CompileError
from gradlab.backends.native import seals

CANDIDATES = ("g++", "clang++", "c++")
FLAGS = ("-std=c++17", "-O2", "-g1", "-fPIC", "-w", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-fno-math-errno")
MISSING = (
    "the emulated GPU compiles kernels as C++ and finds no C++ compiler (tried the variable CXX, g++, clang++, c++ and the package "
    "ziglang). Install one: `apt install g++`, `dnf install gcc-c++`, `xcode-select --install`, or `pip install ziglang`"
)

ANOTHER = "set GRADLAB_CACHE to a folder that can be written"


class CompilerMissing(RuntimeError):
    """There is no C++ compiler on this machine."""


class Compiler(NamedTuple):
    """A C++ compiler: how to call it, and what it says it is."""

    command: tuple[str, ...]
    version: str

    @property
    def is_zig(self) -> bool:
        return "ziglang" in self.command


@functools.cache
def compiler() -> Compiler:
    """The compiler to use. Raises CompilerMissing."""
    if platform.system() not in {"Linux", "Darwin"}:
        raise CompilerMissing("the emulated GPU needs Linux or macOS (on Windows: WSL)")
    command = _command()
    said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    if said.returncode != 0:
        raise CompilerMissing(f"{shlex.join(command)} --version fails: {said.stderr.strip()}")
    return Compiler(tuple(command), said.stdout)


def _command() -> list[str]:
    wanted = os.environ.get("CXX")
    if wanted:
        command = shlex.split(wanted)
        if shutil.which(command[0]) is None:
            raise CompilerMissing(f"the variable CXX names {command[0]}, which is not there; unset it or install that compiler")
        return command
    for name in CANDIDATES:
        if shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "c++"]
    raise CompilerMissing(MISSING)


def flags(sanitize: str) -> list[str]:
    """Flags for every translation unit."""
    found = compiler()
    chosen = list(FLAGS)
    if found.is_zig:
        chosen.append("-fno-sanitize=all")  # zig switches some on by itself
    if sanitize:
        chosen += [f"-fsanitize={sanitize}", "-fno-omit-frame-pointer"]
        if "address" in sanitize:
            chosen.append("-fsanitize-recover=address")  # ASAN_OPTIONS decides
    return chosen


def run(arguments: Sequence[str | Path], label: str, directory: Path | None = None) -> str:
    """Run the compiler, in a directory; what it printed. Raises CompileError."""
    # A preloaded sanitizer is for the programs, not for the compiler.
    environment = {name: value for name, value in os.environ.items() if name not in {"LD_PRELOAD", "DYLD_INSERT_LIBRARIES"}}
    done = subprocess.run(
        [*compiler().command, *map(str, arguments)], capture_output=True, text=True, check=False, env=environment, cwd=directory
    )
    if done.returncode != 0:
        raise CompileError(f"{label} does not compile as C++ for the emulated GPU:\n{done.stderr}")
    return done.stdout


def source_line(library: Path, offset: int) -> tuple[str, int]:
    """File and line of an instruction, by binutils' addr2line; ("", 0) where it is not installed or does not know."""
    if shutil.which("addr2line") is None:
        return "", 0
    done = subprocess.run(["addr2line", "-e", str(library), hex(offset)], capture_output=True, text=True, check=False)
    file, _, line = done.stdout.strip().partition(" ")[0].rpartition(":")
    return (os.path.normpath(file), int(line)) if line.isdigit() and not file.startswith("?") else ("", 0)


def cache_directory(kind: str = "emulator") -> Path:
    """Where built programs of a kind are kept: in $GRADLAB_CACHE, else in gradlab in the user's cache directory.

    What lies there is code that runs: CompileError for a folder that others may write to, as for one that cannot be made.
    """
    root = os.environ.get("GRADLAB_CACHE")
    if root and not os.path.isabs(root):
        raise CompileError(f"GRADLAB_CACHE is {root!r}, which is another folder from each place; set it to a path from the root on")
    base = Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gradlab"
    directory = base / kind
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found, around = directory.stat(), base.stat()
    except (OSError, RuntimeError) as error:
        raise CompileError(
            f"cannot make the cache directory {directory} ({error}); {ANOTHER}"
        ) from error
    if not seals.trusted(found):
        whose = f"may be written by others (chmod go-w {directory})" if found.st_mode & 0o022 else "belongs to another user"
        raise CompileError(f"the cache directory {directory} {whose}, and what lies there runs; set GRADLAB_CACHE to a folder of your own")
    if os.name == "posix" and around.st_mode & 0o002 and not around.st_mode & stat.S_ISVTX:  # they could put another folder in its place
        raise CompileError(f"the cache directory {directory} lies in {base}, which everybody may write to; set GRADLAB_CACHE to another")
    return directory


def digest(*parts: str) -> str:
    """A name for what all parts together determine, on this machine and with this compiler."""
    found = compiler()
    everything = (*parts, found.version, *found.command, platform.machine())
    return hashlib.sha256("\0".join(everything).encode()).hexdigest()[:32]


class Workshop:
    """A directory beside the cache where a library is built; `deliver` puts it in its place at once, for processes that build the same."""

    def __init__(self, target: Path) -> None:
        self.target = target
        try:
            self._scratch = tempfile.TemporaryDirectory(dir=target.parent, prefix="build-")
        except OSError as error:
            raise CompileError(f"cannot write to the cache directory {target.parent} ({error}); {ANOTHER}") from error
        self.directory = Path(self._scratch.name)

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, *_: object) -> None:
        self._scratch.cleanup()

    def deliver(self, library: Path) -> None:
        """CompileError where the library is none, or cannot be written, as on a full disk."""
        try:
            seals.seal(library, shlex.join(compiler().command))
            seals.deliver(library, self.target)
        except OSError as error:
            raise CompileError(f"cannot write {self.target} ({error}); {ANOTHER}") from error
