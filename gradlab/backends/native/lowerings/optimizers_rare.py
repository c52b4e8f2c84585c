"""Lowering of the less common optimizers' updates."""

from __future__ import annotations

from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, lowers, widest
from gradlab.backends.native.lowerings.movements import packed
from gradlab.backends.native.place import Place
from gradlab.call import Call
from gradlab.dtype import FLOAT32, FLOAT64

TYPES = {FLOAT32: "float", FLOAT64: "double"}
RMSPROP = {  # by row, the positions of the mean and of the momentum among the buffers behind the square; -1 for none
    "rmsprop_update": (-1, -1), "rmsprop_centered_update": (0, -1), "rmsprop_momentum_update": (-1, 0),
    "rmsprop_centered_momentum_update": (0, 1),
}  # fmt: skip


def _operands(call: Call, ctx: Lowering) -> tuple[dict[str, Place], list[TaskSpec]]:
    """Places by name, and what has to run first."""
    names = [*call.op.outputs, *call.op.inputs]
    found = {name: ctx.place(x) for name, x in zip(names, (*call.outputs, *call.inputs), strict=True)}
    found["grad"], first = packed(found["grad"], ctx)  # it may be a transposed product
    steps = [found[name] for name in ("step", "product") if name in found]
    if not all(p.contiguous for p in found.values()) or found["p"].dtype not in TYPES or found["h"].dtype != FLOAT64:
        raise Unsupported
    if any(p.dtype != FLOAT32 for p in steps):
        raise Unsupported
    return found, first


def _task(name: str, call: Call, places: dict[str, Place], order: str, *own: int) -> TaskSpec:
    size = places["p"].size
    parameters = (size, call.params["maximize"], *own)
    return TaskSpec(f"gradlab_{name}_{TYPES[places['p'].dtype]}", parameters, tuple(places[n] for n in order.split()), widest(size * 8))


def _counted(places: dict[str, Place]) -> TaskSpec:
    return TaskSpec("gradlab_count_step", (), (places["new_step"], places["step"]))


@lowers("amsgrad_update")
def amsgrad(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Adam with the largest mean of squares so far."""
    places, first = _operands(call, ctx)
    order = "new_p new_mean new_square new_largest p grad mean square largest step h"
    return [*first, _task("amsgrad", call, places, order, call.params["decoupled"]), _counted(places)]


@lowers(*RMSPROP)
def rmsprop(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """RMSprop, centred, with momentum, or both; what is not there is stood in for by the square."""
    places, first = _operands(call, ctx)
    buffers = [n for n in call.op.inputs if n not in ("p", "grad", "square", "step", "h")]
    mean, buffer = ("square" if at < 0 else buffers[at] for at in RMSPROP[call.op.name])
    order = f"new_p new_square new_{mean} new_{buffer} p grad square {mean} {buffer} h"
    return [*first, _task("rmsprop", call, places, order, mean != "square", buffer != "square"), _counted(places)]


ORDERS = {
    "adagrad_update": "new_p new_total p grad total step h",
    "adadelta_update": "new_p new_square new_delta p grad square delta h",
    "adamax_update": "new_p new_mean new_largest p grad mean largest step h",
}


@lowers(*ORDERS)
def plain(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The update, then the count of steps."""
    places, first = _operands(call, ctx)
    return [*first, _task(call.op.name.removesuffix("_update"), call, places, ORDERS[call.op.name]), _counted(places)]


@lowers("nadam_update")
def nadam(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Adam with Nesterov's momentum."""
    places, first = _operands(call, ctx)
    order = "new_p new_mean new_square p grad mean square product step h"
    counted = TaskSpec("gradlab_count_nadam", (), tuple(places[n] for n in ("new_product", "new_step", "product", "step", "h")))
    return [*first, _task("nadam", call, places, order, call.params["decoupled"]), counted]


@lowers("radam_update")
def radam(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Rectified Adam."""
    places, first = _operands(call, ctx)
    order = "new_p new_mean new_square p grad mean square step h"
    return [*first, _task("radam", call, places, order, call.params["decoupled"]), _counted(places)]


@lowers("lion_update")
def lion(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """By the sign of a mean."""
    places, first = _operands(call, ctx)
    return [*first, _task("lion", call, places, "new_p new_mean p grad mean h")]
