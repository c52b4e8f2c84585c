"""Lowering of sums, means, products, extremes and truths over any dimensions, as generated loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradlab.backends.cuda.types import STORAGE
from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.backends.native.lowerings.loops import HEADER, literal
from gradlab.backends.native.place import Place
from gradlab.call import Call
from gradlab.dtype import BOOL, HALF

LANES = 32  # running totals of a row: they vectorise, and keep a long float sum accurate
BLOCK = 128  # elements added up in a running total before it is added to the final one
COLUMNS = 128  # that are reduced side by side, by one thread
TOGETHER = 4  # rows that are added at once where they lie at equal distances
PIECES = 16  # of a sum with few results, so that several threads can work and the result does not depend on their number
PIECE = 1 << 15  # elements that are worth a piece of their own
AHEAD = 16  # rows: how early they are asked for, since a part of each is too short for the hardware to foresee the next


class Nest:
    """The dimensions of a reduction: kept and reduced, each (size, stride), neighbours merged; the innermost dimension last.

    They are walked through as the elements lie in memory, unless the results would come in another order than they are wanted in.
    """

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], dims: tuple[int, ...]) -> None:
        self.all: list[tuple[bool, int, int]] = []  # reduced?, size, stride
        order = sorted((d for d, n in enumerate(shape) if n != 1), key=lambda d: -abs(strides[d]))
        kept = [d for d in order if d not in dims]
        if kept != sorted(kept) or any(strides[d] == 0 for d in order):
            order.sort()
        for d in order:
            n, s, reduced = shape[d], strides[d], d in dims
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
    return reduction(call, x, y, ctx, [], f"const {kind}* const x = (const {kind}*)p[1];", (x,), 0.0)


def reduction(
    call: Call, x: Place, y: Place, ctx: Lowering, before: list[str], source: str, places: tuple[Place, ...], cost: float
) -> list[TaskSpec]:
    """The tasks of a reduction. source: a statement that makes `x`, a pointer or what can be used as one; before: declarations for it.

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
    work = widest(x.size * (1 + cost))
    rows = nest.rows or not nest.kept
    pieces = 1 if rows else _pieces(nest)
    own = f"({kind})({finish})"
    target, made = (y, kind) if pieces == 1 else (ctx.scratch(pieces * y.size * (8 if total == "double" else y.dtype.itemsize)), total)
    text = [HEADER, "namespace gradlab {", *before, "GRADLAB_KERNEL @K(char** p, const int64_t*, int part, int parts) {"]
    text += [f"  {made}* const y = ({made}*)p[0];", f"  {source}"]
    if rows:
        text += _rows(nest, kind, total, start, combine, own)
    else:
        text += _columns(nest, kind, total, start, combine, own if pieces == 1 else "{}", not before, pieces)
    text += ["}", "}  // namespace gradlab"]
    tasks = [TaskSpec(ctx.generate("\n".join(text)), (), (target, *places), min(work, max(1, y.size * pieces)))]
    if pieces > 1:
        text = _summary(y.size, pieces, kind, total, combine, own)
        tasks.append(TaskSpec(ctx.generate("\n".join(text)), (), (y, target), min(y.size, widest(y.size * pieces))))
    return tasks


