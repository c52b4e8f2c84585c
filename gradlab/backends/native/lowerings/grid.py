"""Lowering of sampling at the points of a grid, and of its gradients."""

from __future__ import annotations

from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.call import Call
from gradlab.dtype import FLOAT32, FLOAT64
from gradlab.spec import count

TAPS = {"nearest": 1, "bilinear": 2, "bicubic": 4}
PADDINGS = ("zeros", "border", "reflection")


@lowers("grid_sample", "grid_sample_backward")
def grid_sample(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Blocks of points; of the gradients, images."""
    back = call.op.name == "grid_sample_backward"
    image, grid = call.inputs[-2:]
    dtype, shape, rank = image.spec.dtype, image.spec.shape, len(image.spec.shape) - 2
    points, taps = count(grid.spec.shape[1:-1]), TAPS[call.params["mode"]]
    if dtype not in (FLOAT32, FLOAT64) or rank not in (2, 3) or (rank == 3 and taps == 4):
        raise Unsupported
    if count(shape[2:]) >= 1 << 31 or 0 in shape or points == 0:
        raise Unsupported
    places = tuple([ctx.dense(v, dtype) for v in (*call.outputs, *call.inputs)])
    sizes = (*(1,) * (3 - rank), *shape[2:])
    how = (taps, PADDINGS.index(call.params["padding"]), int(call.params["aligned"]))
    threads = widest(shape[0] * points * taps**rank * (16 + 2 * shape[1]), shape[0] if back else 64)
    kernel = ("gradlab_grid_slopes" if back else "gradlab_grid_sample") + "_double" * (dtype == FLOAT64)
    return [TaskSpec(kernel, (*shape[:2], points, rank, *sizes, *how), places, threads)]
