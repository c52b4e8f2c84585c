"""Copies: parts of tensors put together, cut, turned round."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab import ops
from gradlab.backends.native.place import Place, viewed
from gradlab.deploy.emitter import Emitter, Step, broadcast, emits, nest
from gradlab.deploy.types import ctype, literal, stored


def fill(out: Emitter, place: Place, value: Any = 0) -> None:
    """One value everywhere."""
    if not place.size:
        return
    if value == 0 and place.contiguous:
        out.line(f"memset({out.pointer(place)}, 0, {place.size * place.dtype.itemsize})")
        return
    kind = ctype(place.dtype).storage
    text = ["static void @F(void *p0) {", f"  {kind} *a0 = p0;"]
    text += nest(
        place.shape, [("a", f"{kind} *", place.strides)], lambda at: [f"a[{at['a']}] = {stored(literal(value, place.dtype), place.dtype)};"]
    )
    if place.dtype.name in ("float16", "bfloat16"):
        out.part("half.h")
    out.call("\n".join([*text, "}"]), place)


def shifted(place: Place, starts: tuple[int, ...], shape: tuple[int, ...]) -> Place:
    """A block of a place."""
    offset = sum(s * a for s, a in zip(place.strides, starts)) * place.dtype.itemsize
    return Place(place.base, place.offset + offset, shape, place.strides, place.dtype)


@emits("cat")
def cat(step: Step, out: Emitter) -> None:
    y, dim = step.outputs[0], step.params["dim"]
    at = 0
    for x in step.inputs:
        target = shifted(y, tuple(at if d == dim else 0 for d in range(len(y.shape))), x.shape)
        if x.size:
            out.copy(x, target)
        at += x.shape[dim]


@emits("flip")
def flip(step: Step, out: Emitter) -> None:
    x, y = step.inputs[0], step.outputs[0]
    if not x.size:
        return
    dims = step.params["dims"]
    offset = sum((x.shape[d] - 1) * x.strides[d] for d in dims) * x.dtype.itemsize
    strides = tuple(-s if d in dims else s for d, s in enumerate(x.strides))
    out.copy(Place(x.base, x.offset + offset, x.shape, strides, x.dtype), y)


@emits("slice_backward", "slice_scatter", "diagonal_embed", "diagonal_scatter", "unfold_backward")
def placed(step: Step, out: Emitter) -> None:
    """Zeros or a base, and a part of it written over (`unfold_backward`: added to)."""
    y = step.outputs[0]
    if not y.size:
        return
    name = step.name
    if name.endswith("scatter"):
        out.copy(step.inputs[0], y)
    else:
        fill(out, y)
    value = step.inputs[-1]
    row = ops.movement.slice_ if name.startswith("slice") else ops.layout.diagonal if name.startswith("diagonal") else ops.ROWS["unfold"]
    target = viewed(y, row, {k: v for k, v in step.params.items() if k in row.params}) if value.size else None
    if target is None:
        return
    if name != "unfold_backward":
        out.copy(value, target)
        return
    kind = ctype(y.dtype).storage
    text = ["static void @F(const void *p0, void *p1) {", f"  const {kind} *a0 = p0;", f"  {kind} *b0 = p1;"]
    text += nest(target.shape, [("a", f"const {kind} *", value.strides), ("b", f"{kind} *", target.strides)],
                 lambda at: [f"b[{at['b']}] += a[{at['a']}];"], ivdep=False)  # fmt: skip
    out.call("\n".join([*text, "}"]), value, target)


@emits("tril", "triu")
def triangle(step: Step, out: Emitter) -> None:
    x, y = step.inputs[0], step.outputs[0]
    if not y.size:
        return
    kind = ctype(y.dtype).storage
    k = step.params["diagonal"]
    keeps = f"i - r <= {k}" if step.name == "tril" else f"i - r >= {k}"
    text = ["static void @F(const void *p0, void *p1) {", f"  const {kind} *a0 = p0;", f"  {kind} *b0 = p1;"]
    level = len(y.shape) - 2
    text += nest(y.shape, [("a", f"const {kind} *", x.strides), ("b", f"{kind} *", y.strides)],
                 lambda at: [f"const int64_t r = i{level};", f"b[{at['b']}] = {keeps} ? a[{at['a']}] : 0;"], merge=False)  # fmt: skip
    out.call("\n".join([*text, "}"]), x, y)


@emits("pad")
def pad(step: Step, out: Emitter) -> None:
    x, y, pads = step.inputs[0], step.outputs[0], step.params["pads"]
    fill(out, y, step.params["value"])
    starts = tuple(max(-low, 0) for low, _ in pads)
    sizes = tuple(size - max(-low, 0) - max(-high, 0) for size, (low, high) in zip(x.shape, pads))
    if all(size > 0 for size in sizes):
        out.copy(shifted(x, starts, sizes), shifted(y, tuple(max(low, 0) for low, _ in pads), sizes))


@emits("im2col")
def im2col(step: Step, out: Emitter) -> None:
    x, y, p = step.inputs[0], step.outputs[0], step.params
    if not y.size:
        return
    x = out.dense(x)
    padding = p["padding"]
    rank = len(padding)
    wide = tuple(s + 2 * q for s, q in zip(x.shape[2:], padding))
    space = out.scratch((*x.shape[:2], *wide), x.dtype)
    fill(out, space)
    out.copy(x, shifted(space, (0, 0, *padding), x.shape))
    shape = (*x.shape[:2], *p["kernel"], *p["outputs"])
    within = tuple(s * d for s, d in zip(space.strides[2:], p["dilation"]))
    along = tuple(s * d for s, d in zip(space.strides[2:], p["stride"]))
    view = Place(space.base, space.offset, shape, (*space.strides[:2], *within, *along), x.dtype)
    steps: list[int] = []
    size = 1
    for n in reversed(shape):
        steps.insert(0, size)
        size *= n
    out.copy(view, Place(y.base, y.offset, shape, tuple(steps), y.dtype))
    assert rank


@emits("view", "permute", "transpose", "t", "expand", "squeeze", "unsqueeze", "slice", "diagonal", "unfold", "as_strided")
def view(step: Step, out: Emitter) -> None:
    """Only what could not be a view comes here: a change of shape that has to copy, or nothing at all."""
    x, y = step.inputs[0], step.outputs[0]
    if y.size and step.name == "view":
        steps: list[int] = []
        size = 1
        for n in reversed(x.shape):
            steps.insert(0, size)
            size *= n
        out.copy(x, Place(y.base, y.offset, x.shape, tuple(steps), y.dtype))
    elif y.size and step.name == "as_strided":
        space, p = out.scratch(x.shape, x.dtype), step.params
        out.copy(x, space)
        out.copy(Place(space.base, space.offset + p["first"] * x.dtype.itemsize, p["shape"], p["steps"], x.dtype), y)


@emits("nextafter")
def nextafter(step: Step, out: Emitter) -> None:
    a, b, y = *(out.dense(x) for x in step.inputs), step.outputs[0]
    kind = ctype(y.dtype).storage
    name = "nextafterf" if y.dtype == np.float32 else "nextafter"
    text = ["static void @F(const void *p0, const void *p1, void *p2) {", f"  const {kind} *a0 = p0, *b0 = p1;", f"  {kind} *c0 = p2;"]
    shape = y.shape
    spread = [broadcast(p, shape) for p in (a, b)]
    text += nest(shape, [("a", f"const {kind} *", spread[0]), ("b", f"const {kind} *", spread[1]), ("c", f"{kind} *", y.strides)],
                 lambda at: [f"c[{at['c']}] = {name}(a[{at['a']}], b[{at['b']}]);"])  # fmt: skip
    out.call("\n".join([*text, "}"]), a, b, y)
