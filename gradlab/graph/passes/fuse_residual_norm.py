"""A residual connection's sum and the norm behind it run as one kernel of a GPU; on the way back the norm's derivative adds the gradient
that the sum gets elsewhere.

Left alone: what would lose more than it saves. An operand that a loop makes for the sum alone is added in that loop, and small norms become
part of a mega-kernel.
"""

from __future__ import annotations

from collections import defaultdict
from importlib import import_module
from typing import Any

from gradlab import ops
from gradlab.backends.native.place import ARENA, place_of
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes.graph_tools import Rewriting, is_sum
from gradlab.kernel import Elementwise

FORWARD = {ops.norm.layer_norm: ops.residual.layer_norm_residual, ops.norm.rms_norm: ops.residual.rms_norm_residual}
BACKWARD = {
    ops.norm.layer_norm_backward: ops.residual.layer_norm_residual_backward,
    ops.norm.rms_norm_backward: ops.residual.rms_norm_residual_backward,
}
IN_ORDER = frozenset({"view", "squeeze", "unsqueeze"})  # views that are contiguous where what they are of is


def fuse_residual_norm(graph: Graph) -> Graph:
    """Replace norm(a + b), and norm_backward(…) + c."""
    if graph.device.type == "cpu" or not any(c.op in FORWARD or c.op in BACKWARD for c in graph.calls):
        return graph
    work = Rewriting(graph)
    order = {id(c): i for i, c in enumerate(graph.calls)}
    made = {v.id: i for i, c in enumerate(graph.calls) for v in c.outputs}
    users: dict[int, list[Call]] = defaultdict(list)
    for call in graph.calls:
        for x in call.inputs:
            if isinstance(x, Value):
                users[x.id].append(call)
    for call in graph.calls:
        if call.op in FORWARD:
            _forward(work, call, order, made)
        elif call.op in BACKWARD:
            _backward(work, call, order, made, users)
    return work.finish()


def _forward(work: Rewriting, norm: Call, order: dict[int, int], made: dict[int, int]) -> None:
    s, *parameters = norm.inputs
    total = work.maker.get(s.id)
    if total is None or not is_sum(total) or _small(norm) or not all(is_at_hand(work, x) for x in total.inputs):
        return
    if any(isinstance(p, Value) and made.get(p.id, -1) > order[id(total)] for p in parameters):
        return
    new = work.call(FORWARD[norm.op], (*total.inputs, *parameters), norm.params, norm.position)
    y, *statistics = norm.outputs
    new.outputs = (y, s, *statistics)
    work.maker.update((v.id, new) for v in new.outputs)
    work.replace(total, [new])
    work.replace(norm, [])


def _backward(
    work: Rewriting, norm: Call, order: dict[int, int], made: dict[int, int], users: dict[int, list[Call]]
) -> None:  # fmt: skip
    dx, *gradients = norm.outputs
    if work.uses[dx.id] != 1 or len(users[dx.id]) != 1 or _small(norm):
        return
    (total,) = users[dx.id]
    if not is_sum(total):
        return
    (rest,) = (x for x in total.inputs if x is not dx)
    place = norm
    if made.get(rest.id, -1) > order[id(norm)]:  # then what uses the weight's and bias's gradients has to come later still
        if any(order[id(c)] < order[id(total)] for g in gradients for c in users[g.id]):
            return
        place = total
    if not is_at_hand(work, rest):
        return
    new = work.call(BACKWARD[norm.op], (norm.inputs[0], rest, *norm.inputs[1:]), norm.params, norm.position)
    new.outputs = (total.outputs[0], *gradients)
    work.maker.update((v.id, new) for v in new.outputs)
    for call in (norm, total):
        work.replace(call, [new] if call is place else [])


def is_at_hand(work: Rewriting, value: Value) -> bool:
    """Whether a kernel takes the value as it lies in memory, and no loop makes it that could go on to the sum."""
    maker = work.maker.get(value.id)
    if maker is not None and isinstance(maker.op.cuda, Elementwise) and work.uses[value.id] == 1:
        return False
    while maker is not None and maker.op.view:
        if maker.op.name not in IN_ORDER:
            return False
        maker = work.maker.get(maker.inputs[0].id)
    return True


def _small(call: Call) -> bool:
    """Whether the call becomes part of a mega-kernel."""
    mega: Any = import_module("gradlab.graph.executables.cuda.mega")  # a program for the CPU has no use for all that it imports
    known = mega.stages.STAGES.get(call.op.name)
    if known is None or not mega.enabled():
        return False
    places: Any = defaultdict(lambda: place_of(ARENA, call.outputs[0].spec))
    cost: float | None = known.cost(call, places)
    return cost is not None and bool(cost <= mega.LAUNCH)
