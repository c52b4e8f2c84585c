"""Where in the user's code an operation was called: kept as (code, instruction), turned into a line when somebody asks."""

from __future__ import annotations

import linecache
import os
import re
import sys
from types import CodeType, FrameType
from typing import Any, NamedTuple

PACKAGE = os.path.dirname(os.path.realpath(__file__))
MODELS = os.path.join(PACKAGE, "models")  # written as a user would write them: their lines are worth showing


class Position(NamedTuple):
    """A place in a source file; `line` counts from 1, `text` is the line's text."""

    file: str
    line: int
    function: str

    @property
    def text(self) -> str:
        return linecache.getline(self.file, self.line).strip()

    @property
    def cell(self) -> str:
        """"cell 3" for a line of a notebook's third cell; "" for others."""
        return cell_of(self.file)

    def __str__(self) -> str:
        cell = self.cell
        where = f'File "{self.file}"' if not cell else cell.capitalize()
        where += f", line {self.line}, in {self.function}"
        return f"{where}\n    {self.text}" if self.text else where


def cell_of(file: str) -> str:
    """"cell 3" where IPython has compiled the third cell from what it calls `file`; "" for files, and where there is no IPython."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name = getattr(getattr(shell, "compile", None), "format_code_name", lambda name: None)(file) if shell is not None else None
    number = re.fullmatch(r"In\[(\d+)\]", name[1]) if name else None
    return f"cell {number[1]}" if number else ""


class Scope:
    """One call of an nn.Module: its name, where it was called from, and the scope around it."""

    __slots__ = ("code", "lasti", "module", "name", "outer")

    def __init__(self, module: str, name: str, outer: Scope | None, code: CodeType | None, lasti: int) -> None:
        self.module, self.name, self.outer, self.code, self.lasti = module, name, outer, code, lasti

    def path(self) -> tuple[Scope, ...]:
        """From the outermost scope to this one."""
        outer = self.outer.path() if self.outer is not None else ()
        return (*outer, self)


class _Inside(dict[str, bool]):
    """File name -> whether it lies in gradlab (models apart); worked out once for each file (20 ns a look-up)."""

    def __missing__(self, file: str) -> bool:
        found = self[file] = file.startswith(PACKAGE) and not file.startswith(MODELS)
        return found


inside = _Inside()


def in_library(code: CodeType) -> bool:
    """Whether the code belongs to gradlab itself."""
    return inside[code.co_filename]


def line_of(code: CodeType, lasti: int) -> Position:
    """The line of one instruction."""
    for start, end, line in code.co_lines():
        if start <= lasti < end and line is not None:
            return Position(code.co_filename, line, code.co_qualname)
    return Position(code.co_filename, code.co_firstlineno, code.co_qualname)


def locate(code: CodeType | None, lasti: int, scope: Scope | None) -> Position | None:
    """The user's line of a recorded operation: its own, or else that of the innermost module call in user code."""
    inner = scope
    if code is not None and not in_library(code):
        return line_of(code, lasti)
    while inner is not None:
        if inner.code is not None and not in_library(inner.code):
            return line_of(inner.code, inner.lasti)
        inner = inner.outer
    return None


def user_frame(frame: FrameType | None) -> tuple[Any, int]:
    """Code and instruction of the nearest caller outside the library (0.05 µs a frame; for the general path only)."""
    while frame is not None:
        code = frame.f_code
        if not inside[code.co_filename]:
            return code, frame.f_lasti
        frame = frame.f_back
    return None, 0


def caller() -> tuple[Any, int]:
    """As `user_frame`, of whoever called into the library."""
    return user_frame(sys._getframe(1))
