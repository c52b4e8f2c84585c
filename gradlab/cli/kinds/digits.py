"""`gradlab train digits`."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from gradlab.cli.arguments import Parser
from gradlab.cli.failure import chosen

SUMMARY = "the handwritten digits that come with gradlab: no file is needed"
# For the help; what is taken is the task\'s `defaults`.
USUAL = {"epochs": "15; mlp: 30", "batch": 64, "lr": "0.004; mlp: 0.003"}
MODELS = ("cnn", "mlp")


def configure(parser: Parser) -> None:
    parser.add_argument("--model", type=partial(chosen, "model", known=MODELS), help=f"{' or '.join(MODELS)} (default: {MODELS[0]})")


def source(options: argparse.Namespace) -> str:
    return "digits"


def data(options: argparse.Namespace) -> dict[str, Any]:
    return {"model": options.model} if options.model else {}
