"""What an executable does, step by step, for people: `Compiled.stats` and `Compiled.kernels` are made of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gradlab.graph.ir import Call


class Step(NamedTuple):
    """One step of a program.

    kind     "loop" (fused, generated), "kernel", "copy", "numpy", or of a GPU's program "host"
    calls    the calls that it computes
    kernels  the names of its kernels; a generated one has its text in the executable's `sources`
    why      why it runs in NumPy
    """

    kind: str
    calls: Sequence[Call]
    kernels: Sequence[str] = ()
    why: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {' '.join(c.op.name for c in self.calls)}" if self.calls else self.kind


def steps_of(executable: Any) -> list[Step]:
    """The steps of any executable: what it tells, or NumPy for all of its calls."""
    found = getattr(executable, "report", None)
    if found is not None:
        return list(found)
    return [Step("numpy", [c], (), "the program runs without a compiler") for c in executable.line.calls if not c.op.view]


def sources_of(executable: Any) -> dict[str, str]:
    """Generated kernel texts by name."""
    return dict(getattr(executable, "sources", {}))
