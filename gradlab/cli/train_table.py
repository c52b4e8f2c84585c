"""`gradlab train table data.csv --target y`, and going on with such a run."""

from __future__ import annotations

import argparse
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from gradlab.cli.arguments import Parser, positive_integer, positive_number
from gradlab.cli.devices import best_device, usable_device
from gradlab.cli.failure import FAILED, Failure
from gradlab.cli.run_folder import new_folder
from gradlab.data.tables import TableError
from gradlab.runs import RunError, Settings, TrainedRun, resume, start
from gradlab.runs.report import beaten
from gradlab.train import Diverged

say = partial(print, flush=True)  # also into a pipe or a file as it comes
OWN = {  # options of tables alone: by attribute, what they are called
    "data": "a file", "target": "--target", "task": "--task", "exclude": "--exclude", "validation": "--validation",
    "early_stop": "--early-stop", "compile": "--compile", "amp": "--amp", "skip_ragged": "--skip-ragged",
}  # fmt: skip


def configure(parser: Parser) -> None:
    """The options of a table, beside those that every run has."""
    parser.add_argument("data", nargs="?", help="of table: a CSV or TSV file (also .gz), or Parquet where pandas or polars is installed")
    parser.add_argument("--target", metavar="COLUMN", help="what to predict: a column's name, or its place (-1 is the last)")
    parser.add_argument("--task", choices=["classes", "number"], help="what the target is (default: found out)")
    parser.add_argument("--exclude", metavar="A,B", help="columns that the model is not to see")
    parser.add_argument("--validation", type=positive_number, metavar="SHARE", help="of the rows is held out (default: 0.2)")
    parser.add_argument("--early-stop", type=positive_integer, metavar="N", help="end after N epochs that were no better")
    parser.add_argument("--compile", action="store_true", help="one static program for each training step")
    parser.add_argument("--amp", choices=["bfloat16", "float16"], help="mixed precision")
    parser.add_argument("--skip-ragged", action="store_true", help="leave out lines with another number of cells than most")


def refuse_own(options: argparse.Namespace) -> None:
    """A Failure where an option of tables was given to another task."""
    if options.data is not None:
        raise Failure(f"unexpected argument {options.data!r}")
    given = [name for attribute, name in OWN.items() if getattr(options, attribute)]
    if given:
        raise Failure(f"{given[0]} belongs to tables: gradlab train table data.csv --target COLUMN")


def run(options: argparse.Namespace) -> int:
    """Train, say what was reached; an exit code."""
    try:
        trained = _resumed(options) if options.resume is not None else _started(options)
    except (TableError, RunError) as error:
        raise Failure(str(error), FAILED) from error
    except Diverged as error:
        raise Failure(f"{error}; a smaller --lr may help", FAILED) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(f"{error.filename or 'cannot write'}: {error.strerror or error}{_kept(options)}", FAILED) from error
    return _report(trained)


def _kept(options: argparse.Namespace) -> str:
    """Where a run was left that can be gone on with."""
    folder = options.resume or options.out
    return f"; go on with: gradlab train --resume {folder}" if folder is not None and _begun(folder) else ""


def _begun(folder: Path) -> bool:
    return any((folder / "checkpoints").glob("checkpoint-*.safetensors"))


def _started(options: argparse.Namespace) -> TrainedRun:
    if options.data is None or options.target is None:
        raise Failure("a table is a file and a column to predict: gradlab train table data.csv --target COLUMN")
    if options.model is not None:
        raise Failure("--model: a table has one kind of model; leave it out")
    if options.validation is not None and not options.validation < 1:
        raise Failure(f"--validation: a share of the rows, below 1, not {options.validation:g}")
    data: dict[str, Any] = {"target": options.target, "seed": options.seed or 0}
    data |= {"task": options.task} if options.task else {}
    data |= {"exclude": [name.strip() for name in options.exclude.split(",")]} if options.exclude else {}
    data |= {"fraction": options.validation} if options.validation else {}
    data |= {"ragged": "skip"} if options.skip_ragged else {}
    settings = Settings(
        epochs=options.epochs or 60, batch_size=options.batch_size, learning_rate=options.lr or 3e-3, seed=options.seed or 0,
        device=usable_device(options.device or best_device()), compile=options.compile, amp=options.amp, early_stop=options.early_stop,
        data=data,
    )  # fmt: skip
    if not Path(options.data).exists():
        raise Failure(f"no file {options.data!r}")
    folder = new_folder(options.out, "table")
    try:
        return start(options.data, folder.path, settings, say)
    except BaseException as error:
        if not _begun(folder.path):
            shutil.rmtree(folder.path, ignore_errors=True)  # it was made for this run, and holds nothing to go on from
        elif options.out is None and isinstance(error, (OSError, Diverged)):
            options.out = folder.path  # for the message
        raise


def _resumed(options: argparse.Namespace) -> TrainedRun:
    given = [name for attribute, name in OWN.items() if getattr(options, attribute)]
    given += [f"--{name.replace('_', '-')}" for name in ("model", "batch_size", "lr", "seed", "out") if getattr(options, name) is not None]
    if given:
        raise Failure(f"{given[0]}: a resumed run keeps its settings and its data; leave that out, or start a new run without --resume")
    return resume(options.resume, options.epochs, options.device and usable_device(options.device), say)


def _report(trained: TrainedRun) -> int:
    description = trained.description
    score, result = description["score"], description["result"]
    if result["stopped"].startswith("signal"):
        print(f"\nstopped after {result['epochs']} epochs; resume with: gradlab train --resume {trained.folder}")
        return 128 + int(result["stopped"].split()[1])
    others = ", ".join(f"{name} {values[score]:.4g}" for name, values in description["baselines"].items())
    print(f"{score.replace('_', ' ')} {result['best']:.4g} on the validation rows ({others}) in {result['seconds']:g} s")
    if not beaten(description):
        print("this does not beat the simpler models: use one of those, or find more or better data")
    print(f"report: {trained.folder / 'report.html'}; use it: gradlab predict {trained.folder} new.csv")
    return 0
