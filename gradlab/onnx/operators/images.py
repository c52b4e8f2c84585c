"""Resizing and sampling images."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import gradlab as gl
from gradlab.detection import samples_of
from gradlab.nn import functional as F
from gradlab.onnx.importing import Node, as_tensor, given, imports, ints, is_dynamic, read

_COORDINATES: dict[str, Callable[[Any, Any, int, int], Any]] = {
    "half_pixel": lambda i, scale, n, m: (i + 0.5) / scale - 0.5,
    "asymmetric": lambda i, scale, n, m: i / scale,
    "align_corners": lambda i, scale, n, m: i * (n - 1) / (i[-1:] + (i[-1:] == 0)),
    "pytorch_half_pixel": lambda i, scale, n, m: ((i + 0.5) / scale - 0.5) * (i[-1:] > 0),
    "tf_half_pixel_for_nn": lambda i, scale, n, m: (i + 0.5) / scale,
    "half_pixel_symmetric": lambda i, scale, n, m: n / 2 * (1 - m / (n * scale)) + (i + 0.5) / scale - 0.5,
}
"""Where result i lies among the n elements of an axis that has m in the result: a whole number, as ONNX Runtime and PyTorch have it (ONNX's
own cases of align_corners take n * scale, which need not be whole). A result alone is told by the last i: m may be left open."""


_ROUNDING: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda v: np.ceil(v - 0.5), "round_prefer_ceil": lambda v: np.floor(v + 0.5), "floor": np.floor, "ceil": np.ceil,
}  # fmt: skip


def _cubic(t: Any, a: float) -> Any:
    t = np.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    return np.where(t <= 1, near, np.where(t < 2, a * (((t - 5) * t + 8) * t - 4), 0))


def _weights(node: Node, n: int, size: int, scale: Any, begin: float, end: float) -> Any:
    """What each of `size` results takes of `n` elements, as a matrix, and which results lie outside."""
    i = np.arange(size, dtype=np.float64)
    mode = node.get("mode", "nearest")
    if mode == "nearest":  # float32, as elsewhere: 3 / 0.6 is 5, and 4.9999998 in float64
        i, scale = i.astype(np.float32), np.float32(scale)
    how = node.get("coordinate_transformation_mode", "half_pixel" if node.opset >= 11 else "asymmetric")
    if how == "tf_crop_and_resize":
        x = begin * (n - 1) + i * (end - begin) * (n - 1) / (size - 1) if size > 1 else np.full(1, 0.5 * (begin + end) * (n - 1))
    else:
        x = _COORDINATES[how](i, scale, n, size)
    outside = (x < 0) | (x > n - 1) if how == "tf_crop_and_resize" else np.zeros(size, bool)
    matrix = np.zeros((size, n))
    if mode == "nearest":
        rounding = node.get("nearest_mode", "round_prefer_floor" if node.opset >= 11 else "floor")
        at = _ROUNDING[rounding](x)
        matrix[np.arange(size), at.clip(0, n - 1).astype(int)] = 1
        return matrix, outside
    shrink = min(scale, 1.0) if node.get("antialias", 0) else 1.0
    a = node.get("cubic_coeff_a", -0.75)
    reach = (2 if mode == "cubic" else 1) / shrink
    excluding = node.get("exclude_outside", 0)
    for row, place in enumerate(x):
        taps = np.arange(math.floor(place - reach) + 1, math.ceil(place + reach))
        if mode != "cubic" and shrink == 1:
            taps = np.array([math.floor(place), math.floor(place) + 1])
        distance = (taps - place) * shrink
        share = _cubic(distance, a) if mode == "cubic" else np.maximum(1 - np.abs(distance), 0)
        if excluding:
            share = np.where((taps < 0) | (taps >= n), 0, share)
        total = share.sum()
        share = share / total if total and (excluding or shrink < 1) else share
        np.add.at(matrix[row], taps.clip(0, n - 1), share)
    return matrix, outside


def same(n: Any, m: Any) -> bool:
    """Whether two sizes are one whatever stands for what is left open."""
    return bool(n == m and getattr(n, "expr", None) == getattr(m, "expr", None))


def _taken(node: Node, x: Any, axis: int, size: Any, scale: Any) -> Any:
    """One axis of an image whose size a trace leaves open: places and shares are computed when the program runs."""
    n, mode = x.shape[axis], node.get("mode", "nearest")
    how = node.get("coordinate_transformation_mode", "half_pixel" if node.opset >= 11 else "asymmetric")
    if node.get("antialias", 0) or node.get("exclude_outside", 0) or how in ("tf_crop_and_resize", "half_pixel_symmetric"):
        raise node.refuse(f"the size of axis {axis} is left open, and {how}, antialias or exclude_outside may need it; keep it fixed")
    exact = gl.float32 if mode == "nearest" else gl.float64  # as in _weights
    place = _COORDINATES[how](gl.arange(size, device=x.device).to(exact), scale, n, size)

    def at(index: Any) -> Any:
        return x.index_select(axis, gl.clamp(index, 0, n - 1).to(gl.int64))

    if mode == "nearest":
        rounding = node.get("nearest_mode", "round_prefer_floor" if node.opset >= 11 else "floor")
        half = {"round_prefer_floor": -0.5, "round_prefer_ceil": 0.5}.get(rounding, 0.0)
        return at(gl.ceil(place + half) if rounding in ("round_prefer_floor", "ceil") else gl.floor(place + half))
    low, a, total = gl.floor(place), node.get("cubic_coeff_a", -0.75), 0
    shape = [-1 if d == axis else 1 for d in range(x.dim())]
    for tap in range(-1, 3) if mode == "cubic" else range(2):
        t = (place - (low + tap)).abs()
        if mode == "cubic":
            near, far = ((a + 2) * t - (a + 3)) * t * t + 1, a * (((t - 5) * t + 8) * t - 4)
            share = gl.where(t <= 1, near, gl.where(t < 2, far, 0.0))
        else:
            share = 1 - t
        total = total + at(low + tap) * share.to(x.dtype).reshape(shape)
    return total


@imports("Resize", "Upsample", host=(1, 2, 3))
def resize(node: Node, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    """Along each axis a matrix of weights: nearest, linear or cubic, with or without a wider filter where the image shrinks."""
    if node.kind == "Upsample" or node.opset < 11:
        scales, roi = (roi if given(roi) else node.get("scales")), None
        if scales is None:  # of opset 1
            scales = [1.0] * (x.dim() - 2) + [node.get("height_scale"), node.get("width_scale")]
    axes = [a % x.dim() for a in node.get("axes", range(x.dim()))]
    given_sizes = ints(read(node, sizes, "a size")) if given(sizes) else None
    wide = [x.shape[a] for a in axes]
    if given_sizes is not None:
        factors = [1.0 if same(m, n) else m / n for m, n in zip(given_sizes, wide, strict=True)]
        policy = node.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factor = min(factors) if policy == "not_larger" else max(factors)
            factors = [factor] * len(axes)
            given_sizes = [math.floor(n * factor + 0.5) for n in wide]
        results = given_sizes
    else:
        factors = [v if is_dynamic(v) else float(v) for v in np.asarray(read(node, scales, "a scale")).reshape(-1)]
        results = [n if f == 1 else n * int(f) if f == int(f) else math.floor(n * f) for n, f in zip(wide, factors, strict=True)]
    borders = np.asarray(roi, np.float64).reshape(2, -1) if given(roi) else np.array([[0.0] * len(axes), [1.0] * len(axes)])
    kept = x.dtype
    y = x if x.is_floating_point() else x.to(gl.float32)
    outside = None
    for k, (axis, n, m, f) in enumerate(zip(axes, wide, results, factors, strict=True)):
        crops = node.get("coordinate_transformation_mode") == "tf_crop_and_resize"
        if is_dynamic(n) or is_dynamic(m):
            if not same(n, m):
                y = _taken(node, y, axis, m, f)
            continue
        if n == m and f == 1 and not crops:
            continue
        matrix, out = _weights(node, n, m, f, borders[0, k], borders[1, k])
        y = (y.movedim(axis, -1) @ gl.tensor(matrix.T).to(y.dtype).to(y.device)).movedim(-1, axis)
        if out.any():
            shape = [1] * x.dim()
            shape[axis] = m
            here = gl.tensor(out.reshape(shape), device=x.device)
            outside = here if outside is None else outside | here
    if outside is not None:
        y = gl.where(outside, node.get("extrapolation_value", 0.0), y)
    return y if kept == y.dtype else gl.round(y).to(kept)


@imports("GridSample")
def grid_sample(node: Node, x: Any, grid: Any) -> Any:
    names = {"linear": "bilinear", "cubic": "bicubic"}
    mode = node.get("mode", "bilinear")
    return F.grid_sample(x, grid, names.get(mode, mode), node.get("padding_mode", "zeros"), bool(node.get("align_corners", 0)))


@imports("AffineGrid", host=(1,))
def affine_grid(node: Node, theta: Any, size: Any) -> Any:
    return F.affine_grid(theta, ints(size), bool(node.get("align_corners", 0)))


@imports("RoiAlign")
def roi_align(node: Node, x: Any, rois: Any, images: Any) -> Any:
    """Means (or maxima) of samples between pixels in the parts of each region."""
    size = node.get("output_height", 1), node.get("output_width", 1)
    scale, ratio = node.get("spatial_scale", 1.0), node.get("sampling_ratio", 0)
    half = 0.5 if node.opset >= 16 and node.get("coordinate_transformation_mode", "half_pixel") == "half_pixel" else 0.0
    if not ratio:
        read(node, rois, "how many samples a region has")
    boxes = as_tensor(rois).to(x.device) * scale - half
    extent = boxes[:, 2:] - boxes[:, :2]
    extent = extent if half else extent.clamp(min=1)
    return samples_of(x, as_tensor(images).to(x.device).long(), boxes[:, :2], extent, size, ratio, most=node.get("mode", "avg") == "max")


@imports("NonMaxSuppression", host=(2, 3, 4))
def non_max_suppression(node: Node, boxes: Any, scores: Any, most: Any = None, overlap: Any = None, least: Any = None) -> Any:
    """(image, class, box) of the boxes that stay, the best first."""
    areas, values = (np.asarray(read(node, v, "which boxes stay"), np.float64) for v in (boxes, scores))
    limit = 0 if most is None else int(np.asarray(most).reshape(-1)[0])
    shared = 0.0 if overlap is None else float(np.asarray(overlap).reshape(-1)[0])
    lowest = -math.inf if least is None else float(np.asarray(least).reshape(-1)[0])
    found = []
    for image in range(values.shape[0]):
        box = areas[image]
        if node.get("center_point_box", 0):
            box = np.stack([box[:, 1] - box[:, 3] / 2, box[:, 0] - box[:, 2] / 2, box[:, 1] + box[:, 3] / 2, box[:, 0] + box[:, 2] / 2], 1)
        low, high = np.minimum(box[:, :2], box[:, 2:]), np.maximum(box[:, :2], box[:, 2:])
        size = (high - low).prod(1)
        for kind in range(values.shape[1]):
            kept: list[int] = []
            for i in np.argsort(-values[image, kind], kind="stable").tolist():
                if len(kept) >= limit or values[image, kind, i] <= lowest:
                    break
                both = (np.minimum(high[i], high[kept]) - np.maximum(low[i], low[kept])).clip(0).prod(1) if kept else np.zeros(0)
                if not (both / np.maximum(size[i] + size[kept] - both, 1e-300) > shared).any():
                    kept.append(i)
            found += [(image, kind, i) for i in kept]
    return gl.tensor(np.array(found, np.int64).reshape(-1, 3), device=boxes.device)
