"""Lowering of pooling over volumes, and of adaptive maxima over lines, planes and volumes."""

from __future__ import annotations

import math
from typing import Any

from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.call import Call, Value
from gradlab.dtype import FLOAT32, FLOAT64, INT64


def _task(kernel: str, call: Call, ctx: Lowering, x: Value, windows: tuple[int, ...], how: tuple[int, ...] = ()) -> TaskSpec:
    """A task over planes. x: the larger image; windows: their numbers along each dimension."""
    dtype, shape, p = x.spec.dtype, x.spec.shape, call.params
    rank = len(shape) - 2
    if dtype not in (FLOAT32, FLOAT64) or not 1 <= rank <= 3 or math.prod(shape) == 0 or math.prod(windows) == 0:
        raise Unsupported
    places = [ctx.dense(v, INT64 if v.spec.dtype == INT64 else dtype) for v in (*call.outputs, call.inputs[0])]
    lead = 3 - rank
    numbers = [math.prod(shape[:2]), *(1,) * lead, *shape[2:], *(1,) * lead, *windows]
    for name, neutral in (("kernel", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
        numbers += (*(neutral,) * lead, *p.get(name, (0 if name == "kernel" else neutral,) * rank))
    work = math.prod(shape[:2]) * math.prod(windows) * math.prod(p.get("kernel", (4,)))
    kernel += "_double" * (dtype == FLOAT64)
    return TaskSpec(kernel, (*numbers, *how), tuple(places), min(math.prod(shape[:2]), widest(4 * work)))


def volume_max_pool(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Largest elements and where they lie."""
    x: Any = call.inputs[0]
    return [_task("gradlab_volume_max_pool", call, ctx, x, call.outputs[0].spec.shape[2:])]


def volume_avg_pool(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Means, or their gradients spread over the windows."""
    back, p = call.op.name == "avg_pool_backward", call.params
    given: Any = call.inputs[0]
    large, small = (call.outputs[0], given) if back else (given, call.outputs[0])
    if p["divisor"] is not None and p["divisor"] != int(p["divisor"]):
        raise Unsupported
    how = (int(p["include"]), int(p["divisor"] or 0))
    return [_task("gradlab_volume_spread" if back else "gradlab_volume_avg_pool", call, ctx, large, small.spec.shape[2:], how)]


lowers("adaptive_max_pool")(volume_max_pool)
