"""What a run is used for afterwards: `gradlab predict`, `gradlab evaluate`, and `gradlab runs`, which lists them."""

from __future__ import annotations

import argparse
import csv
import io
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from gradlab.backends.threads import set_blas_threads
from gradlab.cli.failure import FAILED, Failure
from gradlab.cli.run_folder import RUNS
from gradlab.cli.targets import users_code
from gradlab.data import DataError
from gradlab.runs import RunError, TrainedRun, load_run, runs_in
from gradlab.utils.atomic import write_text
from gradlab.utils.words import in_columns

Found = TypeVar("Found")


def predict(options: argparse.Namespace) -> int:
    """A CSV of predictions and, of classes, a column for each probability; of a table with its own columns before."""
    trained = loaded(options.run)
    columns, notes = asked(lambda: trained.task.predicted(trained.model, options.data))
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*map(_written, columns.values()), strict=True))
    options.result = [dict(zip(columns, row)) for row in zip(*map(_written, columns.values()), strict=True)]
    if options.out is None:
        print(text.getvalue(), end="")
        return 0
    try:
        write_text(options.out, text.getvalue())
    except OSError as error:
        raise Failure(f"cannot write {options.out}: {error.strerror}", FAILED) from error
    print(f"{len(next(iter(columns.values()))):,} predictions of {trained.task.goal} are in {options.out}")
    return 0


def asked(question: Callable[[], Found]) -> Found:
    """What a task answers; what is wrong with its data is one line, and code of the user's shows its own frames."""
    with users_code("the run", ()):
        try:
            return question()
        except (DataError, RunError) as error:
            raise Failure(str(error), FAILED) from error
        except OSError as error:
            raise Failure(f"{error.filename or 'cannot read'}: {error.strerror or error}", FAILED) from error


def _written(column: Any) -> list[Any]:
    """Of numbers the shortest text that gives them back."""
    floats = isinstance(column, np.ndarray) and column.dtype.kind == "f"
    return [str(value) for value in column] if floats else list(column)


def evaluate(options: argparse.Namespace) -> int:
    """The metrics of data, a line for each."""
    trained = loaded(options.run)
    found, notes = asked(lambda: trained.task.evaluated(trained.model, options.data))
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    options.result = found
    for name, value in found.items():
        print(f"{name.replace('_', ' '):<18} {value:.6g}")
    return 0


def runs(options: argparse.Namespace) -> int:
    """A table of the runs in a folder, the newest last."""
    folder = options.folder or RUNS
    options.result = lines = runs_in(folder)
    if not lines:
        print(f"no runs in {folder}" + ("" if options.folder is None or os.path.isdir(folder) else ", which is no folder"))
        return 0
    names = list(lines[0])
    print(in_columns([names, *([_shown(line[name]) for name in names] for line in lines)]))
    return 0


def _shown(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def loaded(folder: str) -> TrainedRun:
    """The run in a folder; a Failure where there is none."""
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        set_blas_threads(1)  # as in training
    return asked(lambda: load_run(folder))
