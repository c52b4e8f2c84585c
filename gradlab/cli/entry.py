"""The table of commands, and how the program starts and ends."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradlab._version import __version__
from gradlab.cli import build, explain, info, kernels, parity, run as running, train, use
from gradlab.cli.arguments import Parser
from gradlab.cli.failure import FAILED, USAGE, Failure, chosen

INTERRUPTED = 130  # what a shell reports for a program ended by Ctrl-C
BROKEN_PIPE = 141  # … and for one whose reader went away
FULL = {errno.ENOSPC, errno.EFBIG, errno.EIO}  # what a stdout says that takes no more


@dataclass(frozen=True)
class Command:
    """One row of the table: what to type, one line about it, its options, and what it does."""

    name: str
    summary: str
    configure: Callable[..., None]  # of the parser and, for `train`, the arguments: a kind of run has options of its own
    run: Callable[[argparse.Namespace], int]


COMMANDS = {
    command.name: command
    for command in (
        Command("run", "run a script that was written for PyTorch, unchanged", running.configure, running.run),
        Command("train", "train a model on data of yours, or on a data set that comes with gradlab", train.configure, train.run),
        Command("predict", "let a trained run predict", use.configure_predict, use.predict),
        Command("evaluate", "measure a trained run on other data", use.configure_evaluate, use.evaluate),
        Command("runs", "list trained runs, with their results", use.configure_runs, use.runs),
        Command("parity", "compare a model of yours on the CPU and on a GPU, real or emulated", parity.configure, parity.run),
        Command("build", "write a traced program as C, to run with no Python", build.configure, build.run),
        Command("explain", "show the graph of a model of yours: as text, a picture, or a page", explain.configure, explain.run),
        Command("kernels", "compile a CUDA file of yours for every GPU, and run it on the emulated one", kernels.configure, kernels.run),
        Command("info", "show versions and devices, and what is missing", info.configure, info.run),
    )
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program on `argv` (sys.argv[1:] by default) and returns its exit code.

    0 done, 1 failed, 2 wrong usage, 130 interrupted. Anything else that is raised is a bug and keeps its traceback.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = run(arguments)
        if sys.stdout is not None:  # closed by whoever started the program
            sys.stdout.flush()
        return code
    except Failure as failure:
        name = arguments[0] if arguments and arguments[0] in COMMANDS else ""
        print(f"gradlab {name}".rstrip() + f": {failure}", file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        print("gradlab: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _silence_stdout()
        return BROKEN_PIPE
    except OSError as error:
        if error.filename is not None or error.errno not in FULL:
            raise
        _silence_stdout()
        print(f"gradlab: cannot write the output: {error.strerror}", file=sys.stderr)
        return FAILED


def _silence_stdout() -> None:
    """The interpreter flushes stdout once more at its end; give it somewhere to flush to."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(arguments: list[str]) -> int:
    if not arguments:
        print(overview(), file=sys.stderr)
        return USAGE
    first = arguments[0]
    if first in ("-h", "--help", "help"):
        print(overview())
        return 0
    if first in ("-V", "--version"):
        print(f"gradlab {__version__}")
        return 0
    if first.startswith("-"):
        raise Failure(f"unknown option {first}; gradlab --help shows how to use the program")
    command = COMMANDS[chosen("command", first, COMMANDS)]
    parser = Parser(prog=f"gradlab {command.name}", description=command.summary)
    command.configure(parser, *([arguments[1:]] if command.name == "train" else []))
    try:
        options = parser.parse(arguments[1:])
    except SystemExit as stop:  # --help
        return int(stop.code or 0)
    return command.run(options)


def overview() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {command.name:<{width}}  {command.summary}" for command in COMMANDS.values())
    return (
        f"gradlab {__version__}: a tensor and autograd engine\n\n"
        f"usage: gradlab COMMAND [options]\n\n{commands}\n\n"
        f"gradlab COMMAND --help lists a command's options."
    )
