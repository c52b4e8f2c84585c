"""What a batch norm and its ReLU made is computed again for the weight's gradient instead of being kept, where that saves memory.

The norm's input and its statistics are kept anyway, for the norm's own gradient.
"""

from __future__ import annotations

from gradlab.graph.ir.graph import Graph
from gradlab.graph.passes.fused_rows import batch_norm_relu, batch_norm_relu_again, convolution_batch_norm_relu
from gradlab.graph.passes.recomputation import Later

ROWS = (batch_norm_relu, convolution_batch_norm_relu)


def recompute_norms(graph: Graph) -> Graph:
    """Compute results of norms with a ReLU again before their late uses; the graph as it is where the plan of memory gets no smaller."""
    if not any(c.op in ROWS for c in graph.calls):
        return graph
    later = Later(graph)
    always = {v.id for v in (*graph.inputs, *graph.state)} | later.leaving
    short: set[int] = set()  # values computed again: the first ones do not live as long as their last use says
    for i, c in enumerate(graph.calls):
        if c.op not in ROWS:
            continue
        x, y, mean, rstd, _ = c.outputs if c.op is convolution_batch_norm_relu else (c.inputs[0], *c.outputs)
        weight, bias, other = c.inputs[-3:]
        late = later.late(y, i)
        large = [x] if other is None else [x, other]
        if late and all(v.id in always or (v.id not in short and later.uses.get(v.id, [i])[-1] >= late[0]) for v in large):
            later.again(y, later.work.call(batch_norm_relu_again, (x, weight, bias, mean, rstd, other), {}, c.position), late[0])
            short.add(y.id)
    return later.finish()
