"""How much a program of a file may ask for."""

from __future__ import annotations

from collections.abc import Iterator

from gradlab.graph.control.body_call import Part
from gradlab.graph.control.branching import Switch
from gradlab.graph.control.looping import While
from gradlab.graph.control.scanning import Scan
from gradlab.graph.ir.dims import hint, is_unknown
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.jit.portable import LoadError
from gradlab.jit.schema import check_call
from gradlab.spec import count

MAX_BYTES = 1 << 36  # of all results of a program together: 64 GiB
MAX_CALLS = 1 << 17  # with those of its sub-graphs
MAX_STEPS = 1 << 31  # of one scan


def parts_of(call: Call) -> Iterator[Part]:
    """The sub-graphs of a call."""
    flow = call.params.get("flow")
    if isinstance(flow, Scan):
        yield flow.body
    elif isinstance(flow, Switch):
        yield from flow.parts
    elif isinstance(flow, While):
        yield from (flow.condition, flow.body)


def needed_bytes(graph: Graph) -> int:
    """The memory of all results that a run makes, if none were freed. Those with unknown sizes count when the sizes are known."""
    total = 0
    for call in graph.calls:
        if not call.op.view:
            total += sum(count([*map(hint, v.spec.shape)]) * v.spec.dtype.itemsize for v in call.outputs if not is_unknown(v.spec.shape))
        total += sum(needed_bytes(part.source) for part in parts_of(call))
    return total


def check_again(graph: Graph) -> None:
    """LoadError for a graph whose parameters make no sense now that its unknown sizes are known."""
    for call in graph.calls:
        inner = list(parts_of(call))
        if not inner:
            check_call(call.op, [x.spec if isinstance(x, Value) else x for x in call.inputs], call.params)
        for part in inner:
            check_again(part.source)


def check_size(graph: Graph, limit: int = MAX_BYTES) -> None:
    """LoadError for a program whose results need more memory than that."""
    needed = needed_bytes(graph)
    if needed > limit:
        raise LoadError(f"its results would take {needed:,} bytes, and the limit is {limit:,} (max_bytes=)")
