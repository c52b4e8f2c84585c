"""`gradlab kernels FILE.cu`: a stand-alone CUDA file, compiled for every architecture and run on the emulated GPU. No GPU is needed.

How its kernels are launched stands in the file (`testing/stand_alone.py`, docs/custom-kernels.md).
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gradlab.backends.cuda.catalogue import Program
from gradlab.backends.cuda.emulator import CompileError, CompilerMissing
from gradlab.backends.cuda.emulator.sanitizer import sanitized_environment
from gradlab.cli.failure import FAILED, Failure
from gradlab.progress import waiting
from gradlab.testing.kernels import ARCHITECTURES, check, table_rows
from gradlab.testing.launches import compiled
from gradlab.testing.nvrtc import Nvrtc, NvrtcMissing, load
from gradlab.testing.stand_alone import Bench, File

SANITIZERS = ("address,undefined", "thread")


def run(options: argparse.Namespace) -> int:
    """Prints what each file's kernels take and do; 0 if all is well, else 1."""
    failed = 0
    options.result = {"ok": True, "files": []}
    for name in options.files:
        path = Path(name)
        try:
            file = File(path, options.name)
        except (FileNotFoundError, UnicodeDecodeError) as error:
            raise Failure(f"{name}: {error}", FAILED) from None
        if not file.kernels:
            raise Failure(f"{name}: there is no __global__ function in it", FAILED)
        about: dict[str, Any] = {"file": name, "compiled": [], "launches": [], "sanitizers": {}}
        options.result["files"].append(about)
        if not options.emulate:
            failed += _compile(file, options.arch, about)
        failed += _emulate(file, options.sanitize, about)
    options.result["ok"] = not failed
    print("FAILED" if failed else "all is well")
    return int(failed > 0)


def _compile(file: File, wanted: list[int] | None, about: dict[str, Any]) -> int:
    """The table of registers, shared memory and spills; how many architectures failed."""
    if not file.names:
        return 0
    try:
        nvrtc: Nvrtc = load()
    except NvrtcMissing as error:
        print(f"{file.path.name}: not compiled for a GPU: {error}")
        return 0
    known = nvrtc.architectures()
    architectures = [a for a in wanted or ARCHITECTURES if a in known]
    unknown = sorted(set(wanted or ()) - set(known))
    if unknown:
        raise Failure(f"NVRTC {nvrtc.version[0]}.{nvrtc.version[1]} does not know sm_{unknown[0]}; it knows {', '.join(map(str, known))}")
    program = Program(file.path.name, file.source.text, list(file.names), 0)
    outcomes = []
    with waiting(f"compiling {file.path.name} for GPUs", len(architectures)) as shown:
        for architecture in architectures:
            outcomes.append(check(program, architecture, nvrtc))
            shown.done()
    heading = " ".join(f"{a:4d}" for a in architectures)
    print(f"{file.path.name}: NVRTC {nvrtc.version[0]}.{nvrtc.version[1]}; registers on sm_…, bytes of shared memory, stack and spills")
    print(f"  {'':40} {heading} {'shared':>7} {'stack':>6} {'spills':>6}")
    if any(outcome.usage for outcome in outcomes):
        for label, registers, shared, stack, spills in table_rows(outcomes, True):
            about["compiled"].append({"kernel": label, "registers": registers, "shared": shared, "stack": stack, "spills": spills})
            print(f"  {label:40} {registers:{len(heading)}} {shared:>7} {stack:>6} {spills:>6}")
    bad = [outcome for outcome in outcomes if outcome.problem]
    said: set[str] = set()
    for outcome in bad:
        problem = outcome.problem or ""
        if problem not in said:
            said.add(problem)
            print(f"  sm_{outcome.architecture} FAILED: {problem}")
    return len(bad)


def _emulate(file: File, sanitize: bool, about: dict[str, Any]) -> int:
    """Every launch in every order of threads, then under sanitizers; how many failed."""
    print(f"{file.path.name}: on the emulated GPU")
    for name in file.left_out:
        print(f"  {name}: left out: a template; name an instance (--name '{name}<float>') or write // gradlab: run {name}<float><<<…>>>(…)")
    if not file.names:
        return 1
    try:
        bench = Bench(file, compiled(file.source))
    except CompilerMissing as error:
        print(f"  not run: {error}")
        return 0
    except CompileError as error:
        print(f"  does not compile: {error}")
        return 1
    failed = 0
    for found in bench.run():
        about["launches"].append(asdict(found))
        at = f"{file.path.name}:{found.line}: " if found.line is not None else ""
        print(f"  {at}{found.kernel}: {'FAILED' if found.problems else 'ok'}")
        for words in (*found.problems, *found.notes):
            print(f"      {words}")
        failed += bool(found.problems)
    return failed + (_sanitize(bench, about) if sanitize else 0)


def _sanitize(bench: Bench, about: dict[str, Any]) -> int:
    failed = 0
    for names in SANITIZERS:
        try:
            sanitized_environment(names)
        except RuntimeError as error:
            print(f"  sanitizer {names}: not run: {error}")
            continue
        findings = bench.under(names)
        about["sanitizers"][names] = [str(finding) for finding in findings]
        print(f"  sanitizer {names}: {'FAILED' if findings else f'ok ({len(bench.launches)} launches)'}")
        for finding in findings:
            print(f"      {finding}")
        failed += bool(findings)
    return failed
