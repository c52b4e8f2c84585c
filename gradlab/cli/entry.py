"""The table of commands, and how the program starts and ends. Nothing here imports the engine."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from gradlab._version import __version__
from gradlab.cli import options as of
from gradlab.cli.arguments import Parser
from gradlab.cli.completion import WORDS, candidates, completion
from gradlab.cli.failure import FAILED, USAGE, Failure, Raised, chosen, complain
from gradlab.cli.reporting import reported

INTERRUPTED = 130  # what a shell reports for a program ended by Ctrl-C
BROKEN_PIPE = 141  # … and for one whose reader went away
FULL = {errno.ENOSPC, errno.EFBIG, errno.EIO, errno.EDQUOT}  # what a stdout says that takes no more


class Command:
    """One row of the table: what to type, one line about it, its options, and where the function is that does it ("file:function")."""

    def __init__(self, name: str, summary: str, configure: Callable[..., None], place: str) -> None:
        self.name, self.summary, self.configure, self.place = name, summary, configure, place

    def run(self, options: argparse.Namespace) -> int:
        """Do it; an exit code."""
        file, _, function = self.place.partition(":")
        does = getattr(import_module(f"gradlab.cli.{file}"), function)
        return reported(self.name, options, does) if getattr(options, "json", False) else int(does(options))


COMMANDS = {
    command.name: command
    for command in (
        Command("run", "run a script that was written for PyTorch, unchanged", of.run, "run:run"),
        Command("train", "train a model on data of yours, or on a data set that comes with gradlab", of.train, "train:run"),
        Command("launch", "run a command in several processes, which share its training", of.launch, "launch:run"),
        Command("predict", "let a trained run predict", of.predict, "use:predict"),
        Command("evaluate", "measure a trained run on other data", of.evaluate, "use:evaluate"),
        Command("sample", "let a trained language model write", of.sample, "sample:run"),
        Command("export", "write a trained run's model as ONNX, as a traced program, or as C", of.export, "export:run"),
        Command("runs", "list trained runs, with their results", of.runs, "use:runs"),
        Command("parity", "compare a model of yours on the CPU and on a GPU, real or emulated", of.parity, "parity:run"),
        Command("build", "write a traced program as C, to run with no Python", of.build, "build:run"),
        Command("explain", "show the graph of a model of yours: as text, a picture, or a page", of.explain, "explain:run"),
        Command("kernels", "compile a CUDA file of yours for every GPU, and run it on the emulated one", of.kernels, "kernels:run"),
        Command("warm", "compile the kernels that eager code uses on the CPU, once for all programs", of.warm, "warm:run"),
        Command("info", "show versions and devices, and what is missing", of.info, "info:run"),
        Command("completion", "print a script for bash, zsh or fish that completes command lines", completion, "completion:script"),
    )
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program on `argv` (sys.argv[1:] by default) and returns its exit code.

    0 done, 1 failed, 2 wrong usage, 130 interrupted. Anything else that is raised is a bug and keeps its traceback.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in ("run", "launch"):  # what they start has handlers of its own
        return ended(arguments, lambda: run(arguments))
    with ending_by_exception():
        return ended(arguments, lambda: run(arguments))


class Terminated(BaseException):
    """A signal asks the program to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def ending_by_exception() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the program as Ctrl-C does, so that what was begun is put away, workers and empty folders too. What
    handles them itself, or was told to ignore them (`nohup`), goes on doing so."""

    def end(number: int, _: Any) -> None:
        raise Terminated(number)

    there = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows has no SIGHUP
    own = threading.current_thread() is threading.main_thread()  # Python lets only the main thread have handlers
    numbers = [number for number in there if own and signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def at_once(arguments: Sequence[str]) -> int | None:
    """What can be said without the engine, and the exit code then; None where a command is to be run."""
    code = ended(arguments, lambda: found if isinstance(found := understood(arguments), int) else -1)
    return None if code < 0 else code


def begin() -> None:
    """The start of `python -m gradlab`, before the engine is imported: SystemExit where it is the end already, too."""
    code = at_once(sys.argv[1:])
    if code is not None:
        raise SystemExit(code)

    def interrupted(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        """Ctrl-C while the engine is imported."""
        if issubclass(kind, KeyboardInterrupt):
            complain("gradlab: interrupted")
        else:
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = interrupted


def ended(arguments: Sequence[str], program: Callable[[], int]) -> int:
    """Runs a part of the program; its exit code, however it ends."""
    try:
        code = program()
    except Failure as failure:
        name = arguments[0] if arguments and arguments[0] in COMMANDS else ""
        complain(f"gradlab {name}".rstrip() + f": {failure}")
        code = failure.code
    except Raised as raised:
        complain(str(raised))
        code = FAILED
    except KeyboardInterrupt:
        complain("gradlab: interrupted")
        code = INTERRUPTED
    except Terminated as terminated:
        complain(f"gradlab: ended by {signal.Signals(terminated.number).name}")
        code = 128 + terminated.number
    except MemoryError as error:
        short = " ".join(f"there is not enough memory: {error}".split()).rstrip(": ")
        complain(f"gradlab: {short}; take smaller sizes or batches, or less data")
        code = FAILED
    except OSError as error:
        return lost_output(error)
    try:
        if sys.stdout is not None:  # closed by whoever started the program
            sys.stdout.flush()
    except OSError as error:
        return lost_output(error)
    return code


def lost_output(error: OSError) -> int:
    """Nobody takes what is said; other errors are raised again."""
    if isinstance(error, BrokenPipeError):
        _silence_stdout()
        return BROKEN_PIPE
    if error.filename is not None or error.errno not in FULL:
        raise error
    _silence_stdout()
    complain(f"gradlab: cannot write the output: {error.strerror}")
    return FAILED


def _silence_stdout() -> None:
    """The interpreter flushes stdout once more at its end; give it somewhere to flush to."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(arguments: Sequence[str]) -> int:
    found = understood(arguments)
    return found if isinstance(found, int) else found[0].run(found[1])


