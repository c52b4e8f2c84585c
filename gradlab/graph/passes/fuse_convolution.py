"""A ReLU behind a convolution runs where the convolution stores its results. For the CPU, in float32."""

from __future__ import annotations

from gradlab import ops
from gradlab.dtype import FLOAT32
from gradlab.graph.ir.graph import Graph
from gradlab.graph.passes.fused_rows import convolution_relu
from gradlab.graph.passes.graph_tools import Rewriting


def fuse_convolution(graph: Graph) -> Graph:
    """Replace relu(convolution(x, w, b)) by one row, where nothing else needs what lies between."""
    if graph.device.type != "cpu":
        return graph
    work = Rewriting(graph)
    for call in graph.calls:
        if call.op is not ops.elementwise.relu:
            continue
        x = call.inputs[0]
        made = work.maker.get(x.id)
        if made is None or made.op is not ops.conv.convolution or work.uses[x.id] != 1 or x.spec.dtype != FLOAT32:
            continue
        work.replace(call, [work.call(convolution_relu, made.inputs, made.params, made.position, call.outputs[0])])
    return work.finish()
