"""Command-line values, checked where they are read: each message names the option, the rule, and what was given."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from gradlab.cli.failure import Failure, chosen, suggestion

SEEDS = 2**63  # one more than the largest seed: what an int64 tensor can hold


def is_address(text: str) -> bool:
    """Whether data is fetched from there, and is no file."""
    return "://" in text


def file_or_address(text: str) -> str:
    """Where data is, as it was given; a Failure for a file that is not there."""
    if not is_address(text) and not Path(text).exists():
        raise Failure(f"no file {text!r}")
    return text


class Parser(argparse.ArgumentParser):
    """argparse, but a mistake is a Failure of one line instead of a usage text and an exit from within.

    Options cannot be abbreviated: a script that says `--epoch` would break on the day a second `--epoch…` appears.
    """

    def __init__(self, **keywords: Any) -> None:
        self.option_names: list[str] = []
        self.checks: list[Callable[[argparse.Namespace], None]] = []  # of options together; a check raises a Failure
        super().__init__(allow_abbrev=False, **keywords)

    def add_argument(self, *names: Any, **keywords: Any) -> argparse.Action:
        self.option_names += [name for name in names if name.startswith("--")]
        return super().add_argument(*names, **keywords)

    def print_help(self, file: Any = None) -> None:
        """argparse's own says nothing of an output that takes no more."""
        print(self.format_help(), end="", file=file)

    def error(self, message: str) -> NoReturn:
        raise Failure(message.removeprefix("argument ").replace("expected one argument", "needs a value"))

    def parse(self, arguments: list[str]) -> argparse.Namespace:
        options, left = self.parse_known_args(arguments)
        if left:
            name = left[0].partition("=")[0]
            if not name.startswith("-"):
                raise Failure(f"unexpected argument {name!r}")
            near = suggestion(name, self.option_names) or f"; {self.prog} --help lists the options"
            raise Failure(f"unknown option {name}{near}")
        for check in self.checks:
            check(options)
        return options


def whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None


def positive_integer(text: str) -> int:
    number = whole_number(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def at_least_two(text: str) -> int:
    number = whole_number(text)
    if number < 2:
        raise argparse.ArgumentTypeError(f"must be at least 2, not {number}")
    return number


def seed(text: str) -> int:
    number = whole_number(text)
    if not 0 <= number < SEEDS:
        raise argparse.ArgumentTypeError(f"must be between 0 and 2**63 - 1, not {number}")
    return number


def whole_from_0(text: str) -> int:
    number = whole_number(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"must be 0 or more, not {number}")
    return number


def share(text: str) -> float:
    return _below_1(positive_number(text), text)


def share_from_0(text: str) -> float:
    return _below_1(number_from_0(text), text)


def _below_1(number: float, text: str) -> float:
    if number >= 1:
        raise argparse.ArgumentTypeError(f"must be a share, below 1, not {text}")
    return number


def positive_number(text: str) -> float:
    number = _number(text)
    if not (math.isfinite(number) and number > 0):
        raise argparse.ArgumentTypeError(f"must be a finite number above 0, not {text}")
    return number


def number_from_0(text: str) -> float:
    number = _number(text)
    if not (math.isfinite(number) and number >= 0):
        raise argparse.ArgumentTypeError(f"must be a finite number, 0 or above, not {text}")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}") from None


def device(text: str) -> str:
    """A device's name, of the form that names have; whether it is here is asked later (`devices.usable_device`)."""
    kind, colon, number = text.partition(":")
    chosen("device", kind, ("cpu", "cuda"))
    if colon and not number.isdecimal():
        raise Failure(f"no device {text!r}; write cpu, cuda or cuda:N")
    if kind == "cpu" and colon:
        raise Failure(f"no device {text!r}; there is one cpu, named cpu")
    return text


def target(text: str) -> str:
    """module:function."""
    module, colon, function = text.partition(":")
    if not colon or not module or not function:
        raise Failure(f"{text!r} is not of the form module:function, for example mymodel:example")
    return text
