"""One program of a session: a pruned graph for given sizes, optimised, with everything that each run reads and writes."""

from __future__ import annotations

from typing import Any

from gradlab import dispatch
from gradlab.autograd.base import version_of
from gradlab.autograd.inplace import note_writes
from gradlab.device import CPU, Device
from gradlab.graph.control.body_call import Part
from gradlab.graph.executables.cuda.memory import memory_of
from gradlab.graph.executables.fastest import executable
from gradlab.graph.executables.numpy.executable import Line
from gradlab.graph.ir.dims import known_sizes, symbols
from gradlab.graph.ir.graph import Call, Graph as Program, Value
from gradlab.graph.ir.specialize import FLOWS, specialize, unknowns, with_parts
from gradlab.graph.passes import optimize
from gradlab.optim.hyper import values
from gradlab.session.graph import Graph
from gradlab.session.nodes import FeedError, State, UninitializedError, at
from gradlab.session.pruning import Wanted, prune


class Execution:
    """`run(feeds)` computes the outputs, as NumPy arrays."""

    def __init__(self, graph: Graph, kept: dict[State, Any], wanted: Wanted, feeds: dict[int, Any], device: Device) -> None:
        tracer = graph.tracer
        self.device = device
        pruned = prune(tracer, wanted)
        if pruned.missing:
            missing = [f"{tracer.described(n)}{at(tracer.places[n])}" for n in pruned.missing]
            raise FeedError(f"run: no value was fed for placeholder {missing[0]}" + "".join(f"\nnor for {m}" for m in missing[1:]))
        read = {x.id for c in pruned.calls for x in c.inputs if isinstance(x, Value)} | {v.id for v in pruned.outputs}
        for state in pruned.states:
            if not state.shared and state not in kept and state not in wanted.initialize:
                raise UninitializedError(
                    f"run: variable {tracer.described(state.symbol.id)} has no value in this session yet; run "
                    f"gl.global_variables_initializer() first, or load a state dict{at(state.place)}"
                )
        self.shared = [(s, s.tensor._array) for s in pruned.states if s.shared]
        self.written = [s.tensor for s in pruned.written if s.shared]
        arrays = {s.value: self._array(s, kept, s in pruned.written) for s in pruned.states if s.shared or s in kept}
        program = Program(pruned.inputs, arrays, pruned.random, pruned.calls, pruned.outputs, pruned.updates, [], device)
        program = specialize(program, self._sizes(graph, program, feeds))
        program = optimize(on_device(program, device).without_dead_calls())
        self.order = [v.id for v in program.inputs]
        self.memory = memory_of(device)
        small = [*(v for _, _, v in pruned.hyper), *(v for _, v, _ in program.random)]
        buffers, theirs, self.send = self.memory.words([(v.spec.shape[0], v.spec.dtype) for v in small])
        fixed = {**program.state, **dict(zip(small, theirs, strict=True))}
        self.hyper = [(group, names, buffer) for (group, names, _), buffer in zip(pruned.hyper, buffers)]
        self.random = [(g, buffer, words) for (g, _, words), buffer in zip(program.random, buffers[len(self.hyper) :], strict=True)]
        self.results = [(v.spec.shape, v.spec.dtype) for v in program.outputs]
        self.program = program
        self.empty = not program.calls and not program.outputs
        self.executable = None if self.empty else executable(
            Line(program.calls, program.inputs, fixed, program.outputs, program.updates, device, last=program.last)
        )  # fmt: skip
        self.fed = read

    def _array(self, state: State, kept: dict[State, Any], written: bool) -> Any:
        """A state's array on the device. One from elsewhere is copied, and again before each run in which it has changed."""
        if not state.shared:
            return kept[state]
        array = state.tensor._array
        there = dispatch.backend_of(array).device_of(array)
        if there == self.device:
            return array
        if written:
            raise RuntimeError(
                f"run: a tensor of shape {tuple(array.shape)} from outside the graph is on {there}, and a session on {self.device} cannot "
                f"write it; move it (module.to({str(self.device)!r})) before the graph is defined{at(state.place)}"
            )
        copy = dispatch.backend_for(self.device).from_numpy(dispatch.backend_of(array).to_numpy(array), self.device)
        self.copies = [*self.copies, [state, copy, version_of(state.tensor).written]]
        return copy

    copies: list[Any] = []  # noqa: RUF012 - replaced, never changed

    def _sizes(self, graph: Graph, program: Program, feeds: dict[int, Any]) -> dict[str, int]:
        """The unknown sizes, read off what is fed."""
        tracer = graph.tracer
        sizes: dict[str, int] = {}
        for number, array in feeds.items():
            shape = tracer._values[number].spec.shape
            before = dict(sizes)
            if not known_sizes(shape, array.shape, sizes):
                clash = {n: before[n] for s in shape for n in symbols(getattr(s, "expr", 0)) if n in before}
                known = f", where {', '.join(f'{n} is {v}' for n, v in clash.items())} by another feed" if clash else ""
                raise FeedError(
                    f"feed of {tracer.described(number)}: a value of shape {tuple(array.shape)} does not fit{known}{graph.where(number)}"
                )
        for name in sorted(set(unknowns(program)) - set(sizes)):
            holder = next((i for i, t in tracer.placeholders.items() if name in [getattr(n, "expr", None) for n in t.shape]), None)
            what = "" if holder is None else f": feed placeholder {tracer.described(holder)}{graph.where(holder)}"
            raise FeedError(f"run: the size {name} is not known{what}")
        return sizes

    def stale(self) -> bool:
        """Whether a tensor from outside has other memory than when this was made."""
        return any(state.tensor._array is not array for state, array in self.shared)

    def arrays(self, feeds: dict[int, Any]) -> list[Any]:
        """One run; the outputs as arrays of the device."""
        for entry in self.copies:
            state, copy, seen = entry
            now = version_of(state.tensor).written
            if now != seen:
                fresh = dispatch.backend_of(state.tensor._array).to_numpy(state.tensor._array)
                backend = dispatch.backend_for(self.device)
                backend.assign(copy, backend.from_numpy(fresh, self.device))
                entry[2] = now
        for group, names, buffer in self.hyper:
            buffer[:] = values(group, names)
        before = [(g, g._offset) for g, _, _ in self.random]
        for generator, buffer, words in self.random:
            buffer[:] = generator.state_array()
            generator.advance(words)
        try:
            if self.send is not None:
                self.send()
            outs = [self.memory.empty(shape, dtype) for shape, dtype in self.results]
            if self.executable is not None:
                self.executable.run([feeds[n] for n in self.order], outs)
        except BaseException:
            for generator, offset in reversed(before):
                generator._offset = offset
            raise
        note_writes(self.written)
        return outs

    def run(self, feeds: dict[int, Any]) -> list[Any]:
        """One run; the outputs as NumPy arrays, scalars where they have no dimensions."""
        outs = self.arrays(feeds)
        if self.device != CPU:
            outs = [dispatch.backend_of(a).to_numpy(a) for a in outs]
        return [a if a.shape else a[()] for a in outs]


def _part_on(part: Part, device: Device) -> Part:
    graph = on_device(part.source, device)
    return Part(graph.inputs, graph.calls, graph.outputs, device)


def on_device(program: Program, device: Device) -> Program:
    """The program with all of its calls on that device: what makes tensors makes them there, and moves are left out."""
    same: dict[int, Value] = {}
    calls: list[Call] = []
    for call in program.calls:
        inputs = tuple(same.get(x.id, x) if isinstance(x, Value) else x for x in call.inputs)
        if call.op.name == "to_device" and isinstance(inputs[0], Value):
            same[call.outputs[0].id] = inputs[0]
            continue
        params = {**call.params, "device": device} if "device" in call.params else call.params
        if isinstance(flow := params.get("flow"), FLOWS) and device != CPU:
            params = {**params, "flow": with_parts(flow, lambda part: _part_on(part, device))}
        calls.append(Call(call.op, inputs, params, call.outputs, call.position))

    def there(value: Value) -> Value:
        return same.get(value.id, value)

    updates = [(old, there(new)) for old, new in program.updates]
    return Program(program.inputs, program.state, program.random, calls, list(map(there, program.outputs)), updates, [], device)
