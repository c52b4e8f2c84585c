"""Boxes and regions of images, for detectors: what torchvision's `ops` has in compiled operators, by the same names.

Boxes are (x0, y0, x1, y1) in pixels. Regions are a tensor (regions, 5), each the number of its image in the batch and a box, or a list
of the boxes (boxes, 4) of each image. Everything runs on either device and has gradients of images, weights, masks and offsets, not of
boxes. Sources: Girshick, Fast R-CNN (pooled regions); He et al., Mask R-CNN (aligned regions); Dai et al., R-FCN (position-sensitive
regions); Zhu et al., Deformable ConvNets v2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradlab.autograd.mode import no_grad
from gradlab.dtype import float32
from gradlab.named_errors import named_functions
from gradlab.nn.functional.conv import expect_tensors
from gradlab.nn.functional.embedding_bag import embedding_bag
from gradlab.nn.functional.grid import grid_sample
from gradlab.spec import ShapeError
from gradlab.tensor import Tensor
from gradlab.tensor.creation import arange, tensor
from gradlab.tensor.index_parts import at_hand
from gradlab.tensor.shape import cat, stack

__all__ = ["batched_nms", "box_area", "box_iou", "deform_conv2d", "nms", "ps_roi_align", "ps_roi_pool", "roi_align", "roi_pool"]

_MOST = 1 << 24
"""About so many elements are looked through at once for their maxima."""


def box_area(boxes: Tensor) -> Tensor:
    """Width times height of boxes (boxes, 4): (boxes,). Of integers in int32 at least, of floating-point numbers in float32 at least."""
    boxes = _wide(_boxes("box_area", boxes))
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """What each of n boxes shares with each of m, over what both cover: (n, m), from 0 to 1.

    >>> gl.detection.box_iou(gl.tensor([[0.0, 0.0, 2.0, 2.0]]), gl.tensor([[1.0, 0.0, 3.0, 2.0], [2.0, 0.0, 4.0, 2.0]]))
    tensor([[0.3333, 0.    ]])
    """
    first, second = (_boxes("box_iou", b) for b in (boxes1, boxes2))
    corners = first[:, None, :2].maximum(second[:, :2]), first[:, None, 2:].minimum(second[:, 2:])
    sides = _wide(corners[1] - corners[0]).clamp(min=0)
    shared = sides[..., 0] * sides[..., 1]
    return shared / (box_area(first)[:, None] + box_area(second) - shared)


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Which boxes (boxes, 4) stay: int64 numbers, the best score (boxes,) first. A box goes that shares more than iou_threshold (see
    `box_iou`) with a better one that stays; of equal scores the first is the better one. The boxes are read on the host: not for a trace.

    >>> gl.detection.nms(gl.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 2.1], [5.0, 5.0, 6.0, 6.0]]), gl.tensor([0.5, 0.6, 0.1]), 0.5)
    tensor([1, 2])
    """
    boxes = _boxes("nms", boxes)
    if scores.shape != boxes.shape[:1]:
        raise ShapeError(f"nms: each box has one score; got boxes of shape {boxes.shape} and scores of shape {scores.shape}")
    boxes, scores = _wide(boxes.detach()), _wide(scores.detach())
    left, top, right, bottom = boxes.cpu().numpy().T
    areas = (right - left) * (bottom - top)
    kept, order = [], np.argsort(-scores.cpu().numpy(), kind="stable")
    while order.size:
        best, order = order[0], order[1:]
        kept.append(best)
        wide = np.minimum(right[best], right[order]) - np.maximum(left[best], left[order])
        high = np.minimum(bottom[best], bottom[order]) - np.maximum(top[best], top[order])
        shared = np.maximum(wide, 0) * np.maximum(high, 0)
        with np.errstate(divide="ignore", invalid="ignore"):  # boxes without an area share nothing
            part = shared / (areas[best] + areas[order] - shared)
        order = order[~(part.astype(np.float64) > iou_threshold)]
    return tensor(np.array(kept, np.int64), device=boxes.device)


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """`nms` within each group of boxes; idxs (boxes,) says which group a box is of. All that stay, the best score first."""
    boxes = _boxes("batched_nms", boxes)
    if idxs.shape != scores.shape:
        raise ShapeError(f"batched_nms: each score has the number of its group; got scores {scores.shape} and idxs {idxs.shape}")
    groups = idxs.detach().cpu().numpy()
    stays = np.zeros(groups.shape, bool)
    for group in np.unique(groups):
        own = np.flatnonzero(groups == group)
        at = tensor(own, device=boxes.device)
        stays[own[nms(boxes[at], scores[at], iou_threshold).cpu().numpy()]] = True
    kept = tensor(np.flatnonzero(stays), device=boxes.device)
    return kept[scores.detach()[kept].argsort(descending=True, stable=True)]


