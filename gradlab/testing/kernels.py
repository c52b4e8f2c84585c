"""Compiles every kernel for every GPU architecture, without a GPU: `python -m gradlab.testing.kernels`.

Each program goes through NVRTC with the options that CuPy gives it at run time. An error, a warning, or a register spill fails. The table
shows what the kernels take: registers, shared memory, stack. A file of one's own:

    python -m gradlab.testing.kernels mine.cu --name "scale<float>" --name "scale<__half>"

Without NVRTC nothing is compiled; a message says so and how to install it (`--require` makes that a failure).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from gradlab.backends.cuda.catalogue import Program, programs
from gradlab.kernel import source_directory
from gradlab.ops import ROWS
from gradlab.testing.nvrtc import Nvrtc, NvrtcMissing, load

ARCHITECTURES = (75, 80, 90, 100, 120)  # Turing, Ampere, Hopper, Blackwell for data centres and for desktops

# As CuPy 14 compiles a RawModule that is given -std=c++17: cupy/cuda/compiler.py adds the last two, whatever the caller says.
CUPY_OPTIONS = ("-std=c++17", "-ftz=true", "--device-as-default-execution-space")

_ENTRY = re.compile(
    r"Compiling entry function '(?P<name>[^']+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)
_SHARED = re.compile(r"(\d+) bytes smem")
_WARNING = re.compile(r"\bwarning\b", re.IGNORECASE)


class Usage(NamedTuple):
    """What one kernel takes on one architecture: registers for each thread, bytes of static shared memory, of stack, and of spills."""

    registers: int
    shared: int
    stack: int
    spills: int


class Outcome(NamedTuple):
    """One program compiled for one architecture."""

    program: Program
    architecture: int
    problem: str | None  # why it fails
    usage: dict[str, Usage]  # by kernel
    seconds: float


def check(program: Program, architecture: int, nvrtc: Nvrtc) -> Outcome:
    """Compile a program for an architecture."""
    begun = time.perf_counter()
    options = [*CUPY_OPTIONS, f"-arch=sm_{architecture}", "--ptxas-options=-v", f"-I{source_directory()}"]
    if nvrtc.include:
        options.append(f"-I{nvrtc.include}")
    compiled = nvrtc.compile(program.source, program.label, options, program.names)
    readable = {lowered: name for name, lowered in compiled.lowered.items()}
    usage = {readable.get(name, name): one for name, one in usage_in(compiled.log)}
    return Outcome(program, architecture, _problem(compiled.ok, compiled.log, usage), usage, time.perf_counter() - begun)


def usage_in(log: str) -> Iterator[tuple[str, Usage]]:
    """What each kernel takes, from ptxas's report in a log."""
    for match in _ENTRY.finditer(log):
        shared = _SHARED.search(match["rest"])
        spills = int(match["stores"]) + int(match["loads"])
        yield match["name"], Usage(int(match["registers"]), int(shared[1]) if shared else 0, int(match["stack"]), spills)


def _problem(ok: bool, log: str, usage: dict[str, Usage]) -> str | None:
    if not ok:
        return log.strip()
    warnings = [line for line in log.splitlines() if _WARNING.search(line)]
    if warnings:
        return "\n".join(warnings)
    spilled = [f"{name} spills {one.spills} bytes of registers" for name, one in usage.items() if one.spills]
    if spilled:
        return "\n".join(spilled)
    return None if usage else "no kernel came out: name the instances of its templates"


def check_all(chosen: Iterable[Program], architectures: Sequence[int], nvrtc: Nvrtc, jobs: int) -> Iterator[list[Outcome]]:
    """Every program on every architecture from its least one up; the outcomes of one program after another."""
    with ThreadPoolExecutor(jobs) as pool:
        waiting = [
            [pool.submit(check, program, architecture, nvrtc) for architecture in architectures if architecture >= program.least_arch]
            for program in chosen
        ]
        for futures in waiting:
            yield [future.result() for future in futures]


def table_rows(outcomes: Sequence[Outcome], each: bool) -> Iterator[tuple[str, str, str, str, str]]:
    """Lines of the table for one program: one for the most that any of its kernels takes, or one for each kernel."""
    kernels = list(dict.fromkeys(name for outcome in outcomes for name in outcome.usage))
    groups = [[name] for name in kernels] if each else [kernels]
    for group in groups:
        used = [[outcome.usage[name] for name in group if name in outcome.usage] for outcome in outcomes]
        every = [one for column in used for one in column]
        label = group[0] if each else f"{outcomes[0].program.label} ({len(group)})"
        registers = " ".join(f"{max((one.registers for one in column), default=0):4d}" for column in used)
        most = (max((getattr(one, field) for one in every), default=0) for field in ("shared", "stack", "spills"))
        yield (label, registers, *map(str, most))  # type: ignore[misc]


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = argparse.ArgumentParser(prog="python -m gradlab.testing.kernels", description="Compile every kernel for every GPU architecture.")
    made.add_argument("files", nargs="*", type=Path, help="CUDA files; without any, all kernels of gradlab")
    made.add_argument("--name", action="append", default=[], help="name expression of a template's instance in the files")
    made.add_argument(
        "--arch", type=int, action="append", help=f"an architecture (75 is sm_75); by default {', '.join(map(str, ARCHITECTURES))}"
    )
    made.add_argument("--only", default="", help="regular expression: only programs whose label has a match")
    made.add_argument("--each", action="store_true", help="a line for each kernel, not for each program")
    made.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many to compile at once")
    made.add_argument("--require", action="store_true", help="fail where NVRTC is not installed")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 where something failed."""
    options = parser().parse_args(arguments)
    try:
        nvrtc = load()
    except NvrtcMissing as error:
        print(f"skipped: {error}")
        return int(options.require)
    if options.files:
        chosen = [Program(path.name, path.read_text(encoding="utf-8"), options.name, 0) for path in options.files]
    else:
        chosen = [program for program in programs(ROWS) if re.search(options.only, program.label)]
    architectures = options.arch or list(ARCHITECTURES)
    unknown = set(architectures) - set(nvrtc.architectures())
    print(f"NVRTC {nvrtc.version[0]}.{nvrtc.version[1]}, {len(chosen)} programs; {' '.join(CUPY_OPTIONS)}")
    if unknown:
        print(f"left out, because this NVRTC does not know them: {', '.join(f'sm_{a}' for a in sorted(unknown))}")
        architectures = [a for a in architectures if a not in unknown]
    begun, failed, compiled, kernels = time.perf_counter(), 0, 0, 0
    heading = " ".join(f"{a:4d}" for a in architectures)
    print(f"{'kernels':64} registers on sm_\n{'':64} {heading} {'shared':>7} {'stack':>6} {'spills':>6}")
    for outcomes in check_all(chosen, architectures, nvrtc, options.jobs):
        for label, registers, shared, stack, spills in table_rows(outcomes, options.each):
            print(f"{label:64} {registers:{len(heading)}} {shared:>7} {stack:>6} {spills:>6}", flush=True)
        for outcome in outcomes:
            compiled += 1
            kernels += len(outcome.usage)
            if outcome.problem:
                failed += 1
                print(f"FAILED {outcome.program.label} on sm_{outcome.architecture}:\n{outcome.problem}", flush=True)
    print(f"{compiled} compilations, {kernels} kernels, {failed} failed, {time.perf_counter() - begun:.1f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
