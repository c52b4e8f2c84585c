"""A series as a dataset of windows: what was seen up to a step, and what came after it; the end of the series held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

import gradlab as gl
from gradlab.data.series.calendar import Calendar
from gradlab.data.series.reading import Layout, Observations, SeriesError, observed, observed_again
from gradlab.data.series.seasons import season_of
from gradlab.data.tables.coding import FARTHEST, NumberCoding
from gradlab.utils.data import Dataset

Gaps = Literal["fill", "split"]
SHORT = 5  # steps that are filled where nobody says how gaps are to be taken
FEWEST = 4  # windows to learn from
LONGEST = 400  # steps of a window that nobody asked for


@dataclass(frozen=True)
class SeriesCoding:
    """From the columns of a table to what a model takes, by statistics of the training part alone.

    Columns are `layout.values`, then `layout.covariates`; means, deviations: of each. filled: steps of a gap that the value before it fills
    (None: any). errors: of the last value as a forecast of the next, in the training part, by which MASE is scaled.
    """

    layout: Layout
    calendar: Calendar
    horizon: int
    window: int
    season: int | None
    filled: int | None
    means: list[float]
    deviations: list[float]
    errors: list[float]
    last: str  # when the training part ends

    def read(self, source: Any) -> Observations:
        """The same columns of another table; SeriesError where it has none such."""
        return observed_again(source, self.layout, self.calendar)

    def scaled(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """(steps, columns) about 0, of deviation 1; covariates that are far away are cut off."""
        with np.errstate(over="ignore"):
            found = (values - np.array(self.means)) / np.array(self.deviations)
        many = len(self.layout.values)
        found[:, many:] = np.clip(found[:, many:], -FARTHEST, FARTHEST)
        return found

    def in_unit(self, outputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A model's outputs (…, values) in the unit that each column has in the table, float64."""
        many = len(self.layout.values)
        return outputs.astype(np.float64) * np.array(self.deviations[:many]) + np.array(self.means[:many])

    def windows(self, series: Observations, first: int = 0, end: int | None = None) -> Windows:
        """All windows whose forecasts lie in the steps from `first` to before `end`."""
        return Windows.of(self, series, first, len(series.times) if end is None else end)

    def newest(self, series: Observations) -> np.ndarray[Any, Any]:
        """The window that ends with the series, scaled, float32 (window, columns); SeriesError where it is too short or has a gap."""
        if len(series.times) < self.window:
            away = "give more of what came before"
            raise SeriesError(f"{series.source}: {len(series.times)} steps, where the run looks at the last {self.window}; {away}")
        rows = filled(series.values, self.filled)[-self.window :]
        if np.isnan(rows).any():
            step, column = (int(i) for i in np.argwhere(np.isnan(rows))[0])
            when, name = series.written(series.times[-self.window :][step : step + 1])[0], self.layout.columns[column]
            raise SeriesError(f'{series.source}: "{name}" is missing at {when} and around it, in the last {self.window} steps; fill it in')
        return self.scaled(rows).astype(np.float32)

    def state(self) -> dict[str, Any]:
        """For JSON; `from_state` is the inverse."""
        return asdict(self)

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> SeriesCoding:
        parts = {"layout": Layout.from_state(state["layout"]), "calendar": Calendar.from_state(state["calendar"])}
        return SeriesCoding(**{**state, **parts})


