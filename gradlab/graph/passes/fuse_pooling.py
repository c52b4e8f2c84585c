"""A pooling of two by two elements behind a convolution and its ReLU runs where the convolution stores its results, which are never kept;
backward, the convolution's gradients read the pooling's instead of a plane that is mostly zero, and so does the bias's.

For the CPU: forward in float32, and in bfloat16 where a kernel rounds what it pools, where the convolution runs by Winograd's algorithm, in
tiles of whole windows; backward in half types too, where there are kernels for it (conv_behind_pool.cpp).
"""

from __future__ import annotations

from gradlab import ops
from gradlab.backends.native.lowerings import conv_behind_pool, winograd
from gradlab.dtype import FLOAT32, HALF
from gradlab.graph.ir.graph import Call, Graph, Value
from gradlab.graph.passes.fused_rows import HALVES, convolution_dw_pooled, convolution_dx_pooled, convolution_relu, convolution_relu_pool
from gradlab.graph.passes.graph_tools import Rewriting
from gradlab.ops.conv import Sizes
from gradlab.spec import Spec

FLOATS = (FLOAT32, *HALF)


def fuse_pooling(graph: Graph) -> Graph:
    """Replace max_pool(convolution_relu(x)), and the convolution's gradients behind that pooling's."""
    if graph.device.type != "cpu" or not any(c.op is ops.pool.max_pool and c.params == HALVES for c in graph.calls):
        return graph
    work = Rewriting(graph)
    for call in graph.calls:
        if call.op is ops.pool.max_pool and call.params == HALVES:
            _forward(work, call)
    for call in graph.calls:
        if call.op is ops.pool.max_pool_backward:
            _backward(work, call)
    return work.finish()


def _forward(work: Rewriting, pool: Call) -> None:
    x = pool.inputs[0]
    made = work.maker.get(x.id)
    if made is None or made.op is not convolution_relu or work.uses[x.id] != 1 or not _fits(made.inputs[0].spec, x.spec, made):
        return
    new = work.call(convolution_relu_pool, made.inputs, made.params, made.position)
    new.outputs = pool.outputs
    work.maker.update((v.id, new) for v in new.outputs)
    work.replace(pool, [new])


def _fits(x: Spec, y: Spec, call: Call) -> bool:
    """Whether Winograd's algorithm takes a convolution of `x` to `y`."""
    p = call.params
    if len(p["stride"]) != 2 or x.dtype not in (FLOAT32, y.dtype):
        return False
    takes = winograd.fits if x.dtype == FLOAT32 else winograd.by_pairs
    return takes(x, y, call.inputs[1].spec.shape[2:], p["stride"], p["dilation"], p["groups"])


def _takes(x: Spec, weight: Sizes, call: Call) -> bool:
    """Whether there are kernels for gradients of a convolution of `x`."""
    p = call.params
    plain = x.dtype in FLOATS and len(p["stride"]) == 2
    return plain and conv_behind_pool.fits(x, weight[2:], p["stride"], p["dilation"], p["groups"])


def _backward(work: Rewriting, back: Call) -> None:
    g, at = back.inputs
    dy = back.outputs[0]
    readers = [c for c in work.calls if any(x is dy for x in c.inputs if isinstance(x, Value))]
    if not _windows(work.maker.get(at.id)) or not _dense(work, g) or work.uses[dy.id] != len(readers) or g.spec.shape != at.spec.shape:
        return
    new = [_reader(work, c, dy, g, at) for c in readers]
    found = [c for c in new if c is not None]
    if len(found) == len(readers):
        for old, call in zip(readers, found):
            work.replace(old, [call])


def _windows(forward: Call | None) -> bool:
    """Whether a call chooses from windows of two by two."""
    return forward is not None and (forward.op is convolution_relu_pool or (forward.op is ops.pool.max_pool and forward.params == HALVES))


def _dense(work: Rewriting, g: Value) -> bool:
    """Whether a gradient will be contiguous in memory, as the kernels take it."""
    maker = work.maker.get(g.id)
    while maker is not None and maker.op is ops.movement.view:
        maker = work.maker.get(maker.inputs[0].id)
    return maker is not None and not maker.op.view and g.spec.dtype in FLOATS


def _reader(work: Rewriting, call: Call, dy: Value, g: Value, at: Value) -> Call | None:
    """What a reader of the whole plane becomes; None if it has to stay."""
    inputs, p = call.inputs, call.params
    shape = dy.spec.shape
    if call.op is ops.conv.convolution_dx and inputs[1] is not dy and _takes(call.outputs[0].spec, inputs[1].spec.shape, call):
        return work.call(convolution_dx_pooled, (g, at, inputs[1]), {"result": shape, **p}, call.position, call.outputs[0])
    if call.op is ops.conv.convolution_dw and inputs[0] is not dy and _takes(inputs[0].spec, p["shape"], call):
        return work.call(convolution_dw_pooled, (inputs[0], g, at), {"result": shape, **p}, call.position, call.outputs[0])
    if call.op is ops.reduction.sum_ and set(p["dim"]) == {0, 2, 3}:
        return work.call(call.op, (g,), p, call.position, call.outputs[0])
    return None
