"""What autocast lowered to bfloat16 is computed in float32, on a CPU: only products round what they multiply, and only where it is faster.

bfloat16 exists on a CPU in memory and in products' instructions, nowhere else: a row computes in float32 and rounds what it stores. Between
rows of one program nothing has to be stored in that type, and without the roundings the program is that of float32, with all that passes
know to join there. XLA and TorchInductor leave out such roundings as well. What leaves the program has the types that it had.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gradlab.dtype import FLOAT32, HALF
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes.replacing import specs_of
from gradlab.ops.elementwise import cast, clone
from gradlab.ops.linalg import matmul, wide_matmul
from gradlab.spec import Spec

BFLOAT16 = next(d for d in HALF if d.name == "bfloat16")
PRODUCTS = frozenset(["convolution", "convolution_dw", "convolution_dx", "linear", "matmul", "wide_matmul"])


def widen_lowered(graph: Graph) -> Graph:
    """The graph in float32, `lowered`: where autocast alone made all bfloat16 in it and all its products have it, for the CPU."""
    if not graph.autocast or graph.device.type != "cpu" or any("flow" in c.params for c in graph.calls):
        return graph
    if any(c.op.name in PRODUCTS and not _is_low(c.inputs[0]) and not _is_low(c.inputs[1]) for c in graph.calls):
        return graph
    writing = _Writing(graph)
    for call in graph.calls:
        writing.add(call)
    return writing.written()


def _is_low(x: Any) -> bool:
    return isinstance(x, Value) and x.spec.dtype == BFLOAT16


class _Writing:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.calls: list[Call] = []
        values = [*graph.inputs, *graph.state, *(v for _, v, _ in graph.random), *(v for c in graph.calls for v in c.outputs)]
        values += [x for c in graph.calls for x in c.inputs if isinstance(x, Value)]
        self._next = max((v.id for v in values), default=0)
        self._wide: dict[int, Value] = {}  # value of bfloat16 -> its numbers in float32
        self._low: dict[int, Value] = {v.id: v for v in values if _is_low(v)}
        self._there = {v.id for v in (*graph.inputs, *graph.state)}

    def add(self, call: Call) -> None:
        """Write the call in float32, or, where it does not compute the same there, between casts."""
        if not any(map(_is_low, (*call.inputs, *call.outputs))):
            self.calls.append(call)
            return
        inputs = tuple(self._widened(x, call) for x in call.inputs)
        outputs = tuple(self._new(v) if _is_low(v) else v for v in call.outputs)
        params = {k: FLOAT32 if k == "dtype" and v == BFLOAT16 else v for k, v in call.params.items()}
        op = matmul if call.op is wide_matmul else call.op
        if op is cast and inputs[0].spec.dtype == outputs[0].spec.dtype:
            op, params = clone, {}
        if op is call.op and op is not cast and not self._fits(call, inputs, outputs, params):
            inputs = tuple(self._lowered(x, call) for x in call.inputs)
            self.calls.append(Call(op, inputs, call.params, call.outputs, call.position, call.again))
            self._there.update(v.id for v in call.outputs)
            return
        self._wide.update((v.id, wide) for v, wide in zip(call.outputs, outputs, strict=True) if v is not wide)
        self.calls.append(Call(op, inputs, params, outputs, call.position, call.again))

    def written(self) -> Graph:
        """The graph, with what leaves it in its own types."""
        graph = self.graph
        position = self.calls[-1] if self.calls else None
        for v in (*graph.outputs, *(new for _, new in graph.updates), *(v for _, v in graph.gradients if v is not None)):
            if _is_low(v) and position is not None:
                self._lowered(v, position)
        return replace(graph, calls=self.calls, lowered=True)

    @staticmethod
    def _fits(call: Call, inputs: tuple[Any, ...], outputs: tuple[Value, ...], params: dict[str, Any]) -> bool:
        """Whether a row's results in float32 are those that are wanted, and come of numbers alone."""
        if call.op.foreign or call.op.name == "nextafter" or "dtype" in params:
            return False
        try:
            made = specs_of(call.op, inputs, params)
        except (TypeError, ValueError, RuntimeError):
            return False
        return [m.dtype for m in made] == [v.spec.dtype for v in outputs]

    def _new(self, like: Value) -> Value:
        self._next += 1
        return Value(self._next, Spec(like.spec.shape, FLOAT32))

    def _widened(self, x: Any, call: Call) -> Any:
        if not _is_low(x):
            return x
        if x.id not in self._wide:
            self._wide[x.id] = wide = self._new(x)
            self.calls.append(Call(cast, (x,), {"dtype": FLOAT32}, (wide,), call.position))
        return self._wide[x.id]

    def _lowered(self, x: Any, call: Call) -> Any:
        if _is_low(x) and x.id not in self._there:
            self._there.add(x.id)
            self.calls.append(Call(cast, (self._wide[x.id],), {"dtype": BFLOAT16}, (x,), call.position))
        return x
