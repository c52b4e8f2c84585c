"""Lowering of rows that work with windows or taps of neighbours: im2col and back, resampling along one dimension."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.backends.native.lowerings.iteration_order import in_order
from gradlab.backends.native.lowerings.lines import along, kernel
from gradlab.backends.native.lowerings.loops import literal, storage
from gradlab.backends.native.lowerings.movements import WORDS, packed
from gradlab.dtype import FLOAT32, FLOAT64
from gradlab.graph.ir.graph import Call
from gradlab.ops.vision_cpu import adjoint_taps, taps

HEADER = '#include "im2col.h"\n'
PIXELS = (0, 2, 3, 1)  # dimensions of images as they lie in memory with their channels last
MOST = 8192  # taps that are written into a kernel's text


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
    text = ['#include "half.h"', '#include "runtime.h"', "namespace gradlab {"]
    text.append(f"static const int @K_at[] = {{{', '.join(map(str, np.ravel(indices).tolist()))}}};")
    if found.weight is not None:
        text.append(f"static const {kind} @K_weight[] = {{{', '.join(_numbers(found.weight, y.dtype))}}};")
    text += [
        "GRADLAB_KERNEL @K(char** p, const int64_t*, int part, int parts) {",
        f"  const Share mine = share({outer * outputs}LL, part, parts);",
        "  for (int64_t u = mine.first; u < mine.last; ++u) {",
        f"    const int64_t j = u % {outputs}LL * {count};",
        f"    {kind}* const to = ({kind}*)p[0] + u * {inner}LL;",
        f"    const {kind}* const from = (const {kind}*)p[1] + u / {outputs}LL * {n * inner}LL;",
        f"    if (@K_at[j] < 0) {{ for (int64_t i = 0; i < {inner}LL; ++i) to[i] = 0; continue; }}",
        f"    for (int64_t i = 0; i < {inner}LL; ++i) to[i] = from[@K_at[j] * {inner}LL + i]{_times('j', found)};",
        f"    for (int64_t t = j + 1; t < j + {count}; ++t)",
        f"      for (int64_t i = 0; i < {inner}LL; ++i) to[i] += from[@K_at[t] * {inner}LL + i]{_times('t', found)};",
        "  }", "}", "}  // namespace gradlab",
    ]  # fmt: skip
    return [*first, TaskSpec(ctx.generate("\n".join(text)), (), (y, x), min(outer * outputs, widest(y.size * count)))]


def _times(index: str, found: Any) -> str:
    return f" * @K_weight[{index}]" if found.weight is not None else ""


def _numbers(weight: Any, dtype: np.dtype[Any]) -> list[str]:
    return [literal(w, dtype) for w in np.ravel(weight).tolist()]
