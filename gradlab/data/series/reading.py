"""From a table to a series: its dates found and put in order, one row for each step, and what is missing said."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradlab.data.series.calendar import NEAR, REGULAR, Calendar
from gradlab.data.tables import Table, TableError, column_of, read_with_columns
from gradlab.data.tables.coding import is_place, understood
from gradlab.data.tables.numbers import numbers_of
from gradlab.utils.words import some

SPARSE = 20  # times as many steps as rows: a date must be wrong
_TIME = re.compile(r"(.*[_ .-])?(year|yr|date|datetime|time|timestamp|day|month|week|hour|epoch|period|ds|t)s?", re.IGNORECASE)
_QUARTER = re.compile(r"(\d{4})[ _-]?Q([1-4])|Q([1-4])[ _/-]?(\d{4})")
_WEEK = re.compile(r"(\d{4})-?W(\d{1,2})")
_OFFSET = re.compile(r".*\d(Z|[+-]\d\d:?\d\d)")
_PARTS = {
    "year": ("year", "yr", "yyyy"), "quarter": ("quarter", "qtr", "q"), "month": ("month", "mon", "mo", "mm"),
    "day": ("day", "dy", "dd", "mday"), "hour": ("hour", "hr", "hh"),
}  # fmt: skip


class SeriesError(TableError):
    """A table that is no series, or one too short or too plain to be learned from; the message names the file, the line and the way out."""


@dataclass(frozen=True)
class Layout:
    """Which columns hold what. date: the column of dates, those of year, month, day and hour, or none. dates: whether they are dates, or
    numbers such as years.
    """

    values: list[str]
    covariates: list[str]
    date: list[str]
    dates: bool

    @property
    def columns(self) -> list[str]:
        return [*self.values, *self.covariates]

    @property
    def date_name(self) -> str:
        """What the column of dates is called in predictions."""
        return self.date[0] if len(self.date) == 1 else "date" if self.date else "step"

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> Layout:
        return Layout(**state)


@dataclass
class Observations:
    """A series in the order of time: times (steps,), days since 1970 or numbers; values, float64 (steps, columns), NaN where unknown."""

    times: np.ndarray[Any, Any]
    values: np.ndarray[Any, Any]
    layout: Layout
    calendar: Calendar
    source: str
    notes: list[str] = field(default_factory=list)

    def written(self, times: np.ndarray[Any, Any] | None = None) -> list[str]:
        """Times as text, by default all."""
        return self.calendar.written(self.times if times is None else times, self.layout.dates)

    def later(self, steps: int) -> list[str]:
        """The dates of so many steps after the end."""
        return self.written(self.calendar.later(float(self.times[-1]), np.arange(1, steps + 1)))


def observed(
    source: Any, value: str | Sequence[str] | None, covariates: Sequence[str] = (), date: str | None = None, **reading: Any
) -> Observations:
    """A table's series. value: a column, several, or several in one text with commas; None: the only column of numbers."""
    wanted = [value] if isinstance(value, str) else list(value or ())
    named = {name for name in (*wanted, *covariates, *([date] if date else [])) if not is_place(name) and "," not in name}
    table = _read(source, named, **reading)
    if len(wanted) == 1 and wanted[0] not in table.columns and "," in wanted[0]:
        wanted = [name.strip() for name in wanted[0].split(",") if name.strip()]
    values = [_named(table, name) for name in wanted]
    others = [_named(table, name) for name in covariates]
    found, dates = _dates_of(table, _named(table, date) if date else None, {*values, *others})
    if not values:
        values = [_only_number(table, {*others, *found})]
    if twice := sorted({name for name in values if [*values, *others, *found].count(name) > 1}):
        raise SeriesError(f'{table.source}: "{twice[0]}" is named twice: a column is a value, a covariate, or the date')
    if unused := [f'"{name}"' for name in table.columns if name not in {*values, *others, *found}]:
        away = "none is a date that was understood (--date), " if not found else ""
        table.notes.append(f"not looked at: {some(unused, 8)}; {away}--covariates takes further columns")
    return _put_in_order(table, Layout(values, others, found, dates), None)


