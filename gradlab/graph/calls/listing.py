"""What an executable does, step by step, for people: `Compiled.stats` and `Compiled.kernels` are made of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gradlab.graph.ir.graph import Call
from gradlab.graph.passes import bodies


class Step(NamedTuple):
    """One step of a program.

    kind     "loop" (fused, generated), "kernel", "copy", "numpy", "flow" (a loop or a choice, followed by the steps of its bodies),
             or of a GPU's program "host"; "depth-first": of a chain, whose tasks are steps too
    calls    the calls that it computes
    kernels  the names of its kernels; a generated one has its text in the executable's `sources`
    why      why it runs in NumPy; of a chain, how many images at a time
    """

    kind: str
    calls: Sequence[Call]
    kernels: Sequence[str] = ()
    why: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {' '.join(c.op.name for c in self.calls)}" if self.calls else self.kind


Each = Callable[[Step | None, Callable[[], Any]], None]  # runs one step, and may look at the clock


def steps_of(executable: Any) -> list[Step]:
    """The steps of any executable: what it tells, or NumPy for all of its calls."""
    report = getattr(executable, "report", None)
    found: list[Step] = []
    if report is None:
        report = [Step("numpy", [c], (), "the program runs without a compiler") for c in executable.line.calls if not c.op.view]
    for step in report:
        found.append(step._replace(kind="flow", why="") if bodies(step.calls) else step)
        found += [s for e in inner(step.calls) for s in steps_of(e)]
    return found


def inner(calls: Sequence[Call]) -> list[Any]:
    """The executables of the bodies of control-flow calls, as far as they have run."""
    return [e for body in bodies(calls) for e in body.executables]


def sources_of(executable: Any) -> dict[str, str]:
    """Generated kernel texts by name."""
    found = dict(getattr(executable, "sources", {}))
    for e in inner(executable.line.calls):
        found.update(sources_of(e))
    return found
