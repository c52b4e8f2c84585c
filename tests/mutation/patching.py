"""A fault in functions that exist already: their code is replaced in the running process, so nothing is imported or collected again."""

from __future__ import annotations

import ast
import gc
import inspect
from types import CodeType, FunctionType

FUNCTION = inspect.CO_OPTIMIZED  # else the code of a module or of a class's body, which has run


def nested(code: CodeType) -> list[CodeType]:
    return [c for c in code.co_consts if isinstance(c, CodeType)]


def own(code: CodeType) -> tuple[object, ...]:
    """What a piece of code does, apart from the functions that it makes."""
    constants = [c for c in code.co_consts if not isinstance(c, CodeType)]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, repr(constants)


def changed(old: CodeType, new: CodeType) -> dict[CodeType, CodeType] | None:
    """The functions' codes that differ, old to new; None where what differs has run when the file was imported."""
    inner = list(zip(nested(old), nested(new), strict=False))
    differs = own(old) != own(new)
    if len(nested(old)) != len(nested(new)) or (differs and not old.co_flags & FUNCTION):
        return None
    found: dict[CodeType, CodeType] = {}
    for one, other in inner:
        below = changed(one, other)
        if below is None:
            return None
        found |= below
    if (differs or found) and old.co_flags & FUNCTION:
        found[old] = new
    return found


def plant(path: str, text: str, after: str) -> bool:
    """Gives all functions of a file that differ their new code; False where that cannot be done."""
    try:
        codes = changed(*(compile(t, path, "exec", dont_inherit=True) for t in (text, after)))
        if not codes:
            return False
        functions = [f for f in gc.get_objects() if type(f) is FunctionType and f.__code__.co_filename == path and f.__code__ in codes]
        for function in functions:
            function.__code__ = codes[function.__code__]
    except ValueError:  # it holds other variables of the functions around it
        return False
    return bool(functions)


def is_default(text: str, offset: int) -> bool:
    """Whether a place of a file's text lies in a parameter's default."""
    at = text.count("\n", 0, offset) + 1, len(text[text.rfind("\n", 0, offset) + 1 : offset].encode())
    every = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.arguments))
    defaults = [d for node in every for d in (*node.defaults, *node.kw_defaults) if d is not None]
    return any((d.lineno, d.col_offset) <= at < (d.end_lineno, d.end_col_offset) for d in defaults)


def statement_lines(text: str, offset: int) -> tuple[int, int]:
    """First and last line of the innermost statement, or of the body of the innermost lambda, at a place of a file's text."""
    at = text.count("\n", 0, offset) + 1, len(text[text.rfind("\n", 0, offset) + 1 : offset].encode())
    found = (0, 0), (0, 0)
    for node in ast.walk(ast.parse(text)):
        part = node.body if isinstance(node, ast.Lambda) else node
        if not isinstance(part, ast.stmt) and part is node:
            continue
        begin = min([(d.lineno, 0) for d in getattr(part, "decorator_list", [])], default=(part.lineno, part.col_offset))
        if begin <= at < (part.end_lineno, part.end_col_offset):
            found = max(found, ((part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)))
    return found[0][0], found[1][0]
