"""Builds the machine code of binary wheels: all kernels and vector functions, for any system, by the package ziglang.

    python -m gradlab.testing.prebuilt x86_64-linux --jobs 2

fills build/prebuilt/x86_64-linux; a wheel with it is then made by `GRADLAB_WHEEL=x86_64-linux python -m build --wheel` (hatch_build.py).
To try it without a wheel: GRADLAB_PREBUILT=build/prebuilt/x86_64-linux GRADLAB_COMPILER=none.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from gradlab.backends.native import compiler, prebuilt
from gradlab.graph.executables.native.prebuilt_texts import all_functions, all_texts

BATCH = 50  # texts that are compiled together
RUNTIME = ("thread_pool.cpp", "guards.cpp", "processor.cpp")
SUPPORT = "support.cpp"  # in every library: what else would bring in a C++ library
FLAGS = (
    "-std=c++17", "-w", "-fwrapv", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing", "-fno-sanitize=all", "-fno-exceptions",
    "-fno-rtti", "-fno-unwind-tables", "-fno-asynchronous-unwind-tables", "-fno-stack-protector", "-g0",
)  # fmt: skip
PAIRS = "-mavx512bf16"  # for files whose kernels are called where the processor has it
PREAMBLE = '#include "half.h"\n#include "special_math.h"\n#include "runtime.h"\nnamespace gradlab {\n%s\n}  // namespace gradlab\n'


class Target(NamedTuple):
    """A system. triple: as zig names it; levels: flags for each of prebuilt.LEVELS."""

    triple: str
    machine: str
    system: str
    levels: dict[str, tuple[str, ...]]


X86 = {
    "sse42": ("-march=x86_64_v2",),
    "avx2": ("-march=x86_64_v3",),
    "avx512": ("-march=x86_64_v4", "-mprefer-vector-width=512"),
}
TARGETS = {
    "x86_64-linux": Target("x86_64-linux-gnu.2.28", "x86_64", "Linux", X86),
    "aarch64-linux": Target("aarch64-linux-gnu.2.28", "aarch64", "Linux", {"neon": ()}),
    "aarch64-macos": Target("aarch64-macos.11.0", "aarch64", "Darwin", {"neon": ("-mcpu=apple_m1",)}),
    "x86_64-windows": Target("x86_64-windows-gnu", "x86_64", "Windows", X86),
}


class Unit(NamedTuple):
    """One object file: a source of kernels/cpu, or a text."""

    library: str
    source: Path
    flags: tuple[str, ...]


def zig(arguments: Iterable[str | Path]) -> None:
    """Run the compiler. RuntimeError with what it says."""
    command = [sys.executable, "-m", "ziglang", "c++", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"zig refuses {command[-3:]}:\n{done.stderr[-6000:]}")


def _compiled(arguments: Sequence[str | Path], made: Path) -> None:
    """An object file, unless it is there."""
    if not made.exists():
        half = made.with_suffix(f".{os.getpid()}.o")
        zig([*arguments, "-o", half])
        half.replace(made)


def texts(folder: Path) -> list[Path]:
    """Files of everything that a machine with a compiler would generate."""
    batches: list[str] = []
    functions = [f.text for f in all_functions()]
    for i in range(0, len(functions), BATCH):
        own = ["#undef GRADLAB_KERNEL", '#define GRADLAB_KERNEL extern "C" void', *functions[i : i + BATCH]]
        batches.append(PREAMBLE % "\n".join(own))
    kernels = sorted(all_texts().values())
    batches += ["\n".join(kernels[i : i + BATCH]) for i in range(0, len(kernels), BATCH)]
    found = []
    for i, text in enumerate(batches):
        found.append(folder / f"texts{i}.cpp")
        found[-1].write_text(text)
    return found


def units(target: Target, folder: Path, only: Sequence[str] = ()) -> Iterator[Unit]:
    """All object files of a target."""
    base = prebuilt.LEVELS[target.machine][-1].name  # the lowest level runs everywhere
    for file in (*RUNTIME, SUPPORT):
        yield Unit(prebuilt.RUNTIME, compiler.KERNELS / file, (*target.levels[base], "-O2"))
    generated = texts(folder)
    for level, own in target.levels.items():
        if only and level not in only:
            continue
        for library in (f"kernels-{level}", f"loops-{level}"):
            yield Unit(library, compiler.KERNELS / SUPPORT, (*own, "-O2"))
        for path in sorted(compiler.KERNELS.glob("*.cpp")):
            if path.name not in (*RUNTIME, SUPPORT):
                pairs = (PAIRS,) if level == "avx512" and path.stem.endswith("_bfloat16") else ()
                yield Unit(f"kernels-{level}", path, (*own, *pairs, *compiler.TUNING.get(path.name, compiler.LOOPS), compiler.FUSED))
        for path in generated:
            yield Unit(f"loops-{level}", path, (*own, *compiler.LOOPS, compiler.EXACT))


def build(name: str, out: Path, jobs: int = 2, only: Sequence[str] = ()) -> list[Path]:
    """The libraries of a target in a folder. only: levels."""
    target = TARGETS[name]
    kept = out.parent / "objects"  # by their content
    for folder in (out, kept):
        folder.mkdir(parents=True, exist_ok=True)
    folders = [f"-I{folder}" for folder in (compiler.MINIMAL_STD, compiler.KERNELS, compiler.SHARED)]
    common = ["-target", target.triple, *([] if target.system == "Windows" else ["-fPIC"]), *FLAGS, *folders]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(jobs) as pool:
        objects: dict[str, list[Path]] = {}
        waiting: dict[Path, Future[None]] = {}
        for unit in units(target, Path(scratch), only):
            made = kept / f"{compiler.content(unit.source.read_text(), *common[:2], *FLAGS, *unit.flags)}.o"
            objects.setdefault(unit.library, []).append(made)
            if made not in waiting:
                waiting[made] = pool.submit(_compiled, [*common, *unit.flags, "-c", unit.source], made)
        for job in waiting.values():
            job.result()
        found = []
        for library, parts in objects.items():
            found.append(out / f"{library}{prebuilt.SUFFIXES[target.system]}")
            whole = ["-Wl,-z,defs"] if target.system == "Linux" else []
            rest = [] if target.system == "Windows" else ["-lm"]
            zig(["-target", target.triple, "-shared", "-s", "-nostdlib++", *whole, *parts, *rest, "-o", found[-1]])
    for path in out.iterdir():  # import libraries of Windows, debugging information
        if path.suffix != prebuilt.SUFFIXES[target.system]:
            path.unlink()
    (out / prebuilt.SUMS).write_text("".join(f"{prebuilt.sum_of(library)}\n" for library in sorted(out.iterdir())), encoding="utf-8")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--out", type=Path, help="a folder; build/prebuilt/<target> otherwise")
    parser.add_argument("--jobs", type=int, default=2, help="compilers side by side")
    parser.add_argument("--levels", nargs="*", default=(), help="only these levels")
    given = parser.parse_args()
    for library in build(given.target, given.out or Path("build/prebuilt") / given.target, given.jobs, given.levels):
        print(f"{library}: {library.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()
