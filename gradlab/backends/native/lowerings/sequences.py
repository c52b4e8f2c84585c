"""Lowering of recurrent layers over whole sequences: the weight into panels, then all steps."""

from __future__ import annotations

from typing import Any

from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.backends.native.place import STATUS, Place
from gradlab.call import Call
from gradlab.dtype import INT64

PANEL = 32  # units that are packed together, on the machine with the widest vectors (gemm.h)
FAULT = Place(STATUS, 0, (), (), INT64)  # where the kernel says that counts cannot be


def _kind(call: Call) -> str:
    own = call.params.get("nonlinearity")
    return call.op.name if own is None else call.op.name.replace("rnn", own)


def _packed(weight: Place, back: bool, ctx: Lowering) -> tuple[Place, TaskSpec]:
    """A weight as panels: of its columns, on the way back, otherwise of its rows."""
    depth, width = weight.shape if back else weight.shape[::-1]
    space = ctx.scratch(-(-width // PANEL) * PANEL * depth * 4)
    steps = weight.strides if back else weight.strides[::-1]
    return space, TaskSpec("gradlab_pack_float", (width, depth, *steps), (space, weight), widest(weight.size / 2))


def _tasks(call: Call, named: dict[str, Any], places: list[Any], extra: list[Any], back: bool, ctx: Lowering) -> list[TaskSpec]:
    """places, extra: what the kernel takes before and behind `status`, "panels" for the packed weight."""
    weight, h = ctx.dense(named["weight"]), ctx.dense(named["h"])
    counts = ctx.dense(named["counts"], INT64)
    (batch, units), rows = h.shape, named["hidden"].spec.shape[0]
    if not batch or not units or not rows or not counts.size:
        raise Unsupported
    panels, first = _packed(weight, back, ctx)
    found = [panels if x == "panels" else FAULT if x == "status" else counts if x == "counts" else ctx.dense(x) for x in [*places, *extra]]
    parameters = (batch, units, counts.size, rows, int(call.params["reverse"]), int(named.get("bias") is not None))
    work = rows * weight.size / 8
    return [first, TaskSpec(f"gradlab_{_kind(call)}", parameters, tuple(found), min(batch, widest(work)))]


@lowers("lstm_sequence", "gru_sequence", "rnn_sequence")
def sequence(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """From the first step of the walk to the last."""
    x = dict(zip((*call.op.inputs, *call.op.outputs), (*call.inputs, *call.outputs), strict=True))
    places = [x["hidden"], x["last"], x.get("acts", x["hidden"]), x["gates"], "panels", x["h"], "counts", "status"]
    extra = [x["cell"], x["cells"], x["c"]] if "cells" in x else [x["bias"]] if x.get("bias") is not None else []
    return _tasks(call, x, places, extra, False, ctx)


@lowers("lstm_sequence_backward", "gru_sequence_backward", "rnn_sequence_backward")
def sequence_backward(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """From the last step of the walk to the first."""
    x = dict(zip((*call.op.inputs, *call.op.outputs), (*call.inputs, *call.outputs), strict=True))
    places = [x["dgates"], x["before"], x["dh"], x.get("acts", x["hidden"]), x["dhidden"], x["dlast"], "panels", x["h"], x["hidden"]]
    extra = [x["dc"], x["dcell"], x["c"], x["cells"]] if "dc" in x else [x["down"]] if "down" in x else []
    return _tasks(call, x, [*places, "counts", "status"], extra, True, ctx)
