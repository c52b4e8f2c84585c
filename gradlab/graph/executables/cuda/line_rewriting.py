"""A line of calls while calls in it are joined (`epilogues.py`, `conv_epilogues.py`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab.graph.executables.numpy.executable import Line
from gradlab.graph.ir.graph import Call, Value
from gradlab.kernel import Elementwise
from gradlab.spec import Spec

_UINT8 = np.dtype(np.uint8)


class Rewriting:
    """A line of calls while it is rewritten.

    notes  what was joined, and what was not, and why, for people
    """

    def __init__(self, line: Line, calls: Sequence[Call]) -> None:
        self.calls: list[Call | None] = list(calls)
        self.notes: list[str] = []
        self.at = {v.id: i for i, c in enumerate(calls) for v in c.outputs}
        self.uses = Counter(x.id for c in calls for x in c.inputs if isinstance(x, Value))
        self.ends = {v.id for v in (*line.outputs, *(new for _, new in line.updates))}
        self.uses.update(v.id for v in (*line.outputs, *(new for _, new in line.updates)))
        self.free = 1 + max(v.id for v in (*line.inputs, *line.fixed, *line.outputs, Value(0, Spec((), _UINT8)), *self._made(calls)))

    @staticmethod
    def _made(calls: Sequence[Call]) -> list[Value]:
        return [v for c in calls for v in (*c.inputs, *c.outputs) if isinstance(v, Value)]

    def maker(self, value: Any) -> Call | None:
        """The call that makes a value; None for an input."""
        at = self.at.get(value.id) if isinstance(value, Value) else None
        return None if at is None else self.calls[at]

    def only(self, value: Any) -> Call | None:
        """The call that makes a value which is used once."""
        return self.maker(value) if isinstance(value, Value) and self.uses[value.id] == 1 else None

    def new(self, spec: Spec) -> Value:
        """A value that no call makes yet."""
        self.free += 1
        return Value(self.free - 1, spec)

    def put(self, at: int, call: Call, *gone: Call) -> None:
        """Put a call at a place; others go."""
        for i, old in enumerate(self.calls):
            if any(old is g for g in gone):
                self.calls[i] = None
        self.calls[at] = call
        self.at.update((v.id, at) for v in call.outputs)

    def in_memory(self, value: Value) -> bool:
        """Whether a value has to lie in memory: it is a result, or read by more than elementwise operations, which read registers."""
        if value.id in self.ends:
            return True
        readers = [c for c in self.calls if c is not None and any(x.id == value.id for x in c.inputs if isinstance(x, Value))]
        return any(not isinstance(c.op.cuda, Elementwise) for c in readers)

    def joins(self, *names: str) -> None:
        """Note that these became one."""
        self.notes.append(f"{' + '.join(names)}: one kernel")

    def apart(self, first: str, then: str, why: str) -> None:
        """Note that these did not, and why."""
        self.notes.append(f"{first}, {then}: apart, since {why}")
