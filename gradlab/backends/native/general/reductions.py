"""Sums, means, norms and extremes over any dimensions, as tasks of `reductions.cpp`."""

from __future__ import annotations

import math

import numpy as np

from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, bits, widest
from gradlab.backends.native.lowerings.reductions import Nest
from gradlab.backends.native.place import Place
from gradlab.call import Call
from gradlab.dtype import FLOAT32, FLOAT64

PIECE = 1 << 15  # elements that are worth a piece of their own
UNITS = 16  # pieces of work for the threads to share
COLUMNS = 256  # results beside each other that are one piece of work (reductions.cpp)
KINDS = {"sum": "sum", "mean": "sum", "amax": "amax", "amin": "amin", "euclidean": "euclidean"}
ROOT = -1  # in place of a divisor (reductions.cpp)
LETTERS = {FLOAT32: "float", FLOAT64: "double"}


def reduce(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """y = the sum (mean, Euclidean norm, maximum, minimum) of x over `dim`."""
    x, y = ctx.place(call.inputs[0]), ctx.place(call.outputs[0])
    letter = LETTERS.get(x.dtype)
    if letter is None or (call.op.name == "euclidean" and letter == "double"):  # whose squares may leave its range
        raise Unsupported
    if y.dtype != x.dtype or not y.contiguous or x.size == 0 or (x.shape and not call.params["dim"]):
        raise Unsupported
    nest = Nest(x.shape, x.strides, call.params["dim"])
    step, sizes = 1, [(False, 1)] if not nest.all or nest.all[0][0] else []
    for _, n, s in reversed(nest.all):
        if s != step:
            raise Unsupported
        step *= n
    sizes += [(reduced, n) for reduced, n, _ in nest.all]  # kept, reduced, kept, reduced, ...
    if not any(reduced for reduced, _ in sizes):
        sizes.append((True, 1))
    if not sizes[-1][0]:
        kept, rest = sizes[-1][1], sizes[:-1]
    else:
        kept, rest = 1, sizes
    kind = KINDS[call.op.name]
    wide = np.dtype(np.float64) if kind in ("sum", "euclidean") else x.dtype
    divisor = ROOT if kind == "euclidean" else math.prod(n for reduced, n in sizes if reduced) if call.op.name == "mean" else 1
    outer, n = math.prod(m for _, m in rest[:-1]), rest[-1][1]
    units = outer * -(-kept // COLUMNS)
    pieces = max(1, min(-(-UNITS // units), x.size // PIECE, n // 64)) if units < UNITS else 1
    each = -(-n // pieces)
    pieces = -(-n // each)
    first = f"gradlab_{kind}_{letter}"
    work, most = widest(x.size), outer * pieces * -(-kept // COLUMNS)
    if pieces == 1 and len(rest) == 2:
        return [TaskSpec(first, (outer, n, kept, 1, n, divisor), (y, x), min(work, most))]
    if len(rest) > 4:
        raise Unsupported
    space = ctx.scratch(outer * pieces * kept * wide.itemsize)
    totals = Place(space.base, space.offset, (outer, pieces, kept), (pieces * kept, kept, 1), wide)
    tasks = [TaskSpec(first, (outer, n, kept, pieces, each, 0), (totals, x), min(work, most))]
    join = f"gradlab_{kind}_join_{letter}"
    if len(rest) == 2:
        return [*tasks, TaskSpec(join, (outer, pieces, kept, divisor), (y, totals))]
    (_, a), (_, b), (_, c) = rest[:3]  # kept, reduced, kept, and the last reduced one; what is left of that are the pieces
    if pieces > 1:
        raise Unsupported
    return [*tasks, TaskSpec(join, (a, b, c * kept, divisor), (y, totals), widest(a * b * c * kept))]


def var(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The variance over the last dimensions of what lies without gaps."""
    x, y = ctx.dense(call.inputs[0], call.inputs[0].spec.dtype), ctx.place(call.outputs[0])
    letter, dims, rank = LETTERS.get(x.dtype), call.params["dim"], len(x.shape)
    if letter is None or x.size == 0 or not y.contiguous or dims != tuple(range(rank - len(dims), rank)):
        raise Unsupported
    n = math.prod(x.shape[d] for d in dims)
    rows = x.size // n
    return [TaskSpec(f"gradlab_var_{letter}", (rows, n, bits(call.params["divisor"])), (y, x), min(rows, widest(2 * x.size)))]
