"""A batch norm, what is added to its result and the ReLU behind it as one kernel; and a norm's gradient with that of the ReLU behind it.

The gradient reads the ReLU's result beside what arrives at it, instead of what a loop of its own would have written. Left alone: what a
loop makes for the sum alone, or for the ReLU's gradient alone, goes on in that loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab import ops
from gradlab.backends.cuda.launch import norm as kernels
from gradlab.backends.cuda.launch_context import Work
from gradlab.graph.executables.cuda.line_rewriting import Rewriting
from gradlab.graph.ir.graph import Call, Value
from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.spec import Spec


def _rule(x: Spec, weight: Spec | None, bias: Spec | None, other: Spec | None, *, eps: float) -> Any:
    """Rule: the norm's."""
    return ops.norm.batch_norm.infer(x, weight, bias, eps=eps)


def _cpu(x: Any, weight: Any, bias: Any, other: Any, y: Any, mean: Any, rstd: Any, var: Any, *, eps: float) -> None:
    ops.norm.batch_norm.cpu(x, weight, bias, y, mean, rstd, var, eps=eps)
    if other is not None:
        np.add(y, other, out=y)
    np.maximum(y, 0, out=y)


def _masked_rule(dy: Spec, x: Spec, weight: Spec | None, mean: Spec, rstd: Spec, result: Spec) -> Any:
    """Rule: the norm's gradient's."""
    return ops.norm.batch_norm_backward.infer(dy, x, weight, mean, rstd)


def _masked_cpu(dy: Any, x: Any, weight: Any, mean: Any, rstd: Any, result: Any, dx: Any, dweight: Any, dbias: Any) -> None:
    slope = np.empty_like(dy)
    ops.elementwise.relu_backward.cpu(dy, result, slope)
    ops.norm.batch_norm_backward.cpu(slope, x, weight, mean, rstd, dx, dweight, dbias)


norm_relu = Op("batch_norm_and_relu", _rule, params=("eps",), cpu=_cpu, outputs=ops.norm.batch_norm.outputs)
relu_norm_backward = Op("batch_norm_and_relu_backward", _masked_rule, cpu=_masked_cpu, outputs=ops.norm.batch_norm_backward.outputs)
OWN = frozenset((norm_relu, relu_norm_backward))
IN_ORDER = frozenset({"view", "squeeze", "unsqueeze"})  # views that are contiguous where what they are of is


def with_relu(line: Rewriting, call: Call) -> None:
    """Join a ReLU with the norm, or with the norm and the sum, that makes what it takes, and nobody else reads."""
    (x,) = call.inputs
    maker = line.only(x)
    if maker is None or call.outputs[0].spec != x.spec:
        return
    if _is_norm(maker, x):
        _put(line, maker, None, line.at[x.id], call)
    elif maker.op is ops.elementwise.add and all(isinstance(v, Value) and v.spec == x.spec for v in maker.inputs):
        for y, other in (maker.inputs, maker.inputs[::-1]):
            norm = line.only(y)
            if norm is None or not _is_norm(norm, y) or not _at_hand(line, other):
                continue
            place = line.at[y.id]
            if line.at.get(other.id, -1) > place:  # then the statistics come later than they did
                if _read_between(line, norm.outputs[1:], place, line.at[x.id]):
                    continue
                place = line.at[x.id]
            _put(line, norm, other, place, maker, call)
            return


def _put(line: Rewriting, norm: Call, other: Value | None, place: int, *gone: Call) -> None:
    line.joins("batch_norm", *(c.op.name for c in gone))
    outputs = (gone[-1].outputs[0], *norm.outputs[1:])
    line.put(place, Call(norm_relu, (*norm.inputs, other), norm.params, outputs, norm.position), norm, *gone)


def with_relu_backward(line: Rewriting, call: Call) -> None:
    """Join the gradient of a norm with that of the ReLU behind it, where nobody else reads this one."""
    dy, x, *rest = call.inputs
    maker = line.only(dy)
    if maker is None or maker.op is not ops.elementwise.relu_backward or not all(isinstance(v, Value) for v in maker.inputs):
        return
    slope, result = maker.inputs
    if slope.spec == result.spec == x.spec and all(_at_hand(line, v) for v in (slope, result)):
        line.joins("relu_backward", "batch_norm_backward")
        made = Call(relu_norm_backward, (slope, x, *rest, result), {}, call.outputs, call.position)
        line.put(line.at[call.outputs[0].id], made, call, maker)


def _is_norm(call: Call, y: Value) -> bool:
    return call.op is ops.norm.batch_norm and call.outputs[0].id == y.id


def _at_hand(line: Rewriting, value: Value) -> bool:
    """Whether a kernel takes the value as it lies in memory, where it lies anyway."""
    maker = line.maker(value)
    if maker is not None and isinstance(maker.op.cuda, Elementwise) and not line.in_memory(value):
        return False
    while maker is not None and maker.op.view:
        if maker.op.name not in IN_ORDER:
            return False
        maker = line.maker(maker.inputs[0])
    return True


def _read_between(line: Rewriting, values: Sequence[Value], first: int, last: int) -> bool:
    """Whether calls between two places read any of the values."""
    names = {v.id for v in values}
    return any(isinstance(x, Value) and x.id in names for c in line.calls[first + 1 : last] if c is not None for x in c.inputs)


def launch(work: Work, op: Op, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> Callable[[], None]:
    """What computes one of `OWN`."""
    *own, beside = inputs
    if op is norm_relu:
        return lambda: kernels.batch_norm(work, own, outputs, params, beside, True)
    return lambda: kernels.batch_norm_backward(work, own, outputs, params, beside)
