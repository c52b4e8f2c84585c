"""Lowering of copies with parts left out: triangles, diagonals."""

from __future__ import annotations

import math

from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.backends.native.lowerings.lines import kernel
from gradlab.backends.native.lowerings.movements import WORDS, copy, fill, packed
from gradlab.backends.native.place import Place
from gradlab.call import Call

TRIANGLE = '''#include "runtime.h"
// y, x; parameters: matrices, rows, columns, diagonal, whether the lower triangle is kept
template <typename W> static void triangle(W* y, const W* x, const int64_t* v, int part, int parts) {
  const Share mine = share(v[0] * v[1], part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t n = v[2], edge = u % v[1] + v[3] + (v[4] ? 1 : 0), middle = edge < 0 ? 0 : edge < n ? edge : n;
    for (int64_t j = 0; j < middle; ++j) y[u * n + j] = v[4] ? x[u * n + j] : W(0);
    for (int64_t j = middle; j < n; ++j) y[u * n + j] = v[4] ? W(0) : x[u * n + j];
  }
}
'''


@lowers("tril", "triu")
def triangle(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """One triangle of each matrix."""
    x, first = packed(ctx.place(call.inputs[0]), ctx)
    y = ctx.place(call.outputs[0])
    if not y.contiguous or y.size == 0:
        raise Unsupported
    w = WORDS[x.dtype.itemsize]
    parameters = (math.prod(x.shape[:-2]), *x.shape[-2:], call.params["diagonal"], call.op.name == "tril")
    name = kernel(ctx, TRIANGLE.replace("triangle(", "@K_triangle("), f"@K_triangle(({w}*)p[0], (const {w}*)p[1], v, part, parts);")
    return [*first, TaskSpec(name, parameters, (y, x), min(x.size // x.shape[-1], widest(x.size)))]


@lowers("diagonal_embed", "diagonal_scatter")
def diagonals(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Zeros, or a copy, with a diagonal of its own."""
    y, value = ctx.place(call.outputs[0]), ctx.place(call.inputs[-1])
    if not y.contiguous or y.size == 0 or value.size == 0:
        raise Unsupported
    down, right, offset = call.params["dim1"], call.params["dim2"], call.params["offset"]
    start = offset * y.strides[right] if offset > 0 else -offset * y.strides[down]
    rest = tuple(s for d, s in enumerate(y.strides) if d not in (down, right))
    strides = (*rest, y.strides[down] + y.strides[right])
    target = Place(y.base, y.offset + start * y.dtype.itemsize, value.shape, strides, y.dtype)
    before = fill(y, 0, ctx) if call.op.name == "diagonal_embed" else copy(y, ctx.place(call.inputs[0]), ctx)
    return [*before, *copy(target, value, ctx)]
