"""Compiles every kernel for every GPU architecture, without a GPU: `python -m gradlab.testing.kernels`.

Each program goes through NVRTC with the options that CuPy gives it at run time. An error, a warning, or a register spill fails. The table
shows what the kernels take: registers, shared memory, stack. What was found is kept by content in the user's cache directory
($GRADLAB_CACHE), so that only what has changed is compiled anew. Kernels that `gl.compile` writes are there for a fixed set of programs
(`generated.py`). A file of one's own:

    python -m gradlab.testing.kernels mine.cu --name "scale<float>" --name "scale<__half>"

Without NVRTC nothing is compiled; a message says so and how to install it (`--require` makes that a failure).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from gradlab.backends.cuda.catalogue import Program, programs
from gradlab.backends.cuda.prebuilt_kernels import CUPY_OPTIONS
from gradlab.backends.native.toolchain import cache_directory
from gradlab.kernel import source_folders
from gradlab.ops import ROWS
from gradlab.testing.generated import generated_programs
from gradlab.testing.nvrtc import Nvrtc, NvrtcMissing, load

ARCHITECTURES = (75, 80, 90, 100, 120)  # Turing, Ampere, Hopper, Blackwell for data centres and for desktops

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
    seconds: float  # of the processor


def options_for(architecture: int, nvrtc: Nvrtc) -> list[str]:
    """The compiler's options for an architecture."""
    options = [*CUPY_OPTIONS, f"-arch=sm_{architecture}", "--ptxas-options=-v", *(f"-I{folder}" for folder in source_folders("cuda"))]
    return [*options, f"-I{nvrtc.include}"] if nvrtc.include else options


def check(program: Program, architecture: int, nvrtc: Nvrtc) -> Outcome:
    """Compile a program for an architecture."""
    begun = time.process_time()
    compiled = nvrtc.compile(program.source, program.label, options_for(architecture, nvrtc), program.names)
    readable = {lowered: name for name, lowered in compiled.lowered.items()}
    usage = {readable.get(name, name): one for name, one in usage_in(compiled.log)}
    return Outcome(program, architecture, _problem(compiled.ok, compiled.log, usage), usage, time.process_time() - begun)


def every_program() -> Iterator[Program]:
    """All there is to compile: the kernels of files and rows, and those that are written for compiled programs."""
    yield from programs(ROWS)
    yield from generated_programs()


def digest(program: Program) -> str:
    """A name for a program's content. Its headers of gradlab are part of its text."""
    return hashlib.sha256("\0".join((program.source, *program.names)).encode()).hexdigest()[:32]


def key_of(program: Program, architecture: int, nvrtc: Nvrtc) -> str:
    """What a program's outcome is kept by: its content, the architecture, the compiler and the options."""
    key = "\0".join((digest(program), *CUPY_OPTIONS, str(architecture), str(nvrtc.version), str(nvrtc.path.stat().st_size)))
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def checked(program: Program, architecture: int, nvrtc: Nvrtc) -> Outcome:
    """The same; what was found before for the same content, compiler and options is taken from the cache."""
    directory = cache_directory().with_name("kernels")
    file = directory / f"{key_of(program, architecture, nvrtc)}.json"
    try:
        problem, usage, seconds = json.loads(file.read_text(encoding="utf-8"))
        if problem is None:  # what failed is looked at again: what counts as a fault may have changed
            return Outcome(program, architecture, None, {name: Usage(*one) for name, one in usage.items()}, seconds)
    except (OSError, ValueError, TypeError, AttributeError):
        pass  # not there, or not whole
    found = check(program, architecture, nvrtc)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = file.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps([found.problem, found.usage, found.seconds]), encoding="utf-8")
    scratch.replace(file)
    return found


def usage_in(log: str) -> Iterator[tuple[str, Usage]]:
    """What each kernel takes, from ptxas's report in a log."""
    for match in _ENTRY.finditer(log):
        shared = _SHARED.search(match["rest"])
        spills = int(match["stores"]) + int(match["loads"])
        yield match["name"], Usage(int(match["registers"]), int(shared[1]) if shared else 0, int(match["stack"]), spills)


# What a polynomial's recurrence in double holds around its call on sm_100, whatever is tried.
POLYNOMIALS, AROUND_A_CALL = "gradlab::orthogonal_polynomial_", 16


