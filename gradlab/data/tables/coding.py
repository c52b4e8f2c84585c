"""Columns as a model takes them: numbers scaled and categories counted by statistics of the training rows alone, and back again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from gradlab.data.tables.columns import NUMBERS_ROWS, Column, Kind, WrongCell, column_of, commonest, date_parts
from gradlab.data.tables.reading import MISSING, Table, TableError

FARTHEST = 10.0  # standard deviations, beyond which a number is cut off


@dataclass(frozen=True)
class NumberCoding:
    """How a column of numbers is scaled; `empty`: whether a second column says where it is missing. low, high: of the training rows (None
    in runs of before these were kept)."""

    mean: float
    deviation: float
    empty: bool
    low: float | None = None
    high: float | None = None

    @staticmethod
    def of(values: np.ndarray[Any, Any]) -> NumberCoding:
        there = values[~np.isnan(values)]
        if not there.size:
            return NumberCoding(0.0, 1.0, True)
        return NumberCoding(*_mean_and_deviation(there), there.size < values.size, float(there.min()), float(there.max()))

    def coded(self, values: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        lost = np.isnan(values)
        with np.errstate(over="ignore"):  # what overflows is far away
            scaled = np.clip(np.where(lost, 0.0, (values - self.mean) / self.deviation), -FARTHEST, FARTHEST)
        return [scaled, lost * 1.0] if self.empty else [scaled]


@dataclass
class TableCoding:
    """From columns to two arrays: numbers, float32 (rows, k), and categories, int64 (rows, m).

    `kinds` has each column's kind by its name, `numbers` the scaling of its parts (a date has several, a number one called ""), `words` its
    categories: the i-th is coded as i + 1, and 0 stands for missing and for unknown words. `strays` has the words that count as missing in
    columns of numbers.
    """

    kinds: dict[str, Kind]
    numbers: dict[str, dict[str, NumberCoding]]
    words: dict[str, list[str]]
    strays: dict[str, list[str]] = field(default_factory=dict)

    @staticmethod
    def fit(columns: Sequence[Column], rows: np.ndarray[Any, Any]) -> TableCoding:
        """Statistics over `rows`, indices of the training rows. Columns that are left out are not part of it."""
        kinds: dict[str, Kind] = {c.name: c.kind for c in columns if c.kind != "left out"}
        numbers: dict[str, dict[str, NumberCoding]] = {}
        words: dict[str, list[str]] = {}
        for column in columns:
            if column.kind == "category":
                words[column.name] = [word for word, _ in commonest(column.values[rows]).most_common()]
            elif column.kind != "left out":
                numbers[column.name] = {part: NumberCoding.of(values[rows]) for part, values in _parts(column).items()}
        return TableCoding(kinds, numbers, words, {column.name: list(column.strays) for column in columns if column.strays})

    def coded(self, table: Table) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The two arrays of a table, which may have more columns; TableError where one is missing or holds something else than before."""
        absent = [name for name in self.kinds if name not in table.columns]
        if absent:
            raise TableError(f"{table.source}: there is no column {', '.join(absent)}; it has {', '.join(table.columns)}")
        columns = []
        for name, kind in self.kinds.items():
            column = understood(table, name, kind, self.strays.get(name, ()))
            empty = column.kind == "left out"  # of nothing but missing cells
            columns.append(Column(name, kind, np.full(table.rows, np.nan) if empty and kind != "category" else column.values))
        coded = self.coded_columns(columns)
        table.notes += [note for column in columns for note in self._unlike(column, table)]
        return coded

    def _unlike(self, column: Column, table: Table) -> list[str]:
        """What is said of cells that the training rows have nothing alike of."""
        if column.kind == "category":
            known = {*self.words[column.name], None}
            away = np.array([word not in known for word in column.values], bool)
            what = "texts that the training did not have, which count as missing"
        else:
            coding = self.numbers[column.name][""]
            with np.errstate(over="ignore"):
                away = abs(column.values - coding.mean) > FARTHEST * coding.deviation
            what = f"more than {FARTHEST:g} deviations from the training's mean, which are cut off there"
        if not away.any():
            return []
        first = int(np.argmax(away))
        where = f"the first is {str(table.columns[column.name][first])!r} in {table.where(first)}"
        return [f'"{column.name}": {int(away.sum()):,} of {table.rows:,} cells are {what}; {where}']

    def coded_columns(self, columns: Sequence[Column]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The same of columns that are understood already."""
        numbers: list[Any] = []
        categories: list[Any] = []
        by_name = {column.name: column for column in columns}
        for name, kind in self.kinds.items():
            column = by_name[name]
            if kind == "category":
                places = {word: i + 1 for i, word in enumerate(self.words[name])}
                categories.append(np.array([places.get(word, 0) for word in column.values], np.int64))
            else:
                parts = _parts(column)
                for part, coding in self.numbers[name].items():  # dates without times have no place in the day
                    numbers += coding.coded(parts[part] if part in parts else np.full(len(column.values), np.nan))
        rows = len(columns[0].values) if columns else 0
        return (
            np.stack(numbers, 1).astype(np.float32) if numbers else np.zeros((rows, 0), np.float32),
            np.stack(categories, 1) if categories else np.zeros((rows, 0), np.int64),
        )

    @property
    def sizes(self) -> tuple[int, list[int]]:
        """How many numbers there are, and how many codes each category has."""
        numbers = sum(1 + coding.empty for parts in self.numbers.values() for coding in parts.values())
        return numbers, [len(words) + 1 for words in self.words.values()]

    @property
    def number_names(self) -> list[str]:
        """What each of the numbers is: a column, a part of a date, or whether it is missing."""
        found = []
        for name, parts in self.numbers.items():
            for part, coding in parts.items():
                found += [f"{name}{part}", f"{name}{part} is missing"] if coding.empty else [f"{name}{part}"]
        return found

    def state(self) -> dict[str, Any]:
        """For JSON; `from_state` is the inverse."""
        return asdict(self)

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> TableCoding:
        numbers = {name: {part: NumberCoding(**coding) for part, coding in parts.items()} for name, parts in state["numbers"].items()}
        return TableCoding(dict(state["kinds"]), numbers, dict(state["words"]), dict(state.get("strays", {})))


def understood(table: Table, name: str, kind: Kind | None = None, strays: Sequence[str] = ()) -> Column:
    """`column_of` a table's column; TableError, with the cell's place in the file, where it cannot be taken for that kind."""
    try:
        return column_of(name, table.columns[name], kind, strays)
    except WrongCell as error:
        raise TableError(f"{table.where(error.row)}: {error.fault}; mend it, or leave the cell empty") from error


def is_place(name: str) -> bool:
    """Whether a target may be meant as a column's place."""
    return re.fullmatch(r"-?\d+", name) is not None


def _mean_and_deviation(values: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Of numbers whose squares may overflow; a deviation of 0 is 1, to divide by."""
    unit = float(np.ldexp(1.0, int(np.frexp(abs(values).max())[1]) - 1)) or 1.0  # a power of two, so that it changes no bit
    scaled = values / unit
    return float(scaled.mean()) * unit, float(scaled.std()) * unit or 1.0


def _parts(column: Column) -> dict[str, np.ndarray[Any, Any]]:
    """The numbers that a column gives, by name."""
    return date_parts(column.values) if column.kind == "date" else {"": column.values}


@dataclass
class TargetCoding:
    """What is to be predicted: one of `classes`, or a number, which is scaled by the training rows' mean and deviation."""

    name: str
    kind: Literal["classes", "number"]
    classes: list[str]
    mean: float = 0.0
    deviation: float = 1.0

    @staticmethod
    def of(table: Table, name: str, kind: Literal["classes", "number"] | None = None) -> tuple[TargetCoding, np.ndarray[Any, Any]]:
        """The coding and the values: class numbers (int64), or numbers (float64). kind: None finds out.

        name may also be a place, counted from 0 or, with a minus, from the end. TableError where there is no such column, cells are
        missing, there is one class, or nearly every row has a class of its own.
        """
        if name not in table.columns and is_place(name) and -len(table.columns) <= int(name) < len(table.columns):
            name = list(table.columns)[int(name)]
        if name not in table.columns:
            raise TableError(f'{table.source}: there is no column "{name}" to predict; the columns are {", ".join(table.columns)}')
        found = column_of(name, table.columns[name])
        text = kind == "classes" or (found.kind == "left out" and found.note != NUMBERS_ROWS)
        column = column_of(name, table.columns[name], "category") if text else found
        if column.missing.any():
            count, first = int(column.missing.sum()), int(np.argmax(column.missing))
            if column.strays and (word := str(table.columns[name][first]).strip()) in column.strays:
                raise TableError(f'{table.where(first)}: the target "{name}" is {word!r} there, where most rows have a number; mend it')
            cell = table.columns[name][first]
            if isinstance(cell, str) and cell.lower() not in MISSING:
                raise TableError(f'{table.where(first)}: the target "{name}" is {cell!r} there, which is no finite number; mend it')
            away = f"({count} such rows); fill it in, or leave them out"
            raise TableError(f'{table.where(first)}: the target "{name}" is missing there {away}')
        if found.kind == "date" and kind != "classes":
            away = 'predict a number of days, or classes (--task classes, task="classes")'
            raise TableError(f'{table.source}: the target "{name}" holds dates; {away}')
        values = column.values
        if kind is None:
            kind = "classes" if column.kind == "category" or _few(values) else "number"
        if kind == "number":
            if values.dtype.kind != "f":
                values = understood(table, name, "number").values
            if values.min() == values.max():
                raise TableError(f'{table.source}: the target "{name}" is {values.min():g} in every row, so there is nothing to learn')
            return TargetCoding(name, "number", []), values
        words = column_of(name, table.columns[name], "category").values
        classes = _sorted(set(words))
        if len(classes) == 1:
            raise TableError(f'{table.source}: the target "{name}" is {classes[0]!r} in every row; there must be two classes at least')
        if len(classes) > 50 and len(classes) > len(words) / 5:
            many = f"{len(classes):,} classes in {len(words):,} rows"
            raise TableError(f'{table.source}: the target "{name}" has {many}; is it another column that is to be predicted?')
        places = {word: i for i, word in enumerate(classes)}
        return TargetCoding(name, "classes", classes), np.array([places[word] for word in words], np.int64)

    def values(self, table: Table) -> np.ndarray[Any, Any]:
        """The target's values in another table: class numbers, or numbers. TableError where a cell is missing or of no known class."""
        column = understood(table, self.name, "category" if self.classes else "number")
        if column.missing.any():
            raise TableError(f'{table.where(int(np.argmax(column.missing)))}: the target "{self.name}" is missing there')
        if not self.classes:
            return column.values
        places = {word: i for i, word in enumerate(self.classes)}
        for row, word in enumerate(column.values):
            if word not in places:
                raise TableError(f'{table.where(row)}: the target is {word!r}, which is none of {", ".join(self.classes)}')
        return np.array([places[word] for word in column.values], np.int64)

    def scaled_by(self, values: np.ndarray[Any, Any]) -> TargetCoding:
        """With the mean and the deviation of the training rows' values; classes need none."""
        if self.kind == "classes":
            return self
        return TargetCoding(self.name, self.kind, self.classes, *_mean_and_deviation(values))

    def coded(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """What a loss takes: int64 classes, or scaled float32 numbers."""
        return values if self.kind == "classes" else ((values - self.mean) / self.deviation).astype(np.float32)

    def decoded(self, outputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """From a model's outputs, scores (rows, classes) or numbers (rows,), to words or to numbers in the target's unit."""
        if self.kind == "classes":
            return np.array(self.classes, object)[outputs.argmax(1)]
        return outputs.reshape(-1).astype(np.float64) * self.deviation + self.mean

    def state(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def _few(values: np.ndarray[Any, Any]) -> bool:
    """Whether numbers look like classes: whole, few, and each often there."""
    if values.dtype.kind != "f" or (values != np.trunc(values)).any():
        return False
    different = len(np.unique(values))
    return different == 2 or (different <= 20 and values.size >= 10 * different)


def _sorted(words: Any) -> list[str]:
    """In the order of numbers where all are numbers, else of the alphabet."""
    try:
        return sorted(words, key=float)
    except ValueError:
        return sorted(words)
