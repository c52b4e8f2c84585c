"""What a profile keeps: an event for each row that ran, each step of a compiled program, each module and range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gradlab import call_site
from gradlab.profiler.counting import flops


@dataclass(slots=True)
class Event:
    """Something that took time. Times in microseconds since the profile began.

    kind     "forward", "backward" (rows), "compiled" (a step of a program), "module" or "range"
    bytes    read and written, by the sizes of the operands; a view moves none
    memory   bytes that it allocated and that nothing held before (`profile_memory=True`)
    work     of each row that it computes: the row, its inputs' shapes, its outputs'
    """

    name: str
    kind: str
    start: float
    end: float
    thread: int
    shapes: tuple[Any, ...] = ()
    work: tuple[tuple[Any, Any, Any], ...] = ()
    bytes: int = 0
    memory: int = 0
    scope: Any = None  # the module call it belongs to
    place: Any = None  # code and instruction in the user's program (`with_stack=True`)
    device: float = 0.0
    device_start: float = 0.0  # since the device's first event in the profile
    stream: int | None = None  # the driver's handle of the stream that it ran in
    moments: Any = None  # driver, the device's first event, and the first and last of this one

    @property
    def key(self) -> str:
        """As `name`."""
        return self.name

    @property
    def cpu_time_total(self) -> float:
        """Host time in microseconds."""
        return self.end - self.start

    @property
    def self_cpu_time_total(self) -> float:
        """As `cpu_time_total`; nothing of a module or a range, whose time is that of what runs in it."""
        return self.cpu_time_total if self.timed else 0.0

    @property
    def device_time_total(self) -> float:
        """As `device`."""
        return self.device

    @property
    def input_shapes(self) -> tuple[Any, ...]:
        """As `shapes`."""
        return self.shapes

    @property
    def flops(self) -> int:
        """Floating-point operations; see gradlab/profiler/counting.py for what counts as one."""
        return sum(flops(*row) for row in self.work)

    @property
    def module(self) -> str:
        """The path of the module in whose forward (or in the backward of it) this ran, "" outside of all."""
        return path(self.scope)

    @property
    def timed(self) -> bool:
        """Whether its time is its own, and not that of other events in it."""
        return self.kind not in ("module", "range")

    @property
    def source(self) -> str:
        """The user's line, where it is known: "file:line"."""
        code, lasti = self.place or (None, 0)
        found = call_site.locate(code, lasti, self.scope)
        if found is None:
            return ""
        return f"{found.cell}, line {found.line}" if found.cell else f"{found.file}:{found.line}"


def path(scope: Any) -> str:
    """As `named_modules` writes it, but for the outermost module, which is called by its class: "GPT.blocks.0.attention"."""
    parts: list[str] = []
    while scope is not None:
        parts.append(scope.name if scope.name and scope.outer is not None else scope.module)
        scope = scope.outer
    return ".".join(reversed(parts))