def observed_again(source: Any, layout: Layout, calendar: Calendar) -> Observations:
    """The same columns of another table; SeriesError where they are not there, or its dates are in other steps."""
    table = _read(source, [*layout.columns, *layout.date])
    for name in (*layout.columns, *layout.date):
        if name not in table.columns:
            raise SeriesError(f'{table.source}: there is no column "{name}"; it has {", ".join(table.columns)}')
    return _put_in_order(table, layout, calendar)


def _read(source: Any, names: Iterable[str], **reading: Any) -> Table:
    """A table of its own, whose columns may be written anew."""
    table = source if isinstance(source, Table) else read_with_columns(source, names, **reading)
    columns = {name: np.asarray(cells) for name, cells in table.columns.items()}
    return Table(columns, table.rows, table.source, list(table.notes), table.lines)


def _named(table: Table, name: str) -> str:
    if name in table.columns:
        return name
    if is_place(name) and -len(table.columns) <= int(name) < len(table.columns):
        return list(table.columns)[int(name)]
    raise SeriesError(f'{table.source}: there is no column "{name}"; the columns are {", ".join(table.columns)}')


def _only_number(table: Table, taken: set[str]) -> str:
    names = [name for name in table.columns if name not in taken and _numeric(table, name) is not None]
    if len(names) > 1:
        names = [name for name in names if column_of(name, table.columns[name]).kind != "left out"] or names
    rest = [name for name in table.columns if name not in taken]
    if len(names) == 1 or len(rest) == 1:
        return (names or rest)[0]
    which = f"{len(names)} columns hold numbers ({', '.join(names)})" if names else f"no column of {', '.join(table.columns)} holds numbers"
    raise SeriesError(f"{table.source}: name the column to forecast (--value): {which}")


def _numeric(table: Table, name: str) -> np.ndarray[Any, Any] | None:
    try:
        column = column_of(name, table.columns[name], "number")
    except ValueError:
        return None
    return column.values if column.values.dtype.kind == "f" and column.kind == "number" else None


# ---------------------------------------------------------------- dates


def _dates_of(table: Table, name: str | None, taken: set[str]) -> tuple[list[str], bool]:
    """The column (or the columns of year, month and so on) that says when, and whether it holds dates; none where there is none such."""
    for column in [name] if name is not None else [n for n in table.columns if n not in taken and _TIME.fullmatch(n)]:
        table.columns[column] = _with_hyphens(table.columns[column])
    if name is not None:
        if column_of(name, table.columns[name]).kind == "date":
            return [name], True
        if _numeric(table, name) is not None:
            return [name], False
        understood(table, name, "date")  # raises, and names the cell
    free = [name for name in table.columns if name not in taken]
    for column in free:
        if column_of(column, table.columns[column]).kind == "date":
            return [column], True
    parts = {part: next((n for n in free if n.lower() in names), None) for part, names in _PARTS.items()}
    if parts["year"] and (inside := parts["month"] or parts["quarter"]):
        together = [n for n in (parts["year"], inside, *((parts["day"], parts["day"] and parts["hour"]) if parts["month"] else ())) if n]
        if all(_numeric(table, n) is not None for n in together):
            return together, True
    for column in free:
        numbers = _numeric(table, column) if _TIME.fullmatch(column) else None
        if numbers is not None and len(np.unique(numbers[~np.isnan(numbers)])) > 0.9 * len(numbers):
            return [column], False
    return [], False


