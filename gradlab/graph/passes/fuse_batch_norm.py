"""Batch norm, what is added to its result and the ReLU behind it run as one row; so do their gradients.

The ReLU's mask is computed again from what was normalised, so that the backward need not read the ReLU's result. For the CPU, in float32.
"""

from __future__ import annotations

from gradlab import ops
from gradlab.dtype import FLOAT32
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes.fused_rows import batch_norm_relu, batch_norm_relu_backward
from gradlab.graph.passes.graph_tools import Rewriting, in_order, loose
from gradlab.spec import count


def fuse_batch_norm(graph: Graph) -> Graph:
    """Replace relu(batch_norm(x)), relu(batch_norm(x) + other), and the gradient of the former."""
    if graph.device.type != "cpu" or not any(c.op is ops.norm.batch_norm for c in graph.calls):
        return graph
    work = Rewriting(graph)
    order = {id(c): i for i, c in enumerate(graph.calls)}
    fused: dict[int, Call] = {}  # the ReLU's result -> the call that makes it
    instead: dict[int, Call | None] = {}  # what stands where a call stood
    for call in graph.calls:
        if call.op is ops.elementwise.relu:
            found = _forward(work, call, order)
            if found is not None:
                norm, other = found
                new = work.call(batch_norm_relu, (*norm.inputs, other), norm.params, norm.position)
                new.outputs = (call.outputs[0], *norm.outputs[1:])
                fused[call.outputs[0].id] = new
                work.maker.update((v.id, new) for v in new.outputs)
                order[id(new)] = order[id(call)]
                instead[id(norm)], instead[id(call)] = new, None
        elif call.op is ops.norm.batch_norm_backward:
            made = _masked(work, call, fused)
            if made is not None:
                slope, forward = made
                x, weight, bias, _ = forward.inputs
                new = work.call(batch_norm_relu_backward, (slope, x, weight, bias, *call.inputs[3:]), {}, call.position)
                new.outputs = call.outputs
                instead[id(call)] = new
    if fused:
        now = (instead.get(id(c), c) for c in graph.calls)
        work.calls = in_order([c for c in now if c is not None])  # what is added may be made behind the norm
    return work.finish()


def _forward(work: Rewriting, relu: Call, order: dict[int, int]) -> tuple[Call, Value | None] | None:
    """The norm that a ReLU's input is made of alone, and what is added to it."""
    x = relu.inputs[0]
    if work.uses[x.id] != 1 or x.spec.dtype != FLOAT32 or count(x.spec.shape[2:]) < 2:
        return None
    maker = work.maker.get(x.id)
    if maker is None:
        return None
    if _is_norm(maker, x):
        return maker, None
    if maker.op is ops.elementwise.add and all(isinstance(v, Value) and v.spec == x.spec for v in maker.inputs):
        for norm, other in (maker.inputs, maker.inputs[::-1]):
            made = work.maker.get(norm.id)
            if made is not None and work.uses[norm.id] == 1 and _is_norm(made, norm) and not _needs(work, other, made, order):
                return made, other
    return None


def _needs(work: Rewriting, value: Value, norm: Call, order: dict[int, int]) -> bool:
    """Whether a value comes from a norm: from the statistics, where the running ones are added to the result."""
    seen: set[int] = set()
    stack = [value]
    while stack:
        call = work.maker.get(stack.pop().id)
        if call is norm:
            return True
        if call is not None and id(call) not in seen and order[id(call)] > order[id(norm)]:
            seen.add(id(call))
            stack += loose([call])
    return False


def _is_norm(call: Call, y: Value) -> bool:
    return call.op is ops.norm.batch_norm and call.outputs[0] is y and all(isinstance(v, Value) for v in call.inputs)


def _masked(work: Rewriting, call: Call, fused: dict[int, Call]) -> tuple[Value, Call] | None:
    """The gradient that arrives at a ReLU behind a norm, where nothing else needs it masked; and that norm."""
    dy, x, weight, mean, rstd = call.inputs
    mask = work.maker.get(dy.id)
    if mask is None or mask.op is not ops.elementwise.relu_backward or work.uses[dy.id] != 1:
        return None
    slope, result = mask.inputs
    forward = fused.get(result.id)
    if forward is None or forward.inputs[3] is not None or slope.spec != x.spec:
        return None
    before = work.maker.get(slope.id)
    if before is None or before.op.view:  # the kernel takes it as it lies in memory
        return None
    same = forward.inputs[0] is x and forward.inputs[1] is weight and forward.outputs[1] is mean and forward.outputs[2] is rstd
    return (slope, forward) if same else None
