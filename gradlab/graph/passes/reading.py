"""Calls as a pass reads them: who makes values and reads them, where they lie in what they are parts of, what they are roundings of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from gradlab import ops
from gradlab.backends.native.place import Place, place_of, viewed
from gradlab.dtype import FLOAT32, HALF
from gradlab.graph.ir.graph import Call, Value
from gradlab.op import Op

_cast = ops.elementwise.cast
_TURNS = (ops.movement.t, ops.movement.transpose)


class Reading:
    """A line of calls: who makes values, how often they are used, and where they lie in what they are parts of."""

    def __init__(self, calls: Sequence[Call], ends: set[int]) -> None:
        self.calls, self.ends = list(calls), ends
        self.at = {v.id: i for i, c in enumerate(calls) for v in c.outputs}
        self.readers: dict[int, list[Call]] = {}
        for call in calls:
            for x in call.inputs:
                if isinstance(x, Value):
                    self.readers.setdefault(x.id, []).append(call)
        self.known: dict[int, Place] = {}

    def maker(self, value: Any) -> Call | None:
        """The call that makes a value; None for what is given."""
        at = self.at.get(value.id) if isinstance(value, Value) else None
        return None if at is None else self.calls[at]

    def made_by(self, value: Any, op: Op) -> Call | None:
        """The call that makes a value, if it is one of that row."""
        call = self.maker(value)
        return call if call is not None and call.op is op else None

    def alone(self, value: Any) -> bool:
        """Whether one call reads the value, and nobody else."""
        return isinstance(value, Value) and len(self.readers.get(value.id, ())) == 1 and value.id not in self.ends

    def place(self, value: Value) -> Place:
        """Where the value lies, the base being the value that it is a part of."""
        found = self.known.get(value.id)
        if found is None:
            call, within = self.maker(value), None
            if call is not None and call.op.view and isinstance(call.inputs[0], Value) and all(type(n) is int for n in value.spec.shape):
                within = viewed(self.place(call.inputs[0]), call.op, call.params)
            found = self.known[value.id] = within or place_of(value.id, value.spec)
        return found

    def same(self, a: Any, b: Any) -> bool:
        """Whether two are one value, or the same part of one."""
        return isinstance(a, Value) and isinstance(b, Value) and (a == b or self.place(a) == self.place(b))

    def before(self, call: Call, values: Iterable[Any]) -> bool:
        """Whether all values are there before a call: what they are parts of is."""
        return all(self.at.get(self.place(v).base, -1) < self.at[call.outputs[0].id] for v in values if isinstance(v, Value))

    def evenly(self, values: Sequence[Any]) -> int | None:
        """How far from each other values lie, if they are equal parts of one value and lie so; None otherwise. Bytes."""
        if not values or not all(isinstance(v, Value) for v in values):
            return None
        places = [self.place(v) for v in values]
        apart = places[1].offset - places[0].offset if len(places) > 1 else 0
        alike = all(p._replace(offset=places[0].offset + i * apart) == places[0]._replace(offset=p.offset) for i, p in enumerate(places))
        return apart if alike and places[0].size else None

    def rounded(self, value: Any, half: Any) -> Value | None:
        """What a value is, in float32, the rounding of to a half type (None: what it is itself)."""
        if half is None:
            return value if isinstance(value, Value) else None
        wide = self.made_by(value, _cast)
        narrow = self.made_by(wide.inputs[0], _cast) if wide is not None and wide.inputs[0].spec.dtype == half else None
        return narrow.inputs[0] if narrow is not None and isinstance(narrow.inputs[0], Value) else None

    def narrow(self, value: Any, half: Any) -> Value | None:
        """What a value is, in float32, the copy of, of a half type (None: what it is itself)."""
        if half is None:
            return value if isinstance(value, Value) else None
        call = self.made_by(value, _cast)
        return call.inputs[0] if call is not None and call.inputs[0].spec.dtype == half else None

    def half(self, value: Any) -> Any:
        """The half type that a value of float32 is the copy of a matrix of; None if it is none."""
        call = self.maker(value)
        while call is not None and call.op in _TURNS:
            call = self.maker(call.inputs[0])
        dtype = call.inputs[0].spec.dtype if call is not None and call.op is _cast else None
        return dtype if dtype in HALF and value.spec.dtype == FLOAT32 else None


def alive(calls: Sequence[Call], ends: set[int]) -> list[Call]:
    """The calls but for views, conversions and products that nobody reads any more."""
    uses = Counter(x.id for c in calls for x in c.inputs if isinstance(x, Value))
    found: list[Call] = []
    for call in reversed(calls):
        idle = call.op.view or call.op in (_cast, ops.linalg.matmul)
        if idle and not any(uses[v.id] or v.id in ends for v in call.outputs):
            uses.subtract(x.id for x in call.inputs if isinstance(x, Value))
        else:
            found.append(call)
    return found[::-1]
