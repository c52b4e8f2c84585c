"""`libnvrtc`: the compiler of the emulated GPU behind NVRTC's functions. Arguments are 64-bit words."""

from __future__ import annotations

import ctypes
import os
import re
from typing import Any

from gradlab.backends.cuda.emulator import CompileError, CompilerMissing
from gradlab.testing.emulated_cuda.machine import Handles
from gradlab.testing.emulated_cuda.machine_code import MAGIC, Program, plain_kernels
from gradlab.testing.emulated_cuda.statuses import Refused

# nvrtcResult
INVALID_INPUT, INVALID_PROGRAM, COMPILATION, NO_NAMES_BEFORE, NO_SUCH_NAME, INTERNAL = 3, 4, 6, 8, 10, 11
NAMES = {
    0: "NVRTC_SUCCESS", INVALID_INPUT: "NVRTC_ERROR_INVALID_INPUT", INVALID_PROGRAM: "NVRTC_ERROR_INVALID_PROGRAM",
    COMPILATION: "NVRTC_ERROR_COMPILATION", NO_NAMES_BEFORE: "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
    NO_SUCH_NAME: "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID", INTERNAL: "NVRTC_ERROR_INTERNAL_ERROR",
}  # fmt: skip
ARCHITECTURES = [75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121]
TEXT = b"// " + MAGIC  # in place of PTX; CuPy's key of what it keeps holds it

_NAMED = re.compile(r'#line 1 "([^"\\\n]*)"\n')  # a first line that says what the program is called
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)


class _Draft:
    """A program on its way."""

    def __init__(self, source: str, label: str) -> None:
        self.source, self.label = source, label
        self.names: list[bytes] = []
        self.lowered: dict[bytes, Any] = {}
        self.log, self.image = b"", b""


class Compiler:
    """Methods are the library's functions. version: of CUDA, which it is asked for."""

    def __init__(self, version: tuple[int, int]) -> None:
        self._version = version
        self._drafts = Handles("program")
        self._words = {status: ctypes.create_string_buffer(name.encode()) for status, name in NAMES.items()}

    def failed(self, error: Exception) -> int:
        """What a function returns that raised."""
        return INVALID_PROGRAM if isinstance(error, Refused) else INTERNAL

    def nvrtcVersion(self, major: int, minor: int) -> int:
        ctypes.c_int.from_address(major).value, ctypes.c_int.from_address(minor).value = self._version
        return 0

    def nvrtcGetErrorString(self, status: int) -> int:
        return ctypes.addressof(self._words.get(status & 0xFFFFFFFF, self._words[INTERNAL]))

    def nvrtcGetNumSupportedArchs(self, number: int) -> int:
        ctypes.c_int.from_address(number).value = len(ARCHITECTURES)
        return 0

    def nvrtcGetSupportedArchs(self, found: int) -> int:
        (ctypes.c_int * len(ARCHITECTURES)).from_address(found)[:] = [*ARCHITECTURES]
        return 0

    def nvrtcCreateProgram(self, program: int, source: int, name: int, count: int, headers: int, names: int) -> int:
        if count & 0xFFFFFFFF:
            return INVALID_INPUT  # headers given as texts, as by jitify
        label = os.path.basename(ctypes.string_at(name).decode()) if name else ""
        draft = _Draft(ctypes.string_at(source).decode(), label or "a program")
        ctypes.c_void_p.from_address(program).value = self._drafts.give(draft)
        return 0

    def nvrtcDestroyProgram(self, program: int) -> int:
        place = ctypes.c_void_p.from_address(program)
        self._drafts.take(place.value or 0)
        place.value = 0
        return 0

    def nvrtcAddNameExpression(self, program: int, name: int) -> int:
        self._drafts.find(program).names.append(ctypes.string_at(name))
        return 0

    def nvrtcGetLoweredName(self, program: int, name: int, lowered: int) -> int:
        draft, wanted = self._drafts.find(program), ctypes.string_at(name)
        if not draft.image:
            return NO_NAMES_BEFORE
        if wanted not in draft.names:
            return NO_SUCH_NAME
        kept = draft.lowered.setdefault(wanted, ctypes.create_string_buffer(wanted))  # the emulator knows kernels by these names
        ctypes.c_void_p.from_address(lowered).value = ctypes.addressof(kept)
        return 0

    def nvrtcCompileProgram(self, program: int, count: int, options: int) -> int:
        draft: _Draft = self._drafts.find(program)
        number = count & 0xFFFFFFFF
        given = [(place or b"").decode() for place in (ctypes.c_char_p * number).from_address(options)] if number else []
        folders, definitions = _understood(given)
        named = _NAMED.match(draft.source)
        label, source = (named[1], draft.source[named.end() :]) if named else (draft.label, draft.source)
        names = [name.decode() for name in draft.names] or plain_kernels(source)
        if definitions:
            source = "".join([*definitions, "#line 1\n", source])
        made = Program(source, names, label, _needed(folders, source))
        if names or source.strip():
            try:
                made.built()
            except (CompileError, CompilerMissing) as error:
                draft.log = str(error).encode()
                return COMPILATION
        draft.image = made.image()
        return 0

    def nvrtcGetProgramLogSize(self, program: int, size: int) -> int:
        ctypes.c_size_t.from_address(size).value = len(self._drafts.find(program).log) + 1
        return 0

    def nvrtcGetProgramLog(self, program: int, log: int) -> int:
        content = self._drafts.find(program).log
        ctypes.memmove(log, content + b"\0", len(content) + 1)
        return 0

    def nvrtcGetCUBINSize(self, program: int, size: int) -> int:
        ctypes.c_size_t.from_address(size).value = len(self._drafts.find(program).image)
        return 0

    def nvrtcGetCUBIN(self, program: int, image: int) -> int:
        content = self._drafts.find(program).image
        ctypes.memmove(image, content, len(content))
        return 0

    def nvrtcGetPTXSize(self, program: int, size: int) -> int:
        ctypes.c_size_t.from_address(size).value = len(TEXT) + 1
        return 0

    def nvrtcGetPTX(self, program: int, text: int) -> int:
        ctypes.memmove(text, TEXT + b"\0", len(TEXT) + 1)
        return 0


def _needed(folders: list[str], source: str) -> list[str]:
    """The folders, where the source includes something of theirs. CUDA's own headers are the emulator's concern."""
    headers = [header for header in _INCLUDE.findall(source) if not header.startswith("cuda_")]
    return folders if any(os.path.isfile(os.path.join(folder, header)) for folder in folders for header in headers) else []


def _understood(options: list[str]) -> tuple[list[str], list[str]]:
    """Folders of headers, and lines that define macros, of NVRTC's options; what concerns machine code changes nothing here."""
    folders, lines = [], []
    waiting = list(options)
    while waiting:
        option = waiting.pop(0)
        for short, long in (("-I", "--include-path"), ("-D", "--define-macro")):
            if option in (short, long):
                value = waiting.pop(0) if waiting else ""
            elif option.startswith(f"{long}="):
                value = option[len(long) + 1 :]
            elif option.startswith(short) and not option.startswith("--"):
                value = option[2:]
            else:
                continue
            if short == "-I":
                folders.append(value)
            else:
                name, _, content = value.partition("=")
                lines.append(f"#define {name} {content or ('' if '=' in value else '1')}\n")
            break
    return folders, lines
