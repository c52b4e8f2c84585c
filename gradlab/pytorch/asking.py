"""How a program asks for a name: what is read from the frame in which it does."""

from __future__ import annotations

import ast
from dis import opname
from linecache import getlines
from types import FrameType


def _instruction(frame: FrameType) -> str:
    return opname[frame.f_code.co_code[frame.f_lasti]]


def imports_it(frame: FrameType) -> bool:
    """Whether it is at `from module import name`."""
    return _instruction(frame) == "IMPORT_FROM"


def takes_it(frame: FrameType) -> bool:
    """Whether it takes the attribute itself, and does not call a function that looks for it (`hasattr`, `getattr`)."""
    return _instruction(frame) in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")


def within_try(frame: FrameType) -> bool:
    """Whether the line that it is at stands in a `try` that has a handler."""
    try:
        tree = ast.parse("".join(getlines(frame.f_code.co_filename)))
    except SyntaxError:
        return False
    tries = [node for node in ast.walk(tree) if isinstance(node, ast.Try) and node.handlers]
    return any(node.body[0].lineno <= frame.f_lineno <= (node.body[-1].end_lineno or 0) for node in tries)
