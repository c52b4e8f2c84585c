"""Sums over the events of a profile, and their table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gradlab.viz.html_table import html_table

_KEYS = {
    "cpu_time_total": "cpu_time_total", "self_cpu_time_total": "cpu_time_total", "cuda_time_total": "device_time_total",
    "device_time_total": "device_time_total", "count": "count", "cpu_time": "cpu_time",
    "cpu_time_avg": "cpu_time", "self_cuda_time_total": "device_time_total", "self_device_time_total": "device_time_total",
    "cuda_time": "device_time", "device_time": "device_time", "bytes": "bytes", "flops": "flops",
    "cpu_memory_usage": "memory", "self_cpu_memory_usage": "memory", "cuda_memory_usage": "memory", "self_cuda_memory_usage": "memory",
    "device_memory_usage": "memory", "self_device_memory_usage": "memory",
}  # fmt: skip
OUTSIDE = "(outside of modules)"


@dataclass
class EventAverage:
    """All calls of one operation, or all that ran in one module. Times in microseconds.

    bytes: read and written. flops: floating-point operations. memory: bytes allocated, where that was recorded. own: whether its time is
    not that of others in the list.
    """

    key: str
    count: int = 0
    cpu_time_total: float = 0.0
    device_time_total: float = 0.0
    shapes: str = ""
    bytes: int = 0
    flops: int = 0
    memory: int = 0
    backward_time_total: float = 0.0  # of cpu_time_total, what ran in a backward
    source: str = ""
    own: bool = True

    def add(self, event: Any) -> None:
        """One event more."""
        self.count += 1
        self.cpu_time_total += event.end - event.start
        self.device_time_total += event.device
        self.bytes += event.bytes
        self.flops += event.flops
        self.memory += event.memory
        self.backward_time_total += event.end - event.start if event.kind == "backward" else 0.0

    @property
    def self_cpu_time_total(self) -> float:
        """As `cpu_time_total`: an operation holds no others."""
        return self.cpu_time_total

    @property
    def cuda_time_total(self) -> float:
        """As `device_time_total`."""
        return self.device_time_total

    @property
    def self_device_time_total(self) -> float:
        """As `device_time_total`."""
        return self.device_time_total

    @property
    def cpu_time(self) -> float:
        """Of one call."""
        return self.cpu_time_total / max(self.count, 1)

    @property
    def device_time(self) -> float:
        """Of one call."""
        return self.device_time_total / max(self.count, 1)

    @property
    def cpu_memory_usage(self) -> int:
        """As `memory`."""
        return self.memory


SHOWN = 30  # rows in a notebook


class Averages(list[EventAverage]):
    """Operations (or modules) with their sums; printing it shows the table."""

    def __init__(self, entries: Iterable[EventAverage] = (), total: EventAverage | None = None) -> None:
        super().__init__(entries)
        self._total = total

    def total(self) -> EventAverage:
        """The sums over all events that are not in others."""
        if self._total is not None:
            return self._total
        found = EventAverage("total")
        for e in self:
            if e.own:
                for name in ("count", "cpu_time_total", "device_time_total", "bytes", "flops", "memory", "backward_time_total"):
                    setattr(found, name, getattr(found, name) + getattr(e, name))
        return found

    total_average = total

    @property
    def self_cpu_time_total(self) -> float:
        """Host time of all operations, in microseconds."""
        return self.total().cpu_time_total

    def table(
        self, sort_by: str | None = "cpu_time_total", row_limit: int = 100, max_name_column_width: int = 60, header: str | None = None,
        **options: Any,
    ) -> str:  # fmt: skip
        """The table as text, the most first. ValueError for a key to sort by that there is not.

        header: a line above it. Other options of PyTorch's table (max_src_column_width, max_shapes_column_width, top_level_events_only)
        are taken, and change nothing.
        """
        if unknown := set(options) - {"max_src_column_width", "max_shapes_column_width", "top_level_events_only", "time_unit"}:
            raise TypeError(f"table: unexpected arguments {', '.join(sorted(unknown))}")
        if sort_by is not None and sort_by not in _KEYS:
            raise ValueError(f"table: sort_by is one of {', '.join(_KEYS)}, or None, not {sort_by!r}")
        rows = sorted(self, key=lambda e: -getattr(e, _KEYS[sort_by])) if sort_by is not None else list(self)
        rows = rows[:row_limit] if row_limit >= 0 else rows
        total = self.total()
        columns = columns_of(total.cpu_time_total or 1.0, self)
        lines = [["name", *(title for title, _ in columns)]]
        lines += [[_short(e.key, max_name_column_width), *(text(e) for _, text in columns)] for e in rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        left = {i for i, (title, _) in enumerate(columns, 1) if title in ("shapes", "source")}
        found = [] if header is None else [header]
        for line in lines:
            cells = [cell.ljust(w) if i == 0 or i in left else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))]
            found.append("  ".join(cells).rstrip())
        device = f"; device time total: {time_text(total.device_time_total)}" if total.device_time_total else ""
        found.append(f"Self CPU time total: {time_text(total.cpu_time_total)}{device}")
        return "\n".join(found)

    __str__ = table

    def _repr_html_(self) -> str:
        total = self.total()
        columns = columns_of(total.cpu_time_total or 1.0, self)
        rows = sorted(self, key=lambda e: -e.cpu_time_total)[:SHOWN]
        note = f"Self CPU time total: {time_text(total.cpu_time_total)}"
        note += f"; the first {SHOWN} of {len(self)}" if len(self) > SHOWN else ""
        return html_table("", ["name", *(title for title, _ in columns)], [[e.key, *(text(e) for _, text in columns)] for e in rows], note)


def columns_of(total: float, entries: Sequence[EventAverage]) -> list[tuple[str, Callable[[EventAverage], str]]]:
    """Titles and texts of the columns behind the name: those in which something stands."""
    found: list[tuple[str, Callable[[EventAverage], str]]] = [
        ("calls", lambda e: str(e.count)), ("CPU %", lambda e: f"{100 * e.cpu_time_total / total:.1f}%" if e.own else ""),
        ("CPU total", lambda e: time_text(e.cpu_time_total)), ("CPU each", lambda e: time_text(e.cpu_time)),
    ]  # fmt: skip
    optional: list[tuple[str, str, Callable[[EventAverage], str]]] = [
        ("backward_time_total", "backward", lambda e: time_text(e.backward_time_total)),
        ("device_time_total", "device total", lambda e: time_text(e.device_time_total)),
        ("bytes", "bytes", lambda e: unit_text(e.bytes, "B", 1024)),
        ("flops", "FLOPs", lambda e: unit_text(e.flops, "", 1000)),
        ("memory", "allocated", lambda e: unit_text(e.memory, "B", 1024)),
        ("shapes", "shapes", lambda e: e.shapes),
        ("source", "source", lambda e: e.source),
    ]  # fmt: skip
    return found + [(title, text) for name, title, text in optional if any(getattr(e, name) for e in entries)]


def _short(name: str, width: int) -> str:
    return name if width < 4 or len(name) <= width else f"{name[: width - 1]}…"


def time_text(microseconds: float) -> str:
    """With its unit."""
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.3f}s"
    return f"{microseconds / 1e3:.3f}ms" if microseconds >= 1e3 else f"{microseconds:.3f}us"


def unit_text(number: float, unit: str, step: int) -> str:
    """In thousands, millions, … of a unit; nothing of nothing."""
    if not number:
        return "-"
    power = 0
    while number >= step and power < 5:
        number, power = number / step, power + 1
    prefix = ["", "K" if step == 1024 else "k", "M", "G", "T", "P"][power]
    return f"{number:.4g} {prefix}{'i' if prefix and step == 1024 else ''}{unit}".rstrip()


def averages(events: Iterable[Any], by_shape: bool = False, by_source: bool = False) -> Averages:
    """Sums by name; or by name and shapes, or by name and the user's line."""
    found: dict[Any, EventAverage] = {}
    for e in events:
        shapes, source = str(e.shapes) if by_shape else "", e.source if by_source else ""
        key = (e.name, shapes, source)
        if key not in found:
            found[key] = EventAverage(e.name, shapes=shapes, source=source, own=e.timed)
        found[key].add(e)
    return Averages(found.values())


def by_module(events: Iterable[Any]) -> Averages:
    """Sums by module path, each module with all that runs in it; in the order in which they were first met, outer ones first."""
    found: dict[str, EventAverage] = {}
    outside, total = EventAverage(OUTSIDE), EventAverage("total")
    for e in events:
        if not e.timed:
            continue
        total.add(e)
        path = e.module
        if not path:
            outside.add(e)
        parts = path.split(".") if path else []
        for i in range(len(parts)):
            name = ".".join(parts[: i + 1])
            found.setdefault(name, EventAverage(name)).add(e)
    return Averages([*found.values(), *([outside] if outside.count else [])], total)
