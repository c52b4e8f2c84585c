"""A batch norm takes its statistics from the convolution before it, which makes them of its results while they are in the cache.

What is added to the norm's result, if nothing else needs that, is added where it is made. For the CPU, in float32.
"""

from __future__ import annotations

from collections import defaultdict

from gradlab import ops
from gradlab.dtype import FLOAT32
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes.fused_rows import batch_norm_relu, convolution_batch_norm, convolution_batch_norm_relu
from gradlab.graph.passes.graph_tools import Rewriting, is_sum, loose
from gradlab.op import Op

FUSED: dict[Op, Op] = {ops.norm.batch_norm: convolution_batch_norm, batch_norm_relu: convolution_batch_norm_relu}


def fuse_statistics(graph: Graph) -> Graph:
    """Replace norm(convolution(x)), whatever else reads the convolution's result."""
    if graph.device.type != "cpu" or not any(c.op in FUSED for c in graph.calls):
        return graph
    work = _Fusing(graph)
    for i, call in enumerate(graph.calls):
        if call.op in FUSED:
            work.fuse(i, call)
    return work.finish()


class _Fusing(Rewriting):
    """Calls stay at their places, so that each is behind what it reads."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._at = {v.id: i for i, c in enumerate(graph.calls) for v in c.outputs}  # where values are made
        self._readers: dict[int, list[int]] = defaultdict(list)
        self._new: dict[int, Call | None] = {}  # what stands at a place instead of what did
        for i, c in enumerate(graph.calls):
            for x in c.inputs:
                if isinstance(x, Value):
                    self._readers[x.id].append(i)

    def fuse(self, at: int, norm: Call) -> None:
        """Join a norm and the convolution that it reads."""
        x, weight, bias, *others = norm.inputs
        convolution = self.maker.get(x.id)
        if convolution is None or convolution.op is not ops.conv.convolution or x.spec.dtype != FLOAT32 or len(x.spec.shape) > 4:
            return
        first = self._at[x.id]
        given = [*others, weight, bias]
        place = self._place(first, at, x, given)
        if place is None:
            return
        result = norm.outputs[0]
        total = None if others else self._added(result, x, place)
        if total is not None:
            result, other = self.calls[total].outputs[0], next(v for v in self.calls[total].inputs if v is not result)
            others, self._new[total] = [other], None
        inputs = (*convolution.inputs, weight, bias, *(others or [None]))
        new = self.call(FUSED[norm.op], inputs, {**convolution.params, **norm.params}, norm.position)
        new.outputs = (x, result, *norm.outputs[1:])
        self._new.update({first: None, at: None})
        self._new[place] = new
        for v in new.outputs:
            self.maker[v.id], self._at[v.id] = new, place
        for v in loose([new]):
            self._readers[v.id].append(place)

    def _place(self, first: int, at: int, x: Value, given: list[Value | None]) -> int | None:
        """Where the row can stand: where the convolution is, where the norm is, or nowhere."""
        if all(self._at.get(v.id, -1) < first for v in given if v is not None):
            return first
        return at if x not in given and all(i >= at for i in self._readers[x.id]) else None

    def _added(self, y: Value, x: Value, place: int) -> int | None:
        """The sum that alone reads a norm's result, if what is added is there at a place."""
        if self.uses[y.id] != 1 or len(self._readers[y.id]) != 1:
            return None
        i = self._readers[y.id][0]
        total = self.calls[i]
        return None if not is_sum(total) or any(v is x or self._at.get(v.id, -1) >= place for v in total.inputs if v is not y) else i

    def finish(self) -> Graph:
        """The graph with the rows."""
        found = [self._new.get(i, c) for i, c in enumerate(self.calls)]
        self.calls = [c for c in found if c is not None]
        return super().finish()
