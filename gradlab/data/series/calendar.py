"""The regular step of a series: found among its dates, which positions it gives them, and which dates come next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import numpy as np

NEAR = 0.2  # of a step, by which two dates may be nearer or farther than whole steps
REGULAR = 0.9  # share of steps that are so
SECOND = 1 / 86400  # in days


@dataclass(frozen=True)
class Calendar:
    """How the rows of a series follow one another.

    unit: "rows" (there are no dates), "numbers" (as years), "days", "weekdays" (Monday to Friday) or "months". step: in that unit; dates
    are days since 1970. regular: whether the dates are whole steps apart; if not, rows are taken as they come, `step` apart on average.
    """

    unit: Literal["rows", "numbers", "days", "weekdays", "months"] = "rows"
    step: float = 1.0
    regular: bool = True
    decimals: int = 0

    @staticmethod
    def of(times: np.ndarray[Any, Any], dates: bool) -> Calendar:
        """From two or more different times in rising order, days since 1970 if they are `dates`."""
        apart = np.diff(times)
        if dates:
            day = np.floor(times).astype(np.int64)
            whole = bool((times == day).all())
            months, of_month = _months(day)
            ends = _months(day + 1)[1] == 1  # the last day of a month
            alike = np.mean((of_month == of_month[0]) | (of_month >= 28)) if of_month[0] >= 28 else np.mean(of_month == of_month[0])
            if whole and np.median(apart) >= 28 and (alike >= REGULAR or ends.mean() >= REGULAR) and (np.diff(months) > 0).all():
                return Calendar("months", _commonest(np.diff(months)))
            weekday = (day + 3) % 7
            if whole and len(times) >= 10 and (weekday < 5).all() and _commonest(apart) == 1:
                return Calendar("weekdays")
        decimals = 0 if dates else next((n for n in range(9) if np.allclose(times, np.round(times, n), rtol=0, atol=1e-9)), 9)
        step = _commonest(np.round(apart / SECOND) * SECOND if dates else apart)
        steps = apart / step
        regular = bool(np.mean(abs(steps - np.round(steps)) < NEAR) >= REGULAR and (np.round(steps) >= 1).mean() >= REGULAR)
        if not regular:
            return Calendar("days" if dates else "numbers", float(apart.mean()), False, decimals)
        places = np.maximum(np.round(steps), 1).sum()
        exact = float(times[-1] - times[0]) / places  # a step written as 0.083 is a twelfth
        return Calendar("days" if dates else "numbers", step if abs(exact - step) < 1e-9 * step else exact, True, decimals)

    def positions(self, times: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Whole steps from the first time, int64; equal ones are the same step."""
        if self.unit == "rows" or not self.regular:
            return np.arange(len(times))
        if self.unit == "months":
            months = _months(np.floor(times).astype(np.int64))[0]
            return np.round((months - months[0]) / self.step).astype(np.int64)
        if self.unit == "weekdays":
            days = np.floor(times).astype("datetime64[D]")
            return np.asarray(np.busday_count(days[0], days), np.int64)
        return np.concatenate([[0], np.cumsum(np.round(np.diff(times) / self.step))]).astype(np.int64)

    def later(self, time: float, steps: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The times so many steps after one."""
        if self.unit == "months":
            day = int(np.floor(time))
            month, of_month = (int(part[0]) for part in _months(np.array([day])))
            end = int(_months(np.array([day + 1]))[1][0]) == 1
            firsts = (month + np.round(steps * self.step).astype(np.int64)).astype("datetime64[M]")
            long = ((firsts + 1).astype("datetime64[D]") - firsts.astype("datetime64[D]")).astype(np.int64)
            place = long if end and of_month >= 28 else np.minimum(of_month, long)
            return firsts.astype("datetime64[D]").astype(np.float64) + place - 1
        if self.unit == "weekdays":
            return np.busday_offset(np.int64(np.floor(time)).astype("datetime64[D]"), steps, roll="forward").astype(np.float64)
        return time + steps * self.step

    def written(self, times: np.ndarray[Any, Any], dates: bool) -> list[str]:
        """Times as text: dates as ISO writes them, with the time of the day where there is one."""
        if not dates:
            return [f"{time:.{self.decimals}f}" for time in times]
        moments = [datetime(1970, 1, 1) + timedelta(seconds=round(float(time) * 86400)) for time in times]
        clock = self.unit == "days" and any(m.hour or m.minute or m.second for m in moments)
        return [m.isoformat(" ") if clock else m.date().isoformat() for m in moments]

    def __str__(self) -> str:
        if not self.regular:
            return f"irregular steps, {self.step:.4g} {'' if self.unit == 'numbers' else self.unit} on average".replace("  ", " ")
        if self.unit == "rows":
            return "a step from row to row"
        if self.unit == "weekdays":
            return "steps of a day, Monday to Friday"
        size, unit = self.step, str(self.unit)
        if unit == "days" and size < 1:
            size, unit = next((size * n, name) for n, name in ((24, "hours"), (1440, "minutes"), (86400, "seconds"))
                              if size * n >= 0.999 or name == "seconds")  # fmt: skip
        if unit == "months" and size % 12 == 0:
            size, unit = size / 12, "years"
        if unit == "numbers":
            return f"steps of {size:.4g}"
        return f"steps of a{'n' if unit == 'hours' else ''} {unit[:-1]}" if abs(size - 1) < 1e-9 else f"steps of {size:.4g} {unit}"

    def state(self) -> dict[str, Any]:
        """For JSON; `Calendar(**state)` is the inverse."""
        return asdict(self)

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> Calendar:
        return Calendar(**state)


def _commonest(apart: np.ndarray[Any, Any]) -> float:
    """The step that is there most often or, where none is in a third of all, the median."""
    sizes, counts = np.unique(apart, return_counts=True)
    return float(sizes[counts.argmax()] if counts.max() * 3 >= len(apart) else np.median(apart))


def _months(days: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Months since 1970, and the day of the month, from 1."""
    day = days.astype("datetime64[D]")
    month = day.astype("datetime64[M]")
    return month.astype(np.int64), (day - month.astype("datetime64[D]")).astype(np.int64) + 1
