"""Compiles kernels before they are needed, without a GPU: `python -m gradlab.testing.warm -j 8 --arch 90`.

What comes out is `sm_90.zip` in the user's cache directory (or `--out`), which a GPU of that architecture loads its kernels from
(`backends/cuda/prebuilt_kernels.py`). Without more it holds every kernel of `kernels/cuda/` and of every row; with `--script` those that a
script asks for, which runs on a GPU that computes nothing (`dry_gpu.py`):

    python -m gradlab.testing.warm -j 8 --script train.py --epochs 1

Programs that differ only in their kernels, not in their headers, are compiled together. What an archive holds already is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import sys
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from gradlab.backends.cuda.catalogue import file_programs, reduced, signatures
from gradlab.backends.cuda.compiler import elementwise_program, inlined, program
from gradlab.backends.cuda.prebuilt_kernels import CUPY_OPTIONS, INDEX, Archive, file_name, key_of, own_folder
from gradlab.backends.cuda.reduction import reduction_source
from gradlab.dtype import BOOL
from gradlab.kernel import Elementwise, Reduction, source_folders
from gradlab.op import Op
from gradlab.ops import ROWS
from gradlab.testing.dry_gpu import DryDriver, dry
from gradlab.testing.generated import generated_programs
from gradlab.testing.nvrtc import Nvrtc, NvrtcMissing, load

TOGETHER = 48  # kernels of one compilation
_BEGIN, _END = "\nnamespace gradlab {\n", "}  // namespace gradlab\n"  # as `compiler.program` writes them


class Request(NamedTuple):
    """A program as the driver is given it, and the kernels that are asked of it."""

    source: str
    names: tuple[str, ...]


class Job(NamedTuple):
    """One compilation: its text, and by key the names that are kept of it. alone: the same in pieces, for where they do not go together."""

    source: str
    names: dict[str, tuple[str, ...]]
    alone: tuple[Job, ...] = ()


# ---------------------------------------------------------------- what to compile


def every_request(architecture: int) -> Iterator[Request]:
    """Files, rows, and the kernels of a few compiled programs."""
    for found in (*file_programs(), *generated_programs()):
        if found.runs_on([architecture]):
            yield Request(found.source, tuple(found.names))
    yield from row_requests(ROWS.values())


def row_requests(rows: Iterable[Op]) -> Iterator[Request]:
    """The kernels of rows, one by one as they are asked for at run time."""
    for op in rows:
        if isinstance(op.cuda, Elementwise):
            for signature in signatures(op):
                yield Request(inlined(elementwise_program(op, signature)), (f"gradlab::{signature.kernel}",))
        elif isinstance(op.cuda, Reduction):
            for dtype in reduced(op):
                text, names = reduction_source(op, dtype, BOOL if op.name in ("all", "any") else dtype)
                yield Request(inlined(program("reduce.cuh", text)), tuple(f"gradlab::{name}" for name in names.values()))


def requests_of(driver: DryDriver, path: str, arguments: Sequence[str]) -> list[Request]:
    """What a script asks the driver to compile."""
    found: list[Request] = []
    compiled = driver.compile

    def noting(source: str, names: Sequence[str], label: str) -> dict[str, Any]:
        found.append(Request(source, tuple(names)))
        return compiled(source, names, label)

    driver.compile = noting  # type: ignore[method-assign]
    before, folder = sys.argv, str(Path(path).resolve().parent)
    sys.argv = [path, *arguments]
    sys.path.insert(0, folder)
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.argv = before
        sys.path.remove(folder)
    return found


def jobs_of(requests: Iterable[Request]) -> list[Job]:
    """Compilations for all requests: names of one text together, texts with one header together, large ones in parts."""
    wanted: dict[str, dict[str, None]] = {}
    for request in requests:
        wanted.setdefault(request.source, {}).update(dict.fromkeys(request.names))
    jobs: list[Job] = []
    alike: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {}  # header -> key, body, names
    for source, found in wanted.items():
        names, (header, begin, body) = tuple(found), source.rpartition(_BEGIN)
        if begin and body.endswith(_END) and len(names) <= TOGETHER:
            alike.setdefault(header, []).append((key_of(source), body.removesuffix(_END), names))
        else:
            parts = (names[start : start + TOGETHER] for start in range(0, len(names), TOGETHER))
            jobs += [Job(source, {key_of(source): part}) for part in parts]
    for header, members in alike.items():
        part: list[tuple[str, str, tuple[str, ...]]] = []
        for member in members:
            there = {name for _, _, names in part for name in names}
            if part and (len(there) + len(member[2]) > TOGETHER or not there.isdisjoint(member[2])):
                jobs.append(_joined(header, part))
                part = []
            part.append(member)
        jobs.append(_joined(header, part))
    return jobs


def _joined(header: str, members: Sequence[tuple[str, str, tuple[str, ...]]]) -> Job:
    alone = tuple(Job(f"{header}{_BEGIN}{body}{_END}", {key: names}) for key, body, names in members) if len(members) > 1 else ()
    bodies = "".join(body for _, body, _ in members)
    return Job(f"{header}{_BEGIN}{bodies}{_END}", {key: names for key, _, names in members}, alone)


# ---------------------------------------------------------------- compiling


def options_for(architecture: int, nvrtc: Nvrtc) -> list[str]:
    """As the GPU's driver would compile it."""
    options = [*CUPY_OPTIONS, f"-arch=sm_{architecture}", *(f"-I{folder}" for folder in source_folders("cuda"))]
    return [*options, f"-I{nvrtc.include}"] if nvrtc.include else options