def _pieces(nest: Nest) -> int:
    """In how many pieces what is added up side by side is handed out: one where there are enough results for several threads anyway."""
    count = math.prod(n for n, _ in nest.reduced)
    units = math.prod(n for n, _ in nest.kept[:-1]) * -(-nest.kept[-1][0] // COLUMNS)
    return max(1, min(PIECES // units, count * _results(nest) // PIECE))


def _summary(size: int, pieces: int, kind: str, total: str, combine: str, finish: str) -> list[str]:
    """The results of pieces put together."""
    return [
        HEADER, "namespace gradlab {", "GRADLAB_KERNEL @K(char** p, const int64_t*, int part, int parts) {",
        f"  {kind}* const y = ({kind}*)p[0];", f"  const {total}* const x = (const {total}*)p[1];",
        f"  const Share mine = share({size}LL, part, parts, 64);", "  for (int64_t i = mine.first; i < mine.last; ++i) {",
        f"    {total} result = x[i];",
        f"    for (int64_t k = 1; k < {pieces}; ++k) result = {combine.format('result', f'x[k * {size}LL + i]')};",
        f"    y[i] = {finish.format('result')};", "  }", "}", "}  // namespace gradlab",
    ]  # fmt: skip


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
    return [*text, "    }", f"    y[o] = {finish.format('result')};", "  }"]


def _columns(nest: Nest, kind: str, total: str, start: str, combine: str, finish: str, plain: bool, pieces: int) -> list[str]:
    """Many results side by side along the innermost dimension, a block of columns at a time. plain: elements are read, not computed.

    pieces: parts of what is reduced, whose results lie one behind the other.
    """
    width, step = nest.kept[-1]
    outer = nest.kept[:-1]
    count = math.prod(n for n, _ in nest.reduced)
    fold = _fold(nest, count)
    reduced, rows = (nest.reduced, count) if fold == 1 else ([(count // fold, width * fold)], count // fold)
    columns = COLUMNS if _results(nest) >= 2 * COLUMNS or fold > 1 else COLUMNS // 2
    blocks = -(-width // columns)
    units, each = math.prod(n for n, _ in outer) * blocks, -(-rows // pieces)
    lines, offset = _offset(outer, "o", "k")
    more, shift = _offset(reduced, "r", "d")
    add = combine.format("part_of[j]", f"row[j * {step}LL]")
    several = _together(reduced[0][1], kind, step, combine, offset) if plain and len(reduced) == 1 and each >= TOGETHER else []
    wide = f"{columns}LL" if width % columns == 0 else f"({width}LL - first < {columns}LL ? {width}LL - first : {columns}LL)"
    return [
        f"  const Share mine = share({units * pieces}LL, part, parts);",
        "  for (int64_t u = mine.first; u < mine.last; ++u) {",
        f"    const int64_t piece = u / {units}LL, o = u % {units}LL / {blocks}, first = u % {blocks} * {columns}LL;",
        f"    const int64_t wide = {wide if fold == 1 else f'{fold * width}LL'};",
        f"    const int64_t from = piece * {each}LL, to = from + {each}LL < {rows}LL ? from + {each}LL : {rows}LL;",
        *(f"    {line}" for line in lines),
        f"    {total} result[{columns}];",
        f"    {kind} part_of[{columns}];",
        f"    for (int64_t j = 0; j < wide; ++j) result[j] = {start};",
        f"    for (int64_t b = from; b < to; b += {BLOCK}LL) {{",
        f"      const int64_t end = b + {BLOCK}LL < to ? b + {BLOCK}LL : to;",
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
        *(_folded(width, fold, count, offset, combine, pieces) if fold > 1 else []),
        f"    for (int64_t j = 0; j < {'wide' if fold == 1 else width}; ++j)",
        f"      y[piece * {_results(nest)}LL + o * {width}LL + first + j] = {finish.format('result[j]')};",
        "  }",
    ]


def _fold(nest: Nest, count: int) -> int:
    """How many rows are added up as one: several where they are short and lie without gaps."""
    width, step = nest.kept[-1]
    without_gaps = len(nest.reduced) == 1 and step == 1 and nest.reduced[0][1] == width
    return max(1, min(COLUMNS // width, count)) if without_gaps else 1


def _folded(width: int, fold: int, count: int, offset: str, combine: str, pieces: int) -> list[str]:
    """What is left of such rows behind the last whole ones, then their parts put together."""
    first, text = count // fold * fold * width, []
    if first < count * width:
        at = f"result[j % {width}]"
        text = [f"    if (piece == {pieces - 1})", f"      for (int64_t j = 0; j < {count * width - first}; ++j)"]
        text.append(f"        {at} = {combine.format(at, f'(x + {offset} + {first}LL)[j]')};")
    half = fold
    while half > 1:  # the second half, or what there is of it, onto the first
        both, half = half, -(-half // 2)
        text.append(f"    for (int64_t j = {half * width}; j < {both * width}; ++j)")
        text.append(f"      result[j - {half * width}] = {combine.format(f'result[j - {half * width}]', 'result[j]')};")
    return text


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
