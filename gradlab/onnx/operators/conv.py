"""Convolutions and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gradlab as gl
from gradlab.nn import functional as F
from gradlab.nn.modules.steps import keep
from gradlab.onnx.importing import Node, given, imports
from gradlab.onnx.operators.reductions import rooted
from gradlab.onnx.operators.shapes import padded

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
_MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}

FRAME = 32  # samples of a window, from which on a convolution of one channel is a product


def by_rank(node: Node, functions: dict[int, Any], x: Any) -> Any:
    """The function for as many spatial dimensions as an input (N, C, …) has."""
    if x.dim() - 2 not in functions:
        raise node.refuse(f"its input has {x.dim()} dimensions, {list(x.shape)}; 3 to 5 are taken: (N, C, …)")
    return functions[x.dim() - 2]


def pads_of(
    node: Node, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[tuple[int, int]]:
    """Pads before and after of each spatial dimension, also for `auto_pad`."""
    rank, how = len(kernel), node.get("auto_pad", "NOTSET")
    if how in ("SAME_UPPER", "SAME_LOWER"):
        found = []
        for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
            total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
            less = total // 2
            found.append((less, total - less) if how == "SAME_UPPER" else (total - less, less))
        return found
    pads = node.get("pads", [0] * 2 * rank) if how != "VALID" else [0] * 2 * rank
    return list(zip(pads[:rank], pads[rank:], strict=True))


def _even(x: Any, pads: list[tuple[int, int]], fill: float = 0.0) -> tuple[Any, tuple[int, ...]]:
    """The input, padded where the pads of a dimension differ, and what is left to pad on both sides."""
    if all(a == b for a, b in pads):
        return x, tuple(a for a, _ in pads)
    for i, (a, b) in enumerate(pads):
        x = padded(x, 2 + i, a, b, "constant", fill)
    return x, (0,) * len(pads)


@imports("Conv")
def conv(node: Node, x: Any, weight: Any, bias: Any = None) -> Any:
    convolve, rank = by_rank(node, _CONV, x), x.dim() - 2
    strides, dilations = (tuple(node.get(name, [1] * rank)) for name in ("strides", "dilations"))
    kernel = node.get("kernel_shape", weight.shape[2:])
    pads = pads_of(node, x.shape[2:], kernel, strides, dilations)
    if rank == 1 and x.shape[1] == 1 and kernel[0] >= FRAME and dilations == (1,) and strides[0] >= FRAME // 4 and keep.get() is None:
        # a signal in frames: one product of matrices
        frames = padded(x, 2, *pads[0], "constant", 0).reshape(x.shape[0], -1).unfold(1, kernel[0], strides[0])
        return F.linear(frames, weight.squeeze(1), bias if given(bias) else None).transpose(1, 2)
    x, padding = _even(x, pads)
    return convolve(x, weight, bias if given(bias) else None, strides, padding, dilations, node.get("group", 1))


@imports("ConvTranspose")
def conv_transpose(node: Node, x: Any, weight: Any, bias: Any = None) -> Any:
    """`output_shape` decides the pads; pads that differ cut the result."""
    convolve, rank = by_rank(node, _TRANSPOSED, x), x.dim() - 2
    strides, dilations = (tuple(node.get(name, [1] * rank)) for name in ("strides", "dilations"))
    kernel = node.get("kernel_shape", weight.shape[2:])
    extra = tuple(node.get("output_padding", [0] * rank))
    full = [s * (n - 1) + e + (k - 1) * d + 1 for n, s, e, k, d in zip(x.shape[2:], strides, extra, kernel, dilations, strict=True)]
    how, wanted = node.get("auto_pad", "NOTSET"), node.get("output_shape")
    if wanted is not None or how.startswith("SAME"):
        sizes = wanted[-rank:] if wanted is not None else [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
        totals = [max(have - n, 0) for have, n in zip(full, sizes, strict=True)]
        pads = [(t // 2, t - t // 2) if how == "SAME_UPPER" else (t - t // 2, t // 2) for t in totals]
        extra = tuple(e + max(n - have, 0) for e, have, n in zip(extra, full, sizes, strict=True))
    else:
        pads = pads_of(node, x.shape[2:], kernel, strides, dilations)
    y = convolve(x, weight, None, strides, 0, 0, node.get("group", 1), dilations)
    for i, ((a, b), e) in enumerate(zip(pads, extra, strict=True)):
        y = padded(padded(y, 2 + i, 0, e, "constant", 0), 2 + i, -a, -b, "constant", 0)
    return y + bias.reshape(-1, *[1] * rank) if given(bias) else y


def _windows(node: Node, x: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], list[tuple[int, int]]]:
    """Kernel, strides, dilations and pads; `ceil_mode` pads the end further, as long as a window begins within what is padded anyway."""
    kernel = tuple(node.get("kernel_shape"))
    strides, dilations = (tuple(node.get(name, [1] * len(kernel))) for name in ("strides", "dilations"))
    return kernel, strides, dilations, pads_of(node, x.shape[2:], kernel, strides, dilations)


def _ceiled(
    node: Node, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    if not node.get("ceil_mode", 0):
        return pads
    found = []
    for n, k, s, d, (a, b) in zip(sizes, kernel, strides, dilations, pads, strict=True):
        reach = d * (k - 1) + 1
        count = -(-(n + a + b - reach) // s) + 1
        if (count - 1) * s >= n + a:
            count -= 1
        found.append((a, max((count - 1) * s + reach - n - a, b)))
    return found


@imports("MaxPool")
def max_pool(node: Node, x: Any) -> Any:
    """The largest element of each window, and where it is in the whole input."""
    kernel, strides, dilations, pads = _windows(node, x)
    pads = _ceiled(node, x.shape[2:], kernel, strides, dilations, pads)
    low = -math.inf if x.is_floating_point() else 0 if x.dtype == gl.uint8 else -128
    sizes, pool = x.shape[2:], by_rank(node, _MAX, x)
    padded_x = x
    for i, (a, b) in enumerate(pads):
        padded_x = padded(padded_x, 2 + i, a, b, "constant", low)
    if not x.is_floating_point():
        return pool(padded_x.to(gl.float32), kernel, strides, 0, dilations).to(x.dtype)
    if len(node.outputs) < 2:
        return pool(padded_x, kernel, strides, 0, dilations)
    y, at = pool(padded_x, kernel, strides, 0, dilations, return_indices=True)
    return y, _flat_places(at, padded_x.shape[2:], sizes, [a for a, _ in pads], x.shape[:2], node.get("storage_order", 0))


def _flat_places(at: Any, wide: Sequence[int], sizes: Sequence[int], before: Sequence[int], lead: Sequence[int], columns: int) -> Any:
    """Places in the padded image as places in the whole input, batch and channel among them."""
    parts: list[Any] = []
    for n in reversed(wide):
        parts.insert(0, at % n)
        at = gl.div(at, n, rounding_mode="trunc")
    place: Any = 0
    order = list(range(len(sizes)))
    for i in reversed(order) if columns else order:
        place = place * sizes[i] + (parts[i] - before[i])
    images = gl.arange(math.prod(lead), device=at.device).reshape(*lead, *[1] * len(sizes))
    return place + images * math.prod(sizes)


@imports("AveragePool")
def average_pool(node: Node, x: Any) -> Any:
    """A pooling row where its pads are those of both sides; else sums of windows, over how many elements each has."""
    kernel, strides, dilations, pads = _windows(node, x)
    counted = bool(node.get("count_include_pad", 0))
    if all(d == 1 for d in dilations):
        pool = by_rank(node, _AVERAGE, x)
        if counted and not node.get("ceil_mode", 0) and any(a != b for a, b in pads):
            x, _ = _even(x, pads)
            pads = [(0, 0)] * len(kernel)
        if all(a == b and 2 * a <= k for (a, b), k in zip(pads, kernel, strict=True)):
            return pool(x, kernel, strides, tuple(a for a, _ in pads), bool(node.get("ceil_mode", 0)), counted)
    wide = _ceiled(node, x.shape[2:], kernel, strides, dilations, pads)
    total = _sums(node, x, kernel, strides, dilations, wide)
    ones = gl.ones((1, 1, *x.shape[2:]), dtype=x.dtype, device=x.device)
    if counted:
        for i, (a, b) in enumerate(pads):
            ones = padded(ones, 2 + i, a, b, "constant", 1)
        wide = [(0, w[1] - p[1]) for w, p in zip(wide, pads, strict=True)]
    return total / _sums(node, ones, kernel, strides, dilations, wide)


def _sums(
    node: Node, x: Any, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: list[tuple[int, int]]
) -> Any:
    for i, (a, b) in enumerate(pads):
        x = padded(x, 2 + i, a, b, "constant", 0)
    if all(d == 1 for d in dilations):
        return by_rank(node, _AVERAGE, x)(x, tuple(kernel), tuple(strides)) * math.prod(kernel)
    b, c = x.shape[:2]
    weight = gl.ones((1, 1, *kernel), dtype=x.dtype, device=x.device)
    y = by_rank(node, _CONV, x)(x.reshape(b * c, 1, *x.shape[2:]), weight, None, tuple(strides), 0, tuple(dilations))
    return y.reshape(b, c, *y.shape[2:])


@imports("LpPool")
def lp_pool(node: Node, x: Any) -> Any:
    kernel, strides, dilations, pads = _windows(node, x)
    p = node.get("p", 2)
    return rooted(_sums(node, x.abs() ** p, kernel, strides, dilations, _ceiled(node, x.shape[2:], kernel, strides, dilations, pads)), p)


@imports("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(node: Node, x: Any) -> Any:
    dims = tuple(range(2, x.dim()))
    if node.kind == "GlobalLpPool":
        p = node.get("p", 2)
        return rooted((x.abs() ** p).sum(dims, keepdim=True), p)
    return x.amax(dims, keepdim=True) if node.kind == "GlobalMaxPool" else x.mean(dims, keepdim=True)


@imports("MaxUnpool", host=(2,))
def max_unpool(node: Node, x: Any, at: Any, shape: Any = None) -> Any:
    """Elements go back to the places that `MaxPool` gave."""
    kernel = node.get("kernel_shape")
    strides = node.get("strides", [1] * len(kernel))
    pads = node.get("pads", [0] * 2 * len(kernel))
    usual = [s * (n - 1) + k - a - b for n, s, k, a, b in zip(x.shape[2:], strides, kernel, pads, pads[len(kernel) :], strict=False)]
    lead = math.prod(x.shape[:2])
    inner = at.reshape(lead, -1) - gl.arange(lead, device=x.device)[:, None] * math.prod(usual)
    flat = gl.zeros((lead, math.prod(usual)), dtype=x.dtype, device=x.device).scatter(1, inner, x.reshape(lead, -1))
    found = flat.reshape(*x.shape[:2], *usual)
    for i, n in enumerate([] if shape is None else [int(v) for v in shape[2:]]):
        found = padded(found, 2 + i, 0, n - found.shape[2 + i], "constant", 0)
    return found
