"""The C++ compiler of the machine, and where programs that it has built are kept."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gradlab.backends.cuda.driver import CompileError as CompileError

CANDIDATES = ("g++", "clang++", "c++")
FLAGS = ("-std=c++17", "-O2", "-g1", "-fPIC", "-w", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-fno-math-errno")
MISSING = (
    "the emulated GPU compiles kernels as C++ and finds no C++ compiler (tried the variable CXX, g++, clang++, c++ and the package "
    "ziglang). Install one: `apt install g++`, `dnf install gcc-c++`, `xcode-select --install`, or `pip install ziglang`"
)


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
        found = directory.stat()
    except (OSError, RuntimeError) as error:
        raise CompileError(
            f"cannot make the cache directory {directory} ({error}); set GRADLAB_CACHE to one that can be written"
        ) from error
    if os.name == "posix" and (found.st_uid != os.geteuid() or found.st_mode & 0o022):
        whose = "belongs to another user" if found.st_uid != os.geteuid() else f"may be written by others (chmod go-w {directory})"
        raise CompileError(f"the cache directory {directory} {whose}, and what lies there runs; set GRADLAB_CACHE to a folder of your own")
    return directory


_MARK = b"gradlab\0"  # what a library of ours ends with, before the SHA-256 of all that comes before
_LIBRARIES = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")  # how those of Linux and macOS begin


def seal(library: Path) -> None:
    """Mark a library that the compiler has made, and force it to the disk. CompileError where it is none."""
    content = library.read_bytes() if library.exists() else b""
    if not content.startswith(_LIBRARIES):
        made = f"{len(content)} bytes that are no library" if content else "nothing"
        raise CompileError(f"the C++ compiler ({shlex.join(compiler().command)}) reports success and has made {made}; is it one?")
    with library.open("ab") as file:
        if content.startswith(_LIBRARIES[0]):  # on macOS nothing may follow a library's signature
            file.write(_MARK + hashlib.sha256(content).digest())
        file.flush()
        os.fsync(file.fileno())


_intact: set[Path] = set()  # libraries that were looked at


def intact(library: Path) -> bool:
    """Whether a library is in the cache as it was built. One that is damaged, which could end the process when it runs, is taken away."""
    if library in _intact:
        return library.exists()
    try:
        content = library.read_bytes()
    except FileNotFoundError:
        return False
    body, end = content[:-40], content[-40:]
    sealed = end == _MARK + hashlib.sha256(body).digest() if content.startswith(_LIBRARIES[0]) else content.startswith(_LIBRARIES)
    if not sealed:
        library.unlink(missing_ok=True)
        return False
    _intact.add(library)
    return True


def digest(*parts: str) -> str:
    """A name for what all parts together determine, on this machine and with this compiler."""
    found = compiler()
    everything = (*parts, found.version, *found.command, platform.machine())
    return hashlib.sha256("\0".join(everything).encode()).hexdigest()[:32]


class Workshop:
    """A directory beside the cache where a library is built; `deliver` puts it in its place at once, for processes that build the same."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self._scratch = tempfile.TemporaryDirectory(dir=target.parent, prefix="build-")
        self.directory = Path(self._scratch.name)

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, *_: object) -> None:
        self._scratch.cleanup()

    def deliver(self, library: Path) -> None:
        seal(library)
        library.replace(self.target)
