"""Sums over the events of a profile, and their table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_KEYS = {
    "cpu_time_total": "cpu_time_total", "self_cpu_time_total": "cpu_time_total", "cuda_time_total": "device_time_total",
    "device_time_total": "device_time_total", "count": "count", "cpu_time": "cpu_time",
    "cpu_time_avg": "cpu_time", "self_cuda_time_total": "device_time_total", "self_device_time_total": "device_time_total",
}  # fmt: skip


@dataclass
class EventAverage:
    """All calls of one operation. Times in microseconds."""

    key: str
    count: int = 0
    cpu_time_total: float = 0.0
    device_time_total: float = 0.0
    shapes: str = ""

    @property
    def self_cpu_time_total(self) -> float:
        """As `cpu_time_total`: an operation holds no others."""
        return self.cpu_time_total

    @property
    def cuda_time_total(self) -> float:
        """As `device_time_total`."""
        return self.device_time_total

    @property
    def cpu_time(self) -> float:
        """Of one call."""
        return self.cpu_time_total / max(self.count, 1)


class Averages(list[EventAverage]):
    """Operations with their sums; printing it shows the table."""

    def table(self, sort_by: str | None = "cpu_time_total", row_limit: int = 100) -> str:
        """The table as text, the most first. ValueError for a key to sort by that there is not."""
        if sort_by is not None and sort_by not in _KEYS:
            raise ValueError(f"table: sort_by is one of {', '.join(_KEYS)}, or None, not {sort_by!r}")
        rows = sorted(self, key=lambda e: -getattr(e, _KEYS[sort_by])) if sort_by is not None else list(self)
        total = sum(e.cpu_time_total for e in self if not e.key.startswith(("module ", "range "))) or 1.0
        width = max([len(e.key) for e in rows[:row_limit]] + [4])
        lines = [f"{'name':{width}} {'calls':>7} {'CPU %':>7} {'CPU total':>12} {'CPU each':>12} {'device total':>13}  shapes".rstrip()]
        for e in rows[:row_limit]:
            share = f"{100 * e.cpu_time_total / total:6.1f}%"
            numbers = f"{_time(e.cpu_time_total):>12} {_time(e.cpu_time):>12} {_time(e.device_time_total):>13}"
            lines.append(f"{e.key:{width}} {e.count:7d} {share} {numbers}  {e.shapes}".rstrip())
        return "\n".join(lines)

    __str__ = table


def _time(microseconds: float) -> str:
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.3f}s"
    return f"{microseconds / 1e3:.3f}ms" if microseconds >= 1e3 else f"{microseconds:.3f}us"


def averages(events: Iterable[Any], by_shape: bool) -> Averages:
    """Sums by name, or by name and shapes."""
    found: dict[Any, EventAverage] = {}
    for e in events:
        one = found.setdefault((e.name, e.shapes if by_shape else ""), EventAverage(e.name, shapes=str(e.shapes) if by_shape else ""))
        one.count += 1
        one.cpu_time_total += e.end - e.start
        one.device_time_total += e.device
    return Averages(found.values())
