"""The walk of the passes that replace values: calls in order, with what their inputs were replaced by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gradlab import ops
from gradlab.backends.cpu import number_spec
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes.graph_tools import ends
from gradlab.op import Op
from gradlab.spec import Spec


class Replacing:
    """A graph that is walked through once, from the first call to the last.

        for call in work.walk():  # its inputs are those it has by now
            work.same(call.outputs[0], other)  # or work.keep(call)
        graph = work.finish()
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.maker: dict[int, Call] = {}
        self._calls: list[Call] = []
        self._instead: dict[int, Value] = {}
        self._ends = {v.id for v in ends(graph)}

    def walk(self) -> Any:
        """The calls, with replaced inputs."""
        for call in self.graph.calls:
            inputs = tuple(self.now(x) for x in call.inputs)
            yield call if all(a is b for a, b in zip(inputs, call.inputs)) else replace(call, inputs=inputs)

    def now(self, x: Any) -> Any:
        """What stands for an input by now."""
        return self._instead.get(x.id, x) if isinstance(x, Value) else x

    def keep(self, call: Call) -> None:
        """The call stays, or takes the place of one that had its outputs."""
        self._calls.append(call)
        self.maker.update((v.id, call) for v in call.outputs)

    def is_end(self, value: Value) -> bool:
        """Whether the value leaves the program."""
        return value.id in self._ends

    def may_be(self, old: Value, new: Any) -> bool:
        """Whether `new` can stand for `old`. What leaves the program has memory of its own: nothing of the caller's, and no two share."""
        if not isinstance(new, Value) or new.spec != old.spec:
            return False
        if old.id not in self._ends:
            return True
        maker = self.maker.get(new.id)
        return maker is not None and not maker.op.view and new.id not in self._ends

    def same(self, old: Value, new: Value) -> None:
        """`new` stands for `old` from here on."""
        self._instead[old.id] = new
        if old.id in self._ends:
            self._ends.add(new.id)

    def finish(self) -> Graph:
        """The graph with what was kept, without what nothing needs any more."""
        g = self.graph
        found = replace(
            g,
            state=dict(g.state),
            calls=self._calls,
            outputs=[self.now(v) for v in g.outputs],
            updates=[(old, self.now(new)) for old, new in g.updates],
            gradients=[(leaf, None if v is None else self.now(v)) for leaf, v in g.gradients],
        )
        return found.without_dead_calls()


def specs_of(op: Op, inputs: Sequence[Any], params: dict[str, Any]) -> Sequence[Spec]:
    """What a row says about its outputs for these values, numbers and None."""
    values = [x.spec if isinstance(x, Value) else x for x in inputs]
    arrays = [_Like(x.spec) if isinstance(x, Value) else x for x in inputs]
    found = [number_spec(x, arrays) if isinstance(x, (int, float, complex)) else x for x in values]
    return op.specs(*found, **params)


class _Like:
    """Something with a dtype, which is all that `number_spec` looks at."""

    def __init__(self, spec: Spec) -> None:
        self.shape, self.dtype = spec


def is_ours(op: Op) -> bool:
    """Whether the row is one of gradlab's own: those compute the same from the same and do nothing else."""
    return ops.ROWS.get(op.name) is op
