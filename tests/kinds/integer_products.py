"""Products of integers in C and C++ text that may be wider than an int: read by names, for text that is formatted as this project's is (a
product has spaces around its `*`, and a function, struct or kernel ends with a brace at the beginning of a line).

A product is given where both factors have at most 32 bits and neither is a constant, and where a block's or grid's number is multiplied by
anything of 32 bits. A name has the type that it is declared with in the function around the product, else that of members and functions of
that name anywhere; of several types the narrowest counts. What has no declared type (`auto`, a template's type) is nobody's int.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

NARROW = r"(?:int|unsigned|short|char|bool|u?int(?:8|16|32)_t)"
# Index is 64 bits wide where the launch rule sees that 32 do not suffice.
WIDE = r"(?:int64|unsigned long long|long long|long|size_t|ptrdiff_t|u?int64_t|uintptr_t|Wide|Index)"
TYPE = re.compile(
    rf"\b(?P<constant>constexpr\s+)?(?:const\s+)?(?P<type>{WIDE}|{NARROW})\b(?:\s+(?:int|char|const)\b)*\s*[&*]?(?:__restrict__\s+)?\s*(?=\w)"
)
IGNORED = re.compile(r'//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n\\]|\\.)*|"(?:\\.|[^"\\\n])*"', re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"\d[\w.]*")
BLOCK = re.compile(r"\b(?:blockIdx|gridDim)\b")
CONSTANT, THIN, BROAD, UNKNOWN = "constant", "thin", "broad", "unknown"
OTHER = re.compile(
    r"\b(?!(?:return|else|case|goto|typedef|using|new|struct|enum|constexpr|const|static|inline|template|class|typename)\b)[A-Za-z_]\w*(?:<[^<>;{}]*>)?(?:::type)?"
    r"(?:[&*]{1,2} ?|[&*]* +[&*]*)(?:__restrict__ +)?(?:const +)?(?=(\w+)\s*[,;=)(\[{:])"
)
OPEN, CLOSE = "([{", ")]}"


def bare(text: str) -> str:
    """Without comments, strings and directives, with the lines where they were."""
    return IGNORED.sub(lambda found: "\n" * found[0].count("\n") or " ", text)


def pieces(text: str) -> Iterator[tuple[int, str]]:
    """Functions, structs and what stands between them, each with the number of its first line."""
    line = 1
    for piece in re.split(r"(?<=\n\})", text):
        yield line, piece
        line += piece.count("\n")


def split(text: str) -> Iterator[str]:
    """The parts between commas up to the end of a declaration."""
    depth, start = 0, 0
    for i, c in enumerate(text):
        depth += (c in OPEN) - (c in CLOSE)
        if depth < 0 or (depth == 0 and c in ";}"):
            yield text[start:i]
            return
        if depth == 0 and c == ",":
            yield text[start:i]
            start = i + 1
    yield text[start:]


def declared(text: str) -> Iterator[tuple[str, str]]:
    """Names and how wide they are."""
    for template in re.findall(r"template <([^;{()]*?)>\s*(?:struct|__|inline|void|static|constexpr|\w)", text):
        yield from ((name, CONSTANT) for name in re.findall(r"\b(?:int|bool)\s+(\w+)", template))
    for body in re.findall(r"\benum\b[^{;]*\{([^}]*)\}", text):
        yield from ((name, CONSTANT) for name in re.findall(r"(?:^|,)\s*(\w+)", body))
    for found in (*TYPE.finditer(text), *OTHER.finditer(text)):
        if found.re is OTHER:
            if re.fullmatch(rf"{WIDE}|{NARROW}", re.match(r"\w+", found[0])[0]):
                continue
            width = UNKNOWN
        else:
            width = CONSTANT if found["constant"] else BROAD if re.fullmatch(WIDE, found["type"]) else THIN
        for number, part in enumerate(split(text[found.end() :])):
            name = re.match(r"\s*[&*]?\s*(?:const\s+)?(\w+)\s*(?:\[|=|\(|\{|:|$)" if number else r"(\w+)", part)
            if name is None:
                break
            yield name[1], width


class Names(dict[str, set[str]]):
    """Of each name the widths that it is declared with."""

    def __init__(self, texts: Iterable[str]) -> None:
        for text in texts:
            for name, width in declared(text):
                self.setdefault(name, set()).add(width)


def shared(text: str) -> Iterator[str]:
    """What other functions and files see of a text: the members of structs, and what functions return."""
    for _, piece in pieces(text):
        struct = re.search(r"^(?:template [^\n]*\n)*struct\b", piece, re.MULTILINE)
        wanted = r"^(?:    |  )?(?! )[^\n(]*\(?" if struct else r"^(?! )[^\n(]*(?:\([^\n()]*\)[^\n(]*)?\w\("
        yield from re.findall(wanted, piece, re.MULTILINE)


def back(text: str, end: int) -> int:
    """Where the operand that ends at `end` begins: names, members, calls, indices."""
    i = end
    while i > 0:
        c = text[i - 1]
        if c in CLOSE:
            depth, i = 1, i - 1
            while depth and i > 0:
                i -= 1
                depth += (text[i] in CLOSE) - (text[i] in OPEN)
        elif c == ">" and re.search(r"\w<[^<>;]*>$", text[max(0, i - 80) : i]):
            i = text.rindex("<", 0, i)
        elif c.isalnum() or c in "_.":
            i -= 1
        elif text[i - 2 : i] in ("->", "::"):
            i -= 2
        else:
            break
    return i


def forth(text: str, start: int) -> int:
    """Where the operand that begins at `start` ends."""
    i = start
    while i < len(text) and text[i] in "-~!+":
        i += 1
    while i < len(text):
        c = text[i]
        template = re.match(r"<[\w:\s,*]+>\(", text[i:])
        if template and i > start and text[i - 1].isalnum():
            i += template.end() - 1
        elif c in OPEN and c != "{":
            depth, i = 1, i + 1
            while depth and i < len(text):
                depth += (text[i] in OPEN) - (text[i] in CLOSE)
                i += 1
        elif c.isalnum() or c in "_.":
            i += 1
        elif text[i : i + 2] in ("->", "::"):
            i += 2
        else:
            break
    return i


def width(operand: str, here: Names, anywhere: Names) -> str:
    """How wide an operand is."""
    operand = operand.strip().lstrip("-~+!")
    if NUMBER.fullmatch(operand):
        return UNKNOWN if re.search(r"\.|\d[fF]$", operand) else BROAD if operand.lower().endswith(("l", "ll")) else CONSTANT
    cast = re.match(rf"static_cast<([^<>]*)>|({WIDE}|{NARROW})\(|\((?:const )?({WIDE}|{NARROW})\)(?=.)", operand)
    if cast:
        kind = (cast[1] or cast[2] or cast[3]).strip()
        return BROAD if re.fullmatch(WIDE, kind) else THIN if re.match(rf"{NARROW}\b", kind) else UNKNOWN
    if operand.startswith("("):
        return of_sum(operand[1 : partner(operand)], here, anywhere)
    if operand.startswith("sizeof"):
        return BROAD
    path = re.sub(r"\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]|<[^<>]*>|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", "", operand)
    if re.match(r"(?:thread|block)(?:Idx|Dim)|gridDim", path):
        return THIN
    name = re.split(r"\.|->|::", path)[-1]
    elsewhere = name != path or operand.endswith(")")
    found = anywhere.get(name, set()) if elsewhere else here.get(name, set())
    return next((w for w in (THIN, BROAD, CONSTANT) if w in found), UNKNOWN)


def partner(text: str) -> int:
    """Where the bracket that a text begins with is closed."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c in OPEN) - (c in CLOSE)
        if depth == 0:
            return i
    return len(text)


