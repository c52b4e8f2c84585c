"""Mutants of C++ and CUDA: of kernels' files, and of expressions that rows carry as text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mutation.mutant import Mutant

# Binary operators stand between spaces in this project; a `<` or `*` of a type does not.
OPERATORS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+", "*": "/", "/": "*",
    "%": "/", "+=": "-=", "-=": "+=", "<<": ">>", ">>": "<<", "&": "|", "|": "&",
}  # fmt: skip
NAMES = {
    "minimum": "maximum", "maximum": "minimum", "min": "max", "max": "min", "true": "false", "false": "true", "lowest": "highest",
    "highest": "lowest", "sin": "cos", "cos": "sin", "floor": "ceil", "ceil": "floor", "isnan": "isinf", "isfinite": "isnan",
    "continue": "break",
}  # fmt: skip
OPERATOR = re.compile(r"(?<=[\w\])}.;,(]) (<=|>=|==|!=|&&|\|\||\+=|-=|<<|>>|[-<>+*/%&|]) (?=[\w(!~&*-])")
NAME = re.compile(r"(?<![\w.:#])(" + "|".join(NAMES) + r")(?=[(<]|\b(?=true|false))|(?<![\w.])(true|false|continue)(?!\w)")
NUMBER = re.compile(r"(?<![\w.\[<])(?<!e-)(?<!e\+)(\d+)(?![\w.'\]>])")
NOT = re.compile(r"(?<![\w=!])!(?=[\w(])")
STATEMENT = re.compile(r"(?<=[;{}]\n)[ \t]+((?:__sync\w+|[a-z_]\w*(?:\[[^\]\n]*\])?) ?(?:\([^\n;]*\)|[-+*/|&]?= [^\n;{}]*);)(?=\n)")
PASSED = re.compile(r"^\s*(#|template|static_assert|using|typedef|extern|namespace|struct|//|@|throw)|assert\(|printf", re.M)


def without_comments(text: str) -> str:
    """The text with comments and strings blanked, every character in its place."""
    return re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)


def mutants(file: str, text: str, first: int = 0, last: int | None = None) -> Iterator[Mutant]:
    """All mutants of the text, or of a part of it (the text of an expression inside Python)."""
    piece = text[first:last]
    plain = without_comments(piece)

    def made(start: int, end: int, after: str, kind: str) -> Iterator[Mutant]:
        begin = plain.rfind("\n", 0, start) + 1
        if not PASSED.search(plain[begin : (plain.find("\n", start) + 1 or len(plain) + 1) - 1]):
            at = first + start
            yield Mutant(file, text.count("\n", 0, at) + 1, kind, at, first + end, after)

    for m in OPERATOR.finditer(plain):
        yield from made(m.start(1), m.end(1), OPERATORS[m[1]], "operator")
    for m in NAME.finditer(plain):
        yield from made(m.start(), m.end(), NAMES[m[0]], "name")
    for m in NUMBER.finditer(plain):
        yield from made(m.start(1), m.end(1), str(int(m[1]) + 1), "number")
    for m in NOT.finditer(plain):
        yield from made(m.start(), m.end(), "", "not")
    for m in STATEMENT.finditer(plain):
        yield from made(m.start(1), m.end(1), ";", "statement")
