"""Putting actual sizes into a graph that was made with unknown ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gradlab.backends.cpu import number_spec
from gradlab.graph.control.body_call import KINDS, Part, flow_row
from gradlab.graph.control.branching import Switch
from gradlab.graph.control.looping import While
from gradlab.graph.control.scanning import Scan
from gradlab.graph.ir.dims import Dim, Ratio, evaluate, hints_of, lost, symbols
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.staging.symbol import TraceError
from gradlab.spec import Spec

WAY_OUT = (
    "this size was computed in a way that is not tracked; take it from x.shape or x.size(), compute with + - * / // % ** (a float on its "
    "right: n * 0.5, 1 / n), and use no int(), float(), len(), range(), math or NumPy on it"
)


def specialize(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph for these sizes (by symbol): inputs, parameters and numbers are filled in, and the rows' rules run again.

    Values keep their ids.

    A graph without unknown sizes comes back as it is. Raises ValueError for a size that is missing; TraceError, naming the node and its
    line, where a number was computed from an unknown size without its being tracked; what a rule raises for sizes that do not fit.
    """
    names = set(unknowns(graph))
    if not names:
        return graph
    if missing := sorted(names - set(sizes)):
        raise ValueError(f"the graph has unknown sizes {', '.join(sorted(names))}, and no value for {', '.join(missing)}")
    return _Specializer(sizes, hints_of(names)).graph(graph)


def unknowns(graph: Graph) -> Iterator[str]:
    """The names of the unknown sizes in a graph's inputs, and in the parameters of its calls."""
    for value in graph.inputs:
        yield from _names(value.spec.shape)
    for call in graph.calls:
        yield from _names(call.params)
        yield from _names(call.inputs)


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, (Dim, Ratio)):
        yield from symbols(value.expr)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _names(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _names(part)
    elif isinstance(value, slice):
        yield from _names((value.start, value.stop, value.step))


FLOWS = (Scan, Switch, While)


def with_parts(flow: Any, change: Callable[[Part], Part]) -> Any:
    """The control flow with other sub-graphs."""
    if isinstance(flow, Scan):
        return Scan(change(flow.body), flow.carries, flow.stacked, flow.length, flow.reverse)
    if isinstance(flow, Switch):
        return Switch([change(p) for p in flow.parts], flow.reads, flow.writes)
    return While(change(flow.condition), change(flow.body), flow.carries, flow.constants)


class _Specializer:
    def __init__(self, sizes: Mapping[str, int], hints: Sequence[int]) -> None:
        self.sizes, self.hints = sizes, hints

    def number(self, value: Any) -> Any:
        return evaluate(value.expr, self.sizes) if isinstance(value, (Dim, Ratio)) else value

    def spec(self, spec: Spec) -> Spec:
        return Spec(tuple(map(self.number, spec.shape)), spec.dtype)

    def value(self, value: Value) -> Value:
        return Value(value.id, self.spec(value.spec))

    def graph(self, graph: Graph) -> Graph:
        known: dict[int, Value] = {}

        def entered(value: Value) -> Value:
            known[value.id] = new = self.value(value)
            return new

        inputs = [entered(v) for v in graph.inputs]
        state = {entered(v): array for v, array in graph.state.items()}
        random = [(g, entered(v), self.number(words)) for g, v, words in graph.random]
        free = [v for call in graph.calls for v in call.inputs if isinstance(v, Value)]
        made = {v.id for call in graph.calls for v in call.outputs}
        for v in free:  # hyper-parameters and the like, which a graph does not list
            if v.id not in known and v.id not in made:
                entered(v)
        calls = [self.call(c, known) for c in graph.calls]

        def found(values: Iterable[Value]) -> list[Value]:
            return [known[v.id] if v.id in known else entered(v) for v in values]

        updates = list(zip(found(old for old, _ in graph.updates), found(new for _, new in graph.updates), strict=True))
        gradients = [(leaf, None if v is None else found([v])[0]) for leaf, v in graph.gradients]
        outputs = found(graph.outputs)
        return replace(
            graph, inputs=inputs, state=state, random=random, calls=calls, outputs=outputs, updates=updates, gradients=gradients
        )

    def call(self, call: Call, known: dict[int, Value]) -> Call:
        inputs = tuple(known[x.id] if isinstance(x, Value) else self.checked(x, call) for x in call.inputs)
        params = {k: self.param(v, call) for k, v in call.params.items()}
        op = call.op
        expected = [self.spec(v.spec) for v in call.outputs]
        if op.name in KINDS and "flow" in params:
            op = flow_row(params["flow"], tuple(expected))
        specs: list[Any] = [x.spec if isinstance(x, Value) else x for x in inputs]
        like = [x.spec for x in inputs if isinstance(x, Value)]
        specs = [number_spec(x, like) if isinstance(x, (int, float, complex)) else x for x in specs]
        try:
            found = op.specs(*specs, **(params if inputs else {k: v for k, v in params.items() if k != "device"}))
        except (ValueError, TypeError, IndexError, RuntimeError) as error:
            raise type(error)(f"{error}{_line(call)}") from None
        outputs = []
        for v, want, spec in zip(call.outputs, expected, found, strict=True):
            if tuple(want.shape) != tuple(spec.shape):
                raise self.untracked(call, f"result {tuple(v.spec.shape)} would be {tuple(spec.shape)} instead of {tuple(want.shape)}")
            known[v.id] = new = Value(v.id, spec)
            outputs.append(new)
        return Call(op, inputs, params, tuple(outputs), call.position)

    def param(self, value: Any, call: Call) -> Any:
        if isinstance(value, (int, float, complex)):
            return self.checked(value, call)
        if isinstance(value, (tuple, list)):
            parts = [self.param(v, call) for v in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        if isinstance(value, dict):
            return {k: self.param(v, call) for k, v in value.items()}
        if isinstance(value, slice):
            return slice(*(self.param(v, call) for v in (value.start, value.stop, value.step)))
        if isinstance(value, FLOWS):
            found = with_parts(value, self.part)
            if isinstance(found, Scan):
                found.length = self.checked(found.length, call)
            return found
        return value

    def part(self, part: Part) -> Part:
        graph = self.graph(part.source)
        return Part(graph.inputs, graph.calls, graph.outputs, graph.device)

    def checked(self, value: Any, call: Call) -> Any:
        if lost(value, self.hints):
            raise self.untracked(call, f"{value!r} stands in the graph")
        return self.number(value)

    def untracked(self, call: Call, what: str) -> TraceError:
        return TraceError(f"{call.op.name}: {what}; {WAY_OUT}{_line(call)}")


def _line(call: Call) -> str:
    source = call.source()
    return f"\n  at: {source}" if source else ""