def _problem(ok: bool, log: str, usage: dict[str, Usage]) -> str | None:
    if not ok:
        return log.strip()
    warnings = [line for line in log.splitlines() if _WARNING.search(line)]
    if warnings:
        return "\n".join(warnings)
    allowed = {name: AROUND_A_CALL if name.startswith(POLYNOMIALS) else 0 for name in usage}
    spilled = [f"{name} spills {one.spills} bytes of registers" for name, one in usage.items() if one.spills > allowed[name]]
    if spilled:
        return "\n".join(spilled)
    return None if usage else "no kernel came out: name the instances of its templates"


def _worker(program: Program, architecture: int, fresh: bool) -> Outcome:
    """In a process of its own: NVRTC compiles one program at a time in each."""
    return (check if fresh else checked)(program, architecture, load())


def check_all(
    chosen: Iterable[Program], architectures: Sequence[int], nvrtc: Nvrtc, jobs: int, *, fresh: bool = True
) -> Iterator[list[Outcome]]:
    """Every program on every architecture on which it runs; the outcomes of one program after another.

    jobs: processes. fresh: whatever the cache holds.
    """
    tasks = [(program, program.runs_on(architectures)) for program in chosen]
    tasks = [task for task in tasks if task[1]]
    if jobs == 1:
        for program, wanted in tasks:
            yield [(check if fresh else checked)(program, architecture, nvrtc) for architecture in wanted]
        return
    with ProcessPoolExecutor(jobs) as pool:
        # The largest first, so that no process is left alone with one in the end.
        largest_first = sorted(range(len(tasks)), key=lambda n: -len(tasks[n][0].names))
        futures = {n: [pool.submit(_worker, tasks[n][0], architecture, fresh) for architecture in tasks[n][1]] for n in largest_first}
        try:
            for n in range(len(tasks)):
                yield [future.result() for future in futures[n]]
        finally:
            pool.shutdown(cancel_futures=True)


def table_rows(
    outcomes: Sequence[Outcome], each: bool, architectures: Sequence[int] | None = None
) -> Iterator[tuple[str, str, str, str, str]]:
    """Lines of the table for one program: one for the most that any of its kernels takes, or one for each kernel. A column of registers
    for each of the architectures, by default those of the outcomes."""
    kernels = list(dict.fromkeys(name for outcome in outcomes for name in outcome.usage))
    groups = [[name] for name in kernels] if each else [kernels]
    for group in groups:
        used = {o.architecture: [o.usage[name] for name in group if name in o.usage] for o in outcomes}
        every = [one for column in used.values() for one in column]
        label = group[0] if each else f"{outcomes[0].program.label} ({len(group)})"
        columns = [used.get(a) for a in architectures or used]
        registers = " ".join(f"{max(one.registers for one in column):4d}" if column else "   -" for column in columns)
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
    made.add_argument("--fresh", action="store_true", help="compile also what the cache knows")
    made.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1, help="how many processes compile")
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
        chosen = [program for program in every_program() if re.search(options.only, program.label)]
    architectures = options.arch or list(ARCHITECTURES)
    unknown = set(architectures) - set(nvrtc.architectures())
    print(f"NVRTC {nvrtc.version[0]}.{nvrtc.version[1]}, {len(chosen)} programs; {' '.join(CUPY_OPTIONS)}")
    if unknown:
        print(f"left out, because this NVRTC does not know them: {', '.join(f'sm_{a}' for a in sorted(unknown))}")
        architectures = [a for a in architectures if a not in unknown]
    begun, failed, compiled = time.perf_counter(), 0, 0
    kernels, seconds = dict.fromkeys(architectures, 0), dict.fromkeys(architectures, 0.0)
    heading = " ".join(f"{a:4d}" for a in architectures)
    print(f"{'kernels':64} registers on sm_\n{'':64} {heading} {'shared':>7} {'stack':>6} {'spills':>6}")
    fresh = options.fresh or bool(options.files)
    for outcomes in check_all(chosen, architectures, nvrtc, options.jobs, fresh=fresh):
        for label, registers, shared, stack, spills in table_rows(outcomes, options.each, architectures):
            print(f"{label:64} {registers:{len(heading)}} {shared:>7} {stack:>6} {spills:>6}", flush=True)
        for outcome in outcomes:
            compiled += 1
            seconds[outcome.architecture] += outcome.seconds
            kernels[outcome.architecture] += len(outcome.usage)
            if outcome.problem:
                failed += 1
                print(f"FAILED {outcome.program.label} on sm_{outcome.architecture}:\n{outcome.problem}", flush=True)
    for a in architectures:
        print(f"sm_{a}: {kernels[a]} kernels, {seconds[a]:.1f} s of compilation")
    print(f"{compiled} compilations, {sum(kernels.values())} kernels, {failed} failed, {time.perf_counter() - begun:.1f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
