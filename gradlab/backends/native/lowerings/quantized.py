"""Lowering of layers with weights of few bits: inputs become places of 8 bits in work space, then products in whole numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.backends.native.lowerings.movements import Space, copy
from gradlab.backends.native.place import Place
from gradlab.call import Call
from gradlab.dtype import FLOAT32

INT8, INT16 = np.dtype(np.int8), np.dtype(np.int16)
GROUP, MOST = 32, 1 << 16  # places of a block, and products in a sum: integer_products.h
GATHERED = 32  # places of an image at a time: GROUPED of quantized.cpp
THREADS = 16


def _array(space: Space, count: int, dtype: Any) -> Place:
    return space.like(Place(0, 0, (count,), (1,), dtype), dtype)


def _grid(call: Call, x: Place, space: Space) -> tuple[tuple[int, ...], Place, Place]:
    """Parameters and places of how inputs are rounded; without a scale a task that makes it of the range."""
    given, zero = call.inputs[4:6]
    if given is not None:
        scale, middle = space.dense(given, FLOAT32), space.dense(zero)
        if middle.dtype.name not in ("int32", "int64"):
            raise Unsupported
        return (1, middle.dtype.itemsize, call.params["low"], call.params["high"]), scale, middle
    made = space.floats(16)
    space.tasks.append(TaskSpec("gradlab_quantized_range", (x.size,), (made, x)))
    return (0, 0, 0, 0), made, made


def _operands(call: Call, ctx: Lowering) -> tuple[Space, Place, Place, Place]:
    y, space = ctx.dense(call.outputs[0]), Space(ctx)
    if y.size == 0 or ctx.place(call.inputs[0]).size == 0:
        raise Unsupported
    x, scale = (space.dense(call.inputs[i], FLOAT32) for i in (0, 2))
    return space, y, x, scale


@lowers("quantized_linear", "quantized_linear4")
def linear(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Rows of places, then the product."""
    space, y, x, scale = _operands(call, ctx)
    weight, bias = space.dense(call.inputs[1]), call.inputs[3]
    k, n = x.shape[-1], y.shape[-1]
    rows = y.size // n
    if k > MOST:
        raise Unsupported
    four = call.op.name == "quantized_linear4"
    deep = -(-k // GROUP) * GROUP
    own = y if bias is None else space.dense(bias, FLOAT32)
    if four and not call.params["rounds"]:
        wide = space.floats(rows * deep)
        space.tasks.append(TaskSpec("gradlab_quantized_fill", (rows, k), (wide, x), widest(rows * k, rows)))
        places = (y, wide, wide, weight, scale, own)
    else:
        parameters, *rounding = _grid(call, x, space)
        filled, factors = _array(space, rows * deep, INT16), space.floats(rows)
        task = TaskSpec("gradlab_quantized_rows", (*parameters, rows, k), (filled, factors, x, *rounding), widest(rows * k, rows))
        space.tasks.append(task)
        places = (y, filled, factors, weight, scale, own)
    most = widest(rows * n * k / 16, max(n // 8, 1))
    more = (int(call.params["rounds"]),) if four else ()
    name = "gradlab_quantized_product4" if four else "gradlab_quantized_product"
    return [*space.tasks, TaskSpec(name, (rows, n, k, bias is not None, *more), places, most)]


def geometry(call: Call) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Of three dimensions, those that are not there of size 1: size, places made, kernel, stride, padding, dilation."""
    x, w, y = (v.spec.shape[2:] for v in (*call.inputs[:2], call.outputs[0]))
    params = call.params
    yield from ((1, 1, 1, 1, 0, 1),) * (3 - len(x))
    yield from zip(x, y, w, params["stride"], params["padding"], params["dilation"], strict=True)


@lowers("quantized_convolution")
def convolution(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Images of places with their channels last, then windows by weights in the same order; planes where each channel is its own."""
    space, y, x, scale = _operands(call, ctx)
    weight, bias, groups = ctx.place(call.inputs[1]), call.inputs[3], call.params["groups"]
    k = math.prod(weight.shape[1:])
    if k > MOST:
        raise Unsupported
    planes = groups == x.shape[1] == y.shape[1]
    kernel = range(2, len(weight.shape))
    order = (0, 1, *kernel) if planes else (0, *kernel, 1)
    shape, strides = (tuple(v[d] for d in order) for v in (weight.shape, weight.strides))
    turned = Place(weight.base, weight.offset, shape, strides, weight.dtype)
    if not turned.contiguous:
        target = space.like(turned, INT8)
        space.tasks += copy(target, turned, ctx)
        turned = target
    sides = list(geometry(call))
    windows = (x.shape[1], y.shape[1], groups, *(side[i] for i in range(6) for side in sides))
    image = x.shape[1] * math.prod(size + 2 * padding for size, _, _, _, padding, _ in sides)
    n, places = y.shape[0], math.prod(y.shape[2:])
    parameters, *rounding = _grid(call, x, space)
    images, factors = _array(space, n * image, INT16), space.floats(n)
    space.tasks.append(
        TaskSpec("gradlab_quantized_images", (*parameters, n, planes, *windows), (images, factors, x, *rounding), widest(x.size * 2, n))
    )
    jobs = n * groups * -(-places // GATHERED)
    most = widest(y.size * k / 16, min(jobs, THREADS))
    each = -(-GATHERED * -(-k // GROUP) * GROUP * 2 // 64) * 64
    room = _array(space, most * each, INT8)
    own = y if bias is None else space.dense(bias, FLOAT32)
    places_of = (y, images, factors, turned, scale, own, room)
    return [*space.tasks, TaskSpec("gradlab_quantized_convolution", (n, bias is not None, each, *windows), places_of, most)]
