"""`Compiled.stats()` and `Compiled.kernels()`: what a program consists of, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gradlab.graph.calls.listing import inner, sources_of, steps_of
from gradlab.graph.passes import bodies, operations
from gradlab.graph.staging.stage import Staged
from gradlab.viz.html_table import of_text

LONGEST = 96  # letters of a list of rows in a line of text


@dataclass(frozen=True)
class Stats:
    """A program in numbers. `print` shows them.

    traced          operations as they were traced, those in the bodies of loops and branches once
    operations      after the passes, of which `views` only look at memory
    passes          of each pass that changed their number: before and after
    tasks           kernel launches of one run
    loops           fused loops, by the rows in them
    numpy           rows that run in NumPy (of a GPU's program: on the host): how often, and why
    arena, unshared bytes for intermediate values, and what they would take if none shared its memory
    least           bytes of such values that are alive at one moment, below which no arena could be
    lent            bytes of such values that lie in results which are made later
    chains          what runs depth first over images: how many at a time, and the rows
    last            images that lie in memory with their channels last
    trace_seconds, passes_seconds, compile_seconds
    epilogues       of a GPU's program: what products and convolutions do besides, and what they do not, and why; how often
    uncaptured      of a GPU's program: why it is not captured into a CUDA graph, so that its launches are made one by one
    programs        of the function, one for each set of guards that was met
    guards          conditions of the newest
    """

    traced: int
    operations: int
    views: int
    passes: dict[str, tuple[int, int]]
    tasks: int
    loops: list[str]
    numpy: dict[str, tuple[int, str]]
    arena: int
    unshared: int
    trace_seconds: float
    passes_seconds: float
    compile_seconds: float
    programs: int
    guards: int
    kinds: dict[str, int] = field(default_factory=dict)  # of each kind of step, how many
    epilogues: dict[str, int] = field(default_factory=dict)
    least: int = 0
    lent: int = 0
    last: int = 0
    chains: list[str] = field(default_factory=list)
    uncaptured: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"operations  {self.traced} traced, {self.operations} after the passes ({self.views} views)"]
        lines += [f"  {name}: {before} → {after}" for name, (before, after) in self.passes.items()]
        lines += [f"  channels_last: {self.last} images"] * (self.last > 0)
        kinds = ", ".join(f"{n} {kind}" for kind, n in self.kinds.items())
        lines.append(f"tasks       {self.tasks} ({kinds})" if kinds else f"tasks       {self.tasks}")
        lines += [f"  not captured, launched one by one: {why}" for why in self.uncaptured]
        lines += [f"  loop: {text if len(text) <= LONGEST else text[: LONGEST - 1] + '…'}" for text in self.loops]
        if self.chains:
            lines.append(f"depth first {len(self.chains)}")
            lines += [f"  {text if len(text) <= LONGEST else text[: LONGEST - 1] + '…'}" for text in self.chains]
        if self.epilogues:
            lines.append("epilogues")
            lines += [f"  {text}{f' ×{n}' if n > 1 else ''}" for text, n in self.epilogues.items()]
        lines.append(f"NumPy       {sum(n for n, _ in self.numpy.values())}")
        lines += [f"  {name}{f' ×{n}' if n > 1 else ''}: {why}" for name, (n, why) in self.numpy.items()]
        lines.append(f"memory      {_bytes(self.arena)} for intermediate values, {_bytes(self.unshared)} without sharing")
        if self.lent:
            lines.append(f"  {_bytes(self.lent)} of them lie in results that are made later")
        seconds = f"{self.trace_seconds:.3f} to trace, {self.passes_seconds:.3f} passes, {self.compile_seconds:.3f} to compile"
        lines.append(f"seconds     {seconds}")
        lines.append(f"programs    {self.programs}; {self.guards} guards of the newest")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return of_text(str(self), "A compiled program")


def stats(staged: Staged, executables: Sequence[Any], seconds: float, programs: int) -> Stats:
    """Of a staged function and what was made of it: one executable, or forward and backward."""
    steps = [s for executable in executables for s in steps_of(executable)]
    calls = operations(staged.graph.calls)
    graphs = [staged.graph, *(body.graph for body in bodies(calls))]
    numpy: dict[str, tuple[int, str]] = {}
    for step in steps:
        if step.kind in ("numpy", "host"):
            for call in step.calls:
                numpy[call.op.name] = (numpy.get(call.op.name, (0, ""))[0] + 1, step.why)
    whole = [e for executable in executables for e in _with_bodies(executable)]
    plans = [executable.plan for executable in whole if hasattr(executable, "plan")]
    return Stats(
        traced=staged.traced,
        operations=len(calls),
        views=sum(c.op.view for c in calls),
        passes=_passes(staged),
        tasks=sum(getattr(e, "tasks", getattr(e, "launches", 0)) for e in whole),
        loops=[" ".join(c.op.name for c in s.calls) for s in steps if s.kind == "loop" and len(s.calls) > 1],
        numpy=numpy,
        arena=sum(plan.size for plan in plans),
        unshared=sum(plan.unshared for plan in plans),
        least=sum(plan.least for plan in plans),
        lent=sum(plan.lent for plan in plans),
        last=sum(len(graph.last) for graph in graphs),
        chains=[f"{s.why}: {' '.join(c.op.name for c in s.calls)}" for e in whole for s in getattr(e, "chains", {}).values()],
        trace_seconds=staged.seconds,
        passes_seconds=sum(r.seconds for r in staged.passes),
        compile_seconds=seconds,
        programs=programs,
        guards=len(staged.guards.conditions),
        kinds=dict(Counter(s.kind for s in steps)),
        uncaptured=[e.why for e in executables if getattr(e, "why", "")],
        epilogues=dict(Counter(text for executable in executables for text in getattr(executable, "epilogues", ()))),
    )


def _with_bodies(executable: Any) -> list[Any]:
    """An executable and those of the bodies in it."""
    return [executable, *(e for body in inner(executable.line.calls) for e in _with_bodies(body))]


def _passes(staged: Staged) -> dict[str, tuple[int, int]]:
    """Of each pass that changed their number: the operations before and after, in the graph and all bodies."""
    found: dict[str, tuple[int, int]] = {}
    for r in staged.passes:
        before, after = found.get(r.name, (0, 0))
        found[r.name] = (before + r.before, after + r.after)
    changed = {r.name for r in staged.passes if r.before != r.after}
    return {name: pair for name, pair in found.items() if name in changed}


def kernels(executables: Sequence[Any]) -> dict[str, str]:
    """Kernel texts by name, each under comments with the calls that use it. Of kernels written by hand there are the comments alone."""
    heads: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    for executable in executables:
        texts.update(sources_of(executable))
        for step in steps_of(executable):
            said = [f"// {call!r}{f'  # {source}' if (source := call.source()) else ''}" for call in step.calls] or [f"// {step.kind}"]
            for name in step.kernels:
                heads.setdefault(name, []).extend(said)
    return {name: "\n".join([*head, texts.get(name, "// a kernel of the library, written by hand")]) for name, head in heads.items()}


def _bytes(n: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n} bytes"
