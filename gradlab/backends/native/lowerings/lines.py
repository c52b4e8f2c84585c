"""Lowering of rows along one dimension: largest and smallest elements with their places, running extremes, sums and products."""

from __future__ import annotations

import math

from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.backends.native.lowerings.loops import storage
from gradlab.backends.native.lowerings.movements import packed
from gradlab.call import Call
from gradlab.dtype import FLOAT32

HEADER = '#include "along_dimension.h"\n'


def along(shape: tuple[int, ...], dim: int) -> tuple[int, int, int]:
    """The sizes before a dimension, of it, and behind it."""
    if not shape or 0 in shape:
        raise Unsupported
    return math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])


def kernel(ctx: Lowering, header: str, call: str) -> str:
    """The name of a kernel that calls a template with its pointers, parameters and share."""
    head = "GRADLAB_KERNEL @K(char** p, const int64_t* v, int part, int parts)"
    return ctx.generate(f"{header}namespace gradlab {{\n{head} {{\n  {call}\n}}\n}}  // namespace gradlab\n")


@lowers("argmax", "argmin", "max", "min")
def extremes(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The first of the largest (smallest) elements along a dimension."""
    x, first = packed(ctx.place(call.inputs[0]), ctx)
    outer, n, inner = along(x.shape, call.params["dim"])
    outputs = [ctx.place(v) for v in call.outputs]
    if not all(p.contiguous for p in outputs):
        raise Unsupported
    kind = storage(x.dtype)
    largest = "true" if call.op.name.endswith("max") else "false"
    values = f"({kind}*)p[0]" if len(outputs) == 2 else "nullptr"
    at = len(outputs)
    text = f"extremes<{kind}, {largest}>({values}, (int64_t*)p[{at - 1}], (const {kind}*)p[{at}], v[0], v[1], v[2], part, parts);"
    places = (*outputs, x)
    return [*first, TaskSpec(kernel(ctx, HEADER, text), (outer, n, inner), places, min(outer * (-(-inner // 64)), widest(x.size * 2)))]


@lowers("cummax", "cummin")
def running_extremes(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The largest (smallest) elements so far."""
    x, first = packed(ctx.place(call.inputs[0]), ctx)
    outer, n, inner = along(x.shape, call.params["dim"])
    values, places = (ctx.place(v) for v in call.outputs)
    if not values.contiguous or not places.contiguous:
        raise Unsupported
    kind, largest = storage(x.dtype), "true" if call.op.name == "cummax" else "false"
    text = f"running_extremes<{kind}, {largest}>(({kind}*)p[0], (int64_t*)p[1], (const {kind}*)p[2], v[0], v[1], v[2], part, parts);"
    most = min(outer * (-(-inner // 64)), widest(x.size * 4))
    return [*first, TaskSpec(kernel(ctx, HEADER, text), (outer, n, inner), (values, places, x), most)]


@lowers("cumsum", "cumprod")
def running(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Totals of all elements so far: of float32 in double, as the row's NumPy function has them."""
    x, first = packed(ctx.place(call.inputs[0]), ctx)
    outer, n, inner = along(x.shape, call.params["dim"])
    y = ctx.place(call.outputs[0])
    if not y.contiguous or y.dtype != x.dtype or y.dtype.kind == "b":
        raise Unsupported
    kind = storage(x.dtype)
    total = "double" if x.dtype == FLOAT32 else kind
    product = "true" if call.op.name == "cumprod" else "false"
    text = f"running<{kind}, {total}, {product}>(({kind}*)p[0], (const {kind}*)p[1], v[0], v[1], v[2], part, parts);"
    return [*first, TaskSpec(kernel(ctx, HEADER, text), (outer, n, inner), (y, x), min(outer * (-(-inner // 64)), widest(x.size * 2)))]
