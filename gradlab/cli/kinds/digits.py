"""`gradlab train digits`."""

from __future__ import annotations

import argparse
from importlib import import_module

from gradlab.cli.arguments import Parser

SUMMARY = "the handwritten digits that come with gradlab"


def configure(parser: Parser) -> None:
    parser.add_argument("--model", help="cnn or mlp (default: cnn)")


def run(options: argparse.Namespace) -> int:
    return int(import_module("gradlab.cli.digits").run(options))
