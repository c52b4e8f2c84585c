"""Patterns of rows that ONNX has one operator for: batch normalisation by running statistics, which a trace spells out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.onnx.emitter import Emitter, Wire
from gradlab.onnx.registry import exports
from gradlab.op import Op
from gradlab.spec import Spec


def _rule(x: Spec, weight: Spec | None, bias: Spec | None, mean: Spec, var: Spec, *, eps: float) -> Spec:
    """Rule: like the input."""
    return x


def _cpu(*_: Any, eps: float) -> None:
    raise NotImplementedError("this row stands in exported graphs alone")


batch_norm_inference = Op("batch_norm_inference", _rule, params=("eps",), cpu=_cpu)


@exports("batch_norm_inference")
def inference(e: Emitter, x: Wire, weight: Wire | None, bias: Wire | None, mean: Wire, var: Wire, *, eps: float) -> Any:
    """BatchNormalization; a weight of ones and a bias of zeros where there are none."""
    channels = mean.shape or ()
    weight = weight or e.expand(e.number(1.0, x.dtype), channels)
    bias = bias or e.expand(e.number(0.0, x.dtype), channels)
    return e("BatchNormalization", x, weight, bias, mean, var, epsilon=eps)


class _Makers:
    """What made each value."""

    def __init__(self, calls: list[Call]) -> None:
        self.by_value: dict[int, Call] = {v.id: c for c in calls for v in c.outputs}

    def call(self, value: Any, *names: str) -> Call | None:
        """The call that made a value, if it is of one of these rows."""
        found = self.by_value.get(value.id) if isinstance(value, Value) else None
        return found if found is not None and found.op.name in names else None

    def unshaped(self, value: Any) -> Any:
        """What a value was before it got the shape (1, C, 1, …)."""
        call = self.call(value, "view")
        return call.inputs[0] if call is not None else None


def batch_norms(graph: Graph) -> Graph:
    """`input * scale + shift` with scale = weight / √(var + eps) and shift = bias - mean · scale (`functional.batch_norm`) as one call."""
    makers = _Makers(graph.calls)
    calls = []
    for call in graph.calls:
        found = _matched(call, makers, graph.state) if call.op.name == "add" else None
        calls.append(call if found is None else replace(call, op=batch_norm_inference, inputs=found[0], params={"eps": found[1]}))
    return replace(graph, calls=calls)


def _matched(call: Call, makers: _Makers, state: Mapping[Value, Any]) -> tuple[tuple[Any, ...], float] | None:
    product = makers.call(call.inputs[0], "mul")
    shift = makers.unshaped(call.inputs[1])
    if product is None or shift is None or not isinstance(product.inputs[0], Value):
        return None
    x, scale = product.inputs[0], makers.unshaped(product.inputs[1])
    rank = len(x.spec.shape)
    if scale is None or rank < 2 or len(call.inputs[1].spec.shape) != rank or scale.spec.shape != (x.spec.shape[1],):
        return None
    weighted = makers.call(scale, "mul")
    weight = weighted.inputs[1] if weighted is not None else None
    root = makers.call(weighted.inputs[0] if weighted is not None else scale, "rsqrt")
    sum_ = makers.call(root.inputs[0], "add") if root is not None else None
    moved = makers.call(shift, "sub")
    bias = moved.inputs[0] if moved is not None else None
    times = makers.call(moved.inputs[1] if moved is not None else shift, "mul")
    if sum_ is None or times is None or times.inputs[1] != scale or not isinstance(sum_.inputs[1], float):
        return None
    mean = times.inputs[0]
    if moved is None:  # -mean * scale
        negative = makers.call(mean, "neg")
        mean = negative.inputs[0] if negative is not None else None
    var = sum_.inputs[0]
    parts = (weight, bias, mean, var)
    if mean is None or any(p is not None and (p not in state or p.spec.dtype != x.spec.dtype) for p in parts):
        return None
    return (x, *parts), float(sum_.inputs[1])
