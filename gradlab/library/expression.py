"""Checks of elementwise expressions when an operation is made, before any compiler sees them."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Sequence

from gradlab.kernel import source_folders

_WORD = re.compile(r"(?<![\w.'])([A-Za-z_]\w*)\b(\s*\()?")
_LANGUAGE = {"T", "index", "true", "false", "bool", "float", "double", "int", "long", "unsigned", "static_cast", "const", "auto", "sizeof"}
_HEADERS = ("scalar_math.h", "special_math.h", "bessel_math.h", "polynomial_math.h")


@functools.cache
def functions() -> frozenset[str]:
    """What the headers of expressions define, or may."""
    found: set[str] = set()
    _, shared = source_folders("cuda")
    for header in _HEADERS:
        text = (shared / header).read_text(encoding="utf-8")
        found.update(re.findall(r"\b([a-z]\w*)\s*\(", text))
    return frozenset(found)


def check(name: str, expression: str, inputs: Sequence[str], params: Sequence[str]) -> None:
    """Raise ValueError for an expression that cannot be one, or that names what there is not."""
    if ";" in expression or "return" in expression.split() or not expression.strip():
        raise ValueError(f"custom_op {name}: {expression!r} is no single expression; a kernel's text is given as gl.library.CudaSource")
    if expression.count("(") != expression.count(")"):
        raise ValueError(f"custom_op {name}: the parentheses of {expression!r} do not match")
    known = {*inputs, *params, *_LANGUAGE}
    for word, called in _WORD.findall(expression):
        if word in known or (called and word in functions()):
            continue
        kind, choices = ("function", sorted(functions())) if called else ("value", [*inputs, *params])
        near = difflib.get_close_matches(word, choices, 1)
        hint = f"; did you mean {near[0]!r}?" if near else "" if called else f"; there are {', '.join(choices)}"
        raise ValueError(f"custom_op {name}: the expression uses the {kind} {word!r}, which there is not{hint}")
    unused = [n for n in inputs if not re.search(rf"\b{n}\b", expression)]
    if unused:
        raise ValueError(f"custom_op {name}: the expression does not use {', '.join(unused)}")
