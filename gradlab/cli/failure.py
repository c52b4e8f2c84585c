"""What a user did wrong, or what went wrong for the user, in one line; and help with names that were mistyped."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable

USAGE = 2  # the command line itself is wrong: nothing was done
FAILED = 1  # the command was understood, and could not be carried out


class Failure(Exception):
    """Ends the program with one line on stderr and an exit code, without a traceback."""

    def __init__(self, message: str, code: int = USAGE) -> None:
        super().__init__(" ".join(message.split()))
        self.code = code


class Raised(Exception):
    """Ends the program with what a user's own code raised: the text that Python would print, of the user's frames alone."""


def complain(text: str) -> None:
    """Say it on stderr, where there is one that takes it."""
    try:
        if sys.stderr is not None:
            print(text, file=sys.stderr, flush=True)
    except OSError:
        return


def suggestion(given: str, known: Iterable[str]) -> str:
    """"; did you mean 'digits'?", or nothing if no known name is near."""
    near = difflib.get_close_matches(given.lower(), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def chosen(kind: str, given: str, known: Iterable[str]) -> str:
    """`given` if it is one of the known names; otherwise a Failure that lists them."""
    names = list(known)
    if given in names:
        return given
    near = suggestion(given, names)
    listed = ", ".join(names)
    raise Failure(f"unknown {kind} {given!r}{near or ';'} {kind}s are: {listed}")
