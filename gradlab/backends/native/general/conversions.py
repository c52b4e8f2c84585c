"""Conversions between float32 and half types of arrays without gaps, as tasks of `half_conversions.cpp`."""

from __future__ import annotations

from gradlab.backends.cuda.layout import merged
from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, widest
from gradlab.backends.native.lowerings.iteration_order import in_order, walk
from gradlab.call import Call
from gradlab.dtype import FLOAT32, HALF


def cast(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The task of a cast. Unsupported for other types, which NumPy converts as fast, and for arrays that lie otherwise than the result."""
    y, x = ctx.place(call.outputs[0]), ctx.place(call.inputs[0])
    order = walk(y)
    sizes, steps = merged(in_order(y.shape, order), [in_order(y.strides, order), in_order(x.strides, order)])
    if len(sizes) > 1 or any(s != [1] for s in steps if s):
        raise Unsupported
    for word, wide, narrow in (("widen", y, x), ("narrow", x, y)):
        if wide.dtype == FLOAT32 and narrow.dtype in HALF:
            return [TaskSpec(f"gradlab_{word}_{narrow.dtype.name}", (y.size,), (y, x), widest(y.size))]
    raise Unsupported
