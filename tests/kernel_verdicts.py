"""Which kernels have been compiled, and what they take: `python -m tests.kernel_verdicts` writes kernel_verdicts.txt.

A text that one version of NVRTC has compiled for an architecture comes out of it the same way anywhere. So on a machine whose cache is
empty `test_kernel_table.py` compiles what has no line here, and of the rest a sixtieth, chosen anew by each commit's hash; `.ci/full`
compiles everything. A file that is behind costs time, nothing else. It is also a table to read: a change of a kernel shows what it does
to registers, shared memory and spills.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from gradlab.backends.cuda.catalogue import Program
from gradlab.testing import kernels
from gradlab.testing.nvrtc import Nvrtc, load

FILE = Path(__file__).with_name("kernel_verdicts.txt")
PARTS = 60  # a compilation takes four to ten seconds
HEAD = """\
# Kernels that compile without a warning, by `python -m tests.kernel_verdicts`: NVRTC {version}, {count} programs.
# program, architecture | most registers, shared memory, stack, spilled bytes of any of its kernels | content, compiler and options
"""


def line(outcome: kernels.Outcome, nvrtc: Nvrtc) -> str:
    """One program on one architecture."""
    most = (max(getattr(one, field) for one in outcome.usage.values()) for field in kernels.Usage._fields)
    numbers = " ".join(f"{number:>6}" for number in most)
    key = kernels.key_of(outcome.program, outcome.architecture, nvrtc)
    return f"{outcome.program.label:<56} sm_{outcome.architecture:<3} | {numbers} | {key}"


@functools.cache
def known() -> frozenset[str]:
    """The keys of what has been compiled."""
    return frozenset(re.findall(r"^[^#|].*\| *\d+ +\d+ +\d+ +\d+ \| ([0-9a-f]{32})$", FILE.read_text(encoding="utf-8"), re.MULTILINE))


def commit() -> str:
    """The hash of the commit that is checked out; "" where there is none."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=FILE.parent, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def due(key: str, of_commit: str) -> bool:
    """Whether what is known is compiled again for this commit."""
    return zlib.crc32(f"{of_commit} {key}".encode()) % PARTS == 0


def problem(program: Program, architecture: int, nvrtc: Nvrtc, of_commit: str) -> str | None:
    """Why a program fails on an architecture; what is known and not due is not compiled."""
    key = kernels.key_of(program, architecture, nvrtc)
    if key in known() and not due(key, of_commit):
        return None
    return kernels.checked(program, architecture, nvrtc).problem


def text(outcomes: Iterable[Sequence[kernels.Outcome]], nvrtc: Nvrtc) -> str:
    """The whole file. RuntimeError names what fails."""
    lines, programs = [], 0
    for found in outcomes:
        programs += 1
        for outcome in found:
            if outcome.problem:
                raise RuntimeError(f"{outcome.program.label} on sm_{outcome.architecture}: {outcome.problem}")
            lines.append(line(outcome, nvrtc))
    return HEAD.format(version=".".join(map(str, nvrtc.version)), count=programs) + "\n".join(lines) + "\n"


if __name__ == "__main__":
    compiler = load()
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    every = kernels.check_all(kernels.every_program(), kernels.ARCHITECTURES, compiler, jobs, fresh=False)
    FILE.write_text(text(every, compiler), encoding="utf-8")
