"""A table as a dataset for a DataLoader, split into training and validation rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

import gradlab as gl
from gradlab.data.tables.coding import TableCoding, TargetCoding, is_place, understood
from gradlab.data.tables.columns import NUMBERS_ROWS, Column, Kind, column_of
from gradlab.data.tables.reading import Table, TableError, read_with_columns
from gradlab.utils.data import Dataset
from gradlab.utils.words import some


def split_rows(
    rows: int, fraction: float = 0.2, *, seed: int = 0, classes: Any = None, chronological: bool = False
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Indices of training and of validation rows, in rising order; `fraction` of the rows are held out, at least one.

    classes: int64 (rows,); each class is split by itself, and one with two rows or more is in both parts. chronological: the last rows are
    held out, in the order they have. ValueError for fewer than two rows or a fraction that is not between 0 and 1.
    """
    if rows < 2 or not 0 < fraction < 1:
        raise ValueError(f"split_rows: needs two rows at least and a fraction between 0 and 1, got {rows} rows and {fraction}")
    held_out = np.zeros(rows, bool)
    if chronological:
        held_out[rows - max(1, round(fraction * rows)) :] = True
        return np.flatnonzero(~held_out), np.flatnonzero(held_out)
    random = np.random.default_rng(seed)
    for group in [np.arange(rows)] if classes is None else [np.flatnonzero(classes == c) for c in np.unique(classes)]:
        count = round(fraction * len(group))
        count = min(max(count, 1), len(group) - 1) if len(group) > 1 else 0
        held_out[random.permutation(group)[:count]] = True
    if not held_out.any():  # every class is there once
        held_out[random.integers(rows)] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def alone(labels: np.ndarray[Any, Any], classes: Sequence[str], thing: str) -> str:
    """What is said of classes that are there once, which one part has not; nothing where there are none."""
    single = [name for name, count in zip(classes, np.bincount(labels, minlength=len(classes)).tolist(), strict=True) if count == 1]
    return f"classes of one {thing} alone, which cannot be both learned and measured: {some(single)}" if single else ""


class TableDataset(Dataset[tuple[Any, ...]]):
    """Rows of a table as (numbers, categories, target): float32 (k,), int64 (m,), and an int64 class or a scaled float32 number.

    source: a file's path, a data frame, or columns by name (see `read_table`). target: the column to predict; without one samples are
    pairs. task: "classes" or "number"; None finds out from the target. exclude: columns that the model is not to see. kinds: a column's
    kind by its name ("number", "category", "date"), where the guess is not wanted. fraction: of the rows is held out for validation, in a
    split that `seed` decides and that keeps the classes' shares; statistics come of the training rows alone. `training` and `validation`
    are the two parts.

    `notes` says what was found in the file and what became of each column.

    >>> table = {"size": [1.0, 2.0, 3.0, 4.0], "colour": ["red", "blue", "red", "blue"], "price": [1.5, 2.5, 3.5, 4.5]}
    >>> dataset = gl.data.TableDataset(table, target="price", fraction=0.25)
    >>> len(dataset.training), len(dataset.validation), dataset.coding.sizes
    (3, 1, (1, [3]))
    """

    def __init__(
        self, source: Any, target: str | None = None, *, task: Literal["classes", "number"] | None = None, exclude: Any = (),
        kinds: dict[str, Kind] | None = None, fraction: float = 0.2, seed: int = 0, chronological: bool = False, **reading: Any,
    ) -> None:  # fmt: skip
        named = {*exclude, *(kinds or {})} | ({target} if target is not None and not is_place(target) else set())
        self.table: Table = read_with_columns(source, named, **reading)
        self.notes = list(self.table.notes)
        for name in (*exclude, *(kinds or {})):
            if name not in self.table.columns:
                raise TableError(f'{self.table.source}: there is no column "{name}"; the columns are {", ".join(self.table.columns)}')
        self.target, values = None, None
        if target is not None and target in exclude:
            raise TableError(f'{self.table.source}: "{target}" is to be predicted, and is excluded; name another target, or keep it')
        if target is not None:
            self.target, values = TargetCoding.of(self.table, target, task)
            target = self.target.name
        self.columns = self._understood(exclude, kinds or {}, target)
        if self.table.rows < 2:
            raise TableError(f"{self.table.source}: one row cannot be split into training and validation")
        classes = values if self.target is not None and self.target.kind == "classes" else None
        self.training_rows, self.validation_rows = split_rows(
            self.table.rows, fraction, seed=seed, classes=classes, chronological=chronological
        )
        if classes is not None and self.target is not None and (note := alone(classes, self.target.classes, "row")):
            self.notes.append(note)
        self.coding = TableCoding.fit(self.columns, self.training_rows)
        numbers, categories = self.coding.coded_columns(self.columns)
        self.tensors = [gl.from_numpy(numbers), gl.from_numpy(categories)]
        if self.target is not None and values is not None:
            self.target = self.target.scaled_by(values[self.training_rows])
            self.tensors.append(gl.from_numpy(np.ascontiguousarray(self.target.coded(values))))

    def _understood(self, exclude: Any, kinds: dict[str, Kind], target: str | None) -> list[Column]:
        columns = []
        for name, cells in self.table.columns.items():
            if name == target or name in exclude:
                continue
            column = understood(self.table, name, kinds.get(name))
            if column.note == NUMBERS_ROWS and len(self.table.columns) - len(exclude) - (target is not None) == 1:
                column = column_of(name, cells, "number")  # there is nothing else
            if column.note:
                self.notes.append(f'"{name}"{" is left out" if column.kind == "left out" else ""}: {column.note}')
            if column.kind != "left out":
                columns.append(column)
                lost = int(column.missing.sum())
                if column.strays:
                    self.notes.append(self._strange(column))
                elif lost:
                    self.notes.append(f'"{name}": {lost} of {self.table.rows} cells are empty')
        if not columns:
            why = "all others are excluded" if exclude else f'"{target}" is the only one'
            raise TableError(f"{self.table.source}: no column is left to learn from: {'; '.join(self.notes) or why}")
        return columns

    def _strange(self, column: Column) -> str:
        """What is said of words in a column of numbers or of dates."""
        rows = [i for i, cell in enumerate(self.table.columns[column.name]) if str(cell).strip() in column.strays]
        first = f"the first is {self.table.columns[column.name][rows[0]]!r} in {self.table.where(rows[0])}"
        away = f"mend them, or leave the column out (--exclude, exclude=[{column.name!r}])"
        lost = int(column.missing.sum()) - len(rows)
        return f'"{column.name}": {len(rows)} cells are no {column.kind}s and count as missing, {first}; {away}' + (
            f"; {lost} of {self.table.rows} cells are empty" if lost else ""
        )

    @property
    def class_weights(self) -> Any:
        """A weight for each class, float32, that makes all count alike over the training rows: rows / (classes · rows of the class)."""
        if self.target is None or self.target.kind != "classes":
            raise ValueError("TableDataset.class_weights: there are classes only where the target is one of them")
        counts = np.bincount(self.tensors[2].numpy()[self.training_rows], minlength=len(self.target.classes))
        return gl.tensor(len(self.training_rows) / (len(counts) * np.maximum(counts, 1)), dtype=gl.float32)

    @property
    def training(self) -> Any:
        return gl.utils.data.TensorDataset(*(t[gl.from_numpy(self.training_rows)] for t in self.tensors))

    @property
    def validation(self) -> Any:
        return gl.utils.data.TensorDataset(*(t[gl.from_numpy(self.validation_rows)] for t in self.tensors))

    def __len__(self) -> int:
        return self.table.rows

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(t[index] for t in self.tensors)
