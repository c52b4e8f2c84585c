"""What a column holds: numbers, categories, dates, truth; or something that a model should not see, and why."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

import numpy as np

from gradlab.data.tables.numbers import decimal_mark, number_of, numbers_of
from gradlab.data.tables.reading import MISSING

Kind = Literal["number", "category", "date", "left out"]
TRUE, FALSE = {"true", "t", "yes", "y", "on"}, {"false", "f", "no", "n", "off"}
FORMATS = (
    "%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d-%m-%Y", "%Y-%m", "%Y/%m", "%d %b %Y", "%b %d %Y",
    "%b %d, %Y", "%d-%b-%Y", "%d-%b-%y", "%b-%y", "%B %Y", "%m/%d/%y", "%d/%m/%y", "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M",
    "%Y/%m/%d %H:%M", "%Y/%m/%d %H:%M:%S", "%m/%d/%Y %H:%M:%S", "%d.%m.%Y %H:%M", "%m/%d/%y %H:%M",
)  # fmt: skip
MOST_CATEGORIES = 1000
FEWEST_NUMBERS = 20  # different ones (or dates), among which words are strays
LOOKED_AT = 50  # cells from which a format of dates is found that most of them have
NUMBERS_ROWS = "it numbers the rows"
_IDS = re.compile(
    r"(?i:(.*[_ .-])?(id|ids|index|idx|key|nr|no|n|#|obs|case|row|rownames|rowid|uuid|guid|serial)\.?|column 1|unnamed.*)|.*[a-z]I[dD]"
)
_WHOLE = re.compile(r"([-+]?\d+)\.0*")
_TIMES = re.compile(r".*(year|date|time|day|month|week|hour|epoch)", re.IGNORECASE)


@dataclass
class Column:
    """One column, understood.

    values: float64 with NaN for what is missing (numbers; dates as days since 1970), or text with None (categories).
    """

    name: str
    kind: Kind
    values: np.ndarray[Any, Any]
    note: str = ""  # why it is left out, or what was made of it
    strays: tuple[str, ...] = ()  # words in a column of numbers or of dates, which count as missing

    @property
    def missing(self) -> np.ndarray[Any, Any]:
        """Which cells are empty."""
        if self.values.dtype.kind == "f":
            return np.isnan(self.values)
        return np.array([value is None for value in self.values], bool)


class WrongCell(ValueError):
    """A cell of another kind than its column; `row` counts from 0."""

    def __init__(self, name: str, kind: str, row: int, word: str) -> None:
        super().__init__(f'column "{name}" is no {kind}: the cell in row {row} (from 0, below the header) is {word!r}')
        self.row, self.fault = row, f'column "{name}" is no {kind}: the cell there is {word!r}'


def column_of(name: str, cells: Any, kind: Kind | None = None, strays: Sequence[str] = ()) -> Column:
    """Understand a column of text cells (None where missing) or of any array. kind: what it is to be taken for, where known.

    A few words among many numbers or dates are its `strays`, which count as missing; those that are given are known to be. WrongCell, a
    ValueError, where the column cannot be taken for `kind`; it names the first cell in the way.
    """
    cells = np.asarray(cells)
    if kind == "category":
        return Column(name, "category", _words(cells))
    if cells.dtype.kind in "fiub":
        return _of_numbers(name, cells.astype(np.float64), cells, cells.dtype.kind == "b", kind)
    if cells.dtype.kind == "M":
        return Column(name, "date", _days(cells))
    words = _words(cells)
    if strays:
        words = np.array([None if word in strays else word for word in words], object)
    there = [word for word in words if word is not None]
    if not there:
        return Column(name, "left out", words, "it is empty")
    numbers, lower = numbers_of(words), {word.lower() for word in there}
    days = _dates(words) if kind in (None, "date") and (numbers is None or _eight_digits(numbers)) else None
    if days is not None:
        return Column(name, "date", days)
    if numbers is not None and kind != "date":
        return _of_numbers(name, numbers, words, False, kind)
    if kind != "date" and lower <= TRUE | FALSE and (len(lower) > 1 or kind == "number"):
        truth = np.array([np.nan if word is None else float(word.lower() in TRUE) for word in words])
        return Column(name, "number", truth, "truth, as 1 and 0")
    if kind is not None:
        wrong = _first_wrong(words, there, kind)
        raise WrongCell(name, kind, wrong, words[wrong])
    mark = decimal_mark(there)
    for known in ({word for word in set(there) if number_of(word, mark) is not None}, _known_dates(there)):
        if len(known) >= FEWEST_NUMBERS and sum(word in known for word in there) >= 0.9 * len(there):
            few = tuple(sorted(set(there) - known))
            return replace(column_of(name, cells, None, few), strays=few)
    return _of_words(name, words, there)


def _of_words(name: str, words: np.ndarray[Any, Any], there: list[str]) -> Column:
    kinds = set(there)
    if len(kinds) == 1 and len(there) == len(words):
        return Column(name, "left out", words, f"it is {there[0]!r} in every row")
    if len(kinds) == len(there) >= 20:
        return Column(name, "left out", words, "each row has text of its own there")
    if len(kinds) > MOST_CATEGORIES or (len(kinds) > 50 and len(kinds) > len(there) / 2):
        return Column(name, "left out", words, f"it has {len(kinds):,} different texts in {len(there):,} rows, too many for categories")
    return Column(name, "category", words)


def _of_numbers(name: str, values: np.ndarray[Any, Any], cells: np.ndarray[Any, Any], truth: bool, kind: Kind | None) -> Column:
    values = np.where(np.isinf(values), np.nan, values)
    there = values[~np.isnan(values)]
    if not there.size:
        return Column(name, "left out", values, "it is empty")
    if kind == "number" or truth:
        return Column(name, "number", values)
    different = np.unique(there)
    if len(different) == 1 and there.size == values.size:
        return Column(name, "left out", values, f"it is {different[0]:g} in every row")
    codes = bool((there == np.trunc(there)).all()) and not _TIMES.match(name)
    if codes and _IDS.fullmatch(name) and len(different) == values.size >= 10:
        return Column(name, "left out", values, NUMBERS_ROWS)
    if codes and 2 < len(different) <= 10 and there.size >= 20 * len(different):
        return Column(name, "category", _words(cells), f"{len(different)} whole numbers, taken for categories")
    return Column(name, "number", values)


def _words(cells: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Cells as text, None where missing. A whole number is written alike in every table: 3, never 3.0."""

    def word(cell: Any) -> str | None:
        if cell is None or (isinstance(cell, float) and math.isnan(cell)):
            return None
        if isinstance(cell, (float, np.floating)) and float(cell).is_integer():
            return f"{int(cell)}"
        text = str(cell).strip()
        whole = _WHOLE.fullmatch(text)
        return None if text.lower() in MISSING else whole[1] if whole else text

    return np.array([word(cell) for cell in cells], object)


