"""Lowering of fused attention."""

from __future__ import annotations

from typing import Any

from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, bits, lowers, widest
from gradlab.backends.native.place import Place
from gradlab.call import Call
from gradlab.dtype import BOOL, FLOAT32


def _steps(place: Place) -> tuple[int, ...]:
    """Strides of the first three dimensions of a tensor whose rows are contiguous."""
    if place.dtype != FLOAT32 or (place.strides[3] != 1 and place.shape[3] != 1) or place.size == 0:
        raise Unsupported
    return place.strides[:3]


def _sizes(q: Place, k: Place, v: Place, y: Place, mask: Place | None, params: dict[str, Any]) -> tuple[int, ...]:
    """The parameters that forward and backward share."""
    kind, steps = 0, (0, 0, 0, 0)
    if mask is not None:
        kind = 1 if mask.dtype == BOOL else 2
        lead = 4 - len(mask.shape)
        steps = (0,) * lead + tuple(0 if n == 1 else s for n, s in zip(mask.shape, mask.strides))  # type: ignore[assignment]
    images, heads, rows, width = q.shape
    numbers = (images, heads, rows, k.shape[2], width, v.shape[3], bits(params["scale"]), bool(params["causal"]), kind)
    return (*numbers, *steps, *_steps(q), *_steps(k), *_steps(v), *_steps(y))


def _work(q: Place, k: Place) -> int:
    return min(q.shape[0] * q.shape[1], widest(q.size * k.shape[2] / 4))


@lowers("scaled_dot_product_attention")
def attention(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """Output and lse."""
    q, k, v = (ctx.place(x) for x in call.inputs[:3])
    mask = None if call.inputs[3] is None else ctx.place(call.inputs[3])
    y, lse = ctx.place(call.outputs[0]), ctx.dense(call.outputs[1])
    return [TaskSpec("gradlab_attention", _sizes(q, k, v, y, mask, call.params), (y, lse, q, k, v, mask or y), _work(q, k))]


@lowers("scaled_dot_product_attention_backward")
def attention_backward(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The gradients of query, key and value."""
    g, g_lse, q, k, v, mask, y, lse = (None if x is None else ctx.place(x) for x in call.inputs)
    outputs = [ctx.place(x) for x in call.outputs]
    if g is None or q is None or k is None or v is None or y is None or lse is None:
        raise Unsupported
    if not lse.contiguous or (g_lse is not None and not g_lse.contiguous):
        raise Unsupported
    parameters = [*_sizes(q, k, v, y, mask, call.params), *_steps(g)]
    for place in outputs:
        parameters += _steps(place)
    places = (*outputs, g, g_lse or lse, q, k, v, mask or y, y, lse)
    return [TaskSpec("gradlab_attention_backward", (*parameters, g_lse is not None), places, _work(q, k))]
