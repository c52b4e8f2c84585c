"""What a run is used for afterwards: `gradlab predict`, `gradlab evaluate`, and `gradlab runs`, which lists them."""

from __future__ import annotations

import argparse
import csv
import io
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from gradlab.cli.arguments import Parser
from gradlab.cli.failure import FAILED, Failure
from gradlab.data.tables import TableError, read_with_columns
from gradlab.runs import RunError, TrainedRun, load_run, runs_in
from gradlab.utils.atomic import write_text
from gradlab.utils.blas import set_blas_threads


def configure_predict(parser: Parser) -> None:
    parser.add_argument("run", help="a run's folder")
    parser.add_argument("data", help="a table with the columns that the run was trained on")
    parser.add_argument("--out", type=Path, metavar="FILE", help="a CSV file for the table with its predictions (default: stdout)")


def configure_evaluate(parser: Parser) -> None:
    parser.add_argument("run", help="a run's folder")
    parser.add_argument("data", help="a table with those columns and the target")


def configure_runs(parser: Parser) -> None:
    parser.add_argument("folder", nargs="?", default="runs", help="where runs are (default: runs)")


def predict(options: argparse.Namespace) -> int:
    """The table with a column of predictions and, of classes, one for each probability."""
    trained = _run(options.run)
    try:
        table = read_with_columns(options.data, trained.task.coding.kinds)
        table.notes.clear()  # only what the run finds strange is said
        found = trained.predict(table)
    except TableError as error:
        raise Failure(str(error), FAILED) from error
    except OSError as error:
        raise Failure(f"{options.data}: {error.strerror or error}", FAILED) from error
    _say(table.notes)
    names = [*table.columns, *(f"{name} (new)" if name in table.columns else name for name in found)]
    columns = [*(["" if c is None else c for c in column] for column in table.columns.values()), *map(_written, found.values())]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(zip(*columns, strict=True))
    if options.out is None:
        print(text.getvalue(), end="")
        return 0
    try:
        write_text(options.out, text.getvalue())
    except OSError as error:
        raise Failure(f"cannot write {options.out}: {error.strerror}", FAILED) from error
    print(f"{table.rows:,} predictions of {trained.task.target.name} are in {options.out}")
    return 0


def _say(notes: list[str]) -> None:
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def _written(column: np.ndarray[Any, Any]) -> list[Any]:
    return [f"{value:.6g}" for value in column] if column.dtype.kind == "f" else list(column)


def evaluate(options: argparse.Namespace) -> int:
    """The metrics of a table, a line for each."""
    trained = _run(options.run)
    try:
        table = read_with_columns(options.data, trained.task.coding.kinds)
        table.notes.clear()
        found = trained.evaluate(table)
    except TableError as error:
        raise Failure(str(error), FAILED) from error
    except OSError as error:
        raise Failure(f"{options.data}: {error.strerror or error}", FAILED) from error
    _say(table.notes)
    for name, value in found.items():
        print(f"{name.replace('_', ' '):<18} {value:.6g}")
    return 0


def runs(options: argparse.Namespace) -> int:
    """A table of the runs in a folder, the newest last."""
    lines = runs_in(options.folder)
    if not lines:
        print(f"no runs in {options.folder}")
        return 0
    names = list(lines[0])
    cells = [names, *([_shown(line[name]) for name in names] for line in lines)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _shown(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _run(folder: str) -> TrainedRun:
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        set_blas_threads(1)  # as in training
    try:
        return load_run(folder)
    except RunError as error:
        raise Failure(str(error), FAILED) from error