def of_sum(text: str, here: Names, anywhere: Names) -> str:
    """How wide a sum, product or choice is: as its widest operand."""
    if re.search(r"<=|>=|==|!=|&&|\|\|", text) and "?" not in text:
        return CONSTANT
    found, i = set(), text.rfind("?") + 1
    while i < len(text):
        if text[i].isalnum() or text[i] in "_(":
            end = forth(text, i)
            found.add(width(text[i:end], here, anywhere))
            i = max(end, i + 1)
        else:
            i += 1
    return next((w for w in (UNKNOWN, BROAD, THIN, CONSTANT) if w in found), UNKNOWN)


def products(text: str, anywhere: Names) -> Iterator[tuple[int, str]]:
    """Line and text of each product that may be too wide."""
    for first, piece in pieces(bare(text)):
        here = Names([piece])
        for found in re.finditer(r"(?<=[\w)\]]) \*=? (?=[\w(~-])", piece):
            end, start = found.start(), found.end()
            begin = back(piece, end)
            chain = begin
            while chain > 3 and (before := re.search(r"[\w)\]] [*/%] $", piece[:chain])):
                chain = back(piece, before.start() + 1)
            left = of_sum(piece[chain:end], here, anywhere)
            stop = forth(piece, start)
            right = width(piece[start:stop], here, anywhere)
            together = piece[chain:stop]
            blocks = BLOCK.search(piece[begin:end] if BLOCK.match(piece[begin:end]) else "") or BLOCK.match(piece[start:stop])
            if (left == right == THIN) or (blocks and BROAD not in (left, right) and UNKNOWN not in (left, right)):
                yield first + piece[:chain].count("\n"), " ".join(together.split())
