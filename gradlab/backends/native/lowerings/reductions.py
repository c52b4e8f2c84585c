"""Lowering of sums, means, products, extremes and truths over any dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab.backends.cuda.types import STORAGE
from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.backends.native.lowerings.lines import kernel
from gradlab.backends.native.lowerings.movements import MOST_DIMS
from gradlab.backends.native.place import Place
from gradlab.call import Call
from gradlab.dtype import BOOL, HALF

COLUMNS = 128  # that are reduced side by side, by one thread
PIECES = 16  # of a sum with few results, so that several threads can work and the result does not depend on their number
PIECE = 1 << 15  # elements that are worth a piece of their own
HEADER = '#include "reductions.h"\n'
WAYS = {"sum": "Plus", "mean": "Plus", "prod": "Times", "amax": "Largest", "amin": "Smallest", "any": "Any", "all": "All"}


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


NAMES = ("sum", "mean", "amax", "amin")
TRUTHS = ("any", "all")


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
    total = total_of(name, y.dtype)
    rows = nest.rows or not nest.kept
    pieces = 1 if rows else _pieces(nest)
    size = 8 if total == "double" else y.dtype.itemsize
    target = y if pieces == 1 else ctx.scratch(pieces * y.size * size)
    numbers = described(nest, rows, pieces)
    known = ctx.generates and not ctx.general
    text = text_of(name, kind, total, rows, pieces == 1, source, before, numbers if known else ())
    most = min(widest(x.size * (1 + cost)), max(1, y.size * pieces))
    tasks = [TaskSpec(ctx.generate(text), () if known else numbers, (target, *places), most)]
    if pieces > 1:
        parameters = (y.size, pieces, math.prod(n for n, _ in nest.reduced))
        most = min(y.size, widest(y.size * pieces))
        tasks.append(TaskSpec(kernel(ctx, HEADER, put_together(name, kind, total)), parameters, (y, target), most))
    return tasks


def total_of(name: str, dtype: np.dtype[Any]) -> str:
    """The C++ type that totals are kept in."""
    return "double" if name in ("sum", "mean", "prod") and dtype.kind == "f" else STORAGE[dtype.name]


def text_of(
    name: str, kind: str, total: str, rows: bool, whole: bool, source: str, before: Sequence[str] = (), numbers: Sequence[int] = ()
) -> str:  # fmt: skip
    """The kernel of a reduction. whole: not one in pieces. numbers: what is reduced, where that is known."""
    made = kind if whole else total
    # Of factors near 1 half the products lie halfway between two float32, all rounded the same way: 70,000 of them lose three digits.
    part = total if name == "prod" else kind
    mean = "true" if name == "mean" and whole else "false"
    known = [f"static constexpr Reduced @K_q = {{{', '.join(map(str, numbers))}}};"] if numbers else []
    plain = "" if rows else ", false" if before else ", true"
    return "\n".join([
        HEADER + "namespace gradlab {", *before, *known, "GRADLAB_KERNEL @K(char** p, const int64_t* v, int part, int parts) {",
        f"  {source}",
        f"  reduce_{'rows' if rows else 'columns'}<{WAYS[name]}, {part}, {total}, {mean}{plain}>"
        f"(({made}*)p[0], x, {'@K_q' if numbers else '*(const Reduced*)v'}, part, parts);",
        "}", "}  // namespace gradlab",
    ])  # fmt: skip


def put_together(name: str, kind: str, total: str) -> str:
    """The call that adds up pieces."""
    mean = "true" if name == "mean" else "false"
    return f"put_together<{WAYS[name]}, {kind}, {total}, {mean}>(({kind}*)p[0], (const {total}*)p[1], v, part, parts);"


def described(nest: Nest, rows: bool, pieces: int) -> tuple[int, ...]:
    """What is reduced, as `Reduced` of reductions.h."""
    count, results = math.prod(n for n, _ in nest.reduced), _results(nest)
    reduced, side = nest.reduced, [0] * 9
    if not rows:
        width, step = nest.kept[-1]
        fold = _fold(nest, count)
        lines = count // fold
        if fold > 1:
            reduced = [(lines, width * fold)]
        columns = COLUMNS if results >= 2 * COLUMNS or fold > 1 else COLUMNS // 2
        blocks = -(-width // columns)
        units = math.prod(n for n, _ in nest.kept[:-1]) * blocks
        side = [width, step, fold, columns, blocks, units, pieces, -(-lines // pieces), lines]
    return (results, count, len(nest.kept), len(reduced), *_padded(nest.kept), *_padded(reduced), *side)


def _padded(dims: Sequence[tuple[int, int]]) -> list[int]:
    """Sizes and steps, innermost dimension first."""
    if len(dims) > MOST_DIMS:
        raise Unsupported
    pad = [0] * (MOST_DIMS - len(dims))
    return [*(n for n, _ in reversed(dims)), *pad, *(s for _, s in reversed(dims)), *pad]


def _pieces(nest: Nest) -> int:
    """In how many pieces what is added up side by side is handed out: one where there are enough results for several threads anyway."""
    count = math.prod(n for n, _ in nest.reduced)
    units = math.prod(n for n, _ in nest.kept[:-1]) * -(-nest.kept[-1][0] // COLUMNS)
    return max(1, min(PIECES // units, count * _results(nest) // PIECE))


def _fold(nest: Nest, count: int) -> int:
    """How many rows are added up as one: several where they are short and lie without gaps."""
    width, step = nest.kept[-1]
    without_gaps = len(nest.reduced) == 1 and step == 1 and nest.reduced[0][1] == width
    return max(1, min(COLUMNS // width, count)) if without_gaps else 1


def _results(nest: Nest) -> int:
    """How many results there are."""
    return math.prod(n for n, _ in nest.kept)
