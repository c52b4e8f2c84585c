"""Lowering of sort and topk, along any dimension."""

from __future__ import annotations

from gradlab.backends.cuda.types import compute_type
from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.backends.native.lowerings.lines import along, kernel
from gradlab.backends.native.lowerings.loops import storage
from gradlab.backends.native.lowerings.movements import packed
from gradlab.call import Call

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
