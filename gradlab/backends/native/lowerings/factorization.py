"""Lowering of factorizations of matrices, and of triangular systems."""

from __future__ import annotations

from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.backends.native.lowerings.movements import Space
from gradlab.backends.native.place import Place
from gradlab.call import Call
from gradlab.dtype import FLOAT32, FLOAT64, INT64
from gradlab.spec import count

PANEL, ALONE = 32, 1 << 16  # columns of a panel (lu.cpp); elements of one matrix that are not worth several threads


@lowers("lu")
def lu(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Matrices; of a large one panels after each other, and what is right of them in parts."""
    (x,), (order, *triangles) = call.inputs, call.outputs
    dtype, shape = x.spec.dtype, x.spec.shape
    batch, (m, n) = count(shape[:-2]), shape[-2:]
    if dtype not in (FLOAT32, FLOAT64) or 0 in shape:
        raise Unsupported
    space = Space(ctx)
    places = (ctx.dense(order, INT64), *(ctx.dense(v, dtype) for v in triangles), space.dense(x, dtype))
    kind, least = "_double" * (dtype == FLOAT64), min(m, n)
    if batch > 1 or m * n < ALONE:
        return [*space.tasks, TaskSpec(f"gradlab_lu{kind}", (batch, m, n), places, widest(batch * m * n * least / 4, batch))]
    tasks, places = space.tasks, (*places, space.like(Place(0, 0, (least,), (1,), INT64), INT64))
    for first in range(0, least, PANEL):
        tasks.append(TaskSpec(f"gradlab_lu_panel{kind}", (1, m, n, first), places))
        tasks.append(TaskSpec(f"gradlab_lu_rest{kind}", (1, m, n, first), places, widest((m - first) * (n - first) * PANEL / 8)))
    return [*tasks, TaskSpec(f"gradlab_lu_panel{kind}", (1, m, n, least), places)]


@lowers("solve_triangular")
def solve_triangular(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Systems, or columns of one; a triangle may be transposed."""
    a, b = (ctx.place(v) for v in call.inputs)
    y, shape = ctx.dense(call.outputs[0], b.dtype), a.shape
    batch, n, k = count(shape[:-2]), shape[-1], b.shape[-1]
    if a.dtype != b.dtype or b.dtype not in (FLOAT32, FLOAT64) or y.size == 0 or shape[:-2] != b.shape[:-2]:
        raise Unsupported
    space = Space(ctx)
    b = space.dense(call.inputs[1])
    turned = not a.contiguous and a.strides[-2] == 1 and a.strides[-1] >= n
    if not turned:
        a = space.dense(call.inputs[0])
    apart = n * n
    for size, step in zip(reversed(shape[:-2]), reversed(a.strides[:-2])):
        if step != apart and size > 1:
            raise Unsupported
        apart *= size
    parameters = (batch, n, k, n * n, a.strides[-2], a.strides[-1], int(call.params["upper"]), int(call.params["unitriangular"]))
    kernel = "gradlab_solve_triangular" + "_double" * (b.dtype == FLOAT64)
    most = batch if batch > 1 else max(k // 16, 1)
    return [*space.tasks, TaskSpec(kernel, parameters, (y, a, b), min(most, widest(batch * n * n * k / 4)))]
