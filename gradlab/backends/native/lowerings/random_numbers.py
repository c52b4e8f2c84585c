"""Lowering of random rows: dropout, coins, uniform and normal numbers, integers.

Each element's bits depend on seed and place alone, so threads share a row.
"""

from __future__ import annotations

import numpy as np

from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, bits, lowers, widest
from gradlab.backends.native.lowerings.indexing import FAULT
from gradlab.backends.native.lowerings.lines import kernel
from gradlab.backends.native.lowerings.loops import storage
from gradlab.backends.native.lowerings.movements import fill, packed
from gradlab.backends.native.place import Place
from gradlab.call import Call
from gradlab.dtype import FLOAT32, FLOAT64, INT64
from gradlab.kernel import dropped_below

HEADER = '#include "random.h"\n'
DEAR = 6  # simple operations that an element's bits cost


def _state(call: Call, ctx: Lowering, at: int) -> Place:
    found = ctx.place(call.inputs[at])
    if not found.contiguous or found.dtype.itemsize != 8:
        raise Unsupported
    return found


@lowers("dropout")
def dropout(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """x / (1 - p), or 0."""
    y, state = ctx.place(call.outputs[0]), _state(call, ctx, 1)
    p = call.params["p"]
    limit = dropped_below(p)
    if not y.contiguous or y.dtype not in (FLOAT32, FLOAT64):
        raise Unsupported
    if limit == 2**32 or y.size == 0:
        return fill(y, 0, ctx)
    x, first = packed(ctx.place(call.inputs[0]), ctx)
    kind = storage(y.dtype)
    text = f"dropout(({kind}*)p[0], (const {kind}*)p[1], p[2], v[0], v[1], v[2], ::real(v[3]), part, parts);"
    parameters = (y.size, call.params["offset"], limit, bits(1 / (1 - p)))
    return [*first, TaskSpec(kernel(ctx, HEADER, text), parameters, (y, x, state), widest(y.size * DEAR))]


@lowers("bernoulli")
def bernoulli(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """One trial for each probability."""
    y, p, state = ctx.place(call.outputs[0]), ctx.place(call.inputs[0]), _state(call, ctx, 1)
    if not y.contiguous or not p.contiguous or y.size == 0:
        raise Unsupported
    to, from_ = storage(y.dtype), storage(p.dtype)
    text = f"bernoulli(({to}*)p[0], (const {from_}*)p[1], p[2], (int64_t*)p[3], v[0], v[1], part, parts);"
    return [TaskSpec(kernel(ctx, HEADER, text), (y.size, call.params["offset"]), (y, p, state, FAULT), widest(y.size * DEAR))]


@lowers("random_uniform")
def uniform(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Between two numbers."""
    y, state = ctx.place(call.outputs[0]), _state(call, ctx, 0)
    if not y.contiguous or y.size == 0 or y.dtype not in (FLOAT32, FLOAT64) or call.params["dtype"] != y.dtype:
        raise Unsupported
    low, high = call.params["low"], call.params["high"]
    kind = y.dtype.type
    below = float(np.nextafter(kind(high), kind(low)) if high > low else kind(low))
    text = f"uniform(({storage(y.dtype)}*)p[0], p[1], v[0], v[1], ::real(v[2]), ::real(v[3]), ::real(v[4]), part, parts);"
    parameters = (y.size, call.params["offset"], bits(float(low)), bits(float(high)), bits(below))
    return [TaskSpec(kernel(ctx, HEADER, text), parameters, (y, state), widest(y.size * DEAR))]


@lowers("random_normal")
def normal(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Of a mean and a deviation; float32, which are computed as doubles, so that they are NumPy's numbers."""
    y, state, p = ctx.dense(call.outputs[0], FLOAT32), _state(call, ctx, 0), call.params
    if y.size == 0 or p["dtype"] != y.dtype:
        raise Unsupported
    text = "normal((float*)p[0], p[1], v[0], v[1], ::real(v[2]), ::real(v[3]), part, parts);"
    parameters = (y.size, p["offset"], bits(float(p["mean"])), bits(float(p["std"])))
    return [TaskSpec(kernel(ctx, HEADER, text), parameters, (y, state), widest(y.size * 2 * DEAR))]


@lowers("random_integers")
def integers(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """From a low one on."""
    y, state, p = ctx.place(call.outputs[0]), _state(call, ctx, 0), call.params
    if not y.contiguous or y.size == 0 or y.dtype not in (INT64, FLOAT32, FLOAT64) or p["dtype"] != y.dtype:
        raise Unsupported
    size, low = p["high"] - p["low"], p["low"]
    if not -(1 << 63) <= low < 1 << 63:
        raise Unsupported
    word = size - (1 << 64) if size >= 1 << 63 else size  # as a parameter holds it
    text = f"integers(({storage(y.dtype)}*)p[0], p[1], v[0], v[1], uint64_t(v[2]), v[3], part, parts);"
    return [TaskSpec(kernel(ctx, HEADER, text), (y.size, p["offset"], word, low), (y, state), widest(y.size * DEAR))]
