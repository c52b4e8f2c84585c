"""Lowering of pooling and padding. Poolings take their images all in row-major order, or all with channels last."""

from __future__ import annotations

import math
from typing import Any

from gradlab.backends.native.lowering import Along, Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.backends.native.lowerings.movements import copy, fill, part_of
from gradlab.backends.native.lowerings.rowwise import FAULT
from gradlab.backends.native.lowerings.volume_pooling import volume_avg_pool, volume_max_pool
from gradlab.backends.native.place import Place
from gradlab.call import Call
from gradlab.dtype import INT64


def _windows(shape: tuple[int, ...], outputs: tuple[int, ...], params: dict[str, Any]) -> list[int]:
    """What the kernels know of windows over planes, in two dimensions."""
    rank = len(params["kernel"])
    if rank not in (1, 2) or math.prod(shape) == 0 or math.prod(shape[2:]) >= 1 << 31:
        raise Unsupported
    lead = 2 - rank
    numbers = [*shape[:2], *(1,) * lead, *shape[2:], *(1,) * lead, *outputs[2:]]
    for name, neutral in (("kernel", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
        numbers += (*(neutral,) * lead, *params.get(name, (1,) * rank))
    return numbers


def _work(numbers: list[int]) -> int:
    """Threads for numbers of windows."""
    images, channels, _, _, height, width, rows, columns, *_ = numbers
    return widest(images * channels * height * width * rows * columns / 2)


def _task(kernel: str, parameters: tuple[int, ...], places: tuple[Place, ...], widest: int, status: bool = False) -> TaskSpec:
    """A task for images that lie all alike, which goes along the batch. status: faults are reported, behind the other operands."""
    last = not all(p.contiguous for p in places)
    if last and not all(p.channels_last for p in places):
        raise Unsupported
    steps = [math.prod(p.shape[1:]) * p.dtype.itemsize for p in places]
    images, channels = places[0].shape[:2]
    if not last:  # planes are handed out, in few pieces
        widest = min(widest, images * channels)
    operands, steps = (*places, *(FAULT,) * status), [*steps, *(0,) * status]
    return TaskSpec(kernel + "_last" * last, parameters, operands, widest, Along(images, 1, (0,), tuple(steps)))


@lowers("max_pool")
def max_pool(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The largest elements and where they lie."""
    if len(call.params["kernel"]) == 3:
        return volume_max_pool(call, ctx)
    x, values, indices = ctx.images(call.inputs[0]), ctx.images(call.outputs[0]), ctx.images(call.outputs[1], INT64)
    numbers = _windows(x.shape, values.shape, call.params)
    return [_task("gradlab_max_pool", tuple(numbers), (values, indices, x), _work(numbers))]


@lowers("max_pool_backward")
def max_pool_backward(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Gradients added, or put, where their indices say."""
    dy, indices, dx = ctx.images(call.inputs[0]), ctx.images(call.inputs[1], INT64), ctx.images(call.outputs[0])
    if dx.size == 0:
        raise Unsupported
    planes = math.prod(dx.shape[:2])
    parameters = (*dx.shape[:2], dx.size // planes, dy.size // planes, int(call.params["overlap"]))
    return [_task("gradlab_max_pool_backward", parameters, (dx, dy, indices), widest(dx.size), status=True)]


@lowers("avg_pool", "avg_pool_backward")
def avg_pool(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Means of windows; or their gradients, spread over the windows."""
    if len(call.params["kernel"]) == 3:
        return volume_avg_pool(call, ctx)
    x, y, p = ctx.images(call.inputs[0]), ctx.images(call.outputs[0]), call.params
    back = call.op.name == "avg_pool_backward"
    numbers = _windows(y.shape, x.shape, p) if back else _windows(x.shape, y.shape, p)
    divisor = p["divisor"]
    if divisor is not None and divisor != int(divisor):
        raise Unsupported
    parameters = (*numbers, int(p["include"]), int(divisor or 0))
    return [_task(f"gradlab_{call.op.name}", parameters, (y, x), _work(numbers))]


@lowers("pad")
def pad(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """A value everywhere, then the middle; negative numbers crop."""
    x, y, pads = ctx.place(call.inputs[0]), ctx.place(call.outputs[0]), call.params["pads"]
    if y.size == 0 or x.dtype != y.dtype:
        raise Unsupported
    inner = [(max(low, 0), min(low + n, size)) for (low, _), n, size in zip(pads, x.shape, y.shape)]
    middle = all(b > a for a, b in inner)
    target = part_of(y, tuple(slice(a, max(a, b)) for a, b in inner)) if inner else y
    tasks = fill(y, call.params["value"], ctx) if not middle or target.size != y.size else []
    if not middle:
        return tasks
    source = part_of(x, tuple(slice(a - low, b - low) for (a, b), (low, _) in zip(inner, pads))) if inner else x
    return [*tasks, *copy(target, source, ctx)]
