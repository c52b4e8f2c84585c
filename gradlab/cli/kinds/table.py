"""`gradlab train table data.csv --target y`."""

from __future__ import annotations

import argparse
from typing import Any

from gradlab.cli.arguments import Parser, file_or_address, share
from gradlab.cli.failure import Failure

SUMMARY = "a CSV or TSV file (also .gz), or Parquet where pandas or polars is installed: predict one of its columns"
# For the help; what is taken is the task\'s `defaults`.
USUAL = {"epochs": 60, "batch": "a twentieth of the rows, 16 to 256", "lr": 0.003}


def configure(parser: Parser) -> None:
    parser.add_argument("file", nargs="?", help=SUMMARY.partition(":")[0])
    parser.add_argument("--target", metavar="COLUMN", help="what to predict: a column's name, or its place (-1 is the last)")
    parser.add_argument("--task", choices=["classes", "number"], help="what the target is (default: found out)")
    parser.add_argument("--exclude", metavar="A,B", help="columns that the model is not to see")
    parser.add_argument("--validation", type=share, metavar="SHARE", help="of the rows is held out (default: 0.2)")
    parser.add_argument("--skip-ragged", action="store_true", help="leave out lines with another number of cells than most")


def source(options: argparse.Namespace) -> str:
    if options.file is None or options.target is None:
        raise Failure("a table is a file and a column to predict: gradlab train table data.csv --target COLUMN")
    return file_or_address(options.file)


def data(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"target": options.target, "seed": options.seed or 0}
    found |= {"task": options.task} if options.task else {}
    found |= {"exclude": [name.strip() for name in options.exclude.split(",")]} if options.exclude else {}
    found |= {"fraction": options.validation} if options.validation else {}
    return found | ({"ragged": "skip"} if options.skip_ragged else {})
