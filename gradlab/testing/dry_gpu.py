"""A GPU on which everything is submitted and nothing computed: how many launches a program makes, whether a graph can be captured.

Memory, streams, events, captures and the order of uses are the emulated GPU's, with its errors; kernels are read, not compiled: of their
parameters only matters which lead to memory, and which of that is const. So it takes no C++ compiler and milliseconds where the emulated
GPU takes minutes. Values are whatever lies in memory; kernels that would report a wrong value report none.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gradlab.backends.cuda import loading
from gradlab.backends.cuda.arguments import packet_at
from gradlab.backends.cuda.emulated import EmulatedDriver
from gradlab.backends.cuda.emulator import KernelFault
from gradlab.backends.cuda.emulator.device.hazards import Use

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LIST = re.compile(r"^[ \t]*#define (\w+)[ \t]+((?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)  # a macro may stand for parameters
_KERNEL = re.compile(r"__global__\s+void\s+(?:__\w+__\s*\([^)]*\)\s*)*(\w+)\s*\(")


class DryFunction:
    """A kernel's name, and of each parameter whether what it points at is const (None: it is no pointer)."""

    __slots__ = ("constant", "name")

    def __init__(self, name: str, constant: Sequence[bool | None]) -> None:
        self.name, self.constant = name, tuple(constant)


def parameters_of(source: str) -> dict[str, tuple[bool | None, ...]]:
    """Of each kernel that a text defines: its parameters, as `DryFunction` has them."""
    text, found = _COMMENT.sub(" ", source), {}
    lists = {match[1]: match[2].replace("\\\n", " ") for match in _LIST.finditer(text)}
    for name, parameters in lists.items():
        text = re.sub(rf"(?<=\(){name}(?=[,)])", parameters.replace("\\", r"\\"), text)
    for match in _KERNEL.finditer(text):
        depth, end, parts = 1, match.end(), [""]
        while depth:
            letter = text[end]
            depth += (letter in "(<[") - (letter in ")>]")
            if letter == "," and depth == 1:
                parts.append("")
            elif depth:
                parts[-1] += letter
            end += 1
        found[match[1]] = tuple(_constant(part) for part in parts if part.strip())
    return found


def _constant(parameter: str) -> bool | None:
    before, star, _ = parameter.rpartition("*")
    return bool(re.match(r"\s*const\b|.*\bconst\s*$", before, re.DOTALL)) if star else None


class DryDriver(EmulatedDriver):
    """The emulated GPU without its kernels."""

    def __init__(self, devices: int = 1) -> None:
        super().__init__(devices, schedule="eager")
        self._read: dict[str, dict[str, tuple[bool | None, ...]]] = {}

    def compile(self, source: str, names: Sequence[str], label: str) -> dict[str, Any]:
        self._not_in_capture(f"loading a kernel ({label})")
        known = parameters_of(source)
        found = {}
        for name in names:
            plain = name.partition("<")[0].rpartition("::")[2]
            if plain not in known:
                raise RuntimeError(f"{label} has no kernel {plain}")
            found[name] = DryFunction(name, known[plain])
        return found

    def launch(self, function: Any, grid: tuple[int, int, int], block: tuple[int, int, int], parameters: int, shared: int) -> None:
        packet = packet_at(parameters)
        kinds: Sequence[Any] = ["P" if c is not None else "q" for c in function.constant] if packet is None else packet.kinds
        if len(kinds) != len(function.constant):
            raise KernelFault(function.name, f"it takes {len(function.constant)} parameters, not {len(kinds)}")
        table = (ctypes.c_void_p * len(kinds)).from_address(parameters)
        uses: dict[tuple[Any, int], Use] = {}
        for position, (kind, constant, place) in enumerate(zip(kinds, function.constant, table, strict=True)):
            if kind != "P" and not isinstance(kind, int):
                if constant is not None:
                    raise KernelFault(function.name, f"parameter {position}: a number for a pointer")
                continue
            size = 8 if kind == "P" else kind // 8 * 8
            for address in struct.unpack(f"{size // 8}Q", ctypes.string_at(place or 0, size)):
                writes = kind != "P" or not constant
                block_ = self._find(address) if address >= 1 << 16 else None
                if block_ is None:
                    if kind == "P" and address and not self._on_host(address):
                        raise KernelFault(function.name, f"parameter {position}: {address:#x} is no memory of the device")
                    continue
                if not block_.alive:
                    raise KernelFault(function.name, f"parameter {position}: memory that was freed")
                kept = uses.get((block_, address))
                uses[block_, address] = Use(block_, address, writes or (kept is not None and kept.writes))
        self.launches += 1
        self.engine.submit(self.current_stream(), function.name, list(uses.values()), _nothing)

    def submit(self, label: str, reads: Sequence[int], writes: Sequence[int], run: Callable[[], None], stream: int) -> None:
        super().submit(label, reads, writes, _nothing, stream)


def _nothing() -> None:
    """What a kernel does here."""


@contextmanager
def dry() -> Iterator[DryDriver]:
    """Let "cuda" be this device in a process that has used none; it stays after the block."""
    if loading.loaded():
        raise RuntimeError("dry_gpu: this process has a CUDA device already; count launches in a process of its own")
    driver = DryDriver()
    given: Any = driver
    loading._driver = lambda: given
    yield driver
