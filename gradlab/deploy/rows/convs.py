"""Convolutions, their transposes, and the windows of pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab.backends.native.place import Place
from gradlab.deploy.emitter import Emit, Emitter, Step, emits
from gradlab.deploy.rows import pictures
from gradlab.deploy.rows.products import FLOAT32, constant, written
from gradlab.deploy.types import ctype

BLOCK = 160 * 1024  # bytes of gathered columns, which stay in the second-level cache


def _in_order(row: Emit, step: Step, out: Emitter) -> None:
    """A row that writes its dimensions in order, and copies of what it wrote."""
    step, copies = pictures.channels_in_order(step, out)
    row(step, out)
    for made, place in copies:
        out.copy(made, place)


@emits("convolution")
def convolution(step: Step, out: Emitter) -> None:
    x, w, b = step.inputs[:3]
    y = step.outputs[0]
    if not y.size:
        return
    rank = len(x.shape) - 2
    if y.dtype == FLOAT32 and rank <= 2 and pictures.convolve(step, out):
        return
    if not y.contiguous:
        _in_order(convolution, step, out)
        return
    if y.dtype != FLOAT32 or rank > 2:
        _direct(step, out)
        return
    x, w = out.dense(x), out.dense(w)
    lead = (1,) * (2 - rank)
    stride, dilation = (*lead, *step.params["stride"]), (*lead, *step.params["dilation"])
    padding = ((0,) * (2 - rank)) + tuple(step.params["padding"])
    groups = step.params["groups"]
    high, wide = (*lead, *x.shape[2:])
    kh, kw = (*lead, *w.shape[2:])
    high_out, wide_out = (*lead, *y.shape[2:])
    n, inputs, outputs = x.shape[0], x.shape[1], y.shape[1]
    k = inputs // groups * kh * kw
    places = high_out * wide_out
    share = -(-n * groups * places // 128) * 32  # so that there are four blocks to share among threads
    columns = max(min(BLOCK // (k * 4) // 32 * 32, -(-places // 32) * 32, share), 32) if not out.small else 16
    out.part("gemm.c")
    out.part("conv.c")
    out.own(columns * k * 4)
    numbers = (n, inputs, high, wide, outputs, groups, high_out, wide_out, kh, kw, *stride, *padding, *dilation, columns)
    window = f"&(const gl_window){{{', '.join(map(str, numbers))}}}"
    source = out.pointer(x)
    if any(padding):
        space = out.scratch((n * inputs * (high + 2 * padding[0]) * (wide + 2 * padding[1]),), np.float32)
        out.line(f"gl_pad_planes(&team, {window}, {constant(source)}, {written(out.pointer(space))})")
        source = out.pointer(space)
    bias = None if b is None else out.dense(b)
    activation = out.activations[step.activation] if step.activation else 0
    finish = f"(gl_finish){{NULL, {constant(out.pointer(bias))}, {constant(out.pointer(step.add))}, {activation}}}"
    name = "gl_convolve_planes" if inputs == groups else "gl_convolve"
    out.line(f"{name}(&team, {window}, {constant(source)}, {constant(out.pointer(w))}, {written(out.pointer(y))}, {finish})")


def _loops(lines: list[str], bounds: list[tuple[str, int]], depth: int) -> int:
    lines += [f"{'  ' * (depth + i)}for (int64_t {name} = 0; {name} < {size}; ++{name}) {{" for i, (name, size) in enumerate(bounds)]
    return depth + len(bounds)


def _close(lines: list[str], depth: int, to: int) -> None:
    lines += [f"{'  ' * d}}}" for d in range(depth - 1, to - 1, -1)]


def _flat(names: list[str], sizes: tuple[int, ...]) -> str:
    text = names[0]
    for name, size in zip(names[1:], sizes[1:]):
        text = f"({text}) * {size} + {name}"
    return text


def _direct(step: Step, out: Emitter) -> None:
    """Any number of dimensions and any dtype: plain loops."""
    x, w = out.dense(step.inputs[0]), out.dense(step.inputs[1])
    b = None if step.inputs[2] is None else out.dense(step.inputs[2])
    y = step.outputs[0]
    stride, padding, dilation, groups = (step.params[k] for k in ("stride", "padding", "dilation", "groups"))
    rank = len(stride)
    kind = ctype(y.dtype).storage
    total = "double" if y.dtype == np.float64 or y.dtype == FLOAT32 else kind
    rows, per_group = y.shape[1] // groups, x.shape[1] // groups
    text = ["static void @F(const void *p0, const void *p1, const void *p2, void *p3) {",
            f"  const {kind} *const x = p0, *const w = p1, *const b = p2;", f"  {kind} *y = p3;"]  # fmt: skip
    outs = [f"o{d}" for d in range(rank)]
    depth = _loops(text, [("n", y.shape[0]), ("c", y.shape[1]), *zip(outs, y.shape[2:])], 1)
    text.append(f"{'  ' * depth}{total} sum = b != NULL ? b[c] : 0;")
    inner = _loops(text, [("j", per_group), *((f"k{d}", w.shape[2 + d]) for d in range(rank))], depth)
    for d in range(rank):
        text.append(f"{'  ' * inner}const int64_t i{d} = o{d} * {stride[d]} + k{d} * {dilation[d]} - {padding[d]};")
        text.append(f"{'  ' * inner}if (i{d} < 0 || i{d} >= {x.shape[2 + d]}) continue;")
    at_x = _flat(["n", f"(c / {rows} * {per_group} + j)", *(f"i{d}" for d in range(rank))], x.shape)
    at_w = _flat(["c", "j", *(f"k{d}" for d in range(rank))], w.shape)
    text.append(f"{'  ' * inner}sum += ({total})x[{at_x}] * ({total})w[{at_w}];")
    _close(text, inner, depth)
    text.append(f"{'  ' * depth}*y++ = ({kind})sum;")
    _close(text, depth, 1)
    out.call("\n".join([*text, "}"]), x, w, b, y)


@emits("convolution_dx", "convolution_transpose")
def convolution_dx(step: Step, out: Emitter) -> None:
    """The transpose: every element of the input is spread over its window of the output, which begins as the bias or zeros."""
    dy, w, *bias = (out.dense(x) for x in step.inputs if x is not None)
    y = step.outputs[0]
    if not y.size:
        return
    stride, padding, dilation, groups = (step.params[k] for k in ("stride", "padding", "dilation", "groups"))
    rank = len(stride)
    kind = ctype(y.dtype).storage
    rows, per_group = dy.shape[1] // groups, y.shape[1] // groups
    text = ["static void @F(const void *p0, const void *p1, void *p2) {",
            f"  const {kind} *const x = p0, *const w = p1;", f"  {kind} *const y = p2;",
            f"  memset(y, 0, {y.size * y.dtype.itemsize});"]  # fmt: skip
    if bias:
        plane = math.prod(y.shape[2:])
        text[0] = "static void @F(const void *p0, const void *p1, const void *p2, void *p3) {"
        text[1:] = [f"  const {kind} *const x = p0, *const w = p1, *const b = p2;", f"  {kind} *const y = p3;",
                    f"  for (int64_t i = 0; i < {y.size}; ++i) y[i] = b[i / {plane} % {y.shape[1]}];"]  # fmt: skip
    bounds: list[tuple[str, int]] = [("n", dy.shape[0]), ("c", dy.shape[1]), ("j", per_group)]
    bounds += [(f"k{d}", w.shape[2 + d]) for d in range(rank)]
    depth = _loops(text, bounds, 1)
    at_w = _flat(["c", "j", *(f"k{d}" for d in range(rank))], w.shape)
    text.append(f"{'  ' * depth}const {kind} factor = w[{at_w}];")
    inner = _loops(text, [(f"o{d}", dy.shape[2 + d]) for d in range(rank)], depth)
    for d in range(rank):
        text.append(f"{'  ' * inner}const int64_t i{d} = o{d} * {stride[d]} + k{d} * {dilation[d]} - {padding[d]};")
        text.append(f"{'  ' * inner}if (i{d} < 0 || i{d} >= {y.shape[2 + d]}) continue;")
    at_y = _flat(["n", f"(c / {rows} * {per_group} + j)", *(f"i{d}" for d in range(rank))], y.shape)
    at_x = _flat(["n", "c", *(f"o{d}" for d in range(rank))], dy.shape)
    text.append(f"{'  ' * inner}y[{at_y}] += factor * x[{at_x}];")
    _close(text, inner, 1)
    out.call("\n".join([*text, "}"]), dy, w, *bias, y)


def _windows(step: Step, out: Emitter, geometry: tuple[Any, ...], body: Any, heads: str, values: Sequence[Place | None]) -> None:
    """Loops over planes, windows and the places of a window that lie in the plane. geometry: sizes, outputs, kernel, stride, padding,
    dilation."""
    sizes, outputs, kernel, stride, padding, dilation = geometry
    planes = values[-1].size // max(math.prod(outputs), 1)  # type: ignore[union-attr]
    rank = len(sizes)
    before, inside, after = body
    text = [f"static void @F({heads}) {{", *before[0]]
    depth = 1
    if planes * math.prod(outputs) * math.prod(kernel) > 60000:
        text.append("  GL_PARALLEL")
    depth = _loops(text, [("p", planes), *((f"o{d}", outputs[d]) for d in range(rank))], 1)
    text += ["  " * depth + line for line in before[1]]
    inner = _loops(text, [(f"k{d}", kernel[d]) for d in range(rank)], depth)
    for d in range(rank):
        text.append(f"{'  ' * inner}const int64_t i{d} = o{d} * {stride[d]} + k{d} * {dilation[d]} - {padding[d]};")
        reach = (outputs[d] - 1) * stride[d] + (kernel[d] - 1) * dilation[d] - padding[d]
        if padding[d]:
            text.append(f"{'  ' * inner}if (i{d} < 0) continue;")
        if reach >= sizes[d]:
            text.append(f"{'  ' * inner}if (i{d} >= {sizes[d]}) continue;")
    place = _flat([f"i{d}" for d in range(rank)], sizes)
    text.append(f"{'  ' * inner}const int64_t at = {place};")
    text += ["  " * inner + line for line in inside]
    _close(text, inner, depth)
    text.append(f"{'  ' * depth}const int64_t to = {_flat(['p', *(f'o{d}' for d in range(rank))], (planes, *outputs))};")
    text += ["  " * depth + line for line in after]
    _close(text, depth, 1)
    out.call("\n".join([*text, "}"]), *values)


@emits("max_pool")
def max_pool(step: Step, out: Emitter) -> None:
    values = step.outputs[0]
    if not values.size:
        return
    out.scalar(values.dtype)
    suffix = ctype(values.dtype).suffix
    if pictures.pool(step, out, _lowest(values.dtype), f"gl_maximum_{suffix}({{v}}, {{a}})", "{a}"):
        return
    if not all(place.contiguous for place in step.outputs):
        _in_order(max_pool, step, out)
        return
    x = out.dense(step.inputs[0])
    indices = step.output(1)
    kind = ctype(x.dtype)
    p = step.params
    plane = math.prod(x.shape[2:])
    heads = [f"  const {kind.storage} *const x = p0;", f"  {kind.storage} *const y = p1;"]
    geometry = (x.shape[2:], values.shape[2:], p["kernel"], p["stride"], p["padding"], p["dilation"])
    start = [f"const {kind.storage} *const own = x + p * {plane};", f"{kind.compute} best = 0;", "int64_t where = -1;"]
    better = "value > best || (value != value && best == best)" if x.dtype.kind == "f" else "value > best"
    inside = [f"const {kind.compute} value = own[at];", f"if (where < 0 || {better}) {{ best = value; where = at; }}"]
    after = ["y[to] = best;"]
    if indices is None and not any(p["padding"]) and not p["ceil_mode"]:  # no bounds and no places: a maximum alone
        start = [f"const {kind.storage} *const own = x + p * {plane};", f"{kind.compute} best = {_lowest(x.dtype)};"]
        inside = [f"best = gl_maximum_{kind.suffix}(own[at], best);"]
    if indices is not None:
        heads.append("  int64_t *const z = p2;")
        after.append("z[to] = where;")
    values_in = [x, values] if indices is None else [x, values, indices]
    head = "const void *p0, void *p1" + ("" if indices is None else ", void *p2")
    _windows(step, out, geometry, ((heads, start), inside, after), head, values_in)


def _lowest(dtype: Any) -> str:
    return "-INFINITY" if dtype.kind == "f" else f"INT64_C({np.iinfo(dtype).min + 1}) - 1"


@emits("avg_pool")
def avg_pool(step: Step, out: Emitter) -> None:
    y, p = step.outputs[0], step.params
    if not y.size:
        return
    kind = ctype(y.dtype).storage
    divisor = p["divisor"] if p["divisor"] is not None else math.prod(p["kernel"])
    if pictures.pool(step, out, f"({kind})0", "{a} + {v}", f"({{a}}) / ({kind}){divisor}"):
        return
    if not y.contiguous:
        _in_order(avg_pool, step, out)
        return
    x = out.dense(step.inputs[0])
    sizes, kernel, stride, padding = x.shape[2:], p["kernel"], p["stride"], p["padding"]
    heads = [f"  const {kind} *const x = p0;", f"  {kind} *const y = p1;"]
    start = [f"const {kind} *const own = x + p * {math.prod(sizes)};", f"{kind} sum = 0;"]
    if p["divisor"] is not None:
        count = str(p["divisor"])
    elif not p["include"]:
        start.append("int64_t count = 0;")
        count = "count"
    else:
        parts = []
        for d, (size, k, s, pad) in enumerate(zip(sizes, kernel, stride, padding)):
            if (y.shape[2 + d] - 1) * s + k <= size + 2 * pad:
                parts.append(str(k))
            else:
                end = size + 2 * pad
                parts.append(f"(o{d} * {s} + {k} < {end} ? {k} : {end} - o{d} * {s})")
        count = " * ".join(parts)
    inside = ["sum += own[at];"] + (["++count;"] if count == "count" else [])
    geometry = (sizes, y.shape[2:], kernel, stride, padding, (1,) * len(kernel))
    _windows(step, out, geometry, ((heads, start), inside, [f"y[to] = sum / ({kind})({count});"]), "const void *p0, void *p1", [x, y])


@emits("adaptive_max_pool")
def adaptive_max_pool(step: Step, out: Emitter) -> None:
    x = out.dense(step.inputs[0])
    y, indices = step.outputs[0], step.output(1)
    if not y.size:
        return
    kind = ctype(x.dtype)
    sizes, outputs = x.shape[2:], y.shape[2:]
    rank = len(sizes)
    text = ["static void @F(const void *p0, void *p1, void *p2) {", f"  const {kind.storage} *const x = p0;",
            f"  {kind.storage} *y = p1;", "  int64_t *z = p2;"]  # fmt: skip
    depth = _loops(text, [("p", y.size // math.prod(outputs)), *((f"o{d}", outputs[d]) for d in range(rank))], 1)
    pad = "  " * depth
    text += [f"{pad}{kind.compute} best = 0;", f"{pad}int64_t where = -1;"]
    inner = depth
    for d in range(rank):
        n, m = sizes[d], outputs[d]
        end = f"((o{d} + 1) * {n} + {m - 1}) / {m}"
        text.append(f"{'  ' * inner}for (int64_t i{d} = o{d} * {n} / {m}; i{d} < {end}; ++i{d}) {{")
        inner += 1
    text.append(f"{'  ' * inner}const int64_t at = {_flat([f'i{d}' for d in range(rank)], sizes)};")
    text.append(f"{'  ' * inner}const {kind.compute} value = x[p * {math.prod(sizes)} + at];")
    better = "value > best || (value != value && best == best)" if x.dtype.kind == "f" else "value > best"
    text.append(f"{'  ' * inner}if (where < 0 || {better}) {{ best = value; where = at; }}")
    _close(text, inner, depth)
    text += [f"{pad}*y++ = best;", f"{pad}if (z != NULL) *z++ = where;"]
    _close(text, depth, 1)
    out.call("\n".join([*text, "}"]), x, y, indices)
