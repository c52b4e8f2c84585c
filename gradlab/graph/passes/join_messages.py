"""Small reductions among processes that do not wait for each other travel as one message: `all_reduce` of two numbers costs what one costs.

Those of one group, operation and dtype are joined unless one depends on another, or another collective lies between. What reads their
results comes after all of them; so which are joined depends on collectives alone, and is the same in every process of the program. Each
number is reduced as it was, in the order of the ranks: the bits are the same.
"""

from __future__ import annotations

from dataclasses import replace

from gradlab import ops
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes.graph_tools import Rewriting
from gradlab.spec import count

EACH, ALL = 1 << 15, 1 << 18  # bytes: longer ones take longer to be put together than a message takes to begin


def join_messages(graph: Graph) -> Graph:
    """Join neighbouring `all_reduce` calls."""
    if sum(call.op is ops.collective.all_reduce for call in graph.calls) < 2:
        return graph
    work = Rewriting(graph)
    found: list[Call] = []
    members: list[Call] = []
    waiting: list[Call] = []  # calls that read what members make
    made: set[int] = set()

    def close() -> None:
        found.extend(members if len(members) < 2 else _joined(work, members))
        found.extend(waiting)
        members.clear()
        waiting.clear()
        made.clear()

    for call in work.calls:
        reads = any(isinstance(x, Value) and x.id in made for x in call.inputs)
        if call.op.together:
            if reads or not _fits(members, call):
                close()
            if _small(call):
                members.append(call)
                made.update(v.id for v in call.outputs)
            else:
                found.append(call)
        elif reads:
            waiting.append(call)
            made.update(v.id for v in call.outputs)
        else:
            found.append(call)
    close()
    return replace(graph, calls=found)


def _bytes(call: Call) -> int:
    spec = call.outputs[0].spec
    return count(spec.shape) * spec.dtype.itemsize


def _small(call: Call) -> bool:
    if call.op is not ops.collective.all_reduce or not isinstance(call.inputs[0], Value):
        return False
    sizes = call.outputs[0].spec.shape
    return call.params["by"].size > 1 and all(isinstance(n, int) for n in sizes) and 0 < _bytes(call) <= EACH


def _fits(members: list[Call], call: Call) -> bool:
    """Whether a call may travel with those that are there."""
    if not members or not _small(call):
        return False
    first = members[0]
    alike = call.params["by"] is first.params["by"] and call.params["op"] == first.params["op"]
    dtypes = {c.outputs[0].spec.dtype for c in (first, call)}
    return alike and len(dtypes) == 1 and sum(map(_bytes, members)) + _bytes(call) <= ALL


def _joined(work: Rewriting, members: list[Call]) -> list[Call]:
    """One message of all, and each's part of what comes."""
    calls: list[Call] = []
    flat, at = [], 0
    for call in members:
        calls.append(work.call(ops.movement.view, call.inputs, {"shape": (count(call.outputs[0].spec.shape),)}, call.position))
        flat.append(calls[-1].outputs[0])
    first = members[0]
    whole = work.call(ops.movement.cat, flat, {"dim": 0}, first.position)
    sent = work.call(first.op, whole.outputs, first.params, first.position)
    calls += [whole, sent]
    for call in members:
        shape = call.outputs[0].spec.shape
        size = count(shape)
        part = work.call(ops.movement.slice_, sent.outputs, {"index": ((at, at + size, 1),)}, call.position)
        calls += [part, work.call(ops.movement.view, part.outputs, {"shape": shape}, call.position, call.outputs[0])]
        at += size
    return calls
