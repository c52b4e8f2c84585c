"""What the kernels of convolutions do besides: a transposed one's bias, the activation, and both the activation and what it is taken of,
where the backward pass needs that. Each saves a launch and a pass over the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradlab import ops
from gradlab.backends.cuda.launch import conv as kernels
from gradlab.backends.cuda.launch_context import Work
from gradlab.graph.executables.cuda.line_rewriting import Rewriting
from gradlab.graph.ir.graph import Call, Value
from gradlab.op import Op
from gradlab.spec import Spec

# ---------------------------------------------------------------- rows of no family: only a device's line holds them


def _transposed_rule(x: Spec, w: Spec, b: Spec | None, *, activation: str, **geometry: Any) -> Spec:
    """Rule: as `convolution_transpose`."""
    return ops.conv.transposed_rule(x, w, b, **geometry)


def _transposed_cpu(x: Any, w: Any, b: Any, y: Any, *, activation: str, **geometry: Any) -> None:
    ops.conv.transposed_cpu(x, w, b, y, **geometry)
    ops.fused.ACTIVATIONS[activation].cpu(y.copy(), y)


def _both_rule(x: Spec, w: Spec, b: Spec | None, **params: Any) -> tuple[Spec, Spec]:
    """Rule: the activation of a transposed convolution, and what it is taken of."""
    found = _transposed_rule(x, w, b, **params)
    return found, found


def _both_cpu(x: Any, w: Any, b: Any, y: Any, z: Any, *, activation: str, **geometry: Any) -> None:
    ops.conv.transposed_cpu(x, w, b, z, **geometry)
    ops.fused.ACTIVATIONS[activation].cpu(z, y)


PARAMS = ("shape", *ops.conv.GEOMETRY, "activation")
transpose_act = Op("convolution_transpose_act", _transposed_rule, params=PARAMS, cpu=_transposed_cpu)
transpose_act_sums = Op("convolution_transpose_act_sums", _both_rule, params=PARAMS, cpu=_both_cpu, outputs=("y", "z"))
OWN = frozenset((transpose_act, transpose_act_sums))
_ROWS_OF = {  # -> its kernels' mode, the row with an activation, the one that keeps what that is taken of
    ops.conv.convolution: (kernels.FORWARD, ops.fused.convolution_act, ops.fused.convolution_act_sums),
    ops.conv.convolution_transpose: (kernels.INPUT, transpose_act, transpose_act_sums),
}
ROWS = frozenset((*_ROWS_OF, ops.conv.convolution_dx))  # what an activation may join

# ---------------------------------------------------------------- finding them


def with_activation(line: Rewriting, maker: Call, call: Call) -> None:
    """Join an activation with the convolution that makes its input, if that saves anything."""
    z, y, name = call.inputs[0], call.outputs[0], call.op.name
    transposed = ops.conv.convolution_transpose
    op, inputs = (transposed, (*maker.inputs, None)) if maker.op is ops.conv.convolution_dx else (maker.op, maker.inputs)
    mode, alone, both = _ROWS_OF[op]
    if not kernels.takes(mode)([x if x is None else x.spec for x in inputs], [z.spec], maker.params):
        line.apart(maker.op.name, name, "it runs on the host")
        return
    params = {**maker.params, "activation": name}
    if line.uses[z.id] == 1:
        line.joins(maker.op.name, name)
        line.put(line.at[z.id], Call(alone, inputs, params, (y,), maker.position), call)
        return
    if not line.in_memory(y):
        line.apart(maker.op.name, name, "its sums are used elsewhere, and the activation is part of a loop")
        return
    line.joins(maker.op.name, name, "its sums")
    line.put(line.at[z.id], Call(both, inputs, params, (y, z), maker.position), call)


def with_bias(line: Rewriting, call: Call) -> None:
    """Join a transposed convolution with its bias, which is a view of shape (C, 1, ...)."""
    for y, b in (call.inputs, call.inputs[::-1]):
        maker = line.only(y)
        if maker is None or maker.op is not ops.conv.convolution_dx or not isinstance(b, Value) or call.outputs[0].spec != y.spec:
            continue
        channels, ones = y.spec.shape[1:2], (1,) * (len(y.spec.shape) - 2)
        if b.spec != Spec((*channels, *ones), y.spec.dtype):
            continue
        given = [x.spec for x in maker.inputs]
        if not kernels.takes(kernels.INPUT)(given, [y.spec], maker.params):
            line.apart("convolution_dx", "bias", "it runs on the host")
            return
        view = line.maker(b)
        if view is not None and view.op is ops.movement.view and view.inputs[0].spec.shape == channels:
            first, bias = None, view.inputs[0]
        else:
            bias = line.new(Spec(channels, y.spec.dtype))
            first = Call(ops.movement.view, (b,), {"shape": channels}, (bias,), call.position)
        at, before = line.at[call.outputs[0].id], line.at[y.id]
        if first is not None and line.at.get(b.id, -1) > before:
            line.apart("convolution_dx", "bias", "the bias is computed after it")
            return
        line.joins("convolution_dx", "bias")
        made = Call(ops.conv.convolution_transpose, (*maker.inputs, bias), maker.params, call.outputs, maker.position)
        line.put(at, made, maker)
        if first is not None:
            line.put(before, first)
        return


# ---------------------------------------------------------------- launching them


def launch(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> Callable[[], None]:
    """What computes one of `OWN`."""
    return lambda: kernels.convolution_dx(work, inputs, outputs, params)
