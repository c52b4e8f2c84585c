"""The NumPy side of convolutions: x (N, C, *sizes), w (O, C/groups, *kernel), dy (N, O, *outputs), any number of spatial dimensions.

Windows are unrolled into a matrix, a few images at a time so that the matrix stays in the cache, and multiplied by BLAS. There are three
layouts. "planes" (channel, kernel, outputs) copies runs along the last spatial dimension. "pixels" (outputs, kernel, channel) copies
runs of kernel width times channels, which is several times faster where images are small and channels are many, but has to move the
channels last first. "flat" serves stride 1: outputs are as wide as the padded input, so that a kernel place is one shift of the whole
flattened plane, one long run; what lies between the rows is computed too and dropped. Groups are a batch of products.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradlab.spec import cached_sizes, count

Sizes = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]  # zeros before and after, of each spatial dimension; negative ones crop
CHUNK = 1 << 21  # bytes of unrolled windows at a time, about a core's second-level cache


@cached_sizes(256)
def symmetric(padding: Sizes) -> Pads:
    """The same padding before and after."""
    return tuple((p, p) for p in padding)


def interior(pads: Pads, sizes: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Where an input lies in its padded form: the slices of the padded array, and of the input, that hold the same elements."""
    inside, source = [], []
    for (low, high), size in zip(pads, sizes, strict=True):
        start, stop = max(0, -low), max(0, size - max(0, -high))
        stop = max(stop, start)
        inside.append(slice(max(0, low), max(0, low) + stop - start))
        source.append(slice(start, stop))
    return tuple(inside), tuple(source)


def prefers_pixels(channels: int, kernel: Sizes, dilation: Sizes, outputs: Sizes) -> bool:
    """Whether channels last gives clearly longer runs than the rows of an image do."""
    return channels > 1 and dilation[-1] == 1 and kernel[-1] * channels >= 2 * outputs[-1]


