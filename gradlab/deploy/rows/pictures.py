"""Convolutions and windows of pictures whose channels come last in memory: vectors hold channels. Weights are laid so, and transformed for
Winograd's algorithm, when the program is built."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradlab.backends.native.place import Place, last_place
from gradlab.deploy.emitter import Emitter, Step
from gradlab.deploy.rows.products import constant, multiply, packed, written
from gradlab.deploy.types import ctype
from gradlab.spec import Spec

LEAST = 8  # channels and outputs that make the products of Winograd's algorithm worth while
BLOCK = 56000  # floats of a piece's transformed tiles and their products: a part of the second-level cache
BAND, PIXELS = 24000, 96  # floats of a piece's laid input; pixels of the output that are worth a piece
NEAR, FAR = 0.75, 1.5  # the points of F(4, 3) besides 0 and infinity, as in winograd.c


def _up(n: int, to: int) -> int:
    return -(-n // to) * to


def taps(tall: int) -> Any:
    """G of Winograd's algorithm F(tall, 3), in double: three weights become tall + 2 numbers."""
    if tall == 2:
        return np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    near, far = NEAR**2, FAR**2
    zero_part, near_part, far_part = 1 / (near * far), 1 / (2 * near * (near - far)), 1 / (2 * far * (far - near))
    rows = [[zero_part, 0, 0]]
    for point, part in ((NEAR, near_part), (-NEAR, near_part), (FAR, far_part), (-FAR, far_part)):
        rows.append([part, part * point, part * point**2])
    return np.array([*rows, [0, 0, 1]])


def transformed(weight: Any, tall: int) -> Any:
    """Weights (outputs, inputs, 3, 3) in the tall + 2 by 4 places of the algorithm, each as panels."""
    made = np.einsum("ia,jb,ocab->ijco", taps(tall), taps(2), weight.astype(np.float64)).astype(np.float32)
    return np.stack([packed(made[i, j]) for i in range(tall + 2) for j in range(4)])


