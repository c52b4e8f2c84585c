"""Convolution and its gradients, windows as columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.dtype import INT64
from gradlab.onnx.emitter import Emitter, Unsupported, Wire, is_dynamic
from gradlab.onnx.registry import CONVERTERS, exports
from gradlab.onnx.rows.pool import padded
from gradlab.spec import count

Sizes = tuple[int, ...]

# ---------------------------------------------------------------- convolution


@exports("convolution")
def convolution(e: Emitter, x: Wire, w: Wire, b: Wire | None, *, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> Any:
    """Conv."""
    return e("Conv", x, w, b, strides=list(stride), pads=[*padding, *padding], dilations=list(dilation), group=groups,
             kernel_shape=kernel_of(w))  # fmt: skip


@exports("convolution_act")
def convolution_act(e: Emitter, x: Wire, w: Wire, b: Wire | None, *, activation: str, **geometry: Any) -> Any:
    """A convolution and its activation."""
    return CONVERTERS[activation].converter(e, convolution(e, x, w, b, **geometry))


@exports("convolution_act_sums")
def convolution_act_sums(e: Emitter, x: Wire, w: Wire, b: Wire | None, *, activation: str, **geometry: Any) -> Any:
    """The activation and what it is taken of."""
    z = convolution(e, x, w, b, **geometry)
    return CONVERTERS[activation].converter(e, z), z


def kernel_of(w: Wire) -> list[int]:
    """A weight's spatial sizes."""
    return list((w.shape or ())[2:])


@exports("convolution_dx")
def convolution_dx(e: Emitter, dy: Wire, w: Wire, **geometry: Any) -> Any:
    """ConvTranspose."""
    return convolution_transpose(e, dy, w, None, **geometry)


@exports("convolution_transpose")
def convolution_transpose(
    e: Emitter, x: Wire, w: Wire, b: Wire | None, *, shape: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> Any:
    """ConvTranspose; what stride leaves over at the end is its output_padding."""
    sizes = (x.shape or ())[2:]
    reach = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, s, p, d, k in zip(sizes, stride, padding, dilation, kernel_of(w))]
    extra = [size - found for size, found in zip(shape[2:], reach)]
    return e("ConvTranspose", x, w, b, strides=list(stride), pads=[*padding, *padding], dilations=list(dilation), group=groups,
             output_padding=extra, kernel_shape=kernel_of(w))  # fmt: skip


@exports("convolution_dw")
def convolution_dw(e: Emitter, x: Wire, dy: Wire, *, shape: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> Any:
    """A convolution over the batch, for each group: batch and channels exchanged, dy as the kernel, stride and dilation exchanged."""
    rank = len(stride)
    swap = (1, 0, *range(2, rank + 2))
    outputs = (dy.shape or ())[2:]
    parts = []
    for g in range(groups):
        xs = x if groups == 1 else e.cut(x, g * shape[1], (g + 1) * shape[1], 1)
        ys = dy if groups == 1 else e.cut(dy, g * (shape[0] // groups), (g + 1) * (shape[0] // groups), 1)
        found = e("Conv", e.transpose(xs, swap), e.transpose(ys, swap), strides=list(dilation), dilations=list(stride),
                  pads=[*padding, *padding], kernel_shape=list(outputs))  # fmt: skip
        for d, size in enumerate(shape[2:]):  # windows that the stride left over
            found = e.cut(found, 0, size, d + 2)
        parts.append(e.transpose(found, swap))
    return parts[0] if groups == 1 else e("Concat", *parts, axis=0)


# ---------------------------------------------------------------- windows as columns


@exports("im2col", wide=False)
def im2col(e: Emitter, x: Wire, *, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, outputs: Sizes) -> Any:
    """Each spatial dimension's windows gathered; then kernel and windows each as one dimension."""
    rank = len(kernel)
    if any(map(is_dynamic, outputs)):
        raise Unsupported("windows of dynamic sizes as columns")
    y = padded(e, x, padding, padding, 0) if any(padding) else x
    for i, (k, s, d, n) in enumerate(zip(kernel, stride, dilation, outputs)):
        places = np.arange(k)[:, None] * d + np.arange(n) * s
        y = e("Gather", y, e.constant(places, INT64), axis=2 + 2 * i)
    shape = x.shape or ()
    y = e.transpose(y, [0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 3 + 2 * rank, 2)])
    return e.reshape(y, (shape[0], shape[1] * count(kernel), count(outputs)))


@exports("col2im")
def col2im(
    e: Emitter, x: Wire, *, size: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, outputs: Sizes
) -> Any:
    """Col2Im; ONNX Runtime 1.32 computes it wrongly for one dimension, which is made two."""
    if len(size) == 1:
        size, kernel, stride, padding, dilation = (1, *size), (1, *kernel), (1, *stride), (0, *padding), (1, *dilation)
        return e.squeeze(col2im(e, x, size=size, kernel=kernel, stride=stride, padding=padding, dilation=dilation, outputs=outputs), 2)
    return e("Col2Im", x, e.ints(size), e.ints(kernel), strides=list(stride), pads=[*padding, *padding], dilations=list(dilation))
