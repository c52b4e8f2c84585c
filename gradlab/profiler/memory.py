"""When memory was taken and given back: by the life of the arrays that operations make, asked of Python itself (weak references)."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from gradlab.viz.chart import Panel, Series, line_chart

POINTS = 1500  # of a picture; more than it has pixels


class Memory:
    """Bytes that are held, by the arrays that own them: what lies in another's memory is no memory of its own."""

    def __init__(self) -> None:
        self.before = 0  # bytes of what was there already when it was first met
        self._changes: list[tuple[float, int]] = []  # seconds, bytes more
        self._held: dict[int, weakref.ref[Any]] = {}
        self._begun = time.perf_counter()

    def met(self, arrays: Iterable[Any]) -> None:
        """Inputs: those that nobody has told of are from before."""
        for array in arrays:
            if hasattr(array, "nbytes"):
                self.before += self._hold(array)

    def made(self, arrays: Iterable[Any]) -> int:
        """Results; the bytes of those that are new."""
        more = sum(self._hold(array) for array in arrays if hasattr(array, "nbytes"))
        if more:
            self._changes.append((time.perf_counter(), more))
        return more

    def _hold(self, array: Any) -> int:
        """Note an array's owner; its bytes, if it is new."""
        while getattr(array, "base", None) is not None and hasattr(array.base, "nbytes"):
            array = array.base
        number, size = id(array), int(array.nbytes)
        if number in self._held or not size:
            return 0

        def released(_: Any) -> None:
            self._held.pop(number, None)
            self._changes.append((time.perf_counter(), -size))

        try:
            self._held[number] = weakref.ref(array, released)
        except TypeError:  # memory that somebody else keeps, as of a file
            return 0
        return size

    def timeline(self) -> list[tuple[float, int]]:
        """(microseconds, bytes held), at each change."""
        total = self.before
        found = [(0.0, total)]
        for when, more in sorted(self._changes):
            total += more
            found.append(((when - self._begun) * 1e6, total))
        return found

    def picture(self, timeline: Sequence[tuple[float, int]], made: Sequence[tuple[float, str, int]]) -> str:
        """The timeline as an SVG document, with its peak and what was computed then. made: (when, operation, bytes)."""
        when, peak = max(timeline, key=lambda point: point[1])
        name = min(made, key=lambda one: abs(one[0] - when))[1] if made else ""
        unit, size = next(((unit, size) for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)) if peak >= size), ("KiB", 1 << 10))
        points = thinned(timeline, POINTS)
        x = [point[0] / 1e3 for point in points]
        y = [point[1] / size for point in points]
        steps_x = [value for pair in zip([x[0], *x[1:]], x, strict=True) for value in pair]
        steps_y = [value for pair in zip([y[0], *y[:-1]], y, strict=True) for value in pair]
        subtitle = f"at most {peak / size:.4g} {unit}, at {when / 1e3:.4g} ms" + (f", in {name}" if name else "")
        return line_chart([Panel(f"{unit} held", "milliseconds", [Series("held", steps_x, steps_y)])], "Memory", subtitle)


def thinned(timeline: Sequence[tuple[float, int]], most: int) -> list[tuple[float, int]]:
    """At most so many points: of neighbours, the one that holds most."""
    many = -(-len(timeline) // most)
    return [max(timeline[i : i + many], key=lambda point: point[1]) for i in range(0, len(timeline), many)]
