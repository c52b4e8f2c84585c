"""`gradlab build program.glp`: a traced program as C, to run with no Python (docs/deploy.md)."""

from __future__ import annotations

import argparse
from pathlib import Path

from gradlab.cli.arguments import Parser
from gradlab.cli.failure import FAILED, Failure
from gradlab.deploy import Refused, build


def configure(parser: Parser) -> None:
    """The command's options."""
    parser.add_argument("program", metavar="PROGRAM.glp", help="a file that gl.jit.save wrote")
    parser.add_argument("--folder", metavar="FOLDER", help="where the files go (default: beside the program)")
    parser.add_argument("--name", help="of the functions and the files (default: the program's)")
    parser.add_argument(
        "--size", action="append", default=[], metavar="NAME=NUMBER", help="a number for an unknown size of the program (repeatable)"
    )


def run(options: argparse.Namespace) -> int:
    """Writes NAME.c, NAME.h and NAME.weights, and prints how to compile them."""
    sizes = {}
    for text in options.size:
        name, _, number = text.partition("=")
        if not name or not number.isdigit():
            raise Failure(f"--size takes NAME=NUMBER, not {text!r}")
        sizes[name] = int(number)
    if not Path(options.program).is_file():
        raise Failure(f"no file {options.program!r} here")
    try:
        print(build(options.program, options.folder, name=options.name, sizes=sizes))
    except (Refused, ValueError, OSError) as error:
        raise Failure(_for_the_shell(str(error)), FAILED) from None
    return 0


def _for_the_shell(message: str) -> str:
    """`build`'s message without its name, which the command prints itself, and with the command's options as the way out."""
    return message.removeprefix("build: ").replace('sizes={"batch": 1}', "--size batch=1").replace('name="model"', "--name model")