def understood(arguments: Sequence[str]) -> int | tuple[Command, argparse.Namespace]:
    """The command and its options; or an exit code where there is nothing more to do."""
    if not arguments:
        complain(overview())
        return USAGE
    first = arguments[0]
    if first == "help" and len(arguments) > 1:
        return understood([*arguments[1:], "--help"])
    if first in ("-h", "--help", "help"):
        print(overview())
        return 0
    if list(arguments[:2]) == ["completion", WORDS]:
        print("\n".join(candidates(arguments[2:], {name: command.summary for name, command in COMMANDS.items()}, parser_of)))
        return 0
    if first in ("-V", "--version"):
        print(f"gradlab {__version__}")
        return 0
    if first.startswith("-"):
        raise Failure(f"unknown option {first}; gradlab --help shows how to use the program")
    command = COMMANDS[chosen("command", first, COMMANDS)]
    parser = parser_of(command.name, list(arguments[1:]))
    try:
        return command, parser.parse(list(arguments[1:]))
    except SystemExit as stop:  # --help
        return int(stop.code or 0)


def parser_of(name: str, arguments: list[str]) -> Parser:
    """What understands the arguments of a command."""
    command = COMMANDS[name]
    parser = Parser(prog=f"gradlab {name}", description=command.summary)
    command.configure(parser, *([arguments] if name == "train" else []))
    return parser


def overview() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {command.name:<{width}}  {command.summary}" for command in COMMANDS.values())
    return (
        f"gradlab {__version__}: a tensor and autograd engine\n\n"
        f"usage: gradlab COMMAND [options]\n\n{commands}\n\n"
        f"To begin:\n"
        f"  gradlab train digits    learn the digits that come with gradlab: a minute, nothing to fetch\n"
        f"  gradlab info            what this machine has, and what is missing\n"
        f"  gradlab help train      a command's options and their defaults\n\n"
        f"Exit codes: 0 done, 1 failed or differs, 2 wrong usage, 130 interrupted. --json: results for programs."
    )
