"""`gradlab train module:function`: what the function returns is trained (`gl.train.Recipe`, docs/training.md)."""

from __future__ import annotations

import argparse
import os
from typing import Any

from gradlab.cli.arguments import Parser
from gradlab.cli.failure import Failure

SUMMARY = "or file.py:function: a function of yours that returns a model, its batches, a loss and an optimizer"
# For the help; what is taken is the task\'s `defaults`.
USUAL = {"epochs": "what the function says, or 10", "batch": "the function's loader's", "lr": "the function's optimizer's"}


def configure(parser: Parser) -> None:
    """No options of its own: the function decides."""


def source(options: argparse.Namespace) -> str:
    place, _, name = str(options.kind).rpartition(":")
    if not place or not name.isidentifier():
        raise Failure(f"{options.kind!r} is not of the form module:function or file.py:function, for example mymodel:recipe")
    if options.batch_size is not None:
        raise Failure(f"--batch-size: {options.kind} makes its own batches; set their size there")
    return str(options.kind)


def data(options: argparse.Namespace) -> dict[str, Any]:
    return {"seed": options.seed or 0, "folder": os.getcwd()}
