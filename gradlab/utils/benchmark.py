"""How long a statement takes, measured with care. Names and meanings follow `torch.utils.benchmark`.

>>> import gradlab as gl
>>> from gradlab.utils.benchmark import Timer
>>> x = gl.ones(8, 8)
>>> found = Timer("x @ x", globals={"x": x}).timeit(3)
>>> found.number_per_run, len(found.times), found.median > 0
(3, 1, True)
"""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import floor, log10
from typing import Any, NoReturn

from gradlab import cuda
from gradlab.backends.threads import get_num_threads, set_num_threads

UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


def timer() -> float:
    """A clock in seconds, read when all work on the GPU is done."""
    if cuda.is_initialized():
        cuda.synchronize()
    return timeit.default_timer()


def select_unit(t: float) -> tuple[str, float]:
    """The unit in which a time is a number from 1 on, and its seconds."""
    return next((unit for unit in UNITS if t >= unit[1]), UNITS[-1])


def trim_sigfig(x: float, n: int) -> float:
    """A number with so many significant figures."""
    return round(x, n - 1 - floor(log10(abs(x)))) if x else 0.0


@dataclass(frozen=True)
class TaskSpec:
    """What was measured, and under which names it is shown."""

    stmt: str
    setup: str
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label with its sub-label, or the statement."""
        return (self.label or self.stmt) + (f": {self.sub_label}" if self.sub_label else "")


@dataclass
class Measurement:
    """Times of several runs: `raw_times` in seconds, each of `number_per_run` calls."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = field(default=None)

    @property
    def times(self) -> list[float]:
        """Seconds of one call, of each run."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def mean(self) -> float:
        """Their mean."""
        return statistics.fmean(self.times)

    @property
    def median(self) -> float:
        """Their median."""
        return statistics.median(self.times)

    @property
    def iqr(self) -> float:
        """The distance of their quartiles."""
        if len(self.times) < 2:
            return 0.0
        first, _, third = statistics.quantiles(self.times, n=4, method="inclusive")
        return third - first

    @property
    def significant_figures(self) -> int:
        """How many figures of the median are not noise: those above a tenth of the quartiles' distance, at least one."""
        noise = self.iqr / max(len(self.times) ** 0.5, 1)
        return max(1, min(5, floor(log10(self.median)) - floor(log10(noise)) + 1)) if noise > 0 and self.median > 0 else 5

    @property
    def has_warnings(self) -> bool:
        """Whether the quartiles lie far apart: more than a tenth of the median."""
        return self.iqr > 0.1 * self.median

    def __getattr__(self, name: str) -> Any:
        if name in ("stmt", "setup", "label", "sub_label", "description", "env", "num_threads", "title"):
            return getattr(self.task_spec, name)
        raise AttributeError(f"'Measurement' object has no attribute {name!r}")

    def as_row_name(self) -> str:
        """The name of its row in a table."""
        return self.task_spec.sub_label or self.task_spec.stmt

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """Those of the same task as one each."""
        groups: dict[TaskSpec, list[Measurement]] = {}
        for each in measurements:
            groups.setdefault(each.task_spec, []).append(each)
        return [Measurement(1, [t for each in group for t in each.times], spec) for spec, group in groups.items()]

    def __repr__(self) -> str:
        unit, seconds = select_unit(self.median)
        shown = [self.task_spec.title, f"  {'Median' if len(self.times) > 1 else 'Time'}: {self.median / seconds:.2f} {unit}"]
        if len(self.times) > 1:
            shown.append(f"  IQR:    {self.iqr / seconds:.2f} {unit}")
        shown.append(f"  {len(self.times)} measurement{'s' * (len(self.times) > 1)}, {self.number_per_run} runs per measurement")
        return "\n".join([f"<{__name__}.Measurement object at {id(self):#x}>", *shown, f"  {self.num_threads} thread(s)"])