def _with_hyphens(cells: Any) -> Any:
    """Dates that are written as one number, 19580329 or 195803, and quarters and weeks, as dates of days; other cells as they are."""
    if cells.dtype.kind in "OU" and (spelled := _spelled(cells)) is not None:
        return spelled
    numbers = cells if cells.dtype.kind in "fiu" else numbers_of(cells) if cells.dtype.kind in "OU" else None
    if numbers is None or not len(there := numbers[~np.isnan(numbers)]) or (there != np.round(there)).any():
        return cells
    day = there.astype(np.int64) if there.min() > 17_000_000 else there.astype(np.int64) * 100 + 1
    if day.min() < 17_000_101 or day.max() > 22_991_231 or not set((day // 100 % 100).tolist()) <= set(range(1, 13)):
        return cells
    text = [None if np.isnan(n) else f"{n:.0f}" for n in numbers]
    return np.array([t and (f"{t[:4]}-{t[4:6]}-{t[6:]}" if len(t) == 8 else f"{t[:4]}-{t[4:]}") for t in text], object)


def _spelled(cells: Any) -> Any:
    """Quarters (1950Q1, 1950-Q1, Q1 1950) and ISO's weeks (2000-W01) as their first days; None where cells are no such."""
    found: list[str | None] = []
    for cell in cells:
        text = None if cell is None else str(cell).strip().upper()
        if text and (quarter := _QUARTER.fullmatch(text)):
            year, number = quarter[1] or quarter[4], int(quarter[2] or quarter[3])
            found.append(f"{year}-{3 * number - 2:02d}-01")
        elif text and (week := _WEEK.fullmatch(text)) and 1 <= int(week[2]) <= 52 + (int(week[2]) == 53):
            try:
                found.append(datetime.date.fromisocalendar(int(week[1]), int(week[2]), 1).isoformat())
            except ValueError:  # a year of 52
                return None
        elif text:
            return None
        else:
            found.append(None)
    return np.array(found, object)


def _times(table: Table, layout: Layout) -> np.ndarray[Any, Any]:
    """Of each row; NaN where it is missing."""
    if not layout.date:
        return np.arange(1.0, table.rows + 1)
    if len(layout.date) > 1:
        parts = [understood(table, name, "number").values for name in layout.date]
        lost = np.isnan(sum(parts))
        year, month, *rest = (np.where(lost, 1, part) for part in parts)
        if wrong := [name for name, part in zip(layout.date[1:], (month, *rest), strict=True) if (part != np.round(part)).any()]:
            raise SeriesError(f'{table.source}: "{wrong[0]}" is no whole number everywhere; name the column of dates (--date)')
        if layout.date[1].lower() in _PARTS["quarter"]:
            month = 3 * month - 2
        days = ((year - 1970) * 12 + month - 1).astype(np.int64).astype("datetime64[M]").astype("datetime64[D]").astype(np.float64)
        days = days + (rest[0] - 1 if rest else 0) + (rest[1] / 24 if len(rest) > 1 else 0)
        return np.where(lost, np.nan, days)
    if layout.dates:
        table.columns[layout.date[0]] = _with_hyphens(table.columns[layout.date[0]])
    column = understood(table, layout.date[0], "date" if layout.dates else "number")
    if column.values.dtype.kind != "f" or (column.kind == "date") != layout.dates:
        raise SeriesError(f'{table.source}: "{layout.date[0]}" holds no {"dates" if layout.dates else "numbers"}')
    return column.values


def _put_in_order(table: Table, layout: Layout, calendar: Calendar | None) -> Observations:
    """One row for each step, from the first to the last."""
    columns = []
    for name in layout.columns:
        column = understood(table, name, "number")
        if column.values.dtype.kind != "f" or column.kind == "date":
            raise SeriesError(f'{table.source}: "{name}" holds {"dates" if column.kind == "date" else "nothing"}, no numbers')
        columns.append(np.where(np.isinf(column.values), np.nan, column.values) if column.values.size else column.values)
    values, times, notes = np.stack(columns, 1).astype(np.float64), _times(table, layout), list(table.notes)
    rows = np.arange(len(times))
    if layout.dates and len(layout.date) == 1 and any(_OFFSET.fullmatch(str(cell)) for cell in table.columns[layout.date[0]][:1]):
        notes.append("times are those of UTC, from which the file names its distance")
    if (lost := np.isnan(times)).any():
        notes.append(f"{int(lost.sum())} rows have no date, and are left out (the first is {_line(table, int(np.argmax(lost)))})")
        values, times, rows = values[~lost], times[~lost], rows[~lost]
    if len(times) < 2:
        raise SeriesError(f"{table.source}: a series has two steps at least, this one has {len(times)}")
    if (np.diff(times) < 0).any():
        back = _line(table, int(rows[np.argmax(np.diff(times) < 0) + 1]))
        mixed = f"rows are not in the order of their dates: sorted (the first that goes back is {back})"
        notes.append("the newest row comes first: turned round" if (np.diff(times) <= 0).all() else mixed)
        order = np.argsort(times, kind="stable")
        values, times, rows = values[order], times[order], rows[order]
    where: Callable[[int], str] = lambda row: _line(table, int(rows[row]))
    times, values, firsts = _joined(times, times, values, table.source, notes, where)
    rows = rows[firsts]
    if calendar is None:
        calendar = Calendar.of(times, layout.dates) if layout.date and len(times) > 1 else Calendar()
    elif layout.date:
        _same_step(times, calendar, table.source, layout.dates)
    if not calendar.regular:
        notes.append(f"dates are not in regular steps ({calendar}): rows are taken as they come")
        return Observations(times, values, layout, calendar, table.source, notes)
    positions = calendar.positions(times)
    _, values, firsts = _joined(positions, times, values, table.source, notes, where)
    positions, times, rows = positions[firsts], times[firsts], rows[firsts]
    steps = int(positions[-1]) + 1
    apart = np.diff(positions)
    if steps > max(1000, SPARSE * len(positions)):
        widest = int(apart.argmax())
        far = f"is {apart[widest]:,} steps after the row before it; mend the date, or leave that row out"
        raise SeriesError(f"{table.where(int(rows[widest + 1]))} {far}")
    whole = np.full((steps, values.shape[1]), np.nan)
    whole[positions] = values
    every = np.full(steps, np.nan)
    every[positions] = times
    for i in np.flatnonzero(np.isnan(every)):
        every[i] = calendar.later(every[i - 1], np.array([1]))[0]
    if (gaps := np.flatnonzero(apart > 1)).size:
        first = int(gaps[0])
        between = " and ".join(calendar.written(times[first : first + 2], layout.dates))
        many = f"{gaps.size} gap{'s' * (gaps.size > 1)}"
        notes.append(f"{steps - len(positions):,} of {steps:,} steps are not there, in {many} (the first between {between})")
    return Observations(every, whole, layout, calendar, table.source, notes)


def _joined(
    keys: np.ndarray[Any, Any], times: np.ndarray[Any, Any], values: np.ndarray[Any, Any], source: str, notes: list[str],
    where: Callable[[int], str],
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:  # fmt: skip
    """Rows of the same step made one, of the mean of their values: keys, values, and the place of each step's first row."""
    different, firsts, groups = np.unique(keys, return_index=True, return_inverse=True)
    more = len(keys) - len(different)
    if not more:
        return keys, values, firsts
    again = int(np.flatnonzero(np.diff(keys) == 0)[0]) + 1
    if more > 0.2 * len(keys):
        away = "are there several series in it? keep the rows of one, or give each a column of its own"
        raise SeriesError(f"{source}: {more:,} of {len(keys):,} rows have the date of another row (the first is {where(again)}); {away}")
    there = ~np.isnan(values)
    totals, counts = (np.zeros((len(different), values.shape[1])) for _ in range(2))
    np.add.at(totals, groups, np.where(there, values, 0.0))
    np.add.at(counts, groups, there)
    notes.append(f"{more:,} rows have the date of another row: their mean is taken (the first is {where(again)})")
    return different, np.where(counts > 0, totals / np.maximum(counts, 1), np.nan), firsts


def _same_step(times: np.ndarray[Any, Any], calendar: Calendar, source: str, dates: bool) -> None:
    """SeriesError where dates are not in the steps that were learned from."""
    if not calendar.regular or len(times) < 2:
        return
    found = Calendar.of(times, dates)
    steps = np.diff(times) / calendar.step
    if calendar.unit in ("months", "weekdays"):
        fits = calendar.unit == "weekdays" or (found.unit == calendar.unit and found.step % calendar.step == 0)
    else:
        fits = float(np.mean((abs(steps - np.round(steps)) < NEAR) & (np.round(steps) >= 1))) >= REGULAR
    if not fits:
        raise SeriesError(f"{source}: its dates are in {found}, and the run learned from {calendar}")


def _line(table: Table, row: int) -> str:
    """Where a row stands, without the file's name."""
    return table.where(row).rsplit(", ", 1)[-1]

