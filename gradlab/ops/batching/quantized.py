"""Batch rules of layers with weights of few bits."""

from __future__ import annotations

from typing import Any

from gradlab.op import Op
from gradlab.ops import conv, linear as layer
from gradlab.ops.batching.common import Flags, Params, Values, front, rounds_once
from gradlab.ops.batching.products import convolution, folded, linear, unfolded
from gradlab.ops.quantized import GROUP, TINY, halves

LIMITS = ("low", "high", "rounds")


@rounds_once
def few_bits(op: Op, size: int, mapped: Flags, values: Values, params: Params) -> Any:
    """The row itself where all samples share everything but the input; else each sample's own rounding, and a product of floats."""
    x, w, scale, b, x_scale, x_zero = values
    pictures = op.name == "quantized_convolution"
    if x_scale is not None and mapped[0] and not any(mapped[1:]):
        return unfolded(op(folded(x), *values[1:], **params), size, x.shape[1]) if pictures else op(*values, **params)
    if params.get("rounds", True):
        x = _rounded(front(x, mapped[0], size), x_scale, x_zero, size, mapped, params)
    on_w = mapped[1] or mapped[2]
    w, scale = (front(v, m, size) if on_w else v for v, m in zip((w, scale), mapped[1:3]))
    if op.name == "quantized_linear4":
        wide = ((halves(w, x.dtype).reshape(*scale.shape, GROUP) - 8) * scale.unsqueeze(-1)).flatten(-2)[..., : x.shape[-1]]
    else:
        wide = w.to(x.dtype) * scale.reshape(*scale.shape, *(1,) * (len(w.shape) - len(scale.shape)))
    flags, given = [mapped[0] or params.get("rounds", True), on_w, mapped[3]], [x, wide, b]
    if not pictures:
        return linear(layer.linear, size, flags, given, {})
    return convolution(conv.convolution, size, flags, given, {k: v for k, v in params.items() if k not in LIMITS})


def _rounded(x: Any, x_scale: Any, x_zero: Any, size: int, mapped: Flags, params: Params) -> Any:
    """On the grid of each sample."""
    low, high = params["low"], params["high"]
    values = x.detach()
    if x_scale is None:
        low, high, flat = -128, 127, values.reshape((size, -1))
        least, most = flat.amin(1).clamp(max=0), flat.amax(1).clamp(min=0)
        x_scale = ((most - least) / 255).clamp(min=TINY)
        x_zero = -128 - (least / x_scale).round()
    else:
        x_scale, x_zero = front(x_scale, mapped[4], size), front(x_zero, mapped[5], size)
    step, zero = (v.to(x.dtype).reshape((size, *(1,) * (len(x.shape) - 1))) for v in (x_scale, x_zero))
    places = (values * (1 / step)).round() + zero
    inside = ((places >= low) & (places <= high)).to(x.dtype)
    return (places.clamp(low, high) - zero) * step + (x - values) * inside


QUANTIZED = dict.fromkeys(("quantized_linear", "quantized_linear4", "quantized_convolution"), few_bits)
