"""Lowering of connectionist temporal classification, and of its gradient."""

from __future__ import annotations

from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.backends.native.lowerings.indexing import FAULT
from gradlab.call import Call
from gradlab.dtype import FLOAT32, FLOAT64, INT64


@lowers("ctc_loss", "ctc_loss_backward")
def ctc_loss(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Sequences."""
    x, targets, *lengths = call.inputs[-4:]
    dtype, shape = x.spec.dtype, x.spec.shape
    if dtype not in (FLOAT32, FLOAT64) or 0 in shape:
        raise Unsupported
    numbers = [ctx.dense(v, dtype) for v in (call.outputs[0], *call.inputs[:-3])]
    indices = [ctx.dense(v, INT64) for v in (targets, *lengths)]
    labels = targets.spec.shape[-1]
    row = labels if len(targets.spec.shape) == 2 else -1
    parameters = (*shape, row, call.params["blank"], int(call.params["zero_infinity"]), labels)
    back = call.op.name == "ctc_loss_backward"
    kernel = ("gradlab_ctc_slopes" if back else "gradlab_ctc_loss") + "_double" * (dtype == FLOAT64)
    each = 64 * (labels if row >= 0 else labels // shape[1]) + back * shape[2]
    return [TaskSpec(kernel, parameters, (*numbers, *indices, FAULT), widest(shape[0] * shape[1] * (each + 16), shape[1]))]
