"""A ReLU behind a convolution runs where the convolution stores its results. For the CPU, in float32, and in bfloat16 where a kernel rounds
what it stores."""

from __future__ import annotations

from gradlab import ops
from gradlab.backends.native.lowerings import winograd
from gradlab.dtype import FLOAT32
from gradlab.graph.ir.graph import Call, Graph
from gradlab.graph.passes.fused_rows import convolution_relu
from gradlab.graph.passes.graph_tools import Rewriting


def stored(call: Call) -> bool:
    """Whether a convolution's kernel stores what the row makes: what it has rounded, if it is to be."""
    x, w, _ = call.inputs
    y, p = call.outputs[0].spec, call.params
    if y.dtype.name != "bfloat16" or len(p["stride"]) != 2:
        return bool(y.dtype == FLOAT32)
    return winograd.by_pairs(x.spec, y, w.spec.shape[2:], p["stride"], p["dilation"], p["groups"])


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
        if made is None or made.op is not ops.conv.convolution or work.uses[x.id] != 1 or not stored(made):
            continue
        work.replace(call, [work.call(convolution_relu, made.inputs, made.params, made.position, call.outputs[0])])
    return work.finish()
