"""What stands for a compiled program: its source and the names of its kernels, in an envelope that CuPy keeps as if it were a cubin.

It is built, or found among what was built before, when a module is loaded: an envelope from CuPy's cache on disk needs nothing else.
"""

from __future__ import annotations

import ctypes
import json
import re
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gradlab.backends.cuda.emulator import EmulatedFunction, compile_kernels
from gradlab.kernel import source_folders

MAGIC = b"gradlab emulated program 1\n"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_BOUNDS = r"(?:__\w+__\s*\([^)]*\)\s*)*"
_KERNEL = re.compile(rf"__global__[^;{{(]*?{_BOUNDS}(\w+)\s*\(")
_PLAIN = re.compile(rf'extern\s*"C"\s*{_BOUNDS}{_KERNEL.pattern}')
_WITHIN = re.compile(r'extern\s*"C"\s*\{(.*)', re.DOTALL)


def plain_kernels(source: str) -> list[str]:
    """Kernels whose names are not mangled: those behind `extern "C"`."""
    text = _COMMENT.sub(" ", source)
    found = _PLAIN.findall(text)
    for inner in _WITHIN.findall(text):
        found += _KERNEL.findall(inner)
    return [name for name in dict.fromkeys(found) if name != "__launch_bounds__"]


@dataclass(frozen=True)
class Program:
    """A source, the kernels to be had of it, what it is called in messages, and the folders of its headers."""

    source: str
    names: Sequence[str]
    label: str
    include: Sequence[str]

    def image(self) -> bytes:
        """The envelope. CuPy drops the last byte of a cubin."""
        content = json.dumps(asdict(self)).encode()
        return MAGIC + struct.pack("<Q", len(content)) + content + b"\0"

    def built(self) -> dict[str, EmulatedFunction]:
        """Its kernels. CompileError where a C++ compiler refuses it."""
        folders = [*map(Path, self.include), *source_folders("cuda")]
        return compile_kernels(self.source, self.names, label=self.label, include=folders)


def at(address: int) -> Program:
    """The program of the envelope at an address. ValueError for what is none."""
    if address == 0 or ctypes.string_at(address, 4) != MAGIC[:4] or ctypes.string_at(address, len(MAGIC)) != MAGIC:
        raise ValueError("no program of the emulated GPU: what NVIDIA's compiler made runs on a real one alone")
    (size,) = struct.unpack("<Q", ctypes.string_at(address + len(MAGIC), 8))
    return Program(**json.loads(ctypes.string_at(address + len(MAGIC) + 8, size)))
