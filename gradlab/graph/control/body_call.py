"""A body's calls as a function of arrays, and the row that a control-flow call is in the graph around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from gradlab import dispatch
from gradlab.autograd.record import apply, wrap
from gradlab.device import Device
from gradlab.graph.executables.fastest import executable
from gradlab.graph.executables.numpy.executable import Line
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes import Ran, optimize
from gradlab.kernel import Library
from gradlab.op import Op
from gradlab.spec import Spec

KINDS = ("scan", "switch", "while_loop")


class Part:
    """A sub-graph. `run(arrays, outs)` computes it: on the CPU as one executable, made at the first run; elsewhere row by row."""

    def __init__(self, inputs: Sequence[Value], calls: Sequence[Call], outputs: Sequence[Value], device: Device) -> None:
        self.source = Graph(inputs=list(inputs), calls=list(calls), outputs=list(outputs), device=device)
        self._graph: Graph | None = None
        self._executable: Any = None

    def optimize(self, switches: Mapping[str, bool] | None = None, log: list[Ran] | None = None) -> None:
        """Run the passes over the calls, as over those of the graph around them."""
        self._graph, self._executable = optimize(self.source.without_dead_calls(), switches, log), None

    @property
    def graph(self) -> Graph:
        """The calls after the passes."""
        if self._graph is None:
            self.optimize()
        assert self._graph is not None
        return self._graph

    @property
    def executables(self) -> list[Any]:
        """What it runs with: none before the first run, and none where it runs row by row."""
        return [] if self._executable is None else [self._executable]

    def run(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Compute the outputs into the arrays `outs`. Raises what a row raises."""
        if outs and type(outs[0]) is not np.ndarray:
            self._row_by_row(arrays, outs)
            return
        if self._executable is None:
            graph = self.graph
            self._executable = executable(Line(graph.calls, graph.inputs, graph.state, graph.outputs, [], last=graph.last))
        self._executable.run(arrays, outs)

    def _row_by_row(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        graph = self.graph
        env = {v.id: a for v, a in zip(graph.inputs, arrays, strict=True)} | {v.id: a for v, a in graph.state.items()}
        for call in graph.calls:
            inputs = [env[x.id] if isinstance(x, Value) else x for x in call.inputs]
            backend = dispatch.choose(call.op, inputs) if inputs else dispatch.backend_for(call.params["device"])
            result = backend.run(call.op, inputs, call.params)
            env.update(zip((v.id for v in call.outputs), (result,) if call.op.result is None else result, strict=True))
        for value, target in zip(graph.outputs, outs, strict=True):
            dispatch.backend_of(target).assign(target, env[value.id])

    def __repr__(self) -> str:
        return f"<{len(self.source.calls)} calls>"


class Flow(Protocol):
    """What runs a control-flow call: `run(inputs, outs)` on arrays of one device. bodies: its sub-graphs."""

    kind: str

    @property
    def bodies(self) -> Sequence[Part]: ...

    def run(self, inputs: Sequence[Any], outs: Sequence[Any]) -> None: ...


def staged(flow: Flow, inputs: Sequence[Any], specs: Sequence[Spec]) -> list[Any]:
    """Write the call of a flow into the trace that is going on; its results, outside of any autograd graph."""
    if not specs:
        return []
    result = apply(flow_row(flow, tuple(specs)), tuple(inputs), {"flow": flow})  # the row has no gradient: callers make the node
    return [result] if len(specs) == 1 else list(result)


class Keeping:
    """The last call of a trace, which gives more results when they turn out to be needed: a backward is asked for."""

    def __init__(self, tracer: Any, flow: Flow, specs: Sequence[Spec]) -> None:
        self.tracer, self.flow, self.specs = tracer, flow, specs
        self.call: Call = tracer.graph.calls[-1]
        self.found: list[Any] | None = None

    def results(self) -> list[Any]:
        """The additional results: the call becomes that of `flow`, which makes them behind the others."""
        if self.found is None:
            call, tracer = self.call, self.tracer
            device = tracer.devices.get(call.outputs[0].id)
            symbols = [tracer.symbol(s, device) for s in self.specs]
            if symbols:
                call.op, call.params = flow_row(self.flow, (*(v.spec for v in call.outputs), *self.specs)), {"flow": self.flow}
                call.outputs = (*call.outputs, *map(tracer.value, symbols))
            self.found = [wrap(s) for s in symbols]
        return self.found


def flow_row(flow: Flow, specs: tuple[Spec, ...]) -> Op:
    """The row that a flow with results of these Specs is."""
    count = len(specs)

    def rule(*xs: Spec, flow: Flow) -> Any:
        return specs

    def cpu(*arrays: Any, flow: Flow) -> None:
        flow.run(arrays[:-count], arrays[-count:])

    names = tuple(f"y{i}" for i in range(count))
    grad = getattr(flow, "grad", None)
    return Op(flow.kind, rule, cpu=cpu, cuda=_CUDA, params=("flow",), outputs=names, exact=True, foreign=True, grad=grad)


def copy(target: Any, source: Any) -> None:
    """Write an array into another."""
    if type(target) is np.ndarray:
        np.copyto(target, source)
    else:
        dispatch.backend_of(target).assign(target, source)


def like(array: Any, count: int = 1) -> list[Any]:
    """New arrays of the same shape and dtype, not initialised."""
    if type(array) is np.ndarray:
        return [np.empty(array.shape, array.dtype) for _ in range(count)]
    return [dispatch.backend_of(array).copy(array) for _ in range(count)]


def dense(array: Any) -> Any:
    """The array, contiguous: a body reads it again and again."""
    return array if type(array) is not np.ndarray or array.flags.c_contiguous else np.ascontiguousarray(array)


def number(array: Any) -> int:
    """The value of an array of one element. On a GPU the host waits for it, which a capture refuses."""
    host = array if type(array) is np.ndarray else dispatch.backend_of(array).to_numpy(array)
    return int(host.reshape(-1)[0])


_CUDA = Library(lambda library, inputs, params: None)  # launched by backends/cuda/launch/control_flow.py
