"""Running a graph as ordinary gradlab code: call by call on tensors, recorded, compiled or traced like any other.

What makes a program's calls differentiable, and lets them run on either device and inside other programs, is that they are made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradlab.autograd.mode import current, enter, leave
from gradlab.autograd.record import apply, bind
from gradlab.device import Device
from gradlab.dtype import INT64
from gradlab.graph.control.body_call import KINDS, Part
from gradlab.graph.control.functions import scan, switch, while_loop
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.ops.movement import view
from gradlab.tensor.creation import arange, zeros
from gradlab.tensor.generator import draw
from gradlab.tensor.shape import reshape

Cuts = Mapping[int, tuple[int, ...]]  # by a call's first output: the inputs through which no gradient goes (detach, no_grad)


class Replay:
    """One run of a graph's calls on a device. `env` holds the tensors by value number."""

    def __init__(self, device: Device, cuts: Cuts) -> None:
        self.device, self.cuts = device, cuts

    def calls(self, calls: Sequence[Call], env: dict[int, Any]) -> None:
        """Make the calls again; their results go into `env`."""
        mode = current()
        token = enter(mode.replace(autocast=None)) if mode.autocast is not None else None  # the graph has its casts already
        try:
            for call in calls:
                self._call(call, env)
        finally:
            if token is not None:
                leave(token)

    def _call(self, call: Call, env: dict[int, Any]) -> None:
        op = call.op
        inputs = [env[x.id] if isinstance(x, Value) else x for x in call.inputs]
        for i in self.cuts.get(call.outputs[0].id, ()):
            inputs[i] = inputs[i].detach()
        if op.name in KINDS and "flow" in call.params:
            results = getattr(self, f"_{op.name}")(call, inputs)
        else:
            bind(op)
            params = call.params if "device" not in call.params else {**call.params, "device": self.device}
            found = reshape(*inputs, **params) if op is view else apply(op, tuple(inputs), params)
            results = (found,) if op.result is None else found
        for value, tensor in zip(call.outputs, results, strict=True):
            env[value.id] = tensor

    def part(self, part: Part, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of a sub-graph."""
        env = {v.id: t for v, t in zip(part.source.inputs, inputs, strict=True)}
        self.calls(part.source.calls, env)
        return [env[v.id] for v in part.source.outputs]

    # ------------------------------------------------------------ control flow, by the functions that wrote it

    def _switch(self, call: Call, inputs: list[Any]) -> Any:
        flow = call.params["flow"]
        index = inputs[0].reshape(())

        def branch(at: int) -> Callable[..., Any]:
            def run(*operands: Any) -> Any:
                given = (index, *operands)
                found = self.part(flow.parts[at], [given[i] for i in flow.reads[at]])
                made = dict(zip(flow.writes[at], found, strict=True))
                return tuple(
                    made[i] if i in made else zeros(v.spec.shape, dtype=v.spec.dtype, device=self.device)
                    for i, v in enumerate(call.outputs)
                )

            return run

        at = index if index._array.dtype.kind in "iu" else index.to(INT64)
        return switch(at, [branch(i) for i in range(len(flow.parts))], tuple(inputs[1:]))

    def _scan(self, call: Call, inputs: list[Any]) -> Any:
        flow = call.params["flow"]
        c, steps = flow.carries, flow.carries + flow.stacked
        fixed = inputs[steps:]

        def combine(carry: Any, x: Any) -> Any:
            found = self.part(flow.body, [*carry, *x, *fixed])
            return tuple(found[:c]), tuple(found[c:])

        last, stacked = scan(combine, tuple(inputs[:c]), tuple(inputs[c:steps]), reverse=flow.reverse)
        return (*last, *stacked)

    def _while_loop(self, call: Call, inputs: list[Any]) -> Any:
        flow = call.params["flow"]
        asked = inputs[flow.carries : flow.carries + flow.constants]
        used = inputs[flow.carries + flow.constants :]
        return while_loop(
            lambda *carry: self.part(flow.condition, [*carry, *asked])[0].reshape(()),
            lambda *carry: tuple(self.part(flow.body, [*carry, *used])),
            tuple(inputs[: flow.carries]),
        )


def random_states(graph: Graph, device: Device, env: dict[int, Any]) -> None:
    """Draw what the program uses of its generators; their states, as they were before, go into `env`."""
    for generator, value, words in graph.random:
        state, offset = draw(generator, words, device)
        if offset:  # in a trace that drew before: the rows count from the start of this program
            state = state + arange(0, 2 * offset, offset, dtype=INT64, device=device)
        env[value.id] = state


def run(
    graph: Graph, inputs: Sequence[Any], state: Mapping[Value, Any], device: Device, cuts: Cuts
) -> tuple[dict[int, Any], list[tuple[Value, Any]]]:
    """All of a graph's calls. Returns the tensors by value number, and what is to be written: (value of an input or of state, tensor)."""
    env = {v.id: t for v, t in zip(graph.inputs, inputs, strict=True)}
    env.update((v.id, t) for v, t in state.items())
    random_states(graph, device, env)
    Replay(device, cuts).calls(graph.calls, env)
    written = {old.id for old, _ in graph.updates}
    if not written:
        return env, []
    # What lies in memory that is about to be written is copied first.
    root = {v.id: v.id for v in (*graph.inputs, *graph.state)}
    for call in graph.calls:
        if call.op.view and isinstance(call.inputs[0], Value):
            root[call.outputs[0].id] = root.get(call.inputs[0].id, call.inputs[0].id)
    outputs = {v.id for v in graph.outputs if v.id not in written}
    news = {new.id for _, new in graph.updates}
    for number in outputs | news:
        if root.get(number) in written:
            env[number] = env[number].clone()
    return env, [(old, env[new.id]) for old, new in graph.updates]


def views_of_written(
    graph: Graph, env: Mapping[int, Any], tensors: Mapping[int, Any], results: Sequence[int]
) -> dict[int, Any]:
    """Those results, outside of every graph, that are views of what was written, taken anew of the tensors that it was written to.

    tensors: by the numbers of their values from before the program.
    """
    news = {new.id: old.id for old, new in graph.updates}
    made = {c.outputs[0].id: c for c in graph.calls if c.op.view}
    found = {}
    for number in results if news else ():
        chain, at = [], number
        while at in made and at not in news:
            chain.append(made[at])
            at = made[at].inputs[0].id
        if at in news and env[number]._edge is None:
            view = tensors[news[at]]
            for call in reversed(chain):
                view = call.op(view, **call.params)
            found[number] = view
    return found
