"""Lowering of rows that work with windows or taps of neighbours: im2col and back, resampling along one dimension."""

from __future__ import annotations

import math

import numpy as np

from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, bits, lowers, widest
from gradlab.backends.native.lowerings.iteration_order import in_order
from gradlab.backends.native.lowerings.lines import along, kernel
from gradlab.backends.native.lowerings.loops import storage
from gradlab.backends.native.lowerings.movements import WORDS, packed
from gradlab.call import Call
from gradlab.dtype import FLOAT32, FLOAT64
from gradlab.taps import adjoint_taps, taps

HEADER = '#include "im2col.h"\n'
PIXELS = (0, 2, 3, 1)  # dimensions of images as they lie in memory with their channels last
MOST = 8192  # taps that are handed over as parameters


@lowers("im2col", "col2im")
def columns(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """(N, C, *sizes) to (N, C · kernel, windows) and back, of one or two dimensions."""
    x, first = packed(ctx.place(call.inputs[0]), ctx)
    y = ctx.place(call.outputs[0])
    image = x if call.op.name == "im2col" else y
    rank = len(image.shape) - 2
    if rank not in (1, 2) or not y.contiguous or x.size == 0 or y.size == 0:
        raise Unsupported
    lead, p = (1,) * (2 - rank), call.params
    none = (0,) * (2 - rank)
    sizes = (*lead, *image.shape[2:], *lead, *p["kernel"], *lead, *p["outputs"])
    parameters = (image.shape[0] * image.shape[1], *sizes, *lead, *p["stride"], *none, *p["padding"], *lead, *p["dilation"])
    if call.op.name == "im2col":
        w = WORDS[x.dtype.itemsize]
        text, most = f"unrolled(({w}*)p[0], (const {w}*)p[1], Geometry(v), part, parts);", parameters[0] * math.prod(p["kernel"])
    elif y.dtype in (FLOAT32, FLOAT64):
        kind = storage(y.dtype)
        text, most = f"rolled(({kind}*)p[0], (const {kind}*)p[1], Geometry(v), part, parts);", parameters[0]
    else:
        raise Unsupported
    return [*first, TaskSpec(kernel(ctx, HEADER, text), parameters, (y, x), min(most, widest(max(x.size, y.size))))]


@lowers("resample", "resample_backward")
def resample(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Each element of one dimension is a weighted sum of some of the others."""
    x, y, dim = ctx.place(call.inputs[0]), ctx.place(call.outputs[0]), call.params["dim"]
    if y.channels_last and not y.contiguous:  # arrays of pixels by channels
        x, y = (p._replace(shape=in_order(p.shape, PIXELS), strides=in_order(p.strides, PIXELS)) for p in (x, y))
        dim = PIXELS.index(dim)
    x, first = packed(x, ctx)
    outer, n, inner = along(x.shape, dim)
    found = (taps if call.op.name == "resample" else adjoint_taps)(call.params["table"])
    outputs, count = found.index.shape
    if not y.contiguous or y.size == 0 or found.index.size > MOST or (found.weight is not None and y.dtype not in (FLOAT32, FLOAT64)):
        raise Unsupported
    kind = storage(y.dtype) if found.weight is not None else WORDS[y.dtype.itemsize]
    indices = np.where(found.none[:, None], -1, found.index) if found.none is not None else found.index
    weights = [] if found.weight is None else [bits(w) for w in np.ravel(found.weight).tolist()]
    parameters = (outer, outputs, inner, n, count, *np.ravel(indices).tolist(), *weights)
    most = min(outer if inner == 1 else outer * outputs, widest(y.size * count))
    text = f"resampled<{kind}, {'true' if weights else 'false'}>(({kind}*)p[0], (const {kind}*)p[1], v, part, parts);"
    return [*first, TaskSpec(kernel(ctx, '#include "resampling.h"\n', text), parameters, (y, x), most)]
