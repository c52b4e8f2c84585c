"""Kernels that were compiled before, for one architecture, in a file that travels: `python -m gradlab.testing.warm` makes it, and no GPU is
needed for that. A real GPU's driver looks here before it asks NVRTC, so that a first step does not wait for a compiler.

A file is a zip archive, `sm_90.zip`: cubins, and `index.json` with {key: {name: [cubin, the name in it]}}. The key is that of a program's
text (with all headers in it) and of the options; so whatever has changed is not found, and compiled as ever. Files are looked for in
`GRADLAB_KERNELS` (files or folders, apart by the system's separator; set to nothing it switches this off), or else beside the kernels'
sources (`kernels/cubins/`) and in the user's cache directory (`cubins/`). What lies there is code that runs on the GPU.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gradlab.backends.native.seals import trusted
from gradlab.backends.native.toolchain import CompileError, cache_directory
from gradlab.kernel import source_folders

# As CuPy 14 compiles a RawModule that is given -std=c++17: cupy/cuda/compiler.py adds the last two, whatever the caller says.
CUPY_OPTIONS = ("-std=c++17", "-ftz=true", "--device-as-default-execution-space")
INDEX = "index.json"
DAMAGED = (OSError, ValueError, KeyError, RecursionError, zlib.error, zipfile.BadZipFile)  # what an archive may end in


def key_of(source: str) -> str:
    """What a program's kernels are kept by."""
    return hashlib.sha256("\0".join((source, *CUPY_OPTIONS)).encode()).hexdigest()[:40]


def file_name(architecture: int) -> str:
    """The archive of an architecture: 90 is sm_90."""
    return f"sm_{architecture}.zip"


def own_folder() -> Path | None:
    """Where a user's archives are kept; None where there is no such place."""
    try:
        return cache_directory("cubins")
    except CompileError:
        return None


def _places() -> list[Path]:
    chosen = os.environ.get("GRADLAB_KERNELS")
    if chosen is not None:
        return [Path(part) for part in chosen.split(os.pathsep) if part]
    own = own_folder()
    return [source_folders("cuda")[1] / "cubins", *([own] if own is not None else [])]


class Cubin(NamedTuple):
    """Where a kernel is: its archive, the cubin in it, and the kernel's name in that."""

    archive: Archive
    member: str
    lowered: str


class Archive:
    """One file, read when it is asked; each of its records has a checksum (CRC-32)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        with zipfile.ZipFile(path) as opened:
            self.index: dict[str, dict[str, list[str]]] = json.loads(opened.read(INDEX))
        if not isinstance(self.index, dict):
            raise ValueError(f"{path} has no index")

    def read(self, member: str) -> bytes:
        """A cubin's bytes."""
        with self._lock, zipfile.ZipFile(self.path) as opened:
            return opened.read(member)


class Prebuilt:
    """All archives for the device's capability. One of its minor version or of a lower one of the same major version runs there."""

    def __init__(self, capability: tuple[int, int]) -> None:
        self.archives = list(self._found(*capability))

    @staticmethod
    def _found(major: int, minor: int) -> Iterator[Archive]:
        beside = source_folders("cuda")[1] / "cubins"  # is trusted as the package is
        for place in _places():
            for lower in range(minor, -1, -1):
                name = file_name(10 * major + lower)
                path = place / name if place.is_dir() else place
                if path.name == name and path.is_file() and (place == beside or trusted(path.stat())):
                    try:
                        yield Archive(path)
                    except DAMAGED:
                        continue  # not whole, or no such archive: what it holds is compiled

    def find(self, source: str, names: Sequence[str]) -> dict[str, Cubin] | None:
        """Where all these kernels of a program are; None where one is missing."""
        if not self.archives:
            return None
        key = key_of(source)
        for archive in self.archives:
            known: dict[str, Any] = archive.index.get(key, {})
            if all(name in known for name in names):
                return {name: Cubin(archive, *known[name]) for name in names}
        return None
