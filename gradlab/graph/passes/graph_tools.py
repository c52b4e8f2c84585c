"""Tools of the passes: who uses a value, sums as lists of their terms, new calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from gradlab import ops
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.op import Op
from gradlab.spec import Spec


class Rewriting:
    """A graph that is being changed: its calls in order, with the uses and makers of values."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.calls = list(graph.calls)
        self.maker: dict[int, Call] = {v.id: c for c in self.calls for v in c.outputs}
        self.uses: Counter[int] = Counter(x.id for c in self.calls for x in c.inputs if isinstance(x, Value))
        self.uses.update(v.id for v in ends(graph))
        everything = [*graph.inputs, *graph.state, *(v for _, v, _ in graph.random), *(v for c in self.calls for v in c.outputs)]
        self._count = max((v.id for v in everything), default=0)
        self._count = max([self._count, *(v.id for v in loose(self.calls))])

    def call(self, op: Op, inputs: Sequence[Any], params: dict[str, Any], position: Any = None, output: Value | None = None) -> Call:
        """A new call with new values; `output` is the value of a call that it takes the place of."""
        specs = op.specs(*[x.spec if isinstance(x, Value) else None for x in inputs], **params)
        values = []
        for spec in specs:
            self._count += 1
            values.append(Value(self._count, Spec(tuple(spec.shape), spec.dtype)))
        if output is not None:
            values[0] = output
        return Call(op, tuple(inputs), params, tuple(values), position)

    def terms(self, value: Value) -> list[Value]:
        """The terms of the sum that a value is: down through additions whose result nothing else uses."""
        found, stack = [], [value]
        while stack:
            v = stack.pop()
            call = self.maker.get(v.id)
            if call is not None and is_sum(call) and (v is value or self.uses[v.id] == 1):
                stack += reversed([x for x in call.inputs if isinstance(x, Value)])
            else:
                found.append(v)
        return found

    def maker_of_term(self, value: Value) -> Call | None:
        """The call that makes a term which nothing else needs; of a half type's that is cast for a wide sum, the call before the cast."""
        maker = self.maker.get(value.id) if self.uses[value.id] == 1 else None
        if maker is not None and maker.op is ops.elementwise.cast:
            (x,) = maker.inputs
            maker = self.maker.get(x.id) if self.uses[x.id] == 1 else None
        return maker

    def sums(self) -> list[Call]:
        """The additions that are not themselves a term of a larger sum."""
        inner = {x.id for c in self.calls if is_sum(c) for x in c.inputs if isinstance(x, Value) and self.uses[x.id] == 1}
        return [c for c in self.calls if is_sum(c) and c.outputs[0].id not in inner]

    def replace(self, old: Call, new: Iterable[Call]) -> None:
        """Put calls in the place of one."""
        at = next(i for i, c in enumerate(self.calls) if c is old)
        self.calls[at : at + 1] = new

    def finish(self) -> Graph:
        """The graph with the changed calls, without those that nothing needs any more."""
        return replace(self.graph, calls=self.calls).without_dead_calls()


def is_sum(call: Call) -> bool:
    """An addition of two values of the result's shape."""
    return call.op is ops.elementwise.add and all(isinstance(x, Value) and x.spec == call.outputs[0].spec for x in call.inputs)


def ends(graph: Graph) -> list[Value]:
    """What leaves a graph."""
    return [*graph.outputs, *(new for _, new in graph.updates), *(v for _, v in graph.gradients if v is not None)]


def loose(calls: Iterable[Call]) -> list[Value]:
    """All values that calls read."""
    return [x for c in calls for x in c.inputs if isinstance(x, Value)]


def sum_of(rewriting: Rewriting, values: Sequence[Value], output: Value, position: Any) -> list[Call]:
    """Additions of values from left to right; the last makes `output`. None where there is one value alone."""
    calls: list[Call] = []
    total = values[0]
    for i, v in enumerate(values[1:], 1):
        calls.append(rewriting.call(ops.elementwise.add, (total, v), {}, position, output if i == len(values) - 1 else None))
        total = calls[-1].outputs[0]
    return calls


def in_order(calls: Sequence[Call]) -> list[Call]:
    """The calls in an order that makes every value before it is used; otherwise as they were."""
    maker = {v.id: c for c in calls for v in c.outputs}
    found: list[Call] = []
    done: set[int] = set()
    for call in calls:
        stack = [call]
        while stack:
            top = stack[-1]
            missing = [] if id(top) in done else [maker[v.id] for v in loose([top]) if v.id in maker and id(maker[v.id]) not in done]
            if missing:
                stack += missing[::-1]
                continue
            stack.pop()
            if id(top) not in done:
                done.add(id(top))
                found.append(top)
    return found
