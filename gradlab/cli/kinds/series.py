"""`gradlab train series data.csv --value y --horizon 24`."""

from __future__ import annotations

import argparse
from typing import Any

from gradlab.cli.arguments import Parser, file_or_address, positive_integer, share
from gradlab.cli.failure import Failure

SUMMARY = "a table of numbers in the order of time: forecast one of its columns, or several"
# For the help; what is taken is the task\'s `defaults`.
USUAL = {"epochs": 30, "batch": 32, "lr": 0.001}


def configure(parser: Parser) -> None:
    parser.add_argument("file", nargs="?", help="a CSV or TSV file (also .gz), or Parquet where pandas or polars is installed")
    parser.add_argument("--value", metavar="A,B", help="the column to forecast, or several (default: the only one of numbers)")
    parser.add_argument("--horizon", type=positive_integer, metavar="N", help="steps to forecast (default: 24)")
    parser.add_argument("--window", type=positive_integer, metavar="N", help="steps to look back on (default: two seasons)")
    parser.add_argument("--season", type=positive_integer, metavar="N", help="steps after which it repeats itself (default: found out)")
    parser.add_argument("--date", metavar="COLUMN", help="the column that says when (default: found out)")
    parser.add_argument("--covariates", metavar="A,B", help="further columns to look back on")
    parser.add_argument("--gaps", choices=["fill", "split"], help="fill gaps by the value before, or cross none (default: fill short ones)")
    parser.add_argument("--model", choices=["gru", "convolutions"], help="the network beside the linear part (default: gru)")
    parser.add_argument("--validation", type=share, metavar="SHARE", help="of the steps, the last, is held out (default: 0.2)")
    parser.add_argument("--skip-ragged", action="store_true", help="leave out lines with another number of cells than most")


def source(options: argparse.Namespace) -> str:
    if options.file is None:
        raise Failure("a series is a file and a column to forecast: gradlab train series data.csv --value COLUMN --horizon 24")
    return file_or_address(options.file)


def data(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"value": options.value} if options.value else {}
    for name, option in (("fraction", options.validation), ("network", options.model)):
        found |= {name: option} if option else {}
    for name in ("horizon", "window", "season", "date", "gaps"):
        found |= {name: getattr(options, name)} if getattr(options, name) else {}
    found |= {"covariates": [name.strip() for name in options.covariates.split(",")]} if options.covariates else {}
    return found | ({"ragged": "skip"} if options.skip_ragged else {})
