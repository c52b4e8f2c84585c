"""Convolutions and maxima over places that are computed: deformed windows, regions of images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import gradlab as gl
from gradlab.nn import functional as F
from gradlab.onnx.importing import Node, given, imports, read


@imports("DeformConv")
def deform_conv(node: Node, x: Any, weight: Any, offset: Any, bias: Any = None, mask: Any = None) -> Any:
    """Each element of a window is looked up where its offset says, between pixels, and weighed by the mask. Images of two dimensions."""
    if x.dim() != 4:
        raise node.refuse("only images of two dimensions are supported")
    groups, parts = node.get("group", 1), node.get("offset_group", 1)
    kernel = tuple(weight.shape[2:])
    strides, dilations = node.get("strides", [1, 1]), node.get("dilations", [1, 1])
    pads = node.get("pads", [0, 0, 0, 0])
    n, c, high, wide = x.shape
    taps = kernel[0] * kernel[1]
    rows, columns = offset.shape[2:]
    shift = offset.reshape(n, parts, taps, 2, rows, columns)
    at_k = [gl.arange(k, device=x.device) * d for k, d in zip(kernel, dilations, strict=True)]
    y = (gl.arange(rows, device=x.device) * strides[0] - pads[0]).reshape(1, 1, 1, rows, 1)
    y = y + at_k[0].repeat_interleave(kernel[1]).reshape(1, 1, taps, 1, 1) + shift[:, :, :, 0]
    z = (gl.arange(columns, device=x.device) * strides[1] - pads[1]).reshape(1, 1, 1, 1, columns)
    z = z + at_k[1].repeat(kernel[0]).reshape(1, 1, taps, 1, 1) + shift[:, :, :, 1]
    grid = gl.stack([(z * 2 + 1) / wide - 1, (y * 2 + 1) / high - 1], -1).to(x.dtype)
    images = x.reshape(n * parts, c // parts, high, wide)
    found = F.grid_sample(images, grid.reshape(n * parts, taps * rows, columns, 2), "bilinear", "zeros", False)
    found = found.reshape(n, parts, c // parts, taps, rows, columns)
    if given(mask):
        found = found * mask.reshape(n, parts, 1, taps, rows, columns)
    found = found.reshape(n, groups, c // groups * taps, rows * columns)
    flat = weight.reshape(groups, weight.shape[0] // groups, -1)
    result = (flat @ found).reshape(n, weight.shape[0], rows, columns)
    return result + bias.reshape(-1, 1, 1) if given(bias) else result


@imports("MaxRoiPool")
def max_roi_pool(node: Node, x: Any, rois: Any) -> Any:
    """The largest element of each cell of each region (image, x0, y0, x1, y1); cells without elements give 0."""
    rows, columns = node.get("pooled_shape")
    scale = node.get("spatial_scale", 1.0)
    found = []
    for image, *box in np.asarray(read(node, rois, "where a region lies"), np.float64).tolist():
        x0, y0, x1, y1 = (math.floor(v * scale + 0.5) for v in box)
        high, wide = max(y1 - y0 + 1, 1) / rows, max(x1 - x0 + 1, 1) / columns
        cells = []
        for i in range(rows):
            for j in range(columns):
                low, top = (min(max(v + y0, 0), x.shape[2]) for v in (math.floor(i * high), math.ceil((i + 1) * high)))
                left, right = (min(max(v + x0, 0), x.shape[3]) for v in (math.floor(j * wide), math.ceil((j + 1) * wide)))
                part = x[int(image), :, low:top, left:right]
                cells.append(part.amax((1, 2)) if top > low and right > left else gl.zeros((x.shape[1],), dtype=x.dtype, device=x.device))
        found.append(gl.stack(cells, -1).reshape(-1, rows, columns))
    return gl.stack(found)