class Timer:
    """Measures a statement of Python.

    stmt, setup: code, run with `globals`; setup once before each measurement. label, sub_label, description, env: names for tables
    (`Compare`). num_threads: of compiled programs and of NumPy's products, 1 by default. timer: a clock in seconds. language: "py";
    NotImplementedError for another.
    """

    def __init__(
        self, stmt: str = "pass", setup: str = "pass", global_setup: str = "", timer: Callable[[], float] = timer, globals: Any = None,
        label: str | None = None, sub_label: str | None = None, description: str | None = None, env: str | None = None,
        num_threads: int = 1, language: Any = "py",
    ) -> None:  # fmt: skip
        if str(language).lower().rsplit(".", maxsplit=1)[-1] not in ("py", "python"):
            raise NotImplementedError(f"Timer: statements are Python's, not {language!r}'s; time a program by itself")
        self._spec = TaskSpec(stmt, setup, label, sub_label, description, env, num_threads)
        self._timer = timeit.Timer(stmt, setup, timer=timer, globals=dict(globals or {}))

    def _measured(self, number: int) -> float:
        before = get_num_threads()
        set_num_threads(self._spec.num_threads)
        try:
            return max(self._timer.timeit(number), 1e-9)
        finally:
            set_num_threads(before)

    def timeit(self, number: int = 1000000) -> Measurement:
        """One measurement of so many calls, after some for warming up."""
        self._measured(max(number // 100, 2))
        return Measurement(number, [self._measured(number)], self._spec)

    def _block(self, min_run_time: float) -> int:
        """How many calls take at least a hundredth of the time."""
        number = 1
        while self._measured(number) < min_run_time / 100:
            number *= 10
        return number

    def blocked_autorange(self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2) -> Measurement:
        """Measurements of so many calls each that the clock does not matter, until they have taken `min_run_time` seconds together."""
        number = self._block(min_run_time)
        times: list[float] = []
        while sum(times) < min_run_time:
            times.append(self._measured(number))
            if callback is not None:
                callback(number, times[-1])
        return Measurement(number, times, self._spec)

    def adaptive_autorange(
        self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:  # fmt: skip
        """Measurements until their quartiles are closer together than `threshold` times the median, or `max_run_time` is over."""
        number = self._block(min_run_time)
        times: list[float] = []
        found = Measurement(number, times, self._spec)
        while sum(times) < max_run_time:
            times.append(self._measured(number))
            if callback is not None:
                callback(number, times[-1])
            if len(times) > 3 and sum(times) >= min_run_time and found.iqr < threshold * found.median:
                break
        return found

    def collect_callgrind(self, *_: Any, **__: Any) -> NoReturn:
        """PyTorch counts instructions with Valgrind."""
        raise NotImplementedError("Timer.collect_callgrind: instructions are not counted; use blocked_autorange, or perf from outside")


class Compare:
    """A table of measurements: a row for each sub-label (or statement), a column for each description, a table for each label.

    >>> spec = TaskSpec("x + y", "", label="adding", sub_label="small", description="here")
    >>> print(Compare([Measurement(1, [0.002, 0.004], spec)]))
    [adding]
           |  here
    small  |   3.0
    Times are in milliseconds (ms).
    """

    def __init__(self, results: Sequence[Measurement]) -> None:
        self._results: list[Measurement] = []
        self.extend_results(results)

    def extend_results(self, results: Sequence[Measurement]) -> None:
        """Take more of them in. ValueError for what is no Measurement."""
        for each in results:
            if not isinstance(each, Measurement):
                raise ValueError(f"Compare: expected a Measurement, got {type(each).__name__}")
        self._results.extend(results)

    def trim_significant_figures(self) -> None:
        """Taken for PyTorch's programs: times are shown with one decimal."""

    colorize = highlight_warnings = trim_significant_figures

    def print(self) -> None:
        """Print it."""
        print(self)

    def __str__(self) -> str:
        merged = Measurement.merge(self._results)
        labels = dict.fromkeys(each.task_spec.label for each in merged)
        return "\n\n".join(self._table(label, [each for each in merged if each.task_spec.label == label]) for label in labels)

    def _table(self, label: str | None, found: list[Measurement]) -> str:
        unit, seconds = select_unit(min(each.median for each in found))
        threads = len({each.task_spec.num_threads for each in found}) > 1
        cells: dict[str, dict[str, str]] = {}
        for each in found:
            row = each.as_row_name() + (f" ({each.task_spec.num_threads} threads)" if threads else "")
            cells.setdefault(row, {})[each.task_spec.description or ""] = f"{each.median / seconds:.1f}"
        columns = list(dict.fromkeys(name for row in cells.values() for name in row))
        lines = [["", *columns], *([row, *(values.get(name, "") for name in columns)] for row, values in cells.items())]
        first, *widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rows = ["  |  ".join([head.ljust(first), *map(str.rjust, rest, widths)]) for head, *rest in lines]
        names = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
        return "\n".join([f"[{label or ''}]", *rows, f"Times are in {names[unit]} ({unit})."])


__all__ = ["Compare", "Measurement", "TaskSpec", "Timer", "select_unit", "timer", "trim_sigfig"]
