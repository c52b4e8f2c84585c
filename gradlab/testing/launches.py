"""Launches of kernels, written down with the memory that they work on, and run again under a sanitizer in a process of its own.

`Recorder` is an emulated GPU that writes down what it launches. `sanitized` starts `python -m gradlab.testing.launches`, which compiles the
same kernels with the sanitizer and runs each launch once more; so nobody has to import the code that launched them.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import struct
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gradlab.backends.cuda.emulated import EmulatedDriver
from gradlab.backends.cuda.emulator import EmulatedFunction, GuardedMemory, KernelFault, compile_kernels
from gradlab.backends.cuda.emulator.device.launches import Arguments
from gradlab.backends.cuda.emulator.sanitizer import Report, reports_in, run_sanitized

PACKAGE = Path(__file__).resolve().parents[2]


class Source(NamedTuple):
    """A program: its text, the kernels to compile, what to call it, and the directories of its headers (None: gradlab's)."""

    text: str
    names: tuple[str, ...]
    label: str
    include: tuple[str, ...] | None = None


@dataclass
class Launch:
    """One launch. memories: the bytes of each array before it; arguments: the bytes of each value, or (memory, offset) of an address."""

    source: Source
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    memories: list[bytes]
    arguments: list[bytes | tuple[int, int]]


class Recorder(EmulatedDriver):
    """An emulated GPU that runs work where it is submitted, and writes down each launch."""

    def __init__(self) -> None:
        super().__init__(1, schedule="eager")
        self.recorded: list[Launch] = []
        self._sources: dict[int, tuple[Source, EmulatedFunction]] = {}

    def compile(self, source: str, names: Sequence[str], label: str) -> dict[str, EmulatedFunction]:
        found = super().compile(source, names, label)
        program = Source(source, tuple(names), label)
        self._sources.update((id(function), (program, function)) for function in found.values())
        return found

    def launch(
        self, function: EmulatedFunction, grid: tuple[int, int, int], block: tuple[int, int, int], parameters: int, shared: int
    ) -> None:
        values = Arguments(function.signature, parameters)
        memories: list[bytes] = []
        places: dict[int, int] = {}
        arguments: list[bytes | tuple[int, int]] = []
        for position, parameter in enumerate(function.signature):
            given = values.bytes_of(position, parameter.size)
            found = self._find(struct.unpack("Q", given)[0]) if parameter.pointer else None
            if found is None:
                arguments.append(given if not parameter.pointer else bytes(8))
                continue
            if found.address not in places:
                places[found.address] = len(memories)
                memories.append(ctypes.string_at(found.address, found.size))
            arguments.append((places[found.address], struct.unpack("Q", given)[0] - found.address))
        program, _ = self._sources[id(function)]
        self.recorded.append(Launch(program, function.name, grid, block, shared, memories, arguments))
        super().launch(function, grid, block, parameters, shared)


class Finding(NamedTuple):
    """What a sanitizer, or the emulator, said about a launch."""

    kernel: str
    words: str

    def __str__(self) -> str:
        return f"{self.kernel}: {self.words}"


def sanitized(launches: Sequence[Launch], sanitize: str, order: str = "forward") -> list[Finding]:
    """Run launches under sanitizers ("address,undefined", "thread"); what they found. RuntimeError where this machine has none."""
    if not launches:
        return []
    with tempfile.TemporaryDirectory(prefix="gradlab-launches-") as folder:
        file = Path(folder, "launches.pickle")
        file.write_bytes(pickle.dumps(list(launches)))
        path = os.pathsep.join(filter(None, [str(PACKAGE), os.environ.get("PYTHONPATH", "")]))
        done = run_sanitized(
            ["-m", "gradlab.testing.launches", str(file), order], sanitize=sanitize, keep_going=True, environment={"PYTHONPATH": path}
        )
    sections = [part.partition("\n") for part in done.output.split("== ")[1:]]
    found: list[Finding] = []
    for heading, _, text in sections:
        number, _, _ = heading.partition(" ")
        if number.isdecimal():
            kernel = launches[int(number)].kernel
            found += [Finding(kernel, _words(report)) for report in reports_in(text)]
            found += [Finding(kernel, line.removeprefix("fault: ")) for line in text.splitlines() if line.startswith("fault: ")]
    if not any(heading.startswith("end") for heading, _, _ in sections):
        last = sections[-1][0] if sections else "the start"
        found.append(Finding(last, f"the process ended with code {done.returncode}: {done.output[-2000:].strip()}"))
    return list(dict.fromkeys(found))


def _words(report: Report) -> str:
    return f"{report.kind} at {report.file}:{report.line}" if report.file else report.kind


def run_once(launch: Launch, function: EmulatedFunction, order: str = "forward", seed: int = 0) -> list[bytes]:
    """Run a launch on fresh guarded memory; the memories afterwards. Raises KernelFault."""
    rooms = []
    for content in launch.memories:
        room = GuardedMemory(len(content))
        ctypes.memmove(room.address, content, len(content))
        rooms.append(room)
    values = [a if isinstance(a, bytes) else struct.pack("Q", rooms[a[0]].address + a[1]) for a in launch.arguments]
    held = [ctypes.create_string_buffer(len(v) + 16) for v in values]
    starts = [ctypes.addressof(h) + -ctypes.addressof(h) % 16 for h in held]
    for start, value in zip(starts, values):
        ctypes.memmove(start, value, len(value))
    table = (ctypes.c_void_p * max(len(starts), 1))(*starts)
    function.max_dynamic_shared_size_bytes = max(function.max_dynamic_shared_size_bytes, launch.shared)
    function.launch(launch.grid, launch.block, ctypes.addressof(table), launch.shared, order=order, seed=seed)
    return [ctypes.string_at(room.address, room.size) for room in rooms]


def compiled(source: Source, races: bool | None = None) -> dict[str, EmulatedFunction]:
    """The kernels of a program, under the sanitizer of this process if there is one; races: what two threads touch unordered is a fault."""
    include = None if source.include is None else [Path(folder) for folder in source.include]
    return compile_kernels(source.text, source.names, label=source.label, include=include, races=races)


def raced(launches: Sequence[Launch]) -> list[Finding]:
    """What two threads of a launch touch with nothing that orders them, one of them writing; the first of each launch.

    In this process, and so without a sanitizer's library (native/races.cpp).
    """
    programs: dict[Source, dict[str, EmulatedFunction]] = {}
    found: list[Finding] = []
    for launch in launches:
        if launch.source not in programs:
            programs[launch.source] = compiled(launch.source, races=True)
        try:
            run_once(launch, programs[launch.source][launch.kernel])
        except KernelFault as fault:
            found.append(Finding(launch.kernel, str(fault).removeprefix(f"{launch.kernel}: ")))
    return list(dict.fromkeys(found))


def main(arguments: Sequence[str]) -> int:
    """Run the launches of a file."""
    launches: list[Launch] = pickle.loads(Path(arguments[0]).read_bytes())
    programs: dict[Any, dict[str, EmulatedFunction]] = {}
    for number, launch in enumerate(launches):
        if launch.source not in programs:
            programs[launch.source] = compiled(launch.source)
        print("==", number, launch.kernel, flush=True)
        try:
            run_once(launch, programs[launch.source][launch.kernel], order=arguments[1])
        except KernelFault as fault:
            print(f"fault: {fault}", flush=True)
    print("== end", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