def roi_align(
    input: Tensor,
    boxes: Tensor | Sequence[Tensor],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Tensor:
    """Each region of images (N, C, H, W) as cells: (regions, C, *output_size), means of samples between pixels.

    spatial_scale: pixels of the input for one of the boxes. sampling_ratio: samples of a cell along each side; not positive: as many as
    the cell has pixels, which needs the boxes' values. aligned: the first pixel's centre is at 0.5, not at 0 (then regions are at least
    one pixel wide and high).

    >>> gl.detection.roi_align(gl.arange(16.0).reshape(1, 1, 4, 4), [gl.tensor([[0.0, 0.0, 2.0, 2.0]])], 2, aligned=True)
    tensor([[[[0., 1.],
              [4., 5.]]]])
    """
    regions, size = _regions("roi_align", input, boxes), _pair("roi_align", "output_size", output_size)
    start, end = _ends(input, regions, spatial_scale, 0.5 if aligned else 0.0)
    extent = end - start if aligned else (end - start).clamp(min=1)
    return samples_of(input, regions[:, 0].long(), start, extent, size, sampling_ratio)


def ps_roi_align(
    input: Tensor, boxes: Tensor | Sequence[Tensor], output_size: int | Sequence[int], spatial_scale: float = 1.0, sampling_ratio: int = -1
) -> Tensor:
    """`roi_align`, aligned, where each cell has channels of its own: channel (c * height + i) * width + j of the input is read by the cell
    (i, j) and gives channel c there. (regions, C // (height * width), *output_size)."""
    regions, size = _regions("ps_roi_align", input, boxes), _pair("ps_roi_align", "output_size", output_size)
    start, end = _ends(input, regions, spatial_scale, 0.5)
    _channels("ps_roi_align", input, size)
    return samples_of(input, regions[:, 0].long(), start, end - start, size, sampling_ratio, apart=True)


def roi_pool(input: Tensor, boxes: Tensor | Sequence[Tensor], output_size: int | Sequence[int], spatial_scale: float = 1.0) -> Tensor:
    """The largest pixel in each cell of each region of images (N, C, H, W): (regions, C, *output_size); 0 where a cell has none.

    spatial_scale: pixels of the input for one of the boxes, which are rounded to pixels. The boxes are read on the host: not for a trace.
    """
    return largest(input, boxes, _pair("roi_pool", "output_size", output_size), spatial_scale)[0]


def largest(input: Tensor, boxes: Tensor | Sequence[Tensor], size: tuple[int, int], scale: float) -> tuple[Tensor, Tensor]:
    """`roi_pool`, and the place of each maximum among its image's pixels (-1 where there is none)."""
    regions = _regions("roi_pool", input, boxes)
    (_, channels, height, width), cells = input.shape, size[0] * size[1]
    images, low, high = _windows(regions, input, size, scale, 1, 0)
    table = input.detach().movedim(1, -1).reshape(-1, channels)
    found = [input.new_zeros((0, cells, channels), dtype=np.int64)]
    longest = [max(1, int((h - a).max(initial=1))) for a, h in zip(low, high, strict=True)]
    several = max(1, _MOST // max(1, cells * channels * longest[0] * longest[1]))
    for first in range(0, len(images), several):
        part = slice(first, first + several)
        rows, columns = (  # the last pixel again where a cell has fewer
            np.minimum(a[part, :, None] + np.arange(n), np.maximum(h[part, :, None] - 1, 0))
            for a, h, n in zip(low, high, longest, strict=True)
        )
        pixels = rows[:, :, None, :, None] * width + columns[:, None, :, None, :]
        pixels = tensor(np.minimum(pixels, height * width - 1).reshape(-1, longest[0] * longest[1]), device=input.device)
        image = tensor(np.repeat(images[part], cells)[:, None] * (height * width), device=input.device)
        with no_grad():
            best = table[pixels + image].argmax(1)  # the first of equal ones
        found.append(pixels.gather(1, best).reshape(-1, cells, channels))
    places = cat(found).movedim(1, -1)  # regions, channels, cells
    filled = [h > a for a, h in zip(low, high, strict=True)]
    empty = tensor(~(filled[0][:, :, None] & filled[1][:, None, :]).reshape(-1, 1, cells), device=input.device)
    image, channel = tensor(images, device=input.device).reshape(-1, 1, 1), arange(channels, device=input.device).reshape(1, -1, 1)
    result = input.flatten(2)[image, channel, places].masked_fill(empty, 0)
    shape = (len(images), channels, *size)
    return result.reshape(shape), places.masked_fill(empty, -1).reshape(shape)


def ps_roi_pool(input: Tensor, boxes: Tensor | Sequence[Tensor], output_size: int | Sequence[int], spatial_scale: float = 1.0) -> Tensor:
    """The mean of each cell's pixels, in channels of its own (see `ps_roi_align`): (regions, C // (height * width), *output_size).

    The boxes are rounded to pixels as in `roi_pool`. As torchvision has it, the last row and the last column of images are in no cell,
    and cells without pixels give 0.
    """
    name = "ps_roi_pool"
    regions, size = _regions(name, input, boxes), _pair(name, "output_size", output_size)
    channels = _channels(name, input, size)
    images, low, high = _windows(regions, input, size, spatial_scale, 0, 1)
    within = [a[..., None] + np.arange(max(0, int((h - a).max(initial=0)))) for a, h in zip(low, high, strict=True)]
    real = [at < h[..., None] for at, h in zip(within, high, strict=True)]
    cell = np.arange(size[0] * size[1]).reshape(1, *size, 1, 1) + images.reshape(-1, 1, 1, 1, 1) * (size[0] * size[1])
    rows, columns = within[0][:, :, None, :, None], within[1][:, None, :, None, :]
    index = (cell * input.shape[2] + rows) * input.shape[3] + columns
    counted = real[0][:, :, None, :, None] & real[1][:, None, :, None, :]
    counts = counted.sum((3, 4)).reshape(-1)
    flat, begins = (tensor(x.astype(np.int64), device=input.device) for x in (index[counted], np.cumsum(counts) - counts))
    return _cells(embedding_bag(flat, _table(input, size), begins), channels, size)


def deform_conv2d(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    mask: Tensor | None = None,
) -> Tensor:
    """A convolution of images (N, C, H, W) whose window is bent: each of its taps is read where its offset says, between pixels.

    offset: (N, 2 * parts * kernel height * kernel width, out height, out width), a pair (down, right) for each tap, in pixels; as many
    `parts` of the channels as it says have offsets of their own. weight: (out channels, C // groups, kernel height, kernel width).
    mask: a factor for each tap, (N, parts * kernel height * kernel width, out height, out width). Pixels outside are 0.
    """
    name = "deform_conv2d"
    expect_tensors(name, input, offset, weight, *(x for x in (bias, mask) if x is not None))
    if input.dim() != 4 or weight.dim() != 4 or offset.dim() != 4:
        shapes = f"{input.shape}, {offset.shape} and {weight.shape}"
        raise ShapeError(f"{name}: input, offset and weight have 4 dimensions, not shapes {shapes}")
    (images, channels, *extent), (outputs, depth, *kernel) = input.shape, weight.shape
    steps, pads, gaps = (_pair(name, word, x) for word, x in (("stride", stride), ("padding", padding), ("dilation", dilation)))
    size = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, d, k, s in zip(extent, pads, gaps, kernel, steps, strict=True)]
    taps = kernel[0] * kernel[1]
    groups, parts = channels // max(depth, 1), offset.shape[1] // (2 * taps)
    if not depth or depth * groups != channels or outputs % groups:
        raise ShapeError(f"{name}: a weight of shape {weight.shape} makes no whole groups of the {channels} channels of {input.shape}")
    if not parts or channels % parts or offset.shape != (images, 2 * parts * taps, *size):
        wanted = f"({images}, 2 * parts * {taps}, {size[0]}, {size[1]})"
        raise ShapeError(f"{name}: the offset is {wanted} with parts that divide {channels} channels, not {offset.shape}")
    if mask is not None and mask.shape != (images, parts * taps, *size):
        raise ShapeError(f"{name}: the mask is {(images, parts * taps, *size)}, not {mask.shape}")
    shift = offset.reshape(images * parts, kernel[0], kernel[1], 2, *size)
    points = []
    for axis in (1, 0):  # grid_sample takes (x, y), from the first pixel's edge, -1, to the last one's, 1
        tap, out = (arange(n, device=input.device, dtype=input.dtype) for n in (kernel[axis], size[axis]))
        tap, out = tap.reshape((-1, 1)[axis], (1, -1)[axis], 1, 1) * gaps[axis], out.reshape((-1, 1)[axis], (1, -1)[axis])
        at = shift[:, :, :, axis] + (tap + (out * steps[axis] - pads[axis]))
        points.append((at * 2 + 1) / extent[axis] - 1)
    grid = stack(points, -1).reshape(images * parts, taps * size[0], size[1], 2)
    found = grid_sample(input.reshape(images * parts, channels // parts, *extent), grid, align_corners=False)
    if mask is not None:
        found = found.reshape(images, parts, -1, taps, *size) * mask.reshape(images, parts, 1, taps, *size)
    found = found.reshape(images, groups, depth * taps, size[0] * size[1])
    result = (weight.reshape(groups, outputs // groups, -1) @ found).reshape(images, outputs, *size)
    return result if bias is None else result + bias.reshape(-1, 1, 1)


def samples_of(
    input: Tensor,
    images: Tensor,
    start: Tensor,
    extent: Tensor,
    size: tuple[int, int],
    ratio: int,
    *,
    apart: bool = False,
    most: bool = False,
) -> Tensor:
    """Cells of regions of images (N, C, H, W), means of samples: (regions, C, *size).

    images: (regions,), of int64. start, extent: (regions, 2), where a region begins and how far it reaches, as (x, y) in pixels.
    ratio: samples of a cell along each side; not positive: as many as the cell has pixels. apart: each cell has channels of its own.
    most: maxima of the weighted corners of the samples, as ONNX has them.
    """
    table = _table(input, size if apart else None)
    if ratio > 0:
        return _sampled(table, input, images, start, extent, size, (ratio, ratio), apart, most)
    counts = np.ceil(extent.cpu().numpy()[:, ::-1] / np.array(size)).clip(0).astype(np.int64)  # y, x
    kinds, kind = np.unique(counts, axis=0, return_inverse=True)
    parts, order = [], [np.zeros(0, np.int64)]
    for number, count in enumerate(kinds.tolist()):
        own = np.flatnonzero(kind.reshape(-1) == number)
        at = tensor(own, device=input.device)
        order.append(own)
        parts.append(_sampled(table, input, images[at], start[at], extent[at], size, tuple(count), apart, most))
    if not parts:
        return _sampled(table, input, images, start, extent, size, (1, 1), apart, most)
    return cat(parts)[tensor(np.argsort(np.concatenate(order)), device=input.device)]


def _sampled(
    table: Tensor, input: Tensor, images: Tensor, start: Tensor, extent: Tensor, size: tuple[int, int], counts: Any, apart: bool, most: bool
) -> Tensor:
    """`samples_of`, where all regions have as many samples."""
    cells, channels = size[0] * size[1], table.shape[1]
    share = 1 / (counts[0] * counts[1]) if all(counts) else 0  # a region without extent has no samples
    counts = [max(1, n) for n in counts]
    axes = [list(_corners(start[:, 1 - i], extent[:, 1 - i], size[i], counts[i], input.shape[2 + i])) for i in (0, 1)]
    number = images.reshape(-1, 1, 1, 1, 1)
    if apart:
        number = number * cells + arange(cells, device=input.device).reshape(1, size[0], size[1], 1, 1)
    index, weight = [], []
    for row, above in axes[0]:
        for column, left in axes[1]:
            index.append((number * input.shape[2] + row[:, :, None, :, None]) * input.shape[3] + column[:, None, :, None, :])
            weight.append(above[:, :, None, :, None] * left[:, None, :, None, :])
    shape = (images.shape[0] * cells, counts[0] * counts[1] * 4)
    at, factor = stack(index, -1).reshape(shape), stack(weight, -1).reshape(shape).to(table.dtype)
    if most:
        return _cells((table[at] * factor.unsqueeze(-1)).amax(1), channels, size)
    return _cells(embedding_bag(at, table, mode="sum", per_sample_weights=factor * share), channels, size)


def _corners(start: Tensor, extent: Tensor, cells: int, samples: int, n: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The pixel before each sample along an axis of n pixels, then the one behind it, each with its weight: (regions, cells, samples). Both
    weights are 0 for samples more than a pixel outside."""
    cell = (extent / cells)[:, None, None]
    steps = [arange(k, device=start.device, dtype=start.dtype) for k in (cells, samples)]
    at = start[:, None, None] + steps[0][:, None] * cell + (steps[1] + 0.5) * cell / samples
    inside = ((at >= -1) & (at <= n)).to(at.dtype)
    at = at.clamp(0, n - 1)
    low = at.floor()
    part, first = at - low, low.long()
    yield first, (1 - part) * inside
    yield (first + 1).clamp(max=n - 1), part * inside


def _table(input: Tensor, size: tuple[int, int] | None) -> Tensor:
    """Images as one row for each pixel, or for each cell's pixels where cells have channels of their own."""
    if size is None:
        return input.movedim(1, -1).reshape(-1, input.shape[1])
    images, channels, height, width = input.shape
    parts = input.reshape(images, -1, size[0] * size[1], height, width).movedim(1, -1)
    return parts.reshape(-1, channels // (size[0] * size[1]))


def _cells(rows: Tensor, channels: int, size: tuple[int, int]) -> Tensor:
    """Rows (regions * cells, channels) as (regions, channels, *size)."""
    return rows.reshape(rows.shape[0] // (size[0] * size[1]), *size, channels).movedim(-1, 1)


def _windows(
    regions: Tensor, input: Tensor, size: tuple[int, int], scale: float, more: int, short: int
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """The image of each region; where each of its cells begins and ends in pixels, rows and columns: (regions, cells) each.

    more: pixels that a region has beyond the distance of its rounded corners. short: pixels at the end of images that are in no cell.
    """
    at = regions.cpu().numpy()
    corners = at[:, 1:] * at.dtype.type(scale)
    corners = np.trunc(corners.astype(np.float64) + np.copysign(0.5, corners)).astype(np.int64)  # halves away from 0
    low: list[np.ndarray] = []
    high: list[np.ndarray] = []
    for axis, n, cells in zip((1, 0), input.shape[2:], size, strict=True):
        first = corners[:, axis : axis + 1]
        cell = np.maximum(corners[:, axis + 2 : axis + 3] - first + more, 1).astype(at.dtype) / at.dtype.type(cells)
        number = np.arange(cells, dtype=at.dtype)
        for found, edge in ((low, np.floor(number * cell)), (high, np.ceil((number + 1) * cell))):
            found.append((edge.astype(np.int64) + first).clip(0, max(n - short, 0)))
    return at[:, 0].astype(np.int64), (low[0], low[1]), (high[0], high[1])


def _ends(input: Tensor, regions: Tensor, scale: float, half: float) -> tuple[Tensor, Tensor]:
    """The first and the last corners of regions in pixels of the input: (regions, 2) each."""
    return regions[:, 1:3] * scale - half, regions[:, 3:] * scale - half


def _regions(name: str, input: Tensor, boxes: Tensor | Sequence[Tensor]) -> Tensor:
    """Regions as a tensor (regions, 5) without gradient, of the input's dtype, float32 at least. ShapeError for others, for images that are
    not (N, C, H, W) with pixels, and, where it can be looked at, for an image that the batch lacks."""
    expect_tensors(name, input, *([boxes] if isinstance(boxes, Tensor) else boxes))
    if input.dim() != 4 or 0 in input.shape[2:] or not input.is_floating_point():
        raise ShapeError(f"{name}: input is images (N, C, H, W) of floating-point numbers, not of shape {input.shape} in {input.dtype}")
    if not isinstance(boxes, Tensor):
        if any(b.dim() != 2 or b.shape[1] != 4 for b in boxes):
            raise ShapeError(f"{name}: a list has the boxes (boxes, 4) of each image, not shapes {[tuple(b.shape) for b in boxes]}")
        numbered = [cat([b.new_full((len(b), 1), i), b], 1) for i, b in enumerate(boxes)]
        boxes = cat(numbered) if numbered else input.new_zeros((0, 5))
    if boxes.dim() != 2 or boxes.shape[1] != 5:
        raise ShapeError(f"{name}: regions are a tensor (regions, 5): image, x0, y0, x1, y1; or a list of boxes; not shape {boxes.shape}")
    if at_hand(boxes) and len(boxes):
        low, high = boxes[:, 0].min().item(), boxes[:, 0].max().item()
        if low < 0 or high >= len(input):
            raise ShapeError(f"{name}: regions of images {low:g} to {high:g} in a batch of {len(input)}")
    return boxes.detach().to(device=input.device).to(input.dtype if input.dtype.itemsize >= 4 else float32)


def _channels(name: str, input: Tensor, size: tuple[int, int]) -> int:
    """How many channels each cell has of its own. ShapeError where the input's cannot be shared out."""
    channels = input.shape[1] // (size[0] * size[1])
    if channels * size[0] * size[1] != input.shape[1]:
        raise ShapeError(f"{name}: {input.shape[1]} channels cannot be shared out among {size[0]} x {size[1]} cells")
    return channels


def _boxes(name: str, boxes: Tensor) -> Tensor:
    expect_tensors(name, boxes)
    if boxes.dim() != 2 or boxes.shape[1] != 4:
        raise ShapeError(f"{name}: boxes have the shape (boxes, 4): x0, y0, x1, y1; got {boxes.shape}")
    return boxes


def _wide(x: Tensor) -> Tensor:
    """In a dtype that holds products of coordinates."""
    return x if x.dtype.itemsize >= 4 else x.float() if x.is_floating_point() else x.int()


def _pair(name: str, word: str, size: int | Sequence[int]) -> tuple[int, int]:
    """One number for both, or two of them. ValueError for others."""
    found = tuple(size) if isinstance(size, Sequence) else (size, size)
    if len(found) != 2 or not all(isinstance(n, (int, np.integer)) for n in found) or min(found) < (0 if word == "padding" else 1):
        raise ValueError(f"{name}: {word} is one whole number or two, of at least {0 if word == 'padding' else 1}; got {size!r}")
    return int(found[0]), int(found[1])


named_functions(__name__)
