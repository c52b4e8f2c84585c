"""Where a traced program runs: one device for all of it. Arguments may come from the host if they are moved to the device first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gradlab import dispatch
from gradlab.device import CPU, Device
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.staging.symbol import TraceError


def on_one_device(graph: Graph, devices: Mapping[int, Device], constant: Callable[[Any], bool] = lambda array: False) -> Graph:
    """The graph without moves of arguments from the host, which its executable copies to the device anyway.

    devices: of values by number, where one is known; other values are wherever the program is. constant: whether an array was made in the
    trace, as by `tensor([1, 2], device="cuda")`: it is moved now. Raises TraceError for a program that computes on several devices.
    """
    if graph.device == CPU and all(c.op.name != "to_device" for c in graph.calls):
        return graph
    constants = {
        v.id for v, array in graph.state.items()
        if devices.get(v.id, graph.device) != graph.device and all(c.op.name == "to_device" for c in graph.calls if v in c.inputs)
        and constant(array)
    }  # fmt: skip
    for array_value in graph.state:
        if array_value.id in constants:
            continue
        if devices.get(array_value.id, graph.device) != graph.device and any(array_value in c.inputs for c in graph.calls):
            user = next(c for c in graph.calls if array_value in c.inputs)
            raise _mixed(graph, user, f"a tensor of shape {array_value.spec.shape} from outside is on {devices[array_value.id]}")
    arguments = {v.id for v in graph.inputs if devices.get(v.id, graph.device) != graph.device}
    same: dict[int, Value] = {}
    calls: list[Call] = []
    for call in graph.calls:
        inputs = tuple(same.get(x.id, x) if isinstance(x, Value) else x for x in call.inputs)
        read = [x for x in inputs if isinstance(x, Value)]
        if call.op.name == "to_device":
            target = devices.get(call.outputs[0].id, graph.device)
            (source,) = read
            if target == graph.device and (source.id in arguments or source.id in constants):
                same[call.outputs[0].id] = source
                continue
            raise _mixed(graph, call, f"a tensor of shape {source.spec.shape} is moved to {target}")
        for x in call.inputs:
            if isinstance(x, Value) and devices.get(x.id, graph.device) != graph.device:
                raise _mixed(graph, call, f"{call.op.name} computes on {devices[x.id]}")
        if not read and devices.get(call.outputs[0].id, graph.device) != graph.device:
            raise _mixed(graph, call, f"{call.op.name} makes a tensor on {devices[call.outputs[0].id]}")
        calls.append(Call(call.op, inputs, call.params, call.outputs, call.position))

    def there(value: Value) -> Value:
        return same.get(value.id, value)

    state = {v: dispatch.backend_for(graph.device).from_numpy(a, graph.device) if v.id in constants else a for v, a in graph.state.items()}
    return replace(
        graph,
        state=state,
        calls=calls,
        outputs=list(map(there, graph.outputs)),
        updates=[(old, there(new)) for old, new in graph.updates],
        gradients=[(leaf, None if v is None else there(v)) for leaf, v in graph.gradients],
    )


def _mixed(graph: Graph, call: Call, what: str) -> TraceError:
    source = call.source()
    where = f"\n  at: {source}" if source else ""
    return TraceError(
        f"compile: the function uses several devices: it runs on {graph.device}, but {what}. Keep its parameters and what it computes on "
        f"one device; only its arguments may come from elsewhere, if it moves them first (x.to(device)){where}"
    )
