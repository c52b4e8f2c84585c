"""Lowering of the optimizers' update rows."""

from __future__ import annotations

from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.backends.native.lowerings.movements import packed
from gradlab.backends.native.place import Place
from gradlab.call import Call
from gradlab.dtype import FLOAT32, FLOAT64

TYPES = {FLOAT32: "float", FLOAT64: "double"}


def _places(call: Call, ctx: Lowering, optional: tuple[int, ...] = ()) -> tuple[list[Place], list[TaskSpec]]:
    """Outputs, then inputs, and what has to run first. A missing input (its position in `optional`) is stood in for by the first output."""
    outputs = [ctx.place(v) for v in call.outputs]
    inputs = [outputs[0] if x is None and i in optional else ctx.place(x) for i, x in enumerate(call.inputs)]
    inputs[1], first = packed(inputs[1], ctx)  # the gradient may be a transposed product
    found = [*outputs, *inputs]
    if not all(p.contiguous for p in found) or outputs[0].dtype not in TYPES or inputs[-1].dtype != FLOAT64:
        raise Unsupported
    return found, first


@lowers("sgd_update")
def sgd(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """p - lr · g"""
    places, first = _places(call, ctx)
    size = places[0].size
    return [*first, TaskSpec(f"gradlab_sgd_{TYPES[places[0].dtype]}", (size, call.params["maximize"]), tuple(places), widest(size * 2))]


@lowers("sgd_momentum_update")
def momentum(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """With a momentum buffer, or the first step, which makes it."""
    places, first = _places(call, ctx, (2,))
    size = places[0].size
    parameters = (size, call.params["maximize"], call.params["nesterov"], call.inputs[2] is not None)
    return [*first, TaskSpec(f"gradlab_momentum_{TYPES[places[0].dtype]}", parameters, tuple(places), widest(size * 4))]


@lowers("adam_update")
def adam(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Adam and AdamW: the update, then the count of steps, which all threads of the update read."""
    places, first = _places(call, ctx)
    if places[3].dtype != FLOAT32:
        raise Unsupported
    size = places[0].size
    parameters = (size, call.params["maximize"], call.params["decoupled"])
    update = TaskSpec(f"gradlab_adam_{TYPES[places[0].dtype]}", parameters, tuple(places), widest(size * 8))
    return [*first, update, TaskSpec("gradlab_count_step", (), (places[3], places[8]))]