def _way(inputs: int, outputs: int, high: int, wide: int) -> int:
    """Rows of a tile of Winograd's algorithm, or 0 where the plain sum takes less time; times are cycles of a core with AVX2."""
    product = inputs * _up(outputs, 16) / 16
    times = {0: 9 * high * wide * product * 1.1}
    for tall in (2, 4):
        tiles = -(-high // tall) * -(-wide // 2)
        times[tall] = tiles * ((tall + 2) * 4 * product * 1.25 + (inputs + outputs) / 8 * (12 * tall + 10))
    return min(times, key=times.__getitem__)


def _as_pictures(place: Place) -> Place:
    """An array of pictures of one or two dimensions as one of two."""
    lead = 4 - len(place.shape)
    shape, strides = ((*p[:2], *(fill,) * lead, *p[2:]) for p, fill in ((place.shape, 1), (place.strides, 0)))
    return Place(place.base, place.offset, shape, strides, place.dtype)


def convolve(step: Step, out: Emitter) -> bool:
    """The lines of a float convolution whose input or output has its channels last, or that is worth laying so; False where it is not."""
    x, w, bias = step.inputs[:3]
    weight, known = step.known[1:3]
    y = step.outputs[0]
    if out.small or weight is None or (bias is not None and known is None) or not isinstance(x, Place):
        return False
    x, y = _as_pictures(x), _as_pictures(y)
    if not (x.contiguous or x.channels_last):
        x = _as_pictures(out.dense(step.inputs[0]))
    x_last, y_last = x.channels_last, y.channels_last
    lead = (0,) * (4 - len(w.shape))
    weight = weight.reshape(*weight.shape[:2], *(1,) * len(lead), *weight.shape[2:])
    stride, dilation = ((*(1,) * len(lead), *step.params[k]) for k in ("stride", "dilation"))
    padding, groups = (*lead, *step.params["padding"]), step.params["groups"]
    (n, inputs, high, wide), (_, outputs, high_out, wide_out), (kh, kw) = x.shape, y.shape, weight.shape[2:]
    depthwise = inputs == groups == outputs and inputs >= LEAST
    tall = 0
    if (kh, kw, *stride, *dilation, groups) == (3, 3, 1, 1, 1, 1, 1) and min(inputs, outputs) >= LEAST and min(high_out, wide_out) > 1:
        tall = _way(inputs, outputs, high_out, wide_out) if np.isfinite(transformed(weight, 4)).all() else 0
    last = (x_last and not x.contiguous) or (y_last and not y.contiguous)
    if not last and (depthwise or not tall or min(inputs, outputs) < 2 * LEAST):
        return False
    add = step.add
    if add is not None:
        add = _as_pictures(add)
        if add.strides != y.strides:
            space = out.scratch((y.size,), np.float32)
            add, source = Place(space.base, space.offset, y.shape, y.strides, y.dtype), add
            out.copy(source, add)
    activation = out.activations[step.activation] if step.activation else 0
    for part in ("gemm.c", "conv.c", "pictures.c"):
        out.part(part)
    shift = "NULL"
    if known is not None:
        filled = np.zeros(_up(outputs, 16), np.float32)
        filled[:outputs] = known.reshape(-1)
        shift = constant(out.pointer(out.constant(filled, None, "bias")))
    target, added = written(out.pointer(y)), constant(out.pointer(add))
    finish = f"(gl_finish){{{shift}, NULL, {added}, {activation}}}"
    if (kh, kw, *stride, *padding, groups) == (1, 1, 1, 1, 0, 0, 1) and x_last and y_last:
        panels = out.pointer(out.constant(packed(weight[:, :, 0, 0].T), None, "panels"))
        multiply(out, (y.size // outputs, outputs, inputs), out.pointer(x), (inputs, 1), panels, out.pointer(y), shift, added, activation)
        return True
    reach, columns = (kh - 1) * dilation[0] + 1, wide + 2 * padding[1]
    laid = not x_last or any(padding)
    extra = after = ""
    if tall:
        columns, across, places = 2 * -(-wide_out // 2) + 2, _up(outputs, 16), (tall + 2) * 4
        wide_tiles, high_tiles = -(-wide_out // 2), -(-high_out // tall)
        most = min(max(BLOCK // (places * (inputs + outputs)), 12), 48)
        rows = min(max(most // wide_tiles, 1), high_tiles)
        rows = -(-high_tiles // -(-high_tiles // rows))  # as even as possible
        together = max(min(most // (rows * wide_tiles), n), 1) if rows == high_tiles else 1
        tiles, band = together * rows * wide_tiles, rows * tall
        full = _up(inputs, 16)
        size = together * (band + 2) * columns * full + 16 + places * (tiles * (full + across) + 32) + band * wide_out * across
        name, constants = f"gl_winograd_{tall}", transformed(weight, tall)
        out.part("winograd.c")
        plain = packed(weight.transpose(2, 3, 1, 0).reshape(-1, outputs))  # for what is not finite
        after = f"{constant(out.pointer(out.constant(plain, None, 'panels')))}, "
    else:
        line = columns * inputs if laid or depthwise else 0
        band = high_out if line == 0 else max(min((BAND // line - reach) // stride[0] + 1, high_out), 1)
        band = max(band, min(-(-PIXELS // wide_out) // 2, high_out))
        band = -(-high_out // -(-high_out // band))
        together = 1 if band < high_out or depthwise else min(n, -(-PIXELS // (band * wide_out)))
        pixels = band * wide_out
        input_size = ((band - 1) * stride[0] + reach) * columns * _up(inputs, 16 if depthwise else 1)
        size = (together * input_size if laid or depthwise else 0) + 48 + pixels * together * (_up(outputs, 16) + 1)
        if depthwise:
            name = "gl_convolve_depthwise"
            constants = np.zeros((kh, kw, _up(inputs, 16)), np.float32)
            constants[:, :, :inputs] = weight[:, 0].transpose(1, 2, 0)
        else:
            name = "gl_convolve_direct"
            each = outputs // groups
            parts = [weight[g * each : (g + 1) * each].transpose(2, 3, 1, 0).reshape(-1, each) for g in range(groups)]
            constants = np.stack([packed(part) for part in parts])
            joined = groups == 1 and dilation[1] == 1
            begins = [(i * dilation[0] * columns + j * dilation[1]) * inputs for i in range(kh) for j in range(1 if joined else kw)]
            jumps = ", ".join(str(b - a) for a, b in zip([0, *begins], begins))
            run = inputs // groups * (kw if joined else 1)
            extra = f"{len(begins)}, {run}, (const int32_t[]){{{jumps}}}, "
    out.own(size * 4)
    numbers = (n, inputs, high, wide, outputs, groups, high_out, wide_out, kh, kw, *stride, *padding, *dilation, int(x_last), int(y_last))
    shape = f"&(const gl_pictures){{{', '.join(map(str, (*numbers, together, band)))}}}"
    weights = constant(out.pointer(out.constant(constants, None, "panels")))
    out.line(f"{name}(&team, {shape}, {extra}{constant(out.pointer(x))}, {weights}, {after}{target}, {finish})")
    return True


def pool(step: Step, out: Emitter, start: str, combine: str, finish: str) -> bool:
    """Windows of pictures whose channels come last, where no window reaches over an end; False for others. combine: of {a} and {v};
    finish: of the outcome {a}."""
    x, y, p = step.inputs[0], step.outputs[0], step.params
    if len(y.shape) != 4 or y.contiguous or not y.channels_last or step.output(1) is not None or p.get("padding") not in ((0, 0), [0, 0]):
        return False
    kernel, stride, dilation = p["kernel"], p["stride"], p.get("dilation", (1, 1))
    (n, c, high, wide), made = x.shape, y.shape[2:]
    if math.prod(kernel) > 16 or any((made[d] - 1) * stride[d] + (kernel[d] - 1) * dilation[d] >= x.shape[2 + d] for d in (0, 1)):
        return False
    if not x.channels_last:
        space = out.scratch(x.shape, x.dtype)
        x, source = last_place(space.base, Spec(x.shape, x.dtype), space.offset), x
        out.copy(source, x)
    kind = ctype(x.dtype)
    value = start
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            value = combine.format(a=value, v=f"from[{(i * dilation[0] * wide + j * dilation[1]) * c} + l]")
    text = ["static void @F(const void *p0, void *p1) {", f"  const {kind.storage} *const x = p0;", f"  {kind.storage} *y = p1;"]
    if y.size * math.prod(kernel) > 60000:
        text.append("  GL_PARALLEL")
    text += [
        f"  for (int64_t i = 0; i < {n * made[0]}; ++i)", f"    for (int64_t j = 0; j < {made[1]}; ++j) {{",
        f"      const int64_t line = i / {made[0]} * {high} + i % {made[0]} * {stride[0]};",
        f"      const {kind.storage} *const from = x + (line * {wide} + j * {stride[1]}) * {c};",
        f"      {kind.storage} *const to = y + (i * {made[1]} + j) * {c};",
        f"      GL_IVDEP for (int64_t l = 0; l < {c}; ++l) to[l] = {finish.format(a=value)};", "    }", "}",
    ]  # fmt: skip
    out.call("\n".join(text), x, y)
    return True


def channels_in_order(step: Step, out: Emitter) -> tuple[Step, list[tuple[Place, Place]]]:
    """The step with results in order of their dimensions, and what has to be copied then: (from, to)."""
    outputs = [place if place.contiguous else out.scratch(place.shape, place.dtype) for place in step.outputs]
    copies = [(made, place) for made, place in zip(outputs, step.outputs) if made is not place]
    add = None if step.add is None else out.dense(step.add)
    return Step(step.call, step.inputs, outputs, step.known, step.activation, add), copies
