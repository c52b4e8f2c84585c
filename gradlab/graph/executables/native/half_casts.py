"""Rows that compute with half types, as rows that compute with float32 and round.

That is what the CPU backend does for every row that is not exact: float32 between casts. Here a value of a half type lies in memory as the
float32 numbers that it stands for wherever those who read it compute with float32: the row has its float32 kernel, the casts are gone, and
the rounding is one more row of a loop, or of a product's epilogue. What else reads it, or takes it out of the program, gets it cast.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.backends.native.lowerings.loops import is_elementwise
from gradlab.backends.native.lowerings.vector_functions import HALVES
from gradlab.dtype import FLOAT32, HALF
from gradlab.graph.executables.native import bfloat16
from gradlab.graph.ir.graph import Call, Value
from gradlab.graph.ir.linear import Line
from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.ops.elementwise import cast
from gradlab.ops.linalg import matmul, wide_matmul
from gradlab.spec import Spec

# Rows that move values, or choose among them: their kernels take float32, and nothing is rounded.
EXACT = frozenset(["amax", "amin"])
MOVING = EXACT | {
    "cat", "clone", "embedding", "flip", "gather", "index", "max", "max_pool_gather", "min", "repeated", "slice_backward", "sort", "topk",
    "tril", "triu", "where",
}  # fmt: skip
# Their results are numbers that they are given, or the opposite, or 0.
CHOOSING = frozenset(["abs", "maximum", "minimum", "neg", "relu", "relu_backward"])
VIEWS = frozenset(["diagonal", "expand", "permute", "slice", "squeeze", "t", "transpose", "unfold", "unsqueeze", "view"])
NEAR = 4  # calls after which what lies in a half type is cast again rather than kept in float32


def _same(x: Spec) -> Spec:
    return x


def _rounding(name: str) -> Op:
    """float32 to the nearest numbers of a half type, in float32."""
    dtype = next(d for d in HALF if d.name == name)

    def cpu(x: Any, y: Any) -> None:
        np.copyto(y, x.astype(dtype))

    return Op(f"round_to_{name}", _same, cpu=cpu, cuda=Elementwise(f"rounded<{HALVES[name]}>(x)"))


ROUND = {name: _rounding(name) for name in HALVES}


def widened(line: Line, loops: bool = False, kept: bool = False) -> Line:
    """The same line with the computing rows in float32. loops: elementwise rows too, where loops do not compute with half types. kept: what
    lies between them too."""
    if line.lowered:
        line = line._replace(calls=[_lowered(c) for c in line.calls])
    if not any(computes_in_half(c, loops) for c in line.calls):
        return line
    writing = _Kept(line) if kept else _Writing(line, loops)
    for call in line.calls:
        writing.add(call)
    writing.leave()
    leaving = {v.id for v in (*line.outputs, *(new for _, new in line.updates))}
    return line._replace(calls=unrounded(writing.calls, leaving), last=frozenset(writing.last))


def _lowered(call: Call) -> Call:
    """A call of a program in float32 whose products may round what they multiply."""
    if not bfloat16.takes(call.op.name, call.inputs, call.outputs, call.params):
        return call
    return Call(bfloat16.ROWS[call.op.name], call.inputs, call.params, call.outputs, call.position, call.again)


def computes_in_half(call: Call, loops: bool) -> bool:
    """Whether a call becomes one that computes with float32."""
    op = call.op
    if op.view or op.name == "cast" or (op.exact and op.name not in EXACT) or (is_elementwise(call, True) and not loops):
        return False
    return any(v.spec.dtype in HALF for v in (*call.outputs, *(x for x in call.inputs if isinstance(x, Value))))


def _is_half(x: Any) -> bool:
    return isinstance(x, Value) and x.spec.dtype in HALF


class _Writing:
    """Casts around each row that computes."""

    def __init__(self, line: Line, loops: bool) -> None:
        self._loops = loops
        self.line = line
        self.last = set(line.last)  # what is cast lies as it lay before
        values = [*line.inputs, *line.fixed, *(v for c in line.calls for v in c.outputs)]
        self.calls: list[Call] = []
        self._next = max(*(v.id for v in values), *line.last) + 1  # passes may have left out calls whose results came last
        self._wide: dict[int, tuple[int, Value]] = {}  # value -> when it was cast, and to what

    def add(self, call: Call) -> None:
        """Write the call, between casts if it computes in half types."""
        if not computes_in_half(call, self._loops):
            self.calls.append(call)
            return
        for wide, own in self._computed(call):
            self.calls.append(_cast(wide, own, call))

    def leave(self) -> None:
        """Write what leaves the program."""

    def _computed(self, call: Call) -> list[tuple[Value, Value]]:
        """Write the call in float32. Its results, each beside the one of a half type that it has to become."""
        inputs = tuple(self._input(x, call) for x in call.inputs)
        outputs = tuple(self._value(v) if v.spec.dtype in HALF else v for v in call.outputs)
        op = matmul if call.op is wide_matmul else call.op
        lower = all(x.spec.dtype.name == "bfloat16" for x in call.inputs if _is_half(x))
        if lower and bfloat16.takes(op.name, inputs, outputs, call.params):
            op = bfloat16.ROWS[op.name]
        self.calls.append(Call(op, inputs, call.params, outputs, call.position, call.again))
        return [(wide, own) for wide, own in zip(outputs, call.outputs, strict=True) if wide is not own]

    def _value(self, narrow: Value) -> Value:
        self._next += 1
        if narrow.id in self.last:
            self.last.add(self._next - 1)
        return Value(self._next - 1, Spec(narrow.spec.shape, FLOAT32))

    def _input(self, x: Any, call: Call) -> Any:
        if not _is_half(x):
            return x
        known = self._wide.get(x.id)
        if known is None or len(self.calls) - known[0] > NEAR:
            wide = self._value(x)
            self.calls.append(_cast(x, wide, call))
            self._wide[x.id] = known = (len(self.calls), wide)
        return known[1]


class _Kept(_Writing):
    """Values of half types that lie in memory as float32."""

    def __init__(self, line: Line) -> None:
        super().__init__(line, True)
        self._twins: dict[int, Value] = {}  # value of a half type -> the same numbers in float32
        self._own = {v.id for v in (*line.inputs, *line.fixed)}  # values that are there as they are
        self._same: dict[int, Value] = {}  # value of float32 that is a twin -> that twin
        self._fitting: dict[int, Any] = {}  # value of float32 -> the half type that has all its numbers

    def add(self, call: Call) -> None:
        """Write the call: in float32 if it computes with a half type, or moves what lies in float32."""
        inputs = tuple(self._same.get(x.id, x) if isinstance(x, Value) else x for x in call.inputs)
        call = Call(call.op, inputs, call.params, call.outputs, call.position, call.again)
        name = call.op.name
        values = all(isinstance(x, Value) for x in inputs)
        moving = values and (name in MOVING or (name in VIEWS and (not _is_half(inputs[0]) or inputs[0].id in self._twins)))
        if name == "cast":
            self._convert(call)
        elif computes_in_half(call, True) or (moving and any(map(_is_half, call.outputs))):
            fitting = moving or (name in CHOOSING and all(map(_is_half, inputs)))
            made = self._computed(call)
            fitting = fitting or self.calls[-1].op in bfloat16.FITTING
            for wide, own in made:
                self._twins[own.id] = self._rounded(wide, own, call, fitting)
        else:
            for x in inputs:
                self._need(x, call)
            self.calls.append(call)
            self._own.update(v.id for v in call.outputs)
            fits = {self._fitting.get(x.id) for x in inputs} if moving else {None}
            if len(fits) == 1:
                self._fitting.update(dict.fromkeys((v.id for v in call.outputs if v.spec.dtype == FLOAT32), *fits))

    def leave(self) -> None:
        """Write what leaves the program: in its own type, and apart from what it is the same as."""
        makers = {v.id: c for c in self.calls for v in c.outputs}
        named: dict[int, Value] = {}  # twin -> what leaves the program in its place
        for v in (*self.line.outputs, *(new for _, new in self.line.updates)):
            twin = self._same.pop(v.id, None)
            if twin is not None and twin.id in makers and not makers[twin.id].op.view:
                named.setdefault(twin.id, v)
            if twin is not None and named.get(twin.id) is not v:
                self.calls.append(_cast(twin, v, self.calls[-1]))
            self._need(v, self.calls[-1])
        for call in self.calls:
            call.inputs = tuple(named.get(x.id, x) if isinstance(x, Value) else x for x in call.inputs)
            call.outputs = tuple(named.get(v.id, v) for v in call.outputs)
        self.last.update(v.id for number, v in named.items() if number in self.last)

    def _convert(self, call: Call) -> None:
        (x,), (y,) = call.inputs, call.outputs
        if _is_half(x) and y.spec.dtype == FLOAT32:
            self._same[y.id] = self._input(x, call)
            return
        x = self._twins.get(x.id, x) if _is_half(x) else x
        if _is_half(y) and x.spec.dtype == FLOAT32:
            self._twins[y.id] = self._rounded(x, y, call, self._fitting.get(x.id) == y.spec.dtype)
        else:
            self.calls.append(_cast(x, y, call))
            self._own.add(y.id)

    def _rounded(self, x: Value, like: Value, call: Call, fitting: bool) -> Value:
        """A value of float32 rounded to the half type of another value. fitting: whether it has such numbers only."""
        found = x
        if not fitting:
            found = self._value(like)
            self.calls.append(Call(ROUND[like.spec.dtype.name], (x,), {}, (found,), call.position, call.again))
        self._fitting[found.id] = like.spec.dtype
        return found

    def _input(self, x: Any, call: Call) -> Any:
        return self._twins[x.id] if _is_half(x) and x.id in self._twins else super()._input(x, call)

    def _need(self, x: Any, call: Call) -> None:
        """Write a value in its own half type, unless it is there."""
        if _is_half(x) and x.id not in self._own:
            self._own.add(x.id)
            self.calls.append(_cast(self._twins[x.id], x, call))


def unrounded(calls: list[Call], leaving: set[int]) -> list[Call]:
    """The calls without the roundings to bfloat16 of what only rows read that round it themselves, where they would not be part of the loop
    that makes it. leaving: what leaves the program."""
    readers: dict[int, list[tuple[Call, int]]] = {}
    for call in calls:
        for i, x in enumerate(call.inputs):
            if isinstance(x, Value):
                readers.setdefault(x.id, []).append((call, i))

    def is_free(v: Value) -> bool:
        if v.id in leaving:
            return False
        return all(i < bfloat16.OPERANDS.get(c.op.name, 0) or (c.op.view and is_free(c.outputs[0])) for c, i in readers.get(v.id, ()))

    looped = {c.outputs[0].id for c in calls if is_elementwise(c, True)}
    own = [c for c in calls if c.op is ROUND["bfloat16"] and c.inputs[0].id not in looped]
    free = {c.outputs[0].id: c.inputs[0] for c in own if is_free(c.outputs[0])}
    for call in calls if free else ():
        call.inputs = tuple(free.get(x.id, x) if isinstance(x, Value) else x for x in call.inputs)
    return [c for c in calls if c.outputs[0].id not in free]


def _cast(source: Value, target: Value, call: Call) -> Call:
    return Call(cast, (source,), {"dtype": target.spec.dtype}, (target,), call.position, call.again)
