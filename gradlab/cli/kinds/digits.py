"""`gradlab train digits`."""

from __future__ import annotations

import argparse
from typing import Any

from gradlab.cli.arguments import Parser

SUMMARY = "the handwritten digits that come with gradlab: no file is needed"


def configure(parser: Parser) -> None:
    parser.add_argument("--model", choices=["cnn", "mlp"], help="a convolutional network or a fully connected one (default: cnn)")


def source(options: argparse.Namespace) -> str:
    return "digits"


def data(options: argparse.Namespace) -> dict[str, Any]:
    return {"model": options.model} if options.model else {}
