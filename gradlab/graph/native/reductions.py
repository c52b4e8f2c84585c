"""Lowering of sums, means, products, extremes and truths over any dimensions, as generated loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradlab.backends.cuda.types import STORAGE
from gradlab.dtype import BOOL, HALF
from gradlab.graph.ir import Call
from gradlab.graph.native.loops import HEADER, literal
from gradlab.graph.native.lower import Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.graph.native.place import Place

LANES = 32  # running totals of a row: they vectorise, and keep a long float sum accurate
BLOCK = 128  # elements added up in a running total before it is added to the final one
COLUMNS = 128  # that are reduced side by side, by one thread
TOGETHER = 4  # rows that are added at once where they lie at equal distances
AHEAD = 16  # rows: how early they are asked for, since a part of each is too short for the hardware to foresee the next


class Nest:
    """The dimensions of a reduction: kept and reduced, each (size, stride), neighbours merged; the innermost dimension last."""

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], dims: tuple[int, ...]) -> None:
        self.all: list[tuple[bool, int, int]] = []  # reduced?, size, stride
        for d, (n, s) in enumerate(zip(shape, strides)):
            if n == 1:
                continue
            reduced = d in dims
            if self.all and self.all[-1][0] == reduced and self.all[-1][2] == s * n:
                self.all[-1] = (reduced, self.all[-1][1] * n, s)
            else:
                self.all.append((reduced, n, s))
        self.kept = [(n, s) for reduced, n, s in self.all if not reduced]
        self.reduced = [(n, s) for reduced, n, s in self.all if reduced]

    @property
    def rows(self) -> bool:
        """Whether the innermost dimension is reduced."""
        return bool(self.all) and self.all[-1][0]


def _offset(dims: list[tuple[int, int]], index: str, name: str) -> tuple[list[str], str]:
    """Statements that take a counter over `dims` apart, and the offset that it stands for."""
    lines, terms, rest = [], [], index
    for i, (n, s) in enumerate(reversed(dims)):
        last = i == len(dims) - 1
        lines.append(f"const int64_t {name}{i} = {rest if last else f'{rest} % {n}LL'};")
        if not last:
            lines.append(f"const int64_t {name}r{i} = {rest} / {n}LL;")
            rest = f"{name}r{i}"
        terms.append(f"{name}{i} * {s}LL")
    return lines, " + ".join(terms) or "0"


NAMES = ("sum", "mean", "amax", "amin")
TRUTHS = {"any": "||", "all": "&&"}


@lowers(*NAMES, "prod", *TRUTHS)
def reduce(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """y = the sum (mean, maximum, minimum, product, "or", "and") of x over `dim`."""
    x, y = ctx.place(call.inputs[0]), ctx.place(call.outputs[0])
    truth = call.op.name in TRUTHS
    if x.dtype in HALF or x.dtype.name not in STORAGE or y.dtype != (BOOL if truth else x.dtype) or not y.contiguous or x.size == 0:
        raise Unsupported
    if not call.params["dim"] and x.shape:
        raise Unsupported
    if not truth and (x.dtype == BOOL or (call.op.name == "mean" and x.dtype.kind != "f")):
        raise Unsupported
    kind = STORAGE[x.dtype.name]
    return [reduction(call, x, y, ctx, [], f"const {kind}* const x = (const {kind}*)p[1];", (x,), 0.0)]


def reduction(
    call: Call, x: Place, y: Place, ctx: Lowering, before: list[str], source: str, places: tuple[Place, ...], cost: float
) -> TaskSpec:
    """The task of a reduction. source: a statement that makes `x`, a pointer or what can be used as one; before: declarations for it.

    cost: simple operations that make an element.
    """
    nest = Nest(x.shape, x.strides, call.params["dim"] or tuple(range(len(x.shape))))
    name, kind = call.op.name, STORAGE[y.dtype.name]
    total = "double" if name in ("sum", "mean") and y.dtype.kind == "f" else kind
    start, combine = _start(name, y.dtype, kind), f"({kind})({{0}} + {{1}})" if y.dtype.kind in "iu" else "{0} + {1}"
    if name in ("amax", "amin"):
        combine = "maximum({0}, {1})" if name == "amax" else "minimum({0}, {1})"
    elif name == "prod":
        combine = f"({kind})({{0}} * {{1}})"
    elif name in TRUTHS:
        combine = f"({{0}} {TRUTHS[name]} bool({{1}}))"
    count = math.prod(n for n, _ in nest.reduced)
    finish = f"{{}} / {count}LL" if call.op.name == "mean" else "{}"
    text = [HEADER, "namespace gradlab {", *before, "GRADLAB_KERNEL @K(char** p, const int64_t*, int part, int parts) {"]
    text += [f"  {kind}* const y = ({kind}*)p[0];", f"  {source}"]
    if nest.rows or not nest.kept:
        text += _rows(nest, kind, total, start, combine, finish)
    else:
        text += _columns(nest, kind, total, start, combine, finish, plain=not before)
    text += ["}", "}  // namespace gradlab"]
    return TaskSpec(ctx.generate("\n".join(text)), (), (y, *places), min(widest(x.size * (1 + cost)), max(1, y.size)))


def _start(name: str, dtype: np.dtype[Any], kind: str) -> str:
    """What changes nothing."""
    if name in ("prod", "all"):
        return f"({kind})1"
    if name not in ("amax", "amin"):
        return f"({kind})0"
    if dtype.kind == "f":
        return f"{'-' if name == 'amax' else ''}({kind})__builtin_inf()"
    limits = np.iinfo(dtype)
    return literal(int(limits.min if name == "amax" else limits.max), dtype)


def _rows(nest: Nest, kind: str, total: str, start: str, combine: str, finish: str) -> list[str]:
    """One result after the other; the innermost dimension in LANES running totals."""
    kept = math.prod(n for n, _ in nest.kept)
    inner, step = nest.reduced[-1] if nest.reduced else (1, 1)
    outer = nest.reduced[:-1]
    lines, offset = _offset(nest.kept, "o", "k")
    more, shift = _offset(outer, "r", "d")
    whole = inner - inner % LANES
    add = combine.format("lane[j]", f"row[(i + j) * {step}LL]")
    tail = combine.format("rest", f"row[i * {step}LL]")
    text = [f"  const Share mine = share({kept}LL, part, parts);", "  for (int64_t o = mine.first; o < mine.last; ++o) {"]
    text += [f"    {line}" for line in lines]
    text += [f"    {total} result = {start};", f"    for (int64_t r = 0; r < {math.prod(n for n, _ in outer)}LL; ++r) {{"]
    text += [f"      {line}" for line in more]
    text += [f"      const auto row = x + {offset} + {shift};"]
    if whole:
        text += [
            f"      for (int64_t b = 0; b < {whole}LL; b += {BLOCK * LANES}LL) {{",
            f"        const int64_t end = b + {BLOCK * LANES}LL < {whole}LL ? b + {BLOCK * LANES}LL : {whole}LL;",
            f"        {kind} lane[{LANES}];",
            f"        for (int j = 0; j < {LANES}; ++j) lane[j] = {start};",
            f"        for (int64_t i = b; i < end; i += {LANES})",
            f"          for (int j = 0; j < {LANES}; ++j) lane[j] = {add};",
            f"        for (int half = {LANES // 2}; half > 0; half /= 2)",
            f"          for (int j = 0; j < half; ++j) lane[j] = {combine.format('lane[j]', 'lane[j + half]')};",
            f"        result = {combine.format('result', 'lane[0]')};",
            "      }",
        ]
    if whole != inner:
        text += [
            f"      {kind} rest = {start};",
            f"      for (int64_t i = {whole}LL; i < {inner}LL; ++i) rest = {tail};",
            f"      result = {combine.format('result', 'rest')};",
        ]
    return [*text, "    }", f"    y[o] = ({kind})({finish.format('result')});", "  }"]


def _columns(nest: Nest, kind: str, total: str, start: str, combine: str, finish: str, plain: bool) -> list[str]:
    """Many results side by side along the innermost dimension, a block of columns at a time. plain: elements are read, not computed."""
    width, step = nest.kept[-1]
    outer = nest.kept[:-1]
    count = math.prod(n for n, _ in nest.reduced)
    columns = COLUMNS if _results(nest) >= 2 * COLUMNS else COLUMNS // 2
    blocks = -(-width // columns)
    lines, offset = _offset(outer, "o", "k")
    more, shift = _offset(nest.reduced, "r", "d")
    add = combine.format("part_of[j]", f"row[j * {step}LL]")
    several = _together(nest.reduced[0][1], kind, step, combine, offset) if plain and len(nest.reduced) == 1 and count >= TOGETHER else []
    wide = f"{columns}LL" if width % columns == 0 else f"({width}LL - first < {columns}LL ? {width}LL - first : {columns}LL)"
    return [
        f"  const Share mine = share({math.prod(n for n, _ in outer) * blocks}LL, part, parts);",
        "  for (int64_t u = mine.first; u < mine.last; ++u) {",
        f"    const int64_t o = u / {blocks}, first = u % {blocks} * {columns}LL, wide = {wide};",
        *(f"    {line}" for line in lines),
        f"    {total} result[{columns}];",
        f"    {kind} part_of[{columns}];",
        f"    for (int64_t j = 0; j < wide; ++j) result[j] = {start};",
        f"    for (int64_t b = 0; b < {count}LL; b += {BLOCK}LL) {{",
        f"      const int64_t end = b + {BLOCK}LL < {count}LL ? b + {BLOCK}LL : {count}LL;",
        f"      for (int64_t j = 0; j < wide; ++j) part_of[j] = {start};",
        "      int64_t r = b;",
        *several,
        "      for (; r < end; ++r) {",
        *(f"        {line}" for line in more),
        f"        const auto row = x + {offset} + {shift} + first * {step}LL;",
        f"        for (int64_t j = 0; j < wide; ++j) part_of[j] = {add};",
        "      }",
        f"      for (int64_t j = 0; j < wide; ++j) result[j] = {combine.format('result[j]', 'part_of[j]')};",
        "    }",
        f"    for (int64_t j = 0; j < wide; ++j) y[o * {width}LL + first + j] = ({kind})({finish.format('result[j]')});",
        "  }",
    ]


def _results(nest: Nest) -> int:
    """How many results there are."""
    return math.prod(n for n, _ in nest.kept)


def _together(far: int, kind: str, step: int, combine: str, offset: str) -> list[str]:
    """Rows at a distance of `far`, TOGETHER at a time, in the same order as one after the other."""
    line = 64 // (4 if kind == "float" else 8)
    ask = [f"          __builtin_prefetch(row + j + {(AHEAD + k) * far}LL);" for k in range(TOGETHER)]
    return [
        f"      for (; r + {TOGETHER} <= end; r += {TOGETHER}) {{",
        f"        const auto row = x + {offset} + r * {far}LL + first * {step}LL;",
        *([f"        for (int64_t j = 0; j < wide; j += {line}) {{", *ask, "        }"] if step == 1 else []),
        "        for (int64_t j = 0; j < wide; ++j) {",
        f"          {kind} sum = part_of[j];",
        *(f"          sum = {combine.format('sum', f'row[j * {step}LL + {k * far}LL]')};" for k in range(TOGETHER)),
        "          part_of[j] = sum;",
        "        }",
        "      }",
    ]
