"""`gradlab build program.glp`: a traced program as C, to run with no Python (docs/deploy.md)."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from gradlab.cli.failure import FAILED, Failure
from gradlab.deploy import Refused, TargetError, build


def run(options: argparse.Namespace) -> int:
    """Writes NAME.c, NAME.h and NAME.weights, and prints how to compile them."""
    sizes = {name: int(number) for name, _, number in (text.partition("=") for text in options.size)}
    try:
        chosen = {"target": options.target, "cpu": options.cpu, "static": options.static}
        built = build(options.program, options.folder, name=options.name, sizes=sizes, **chosen)
    except (Refused, TargetError, ValueError, OSError) as error:
        raise Failure(_for_the_shell(str(error)), FAILED) from None
    options.result = {**{k: v for k, v in asdict(built).items() if k != "module"}, "command": built.command}
    print(built)
    return 0


def _for_the_shell(message: str) -> str:
    """`build`'s message without its name, which the command prints itself, and with the command's options as the way out."""
    return message.removeprefix("build: ").replace('sizes={"batch": 1}', "--size batch=1").replace('name="model"', "--name model")