class Windows:
    """How the windows of an input are unrolled, chunk by chunk; without the data. Made by `windows`, which remembers it.

    `grid` is the shape of the positions: the outputs, wider in the layout "flat".
    """

    def __init__(
        self, shape: Sizes, size: int, kernel: Sizes, stride: Sizes, pads: Pads, dilation: Sizes, outputs: Sizes, groups: int
    ) -> None:
        self.kernel, rank, (images, channels, *sizes) = kernel, len(kernel), shape
        self.depth = channels * count(kernel)
        wide = tuple(max(0, s + low + high) for s, (low, high) in zip(sizes, pads, strict=True))
        waste = count(wide[1:]) / count(outputs[1:])
        self.flat = rank > 1 and all(s == 1 for s in stride) and waste <= (1.13 if groups == 1 else 1.4)
        self.pixels = groups == 1 and not self.flat and prefers_pixels(channels, kernel, dilation, outputs)
        self.grid = (outputs[0], *wide[1:]) if self.flat else outputs
        self.positions = count(self.grid)
        self.images, self.channels = images, channels
        self.step = max(1, min(images, CHUNK // max(1, size * self.depth * self.positions)))
        inside, self.source = interior(pads, sizes)
        # The padded images: channels last in "pixels"; in "flat" each plane has a tail, because its last shift reads beyond its end.
        self.copies = self.pixels or self.flat or any(map(any, pads))
        tail = sum(d * (k - 1) for d, k in zip(dilation[1:], kernel[1:], strict=True)) * count(wide[2:]) if self.flat else 0
        steps = [size * count(wide[dim + 1 :]) * (channels if self.pixels else 1) for dim in range(rank)]
        if self.pixels:
            self.padded_shape: Sizes = (self.step, *wide, channels)
            self.padded_steps: Sizes = (size * channels * count(wide), *steps, size)
            self.inside: tuple[slice, ...] = (slice(None), *inside)
        else:
            plane = size * (count(wide) + tail)
            self.padded_shape = (self.step, channels, *wide)
            self.padded_steps = (plane * channels, plane, *steps)
            self.inside = (slice(None), slice(None), *inside)
        self.move = (0, *range(2, rank + 2), 1) if self.pixels else tuple(range(rank + 2))
        self.room = self.step * channels * (count(wide) + tail)
        # The windows as a view of them: shape and steps of one image's windows, and those of the images.
        along = tuple(s * st for s, st in zip(steps, stride, strict=True))
        within = tuple(s * d for s, d in zip(steps, dilation, strict=True))
        if self.pixels:
            self.head: Sizes = ()
            self.head_steps: Sizes = ()
            self.tail = (*outputs, *kernel[:-1], kernel[-1] * channels)
            self.tail_steps = (*along, *within[:-1], size)
        else:
            self.head, self.head_steps = (channels, *kernel), (self.padded_steps[1], *within)
            self.tail, self.tail_steps = ((self.positions,), (size,)) if self.flat else (outputs, along)

    def _padded(self, x: Any) -> Iterator[tuple[int, int, Any]]:
        """(first image, number of images, contiguous memory that begins with those images, padded)."""
        if not self.copies:
            for first in range(0, self.images, self.step):
                yield first, min(self.step, self.images - first), np.ascontiguousarray(x[first : first + self.step])
            return
        room: Any = np.zeros(self.room, x.dtype)
        inside: Any = np.ndarray(self.padded_shape, x.dtype, room, 0, self.padded_steps)[self.inside]
        part = x[(slice(None), slice(None), *self.source)].transpose(self.move)
        for first in range(0, self.images, self.step):
            images = min(self.step, self.images - first)
            inside[:images] = part[first : first + images]
            yield first, images, room

    def per_image(self, x: Any) -> Iterator[tuple[int, int, Any]]:
        """(first image, number of images, matrices (n, depth, positions))."""
        for first, n, flat in self._unrolled(x, False):
            if self.pixels:
                yield first, n, flat.reshape(n, self.positions, self.depth).transpose(0, 2, 1)
            else:
                yield first, n, flat.reshape(n, self.depth, self.positions)

    def joined(self, x: Any) -> Iterator[tuple[int, int, Any]]:
        """(first image, number of images, one matrix (depth, n · positions))."""
        for first, n, flat in self._unrolled(x, True):
            yield first, n, flat.reshape(n * self.positions, self.depth).T if self.pixels else flat.reshape(self.depth, n * self.positions)

    def _unrolled(self, x: Any, join: bool) -> Iterator[tuple[int, int, Any]]:
        buffer: Any = np.empty(self.step * self.depth * self.positions, x.dtype)
        for first, n, memory in self._padded(x):
            if join:
                shape, steps = (*self.head, n, *self.tail), (*self.head_steps, self.padded_steps[0], *self.tail_steps)
            else:
                shape, steps = (n, *self.head, *self.tail), (self.padded_steps[0], *self.head_steps, *self.tail_steps)
            flat = buffer[: n * self.depth * self.positions]
            np.copyto(flat.reshape(shape), np.ndarray(shape, x.dtype, memory, 0, steps))
            yield first, n, flat

    def weight_matrix(self, w: Any) -> Any:
        """w (O, C, *kernel) as (O, depth), in this layout's order."""
        return np.moveaxis(w, 1, -1).reshape(len(w), -1) if self.pixels else w.reshape(len(w), -1)

    def weight_shape(self, matrix: Any) -> Any:
        """(O, depth) in this layout's order as (O, C, *kernel)."""
        if self.pixels:
            return np.moveaxis(matrix.reshape(len(matrix), *self.kernel, self.channels), -1, 1)
        return matrix.reshape(len(matrix), -1, *self.kernel)


windows = cached_sizes(1024)(Windows)


def strided_part(x: Any, start: Sequence[int], stride: Sizes, outputs: Sizes) -> Any:
    """The view of the last dimensions from `start` in steps of `stride`."""
    return x[(..., *(slice(b, b + s * (n - 1) + 1, s) for b, s, n in zip(start, stride, outputs, strict=True)))]


def _groups(groups: int, *arrays_and_dims: tuple[Any, int]) -> Iterator[tuple[Any, ...]]:
    """Each group's part of every array, along the given dimension."""
    for i in range(groups):
        found = []
        for array, dim in arrays_and_dims:
            size = array.shape[dim] // groups
            found.append(array[(slice(None),) * dim + (slice(i * size, (i + 1) * size),)])
        yield tuple(found)


def correlate(x: Any, w: Any, y: Any, stride: Sizes, pads: Pads, dilation: Sizes, groups: int) -> None:
    """y[n, o] = Σ over the group's channels and the kernel of w · window. y's spatial dimensions are contiguous."""
    images, channels, *_ = x.shape
    out, kernel, outputs = len(w), w.shape[2:], y.shape[2:]
    if not y.size:
        return
    if groups > 1 and prefers_pixels(w.shape[1], kernel, dilation, outputs):
        for part, weight, target in _groups(groups, (x, 1), (w, 0), (y, 1)):
            correlate(part, weight, target, stride, pads, dilation, 1)
        return
    if count(kernel) == 1 and not any(map(any, pads)):
        pixels = strided_part(x, (0,) * len(kernel), stride, outputs).reshape(images, groups, channels // groups, -1)
        np.matmul(w.reshape(groups, out // groups, -1), pixels, out=y.reshape(images, groups, out // groups, -1))
        return
    plan = windows(x.shape, x.itemsize, kernel, stride, pads, dilation, outputs, groups)
    matrix = plan.weight_matrix(w)
    y3 = y.reshape(images, out, -1)
    if plan.pixels and plan.positions <= 256:
        for first, n, columns in plan.joined(x):
            y3[first : first + n] = (columns.T @ matrix.T).reshape(n, plan.positions, out).transpose(0, 2, 1)
        return
    grouped = matrix.reshape(groups, out // groups, -1)
    kept = (..., *map(slice, outputs))
    result: Any = np.empty((plan.step, groups, out // groups, plan.positions), y.dtype) if plan.flat else None
    for first, n, columns in plan.per_image(x):
        split = columns.reshape(n, groups, -1, plan.positions) if groups > 1 else columns[:, None]
        if plan.flat:
            np.matmul(grouped, split, out=result[:n])
            y[first : first + n] = result[:n].reshape(n, out, *plan.grid)[kept]
        else:
            np.matmul(grouped, split, out=y3[first : first + n].reshape(n, groups, out // groups, -1))


def correlate_dw(x: Any, dy: Any, dw: Any, stride: Sizes, pads: Pads, dilation: Sizes, groups: int) -> None:
    """The gradient of `correlate` for w, written into dw."""
    out, kernel, outputs = dy.shape[1], dw.shape[2:], dy.shape[2:]
    if not dy.size or not dw.size:
        dw[...] = 0
        return
    if groups > 1 and prefers_pixels(dw.shape[1], kernel, dilation, outputs):
        for part, up, gradient in _groups(groups, (x, 1), (dy, 1), (dw, 0)):
            correlate_dw(part, up, gradient, stride, pads, dilation, 1)
        return
    plan = windows(x.shape, x.itemsize, kernel, stride, pads, dilation, outputs, groups)
    rows: Any = (np.zeros if plan.flat else np.empty)((out, plan.step, *plan.grid), dy.dtype)
    kept = (..., *map(slice, outputs))
    total: Any = 0
    for first, n, columns in plan.joined(x):
        # A last, smaller chunk has its own array: rows[:, :n] would not be one block.
        target: Any = rows if n == plan.step else np.zeros((out, n, *plan.grid), dy.dtype)
        target[kept] = dy[first : first + n].swapaxes(0, 1)
        up = target.reshape(groups, out // groups, -1)
        if groups > 1:
            total = total + up @ columns.reshape(groups, -1, columns.shape[1]).swapaxes(1, 2)
        else:
            total = total + up[0] @ columns.T
    dw[...] = plan.weight_shape(total.reshape(out, -1))


@cached_sizes(1024)
def mirrored(sizes: Sizes, outputs: Sizes, kernel: Sizes, padding: Sizes, dilation: Sizes) -> Pads:
    """The padding with which a flipped kernel, with stride 1, leads from the outputs back to the input."""
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    lows = [r - p for r, p in zip(reach, padding, strict=True)]
    return tuple((low, size + r - n - low) for low, size, r, n in zip(lows, sizes, reach, outputs, strict=True))


def correlate_dx(dy: Any, w: Any, dx: Any, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> None:
    """The gradient of `correlate` for x, written into dx. What no window reaches gets 0."""
    outputs, sizes, kernel = dy.shape[2:], dx.shape[2:], w.shape[2:]
    if not dx.size or not dy.size or not w.size:
        dx[...] = 0
        return
    if all(s == 1 for s in stride):  # a correlation with the flipped kernel, input and output channels exchanged
        pads = mirrored(sizes, outputs, kernel, padding, dilation)
        flipped = np.flip(w, tuple(range(2, w.ndim))).reshape(groups, -1, *w.shape[1:]).swapaxes(1, 2)
        correlate(dy, flipped.reshape(-1, *flipped.shape[2:]), dx, stride, pads, dilation, groups)
    elif groups > 1 and w.shape[1] == 1:
        spread_depthwise(dy, w, dx, stride, padding, dilation)
    else:
        for part, weight, target in _groups(groups, (dy, 1), (w, 0), (dx, 1)):
            spread_windows(part, weight, target, stride, padding, dilation)


def spread_windows(dy: Any, w: Any, dx: Any, stride: Sizes, padding: Sizes, dilation: Sizes) -> None:
    """As `correlate_dx` for one group: each output's share of its window, by a matrix product, is added at the window's place."""
    images, out, *outputs = dy.shape
    channels, kernel, sizes = w.shape[1], w.shape[2:], dx.shape[2:]
    places, spatial = count(kernel), tuple(outputs)
    positions = count(spatial)
    pixels = channels >= outputs[-1]
    # The padded input reaches as far as the windows and the input do.
    wide = tuple(max(s + p, st * (n - 1) + d * (k - 1) + 1)
                 for s, p, st, n, d, k in zip(sizes, padding, stride, outputs, dilation, kernel, strict=True))  # fmt: skip
    step = max(1, min(images, CHUNK // (dy.itemsize * channels * places * positions)))
    crop = tuple(slice(p, p + s) for p, s in zip(padding, sizes, strict=True))
    weights = np.moveaxis(w.reshape(out, channels, places), 0, -1)  # (channels, places, out)
    weights = weights.transpose(2, 1, 0).reshape(out, -1) if pixels else weights.transpose(1, 0, 2).reshape(-1, out)
    for first in range(0, images, step):
        part = dy[first : first + step].reshape(-1, out, positions)
        n = len(part)
        if pixels:
            shares = (part.transpose(0, 2, 1).reshape(n * positions, out) @ weights).reshape(n, *spatial, places, channels)
            target: Any = np.moveaxis(np.zeros((n, *wide, channels), dy.dtype), -1, 0)
            shares = np.moveaxis(np.moveaxis(shares, -1, 0), -1, 0)  # (places, channels, n, *outputs)
        else:
            shares = (weights @ part).reshape(n, places, channels, *spatial).swapaxes(0, 1)
            target = np.zeros((n, channels, *wide), dy.dtype)
        for number, place in enumerate(np.ndindex(*kernel)):
            start = [i * d for i, d in zip(place, dilation, strict=True)]
            there = strided_part(target, start, stride, spatial)
            there += shares[number]
        inner = target[(..., *crop)]
        dx[first : first + n] = inner.swapaxes(0, 1) if pixels else inner


def spread_depthwise(dy: Any, w: Any, dx: Any, stride: Sizes, padding: Sizes, dilation: Sizes) -> None:
    """As `spread_windows`, where each channel has its own kernels."""
    images, channels = dx.shape[:2]
    sizes, kernel, outputs, ones = dx.shape[2:], w.shape[2:], dy.shape[2:], (1,) * len(w.shape[2:])
    split, weights = dy.reshape(images, channels, -1, *outputs), w.reshape(channels, -1, *kernel)
    wide = tuple(max(s + p, st * (n - 1) + d * (k - 1) + 1)
                 for s, p, st, n, d, k in zip(sizes, padding, stride, outputs, dilation, kernel, strict=True))  # fmt: skip
    step = max(1, min(images, CHUNK // 2 // max(1, count(dy.shape[1:]) * dy.itemsize)))
    for first in range(0, images, step):
        part = split[first : first + step]
        buffer: Any = np.zeros((len(part), channels, *wide), dy.dtype)
        for place in np.ndindex(*kernel):
            window = strided_part(buffer, [i * d for i, d in zip(place, dilation, strict=True)], stride, outputs)
            factor = weights[(..., *place)].reshape(channels, -1, *ones)
            window += (part * factor).sum(2) if part.shape[2] > 1 else part[:, :, 0] * factor[:, 0]
        dx[first : first + step] = buffer[(..., *(slice(p, p + s) for p, s in zip(padding, sizes, strict=True)))]


# ---------------------------------------------------------------- the rows' functions


def convolution_cpu(x: Any, w: Any, b: Any, y: Any, *, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> None:
    correlate(x, w, y, stride, symmetric(padding), dilation, groups)
    if b is not None:
        y += b.reshape(-1, *(1,) * len(stride))


def convolution_dx_cpu(
    dy: Any, w: Any, y: Any, *, shape: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> None:
    correlate_dx(dy, w, y, stride, padding, dilation, groups)


def convolution_dw_cpu(
    x: Any, dy: Any, y: Any, *, shape: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> None:
    correlate_dw(x, dy, y, stride, symmetric(padding), dilation, groups)
