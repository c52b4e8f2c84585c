"""Convolutions and maxima over places that are computed: deformed windows, regions of images."""

from __future__ import annotations

from typing import Any

from gradlab.detection import deform_conv2d, roi_pool
from gradlab.nn import functional as F
from gradlab.onnx.importing import Node, as_tensor, given, imports, read


@imports("DeformConv")
def deform_conv(node: Node, x: Any, weight: Any, offset: Any, bias: Any = None, mask: Any = None) -> Any:
    """Each element of a window is looked up where its offset says, between pixels, and weighed by the mask. Images of two dimensions."""
    if x.dim() != 4:
        raise node.refuse("only images of two dimensions are supported")
    top, left, bottom, right = node.get("pads", [0, 0, 0, 0])
    both = min(top, bottom), min(left, right)
    if (top, left) != (bottom, right):
        x = F.pad(x, (left - both[1], right - both[1], top - both[0], bottom - both[0]))
    strides, dilations = node.get("strides", [1, 1]), node.get("dilations", [1, 1])
    return deform_conv2d(x, offset, weight, bias if given(bias) else None, strides, both, dilations, mask if given(mask) else None)


@imports("MaxRoiPool")
def max_roi_pool(node: Node, x: Any, rois: Any) -> Any:
    """The largest element of each cell of each region (image, x0, y0, x1, y1); cells without elements give 0."""
    read(node, rois, "where a region lies")
    return roi_pool(x, as_tensor(rois), node.get("pooled_shape"), node.get("spatial_scale", 1.0))
