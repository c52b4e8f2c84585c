"""Making a failing program small: lines are left out as long as it still fails in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable

from .programs import Program


def kind(problem: str) -> str:
    """What a difference is about, without numbers and names of variables: what shrinking must keep."""
    return re.sub(r"\bt\d+\b|\bx\d+\b|[-+]?\d[\d.e+-]*|\[.*", "", problem)[:60]


def shrunk(program: Program, problem: str, check: Callable[[Program], str]) -> tuple[Program, str]:
    """The smallest program found that fails as `program` does, and its problem. check: the problem of a program, or ""."""
    wanted = kind(problem)

    def fails(candidate: Program) -> str:
        try:
            found = check(candidate)
        except Exception as error:
            found = crash(error)
        return found if kind(found) == wanted else ""

    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(program.lines))):
            smaller = program.without(number)
            if found := fails(smaller):
                program, problem, changed = smaller, found, True
    return program, problem


def crash(error: Exception) -> str:
    return f"crash: {type(error).__name__}: {error}"
