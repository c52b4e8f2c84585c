"""Sub-graphs without the calls that a trace made for gradients: a program is differentiated by its forward, made again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gradlab.graph.control.body_call import Part
from gradlab.graph.control.branching import Switch
from gradlab.graph.control.looping import While
from gradlab.graph.control.scanning import Scan
from gradlab.graph.ir.graph import Call, Graph


def cleaned(graph: Graph) -> Graph:
    """The graph with only the calls that lead to its results, in sub-graphs too."""
    graph = graph.without_dead_calls()
    graph.calls = [_call(c) for c in graph.calls]
    return graph


def _call(call: Call) -> Call:
    flow: Any = call.params.get("flow")
    if isinstance(flow, Scan):
        flow = Scan(_part(flow.body), flow.carries, flow.stacked, flow.length, flow.reverse)
    elif isinstance(flow, Switch):
        flow = Switch([_part(p) for p in flow.parts], flow.reads, flow.writes)
    elif isinstance(flow, While):
        flow = While(_part(flow.condition), _part(flow.body), flow.carries, flow.constants)
    else:
        return call
    return replace(call, params={"flow": flow})


def _part(part: Part) -> Part:
    graph = cleaned(part.source)
    return Part(graph.inputs, graph.calls, graph.outputs, graph.device)
