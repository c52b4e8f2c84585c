"""Looked-up rows that are read slice by slice, as a recurrent network reads its inputs, are looked up slice by slice, each before its use.

Then a slice at a time lies in memory, and in the cache, instead of all of them. For the CPU: on a GPU each look-up would be a launch.
"""

from __future__ import annotations

from gradlab import ops
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes.graph_tools import Rewriting, ends
from gradlab.spec import count

LEAST = 1 << 20  # bytes of all rows together, and
LEAST_SLICE = 1 << 14  # of a slice, that are worth more calls


def look_up_late(graph: Graph) -> Graph:
    """Replace embedding(table, at)[i:j] by embedding(table, at[i:j]), where nothing but such slices is needed of the look-up."""
    if graph.device.type != "cpu" or not any(c.op is ops.indexing.embedding for c in graph.calls):
        return graph
    leaving = {v.id for v in ends(graph)}
    users: dict[int, list[Call]] = {}
    for c in graph.calls:
        for x in c.inputs:
            if isinstance(x, Value):
                users.setdefault(x.id, []).append(c)
    work = Rewriting(graph)
    before: dict[int, list[Call]] = {}  # by the call that comes next
    gone: set[int] = set()
    for c in graph.calls:
        if c.op is not ops.indexing.embedding or c.outputs[0].id in leaving or not _worth(c):
            continue
        slices = users.get(c.outputs[0].id, [])
        if len(slices) < 2 or not all(_takes_rows(s) and s.outputs[0].id not in leaving and s.outputs[0].id in users for s in slices):
            continue
        gone |= {id(c), *map(id, slices)}
        table, at = c.inputs
        for s in slices:
            part = work.call(ops.movement.slice_, (at,), s.params, s.position)
            rows = work.call(ops.indexing.embedding, (table, part.outputs[0]), c.params, c.position, s.outputs[0])
            before.setdefault(id(users[s.outputs[0].id][0]), []).extend([part, rows])
    if not gone:
        return graph
    work.calls = [new for c in graph.calls for new in (*before.get(id(c), ()), *(() if id(c) in gone else (c,)))]
    return work.finish()


def _worth(call: Call) -> bool:
    at, found = call.inputs[1], call.outputs[0].spec
    return isinstance(at, Value) and len(at.spec.shape) == 1 and count(found.shape) * found.dtype.itemsize >= LEAST


def _takes_rows(call: Call) -> bool:
    """A slice of whole rows that lie one behind the other, and enough of them."""
    if call.op is not ops.movement.slice_ or len(index := call.params["index"]) != 1 or not isinstance(index[0], tuple):
        return False
    found = call.outputs[0].spec
    return index[0][2] == 1 and count(found.shape) * found.dtype.itemsize >= LEAST_SLICE
