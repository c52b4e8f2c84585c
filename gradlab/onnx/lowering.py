"""From a graph of rows to nodes: every call by its row's converter. What cannot be said is collected, and reported all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradlab import dispatch
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.onnx import rows
from gradlab.onnx.emitter import Emitter, Names, Unsupported, Wire
from gradlab.onnx.registry import convert
from gradlab.onnx.rows.derived import derive
from gradlab.onnx.rows.random import RANDOM

__all__ = ["Lowering", "UnsupportedError", "rows"]


class UnsupportedError(RuntimeError):
    """The program has calls that cannot be written in ONNX. `calls`: (row, source line, reason) of each."""

    def __init__(self, calls: Sequence[tuple[str, str, str]]) -> None:
        self.calls = list(calls)
        shown: dict[tuple[str, str, str], int] = {}
        for call in self.calls:
            shown[call] = shown.get(call, 0) + 1
        lines = [
            f"  {row}{f' ({number} times)' if number > 1 else ''}: {reason}{f' - {line}' if line else ''}"
            for (row, line, reason), number in shown.items()
        ]
        super().__init__("onnx.export: these operations cannot be exported:\n" + "\n".join(lines))


class Lowering:
    """Writes a graph's calls. `missing` collects what cannot be written."""

    def __init__(self, opset: int, state_names: Mapping[int, str]) -> None:
        self.names = Names()
        self.e = Emitter(self.names, opset)
        self.e.lower = self.part
        self.state_names = state_names  # id of an array -> the name of the parameter
        self.states: dict[int, Wire] = {}  # id of an array -> its wire
        self.missing: list[tuple[str, str, str]] = []

    def graph(self, graph: Graph, inputs: Sequence[Wire]) -> list[Wire]:
        """The nodes of the outermost graph; its results."""
        env: dict[int, Wire] = dict(zip((v.id for v in graph.inputs), inputs, strict=True))
        return self.body(self.e, graph, env)

    def body(self, e: Emitter, graph: Graph, env: dict[int, Wire]) -> list[Wire]:
        """The nodes of a graph, with the values of `env`."""
        for value, array in graph.state.items():
            env[value.id] = self.state(array)
        for _, value, _ in graph.random:
            env.setdefault(value.id, Wire("", value.spec.dtype, e, value.spec.shape))
        for call in graph.calls:
            self.call(e, call, env)
        return [env[v.id] for v in graph.outputs]

    def state(self, array: Any) -> Wire:
        """An array from before the trace: an initializer with its parameter's name."""
        key = id(array)
        if key not in self.states:
            host = dispatch.backend_of(array).to_numpy(array)
            name = self.names.fresh(self.state_names.get(key, "constant"))
            self.e.constants[name] = host
            self.states[key] = Wire(name, host.dtype, self.e, host.shape)
        return self.states[key]

    def call(self, e: Emitter, call: Call, env: dict[int, Wire]) -> None:
        """One call."""
        name = call.op.name
        derive(call.op)  # of a row that is not gradlab's
        e.row, e.scope = name, scope_of(call)
        inputs = [env[x.id] if isinstance(x, Value) else x for x in call.inputs]
        specs = tuple(v.spec for v in call.outputs)
        drawn = len(e.root.drawn)
        try:
            found = convert(e, name, inputs, call.params, specs)
        except Unsupported as error:
            self.missing.append((name, call.source(), str(error)))
            found = tuple(Wire(self.names.fresh("missing"), s.dtype, e, s.shape) for s in specs)
        if name in RANDOM or len(e.root.drawn) > drawn or any(isinstance(x, Wire) and x.name in e.root.drawn for x in inputs):
            e.root.drawn.update(w.name for w in found)
        for value, wire in zip(call.outputs, found, strict=True):
            wire.shape = value.spec.shape
            env[value.id] = wire

    def part(self, e: Emitter, part: Any, inputs: Sequence[Wire]) -> list[Wire]:
        """The calls of a control-flow row's part, in the graph of `e`."""
        graph = part.source.without_dead_calls()
        outputs, row, scope = e.outputs, e.row, e.scope
        env = {v.id: w for v, w in zip(graph.inputs, inputs, strict=True)}
        found = self.body(e, graph, env)
        e.outputs, e.row, e.scope = outputs, row, scope
        return found


def scope_of(call: Call) -> str:
    """The path of modules around a call: "/layer1/conv1"."""
    scope = call.position[2] if call.position is not None else None
    return "" if scope is None else "".join(f"/{s.name or s.module}" for s in scope.path())