def _first_wrong(words: np.ndarray[Any, Any], there: list[str], kind: str) -> int:
    if kind == "number":
        mark = decimal_mark(there)
        return next(i for i, word in enumerate(words) if word is not None and number_of(word, mark) is None)
    known = _known_dates(there)
    return next(i for i, word in enumerate(words) if word is not None and word not in known)


# ---------------------------------------------------------------- dates


def _eight_digits(numbers: np.ndarray[Any, Any]) -> bool:
    """Whether all numbers read as YYYYMMDD."""
    there = numbers[~np.isnan(numbers)]
    return bool(there.size and (there == np.trunc(there)).all() and there.min() > 17000000 and there.max() < 23000000)


def _days(cells: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Days since 1970-01-01 with their fractions; NaN for what is missing."""
    seconds = cells.astype("datetime64[s]")
    return np.where(np.isnat(seconds), np.nan, seconds.astype(np.int64) / 86400.0)


def _dates(words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """As days, or None where the cells are not all dates of one format. Of formats that fit, the first of FORMATS is it."""
    different = {word for word in words if word is not None}
    if not all(any(c.isdigit() for c in word) and len(word) >= 5 for word in different):
        return None
    for read in READERS:
        try:
            known = {word: read(word) for word in different}
        except ValueError:
            continue
        return np.array([np.nan if w is None else _since(known[w]) for w in words])
    return None


def _iso(word: str) -> datetime:
    if not re.match(r"\d{4}-\d{2}-\d{2}", word):
        raise ValueError(word)
    return datetime.fromisoformat(word)


def _compact(word: str) -> datetime:
    return datetime.strptime(word.removesuffix(".0"), "%Y%m%d")


READERS = (_iso, *(lambda word, f=f: datetime.strptime(word, f) for f in FORMATS), _compact)


def _known_dates(there: Sequence[str]) -> set[str]:
    """Of words, those that are dates of the one format that most of the first are of."""

    def read(words: Iterable[str], reader: Callable[[str], datetime]) -> set[str]:
        found = set()
        for word in words:
            with suppress(ValueError):
                reader(word)
                found.add(word)
        return found

    first = {word for word in there[:LOOKED_AT] if len(word) >= 5 and any(c.isdigit() for c in word)}
    if len(first) * 2 < len(set(there[:LOOKED_AT])):
        return set()
    best = max(READERS, key=lambda reader: len(read(first, reader)))
    return read(set(there), best)


def _since(moment: datetime) -> float:
    offset = moment.utcoffset()
    moment = moment.replace(tzinfo=None) - offset if offset is not None else moment
    return (moment - datetime(1970, 1, 1)).total_seconds() / 86400.0


def date_parts(days: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """What a model is told of dates: how long ago, and the place in the year, the week and, where there are times, the day, as angles."""
    parts = {"": days}
    year = days % 365.2425 / 365.2425
    angles = {" year": year, " week": (days + 3) % 7 / 7} | ({" day": days % 1} if np.any(days[~np.isnan(days)] % 1 != 0) else {})
    for name, turn in angles.items():
        parts[f"{name} sin"], parts[f"{name} cos"] = np.sin(2 * np.pi * turn), np.cos(2 * np.pi * turn)
    return parts


def commonest(words: Any) -> Counter[str]:
    """How often each word is there, of those that are not missing."""
    return Counter(word for word in words if word is not None)
