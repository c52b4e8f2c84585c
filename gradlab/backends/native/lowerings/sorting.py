"""Lowering of rows that order: sort, topk, medians and modes along any dimension, searches, membership."""

from __future__ import annotations

from gradlab.backends.cuda.types import compute_type
from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.backends.native.lowerings.lines import along, kernel
from gradlab.backends.native.lowerings.loops import storage
from gradlab.backends.native.lowerings.movements import Space, packed
from gradlab.backends.native.place import Place
from gradlab.call import Call
from gradlab.dtype import HALF, INT64

HEADER = '#include "sorting.h"\n'
DEAR = 40  # simple operations that an element costs


@lowers("sort", "topk")
def ordered(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Values in order and where they were."""
    x, first = packed(ctx.place(call.inputs[0]), ctx)
    values, places = (ctx.place(v) for v in call.outputs)
    outer, n, inner = along(x.shape, call.params["dim"])
    k = call.params.get("k", n)
    if k == 0 or n >= 1 << 31 or not values.contiguous or not places.contiguous:
        raise Unsupported
    down = call.params["largest"] if call.op.name == "topk" else call.params["descending"]
    kind, own = storage(x.dtype), compute_type(x.dtype)
    text = f"sorted<{kind}, {own}, {'true' if down else 'false'}>(p, v[0], v[1], v[2], v[3], part, parts);"
    most = min(outer * inner, widest(x.size * DEAR))
    return [*first, TaskSpec(kernel(ctx, HEADER, text), (outer, n, inner, k), (values, places, x), most)]


def _made(ctx: Lowering, call: Call) -> list[Place]:
    """The places of the results, which have to be contiguous."""
    found = [ctx.place(v) for v in call.outputs]
    if not all(p.contiguous for p in found):
        raise Unsupported
    return found


@lowers("median", "median_of_all")
def median(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Along a dimension, with places, or of all elements."""
    x, first = packed(ctx.place(call.inputs[0]), ctx)
    made = _made(ctx, call)
    outer, n, inner = along(x.shape, call.params["dim"]) if len(made) == 2 else (1, x.size, 1)
    if n == 0 or n >= 1 << 31:
        raise Unsupported
    kind, own = storage(x.dtype), compute_type(x.dtype)
    places, at = ("(int64_t*)p[1]", 2) if len(made) == 2 else ("nullptr", 1)
    text = f"medians<{kind}, {own}>(p, ({kind}*)p[0], {places}, (const {kind}*)p[{at}], v[0], v[1], v[2], v[3] != 0, part, parts);"
    most = min(outer * inner, widest(x.size * 8))
    return [*first, TaskSpec(kernel(ctx, HEADER, text), (outer, n, inner, call.params["pass_nan"]), (*made, x), most)]


@lowers("mode")
def mode(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The most frequent elements and where they are."""
    x, first = packed(ctx.place(call.inputs[0]), ctx)
    outer, n, inner = along(x.shape, call.params["dim"])
    if n >= 1 << 31:
        raise Unsupported
    text = f"modes<{storage(x.dtype)}, {compute_type(x.dtype)}>(p, v[0], v[1], v[2], part, parts);"
    most = min(outer * inner, widest(x.size * DEAR))
    return [*first, TaskSpec(kernel(ctx, HEADER, text), (outer, n, inner), (*_made(ctx, call), x), most)]


@lowers("searchsorted")
def searchsorted(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Places of numbers among boundaries."""
    (y,), space = _made(ctx, call), Space(ctx)
    boundaries, x = map(space.dense, call.inputs)
    if x.size == 0 or boundaries.size == 0 or x.dtype in HALF:
        raise Unsupported
    kind, made, m = storage(x.dtype), storage(y.dtype), x.shape[-1] if x.shape else 1
    parameters = (x.size // m, m, boundaries.shape[-1], len(boundaries.shape) == 1, call.params["right"])
    text = f"searches(({made}*)p[0], (const {kind}*)p[1], (const {kind}*)p[2], v[0], v[1], v[2], v[3] != 0, v[4] != 0, part, parts);"
    most = widest(x.size * 4 * boundaries.shape[-1].bit_length())
    return [*space.tasks, TaskSpec(kernel(ctx, HEADER, text), parameters, (y, boundaries, x), most)]


@lowers("isin")
def isin(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The elements to look for are sorted, then each is sought among them."""
    (y,), space = _made(ctx, call), Space(ctx)
    x, test = map(space.dense, call.inputs)
    if x.size == 0 or test.size == 0 or x.dtype in HALF:
        raise Unsupported
    ordered, count = space.like(test, test.dtype), space.like(Place(0, 0, (1,), (1,), INT64), INT64)
    kind = storage(x.dtype)
    first = f"if (part == 0) ordered_numbers(({kind}*)p[0], (int64_t*)p[1], (const {kind}*)p[2], v[0]);"
    text = f"memberships((bool*)p[0], (const {kind}*)p[1], (const {kind}*)p[2], (const int64_t*)p[3], v[0], v[1] != 0, part, parts);"
    most = widest(x.size * 4 * test.size.bit_length())
    return [
        *space.tasks,
        TaskSpec(kernel(ctx, HEADER, first), (test.size,), (ordered, count, test)),
        TaskSpec(kernel(ctx, HEADER, text), (x.size, call.params["invert"]), (y, x, ordered, count), most),
    ]
