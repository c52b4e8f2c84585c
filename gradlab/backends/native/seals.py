"""Checksums and owners of what lies in the cache of machine code, where each file is code that runs.

It is looked at before it is opened: one that was cut short would end the process (SIGBUS, SIGSEGV), and one that was changed would run.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from gradlab.backends.cuda.driver import CompileError

_MARK = b"gradlab\0"  # what a library of ours ends with, before the SHA-256 of all that comes before
_ELF = b"\x7fELF"
_LIBRARIES = (_ELF, b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"gpch")  # of Linux, macOS; a header as GNU keeps it
_KEY = "sha256"
_intact: set[Path] = set()  # libraries that were looked at


def trusted(found: os.stat_result) -> bool:
    """Whether what was found belongs to this user or to root, and nobody else may write to it."""
    return os.name != "posix" or (found.st_uid in (os.geteuid(), 0) and not found.st_mode & 0o022)


def _beside(library: Path) -> Path:
    """Where the checksum of a macOS library lies, whose signature nothing may follow, and of a header."""
    return library.with_name(library.name + "." + _KEY)


def seal(library: Path, maker: str) -> None:
    """Mark a library that the compiler has made, and force it to the disk. CompileError where it is none. maker: which compiler."""
    content = library.read_bytes() if library.exists() else b""
    if not content.startswith(_LIBRARIES):
        made = f"{len(content)} bytes that are no library" if content else "nothing"
        raise CompileError(f"the C++ compiler ({maker}) reports success and has made {made}; is it one?")
    sum_of_it = hashlib.sha256(content).digest()
    if not content.startswith(_ELF):
        _beside(library).write_text(sum_of_it.hex())
    with library.open("ab") as file:
        if content.startswith(_ELF):
            file.write(_MARK + sum_of_it)
        file.flush()
        if os.name == "posix":  # whatever the umask says
            os.fchmod(file.fileno(), 0o700)
        os.fsync(file.fileno())


def deliver(library: Path, target: Path) -> None:
    """Put a sealed library into its place at once. CompileError if what lies there then is something else."""
    if _beside(library).exists():
        _beside(library).replace(_beside(target))
    library.replace(target)
    _intact.discard(target)
    if not intact(target):
        raise CompileError(f"{target} is not what was written there a moment ago; set GRADLAB_CACHE to a folder on another disk")


def intact(library: Path) -> bool:
    """Whether a library is in the cache as it was built. One that is damaged, or that others may have written, is taken away."""
    if library in _intact:
        return library.exists()
    try:
        found = os.lstat(library)
        sound = stat.S_ISREG(found.st_mode) and trusted(found) and _sealed(library)
    except FileNotFoundError:
        return False
    except OSError:  # it cannot be read
        sound = False
    if sound:
        _intact.add(library)
    else:
        take_away(library)
    return sound


def take_away(library: Path) -> None:
    """Leave the place of a library empty, for the next one that is built."""
    _intact.discard(library)
    with suppress(OSError):
        library.unlink(missing_ok=True)


def _sealed(library: Path) -> bool:
    content = library.read_bytes()
    if content.startswith(_ELF):
        return content[-40:] == _MARK + hashlib.sha256(memoryview(content)[:-40]).digest()
    if not content.startswith(_LIBRARIES):
        return False
    return _beside(library).read_text() == hashlib.sha256(content).hexdigest()


def opened(library: Path, kind: type[ctypes.CDLL] = ctypes.CDLL) -> Any:
    """The functions of a library of the cache, which is looked at before. CompileError where it is damaged, or where this system cannot
    load it, say because it was built beside a newer C library; it is taken away, and the next one who wants it builds it."""
    if not intact(library):
        raise CompileError(f"{library} is damaged or gone")
    try:
        return kind(str(library))
    except OSError as error:
        take_away(library)
        raise CompileError(f"{library} was built whole and cannot be loaded here: {error}") from error


def write(target: Path, content: dict[str, Any]) -> None:
    """Write a table beside the libraries, with its checksum, whole for whoever reads it. OSError where that cannot be."""
    text = json.dumps(content)
    with tempfile.NamedTemporaryFile("w", dir=target.parent, suffix=".tmp", delete=False, encoding="utf-8") as draft:
        try:
            draft.write(json.dumps({_KEY: hashlib.sha256(text.encode()).hexdigest(), "content": text}))
            draft.flush()
            os.fsync(draft.fileno())
            os.replace(draft.name, target)
        except BaseException:
            os.unlink(draft.name)
            raise


def read(target: Path) -> dict[str, Any] | None:
    """The table that `write` left; None where there is none, or another, or others may have written it."""
    try:
        with open(target, encoding="utf-8") as file:
            if not trusted(os.fstat(file.fileno())):
                return None
            found = json.load(file)
        text = found["content"]
        if hashlib.sha256(text.encode()).hexdigest() != found[_KEY]:
            return None
        content = json.loads(text)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
