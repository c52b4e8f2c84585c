"""Rows that compute with half types, as rows that compute with float32 between casts.

That is what the CPU backend does for every row that is not exact. As calls of the program the casts become part of the loops around them,
and the row has its float32 kernel.
"""

from __future__ import annotations

from typing import Any

from gradlab.backends.native.lowerings.loops import is_elementwise
from gradlab.dtype import FLOAT32, HALF
from gradlab.graph.ir.graph import Call, Value
from gradlab.graph.ir.linear import Line
from gradlab.ops.elementwise import cast
from gradlab.ops.linalg import matmul, wide_matmul
from gradlab.spec import Spec

# Rows that move values, or choose among them: their kernels take float32, and the casts lose nothing.
EXACT = frozenset(["amax", "amin"])
NEAR = 4  # calls after which a value is cast again rather than kept in float32


def widened(line: Line, loops: bool = False) -> Line:
    """The same line with the computing rows in float32. loops: elementwise rows too, where loops do not compute with half types."""
    if not any(computes_in_half(c, loops) for c in line.calls):
        return line
    writing = _Writing(line, loops)
    for call in line.calls:
        writing.add(call)
    return line._replace(calls=writing.calls, last=frozenset(writing.last))


def computes_in_half(call: Call, loops: bool) -> bool:
    """Whether a call becomes one that computes with float32."""
    op = call.op
    if op.view or op.name == "cast" or (op.exact and op.name not in EXACT) or (is_elementwise(call, True) and not loops):
        return False
    return any(v.spec.dtype in HALF for v in (*call.outputs, *(x for x in call.inputs if isinstance(x, Value))))


class _Writing:
    def __init__(self, line: Line, loops: bool) -> None:
        self._loops = loops
        self.last = set(line.last)  # what is cast lies as it lay before
        values = [*line.inputs, *line.fixed, *(v for c in line.calls for v in c.outputs)]
        self.calls: list[Call] = []
        self._next = max(v.id for v in values) + 1
        self._wide: dict[int, tuple[int, Value]] = {}  # value -> when it was cast, and to what

    def add(self, call: Call) -> None:
        """Write the call, between casts if it computes in half types."""
        if not computes_in_half(call, self._loops):
            self.calls.append(call)
            return
        inputs = tuple(self._input(x, call) for x in call.inputs)
        outputs = tuple(self._value(v) if v.spec.dtype in HALF else v for v in call.outputs)
        op = matmul if call.op is wide_matmul else call.op
        self.calls.append(Call(op, inputs, call.params, outputs, call.position))
        for wide, own in zip(outputs, call.outputs, strict=True):
            if wide is not own:
                self.calls.append(_cast(wide, own, call))

    def _value(self, narrow: Value) -> Value:
        self._next += 1
        if narrow.id in self.last:
            self.last.add(self._next - 1)
        return Value(self._next - 1, Spec(narrow.spec.shape, FLOAT32))

    def _input(self, x: Any, call: Call) -> Any:
        if not isinstance(x, Value) or x.spec.dtype not in HALF:
            return x
        known = self._wide.get(x.id)
        if known is None or len(self.calls) - known[0] > NEAR:
            wide = self._value(x)
            self.calls.append(_cast(x, wide, call))
            self._wide[x.id] = known = (len(self.calls), wide)
        return known[1]


def _cast(source: Value, target: Value, call: Call) -> Call:
    return Call(cast, (source,), {"dtype": target.spec.dtype}, (target,), call.position)