class Built(NamedTuple):
    """The cubin of a compilation, the names in it, and what was wrong ("" for nothing)."""

    job: Job
    cubin: bytes
    lowered: dict[str, str]
    problem: str


def built(job: Job, architecture: int) -> list[Built]:
    """Compile a job; where that fails, its pieces."""
    nvrtc = load()
    names = [name for some in job.names.values() for name in some]
    compiled = nvrtc.compile(job.source, "warm.cu", options_for(architecture, nvrtc), names, cubin=True)
    if not compiled.ok and job.alone:
        return [one for piece in job.alone for one in built(piece, architecture)]
    return [Built(job._replace(alone=()), compiled.cubin, compiled.lowered, "" if compiled.ok else compiled.log)]


def _each(jobs: Sequence[Job], architecture: int, processes: int) -> Iterator[Built]:
    if processes == 1:
        for job in jobs:
            yield from built(job, architecture)
        return
    with ProcessPoolExecutor(processes) as pool:
        for found in pool.map(built, jobs, [architecture] * len(jobs)):
            yield from found


def warm(requests: Iterable[Request], architecture: int, out: Path, processes: int = 1) -> tuple[int, int, list[str]]:
    """Bring an archive up to what is asked for. How many kernels were compiled, how many it holds, and what did not compile."""
    kept, members = _held(out)
    missing = []
    for request in requests:
        known = kept.get(key_of(request.source), {})
        names = tuple(name for name in request.names if name not in known)
        if names:
            missing.append(Request(request.source, names))
    jobs = sorted(jobs_of(missing), key=lambda job: -len(job.source) - 4000 * sum(map(len, job.names.values())))
    problems, compiled = [], 0
    for job, cubin, lowered, problem in _each(jobs, architecture, processes):
        if problem:
            problems.append(f"{next(iter(job.names.values()))[0]}: {problem.strip()}")
            continue
        member = f"{key_of(job.source)}-{len(members)}.cubin"
        members[member] = cubin
        for key, names in job.names.items():
            kept.setdefault(key, {}).update({name: [member, lowered[name]] for name in names})
            compiled += len(names)
    if compiled:
        scratch = out.with_suffix(f".{os.getpid()}")
        with zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED) as made:
            made.writestr(INDEX, json.dumps(kept))
            for name, content in members.items():
                made.writestr(name, content)
        scratch.replace(out)
    return compiled, sum(map(len, kept.values())), problems


def _held(out: Path) -> tuple[dict[str, dict[str, list[str]]], dict[str, bytes]]:
    if not out.is_file():
        return {}, {}
    archive = Archive(out)
    return archive.index, {name: archive.read(name) for name in dict.fromkeys(m for ns in archive.index.values() for m, _ in ns.values())}


def main(arguments: Sequence[str] | None = None) -> int:
    """Make or extend an archive; 1 where something did not compile, or NVRTC is missing."""
    parser = argparse.ArgumentParser(prog="python -m gradlab.testing.warm", description="Compile kernels before they are needed.")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1, help="how many processes compile")
    parser.add_argument("--arch", type=int, default=90, help="the GPU's architecture: 90 is sm_90")
    parser.add_argument("--out", type=Path, help="a file, or a folder for sm_NN.zip; by default in the user's cache directory")
    parser.add_argument("--only", default="", help="regular expression: only programs with a kernel whose name has a match")
    parser.add_argument("--script", nargs=argparse.REMAINDER, help="only what this script, with its arguments, asks for")
    options = parser.parse_args(arguments)
    try:
        load()
    except NvrtcMissing as error:
        print(error)
        return 1
    folder = options.out or own_folder()
    if folder is None:
        parser.error("there is no cache directory to write to; give --out")
    out = folder / file_name(options.arch) if folder.suffix != ".zip" else folder
    out.parent.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    if options.script:
        with dry() as driver:
            requests = requests_of(driver, options.script[0], options.script[1:])
    else:
        requests = list(every_request(options.arch))
    chosen = [r for r in requests if any(re.search(options.only, name) for name in r.names)]
    compiled, held, problems = warm(chosen, options.arch, out, options.jobs)
    for problem in problems:
        print(f"FAILED {problem}")
    size = out.stat().st_size / 2**20 if out.is_file() else 0.0
    print(f"{compiled} kernels compiled, {held} in {out} ({size:.1f} MiB), {len(problems)} failed, {time.perf_counter() - begun:.1f} s")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