class Windows(Dataset[tuple[Any, ...]]):
    """Samples (window, future): float32 (window, columns) and float32 (horizon, values), scaled; NaN where the future is not known.

    starts: where each window begins. A sample costs no memory until it is taken.
    """

    def __init__(
        self, inputs: np.ndarray[Any, Any], truth: np.ndarray[Any, Any], starts: np.ndarray[Any, Any], window: int, horizon: int
    ) -> None:
        self.inputs, self.truth, self.starts, self.window, self.horizon = inputs, truth, starts, window, horizon

    @staticmethod
    def of(coding: SeriesCoding, series: Observations, first: int, end: int) -> Windows:
        """Windows without a gap, and with something known in the future."""
        many, window, horizon = len(coding.layout.values), coding.window, coding.horizon
        inputs = filled(series.values, coding.filled)
        truth = series.values[:, :many]
        starts = np.arange(max(0, first - window), max(0, end - window - horizon + 1))
        lost = np.concatenate([[0], np.cumsum(np.isnan(inputs).any(1))])
        known = np.concatenate([[0], np.cumsum((~np.isnan(truth)).any(1))])
        good = (lost[starts + window] == lost[starts]) & (known[starts + window + horizon] > known[starts + window])
        scaled = coding.scaled(np.concatenate([truth, inputs[:, many:]], 1))[:, :many]
        return Windows(coding.scaled(inputs).astype(np.float32), scaled.astype(np.float32), starts[good], window, horizon)

    def arrays(self, indices: Any = None) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Windows (n, window, columns) and futures (n, horizon, values), by default all."""
        starts = self.starts if indices is None else self.starts[np.asarray(indices, np.int64)]
        before, after = np.arange(self.window), self.window + np.arange(self.horizon)
        return self.inputs[starts[:, None] + before], self.truth[starts[:, None] + after]

    def take_batch(self, indices: Sequence[int]) -> list[Any]:
        """The batch of those samples."""
        return [gl.from_numpy(part) for part in self.arrays(indices)]

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        one = isinstance(index, (int, np.integer))
        parts = self.arrays([index] if one else np.arange(len(self))[index])
        return tuple(gl.from_numpy(np.ascontiguousarray(part[0] if one else part)) for part in parts)

    def __len__(self) -> int:
        return len(self.starts)


class TimeSeriesDataset(Dataset[tuple[Any, ...]]):
    """Windows of a series as (window, future): float32 (window, columns) and float32 (horizon, values), scaled.

    source: a file's path, a data frame, or columns by name (see `read_table`). value: the column to forecast, or several; None where
    there is one column of numbers. covariates: further columns that a window shows. date: the column of dates, which is found where none
    is named: rows are put in their order, the step between them is found, and steps that are not there count as missing. horizon: steps to
    forecast. window: steps that a forecast looks back on; by default two seasons. season: in steps; by default found.

    A missing cell of a window is filled with the value before it: gaps="fill" fills gaps of any length, "split" none, so that no window
    crosses one; by default gaps of up to five steps are filled. A missing future is NaN, which losses and metrics leave out.

    fraction: of the steps, the last, is held out. A forecast of that part may look back on the training part, whose own futures never reach
    into the other; statistics come of the training part alone. `training` and `validation` are the two. SeriesError (a ValueError, in one
    line) for a series too short, constant, or of dates that cannot be in order.

    >>> import math
    >>> table = {"year": list(range(1900, 2000)), "level": [math.sin(i) for i in range(100)]}
    >>> dataset = gl.data.TimeSeriesDataset(table, "level", horizon=4, window=12)
    >>> len(dataset.training), len(dataset.validation), [part.shape for part in dataset.training[0]]
    (65, 17, [(12, 1), (4, 1)])
    """

    def __init__(
        self, source: Any, value: str | Sequence[str] | None = None, *, horizon: int = 24, window: int | None = None,
        season: int | None = None, covariates: Sequence[str] = (), date: str | None = None, fraction: float = 0.2,
        gaps: Gaps | None = None, **reading: Any,
    ) -> None:  # fmt: skip
        sizes = {"horizon": horizon, "window": window, "season": season}
        if wrong := [f"{name}={size}" for name, size in sizes.items() if size is not None and size < 1]:
            raise ValueError(f"TimeSeriesDataset: {', '.join(wrong)}: at least 1")
        if not 0 < fraction < 1 or gaps not in (None, "fill", "split"):
            raise ValueError(f'TimeSeriesDataset: fraction is between 0 and 1, gaps "fill" or "split"; got {fraction} and {gaps!r}')
        self.series = observed(source, value, covariates, date, **reading)
        self.notes, layout = list(self.series.notes), self.series.layout
        self._whole(len(layout.values))
        steps = len(self.series.times)
        self.held_out = max(1, round(fraction * steps))
        self.first = steps - self.held_out  # of the steps that are held out
        self._long_enough(horizon, window or 1)
        learned = self.series.values[: self.first]
        self._moving(learned, layout)
        season = season or season_of(learned[:, : len(layout.values)])
        if window is None:
            window = max(1, min(max(2 * (season or 0), horizon, 16), LONGEST, (self.first - horizon) // 2))
        scales = [NumberCoding.of(column) for column in learned.T]
        self.coding = SeriesCoding(
            layout, self.series.calendar, horizon, window, season, {"fill": None, "split": 0, None: SHORT}[gaps],
            [scale.mean for scale in scales], [scale.deviation for scale in scales],
            [_error(column) for column in learned.T[: len(layout.values)]], self.series.written()[self.first - 1],
        )  # fmt: skip
        self.training = self.coding.windows(self.series, 0, self.first)
        self.validation = self.coding.windows(self.series, self.first)
        self._said(gaps)

    def _whole(self, many: int) -> None:
        """Without steps before the first and after the last that is known."""
        there = ~np.isnan(self.series.values)
        names = self.series.layout.columns
        if empty := [name for name, column in zip(names, there.T, strict=True) if not column.any()]:
            raise SeriesError(f'{self.series.source}: "{empty[0]}" is empty')
        first = int(there.argmax(0).max())
        end = len(there) - int(there[::-1, :many].any(1).argmax())
        cut = [f"{count} at its {place}" for count, place in ((first, "start"), (len(there) - end, "end")) if count]
        if end - first < 2:
            raise SeriesError(f"{self.series.source}: {', '.join(names)} are never known together")
        if cut:
            self.notes.append(f"the series has no values in {' and '.join(cut)}: these steps are left out")
            self.series.times, self.series.values = self.series.times[first:end], self.series.values[first:end]

    def _long_enough(self, horizon: int, window: int) -> None:
        """SeriesError where the parts do not hold a window and its future."""
        source, held, steps = self.series.source, self.held_out, self.first + self.held_out
        if horizon > held:
            share = min(0.9, np.ceil(100 * horizon / steps) / 100)
            more = f"hold out more (--validation {share:g})" if 3 * horizon <= steps else "give a longer series"
            few = f"{horizon} steps are to be forecast, and {held} of {steps} are held out"
            raise SeriesError(f"{source}: {few}; take a --horizon of {held} at most, or {more}")
        if window + horizon + FEWEST - 1 > self.first:
            most = self.first - horizon - FEWEST + 1
            away = f"take a --window of {most} at most" if most >= 1 else "take a smaller --horizon"
            few = f"{self.first} steps to learn from are too few for a window of {window} and {horizon} steps to forecast"
            raise SeriesError(f"{source}: {few}; {away}, or give a longer series")

    def _moving(self, learned: np.ndarray[Any, Any], layout: Layout) -> None:
        for name, column in zip(layout.columns, learned.T, strict=True):
            there = column[~np.isnan(column)]
            if not there.size or there.min() == there.max():
                what = f"{there[0]:g} in every step" if there.size else "empty in all steps"
                raise SeriesError(f'{self.series.source}: "{name}" is {what} of the part to learn from: there is nothing to forecast by it')

    def _said(self, gaps: Gaps | None) -> None:
        """What became of missing cells; SeriesError where no windows are left."""
        for name, column in zip(self.series.layout.columns, self.series.values.T, strict=True):
            lost = np.isnan(column)
            i = self.series.layout.columns.index(name)
            with np.errstate(over="ignore", invalid="ignore"):
                far = abs(column - self.coding.means[i]) > FARTHEST * self.coding.deviations[i]
            if far.any():
                first = f"the first is {column[far.argmax()]:g} at {self.series.written()[int(far.argmax())]}"
                found = f"{int(far.sum())} steps are more than {FARTHEST:g} deviations off the mean ({first})"
                self.notes.append(f'"{name}": {found}; mend them if they are wrong, as all is scaled by them')
            if lost.any():
                how = {"fill": "filled with the value before", "split": "not filled, and no window crosses them"}
                short = f"filled with the value before, where a gap is no longer than {SHORT} steps, and no window crosses a longer one"
                self.notes.append(f'"{name}": {int(lost.sum()):,} of {lost.size:,} steps are missing: {how.get(gaps or "", short)}')
        source = self.series.source
        if len(self.training) < FEWEST or not len(self.validation):
            which = f"{len(self.training)} windows to learn from and {len(self.validation)} held out"
            away = "fill gaps (--gaps fill), or take a smaller --window or --horizon"
            raise SeriesError(f"{source}: {which}, of {self.coding.window} steps without a gap and {self.coding.horizon} after; {away}")

    def __len__(self) -> int:
        return len(self.training) + len(self.validation)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"TimeSeriesDataset: window {index} of {len(self)}")
        index %= len(self)
        return self.training[index] if index < len(self.training) else self.validation[index - len(self.training)]


def filled(values: np.ndarray[Any, Any], longest: int | None) -> np.ndarray[Any, Any]:
    """Columns whose gaps hold the value before them; of gaps longer than `longest` steps (None: none is) every step stays NaN."""
    lost = np.isnan(values)
    steps = np.arange(len(values))[:, None]
    last = np.maximum.accumulate(np.where(lost, -1, steps), 0)
    found = np.where(last < 0, np.nan, np.take_along_axis(values, np.maximum(last, 0), 0))
    if longest is None:
        return found
    after = np.minimum.accumulate(np.where(lost, len(values), steps)[::-1], 0)[::-1]
    return np.where(lost & (after - last - 1 > longest), np.nan, found)


def _error(values: np.ndarray[Any, Any]) -> float:
    """The mean of |difference| from one step to the next, of those that are known."""
    scale = float(np.nanmax(abs(values)))
    apart = abs(np.diff(values / scale))
    known = apart[~np.isnan(apart)]
    return float(known.mean()) * scale if known.size and known.max() > 0 else scale
