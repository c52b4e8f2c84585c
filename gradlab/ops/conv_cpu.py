"""The NumPy side of convolutions: x (N, C, *sizes), w (O, C/groups, *kernel), dy (N, O, *outputs), any number of spatial dimensions.

Windows are unrolled into a matrix, a few images at a time so that the matrix stays in the cache, and multiplied by BLAS. There are three
layouts. "planes" (channel, kernel, outputs) copies runs along the last spatial dimension. "pixels" (outputs, kernel, channel) copies
runs of kernel width times channels, which is several times faster where images are small and channels are many, but has to move the
channels last first. "flat" serves stride 1: outputs are as wide as the padded input, so that a kernel place is one shift of the whole
flattened plane, one long run; what lies between the rows is computed too and dropped. Groups are a batch of
products.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from gradlab.spec import count

Sizes = tuple[int, ...]
Pads = Sequence[tuple[int, int]]  # zeros before and after, of each spatial dimension; negative ones crop
CHUNK = 1 << 21  # bytes of unrolled windows at a time, about a core's second-level cache


def symmetric(padding: Sizes) -> list[tuple[int, int]]:
    """The same padding before and after."""
    return [(p, p) for p in padding]


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
    """The windows of an input, unrolled chunk by chunk. `grid` is the shape of the positions: the outputs, wider in the layout "flat"."""

    def __init__(self, x: Any, kernel: Sizes, stride: Sizes, pads: Pads, dilation: Sizes, outputs: Sizes, groups: int) -> None:
        self.x, self.kernel, self.outputs = x, kernel, outputs
        self.rank, self.images, self.channels = len(kernel), x.shape[0], x.shape[1]
        self.pads, self.stride, self.dilation = pads, stride, dilation
        self.groups, self.depth = groups, self.channels * count(kernel)
        self.wide = tuple(max(0, s + low + high) for s, (low, high) in zip(x.shape[2:], pads, strict=True))
        waste = count(self.wide[1:]) / count(outputs[1:])
        self.flat = self.rank > 1 and all(s == 1 for s in stride) and waste <= (1.13 if groups == 1 else 1.4)
        self.pixels = groups == 1 and not self.flat and prefers_pixels(self.channels, kernel, dilation, outputs)
        self.grid = (outputs[0], *self.wide[1:]) if self.flat else outputs
        self.positions = count(self.grid)
        self.step = max(1, min(self.images, CHUNK // max(1, x.itemsize * self.depth * self.positions)))

    def _padded(self) -> Iterator[tuple[int, int, Any]]:
        """(first image, number of images, those images padded); channels last in the layout "pixels"."""
        move = (0, *range(2, self.rank + 2), 1) if self.pixels else tuple(range(self.rank + 2))
        if not self.pixels and not self.flat and not any(map(any, self.pads)):
            for first in range(0, self.images, self.step):
                yield first, min(self.step, self.images - first), self.x[first : first + self.step]
            return
        padded: Any
        if self.pixels:
            padded = np.zeros((self.step, *self.wide, self.channels), self.x.dtype)
        else:  # the last shift of a flat plane reads a little beyond its end
            tail = sum(d * (k - 1) for d, k in zip(self.dilation[1:], self.kernel[1:], strict=True)) * count(self.wide[2:])
            plane = count(self.wide)
            planes: Any = np.zeros((self.step, self.channels, plane + tail * self.flat), self.x.dtype)
            padded = np.reshape(planes[..., :plane], (self.step, self.channels, *self.wide), copy=False)
        inside, source = interior(self.pads, self.x.shape[2:])
        target = (slice(None), *inside) if self.pixels else (slice(None), slice(None), *inside)
        for first in range(0, self.images, self.step):
            images = min(self.step, self.images - first)
            padded[:images][target] = self.x[(slice(first, first + images), slice(None), *source)].transpose(move)
            yield first, images, padded[:images]

    def _view(self, padded: Any, channel_first: bool) -> Any:
        """The windows as a view: (n, outputs, kernel without its width, width · channels), or the channel, the kernel, n, outputs."""
        steps = padded.strides
        spatial = steps[1:-1] if self.pixels else steps[2:]
        along = tuple(s * st for s, st in zip(spatial, self.stride, strict=True))
        within = tuple(s * d for s, d in zip(spatial, self.dilation, strict=True))
        if self.pixels:
            shape = (len(padded), *self.outputs, *self.kernel[:-1], self.kernel[-1] * self.channels)
            return as_strided(padded, shape, (steps[0], *along, *within[:-1], steps[-1]), writeable=False)
        runs = self.outputs
        if self.flat:
            runs, along = (self.positions,), (padded.itemsize,)
        if channel_first:
            shape = (self.channels, *self.kernel, len(padded), *runs)
            return as_strided(padded, shape, (steps[1], *within, steps[0], *along), writeable=False)
        shape = (len(padded), self.channels, *self.kernel, *runs)
        return as_strided(padded, shape, (*steps[:2], *within, *along), writeable=False)

    def per_image(self) -> Iterator[tuple[int, int, Any]]:
        """(first image, number of images, matrices (n, depth, positions))."""
        return self._unrolled(False)

    def joined(self) -> Iterator[tuple[int, int, Any]]:
        """(first image, number of images, one matrix (depth, n · positions))."""
        return self._unrolled(True)

    def _unrolled(self, join: bool) -> Iterator[tuple[int, int, Any]]:
        buffer: Any = np.empty(self.step * self.depth * self.positions, self.x.dtype)
        for first, images, padded in self._padded():
            view = self._view(padded, join)
            flat = buffer[: images * self.depth * self.positions]
            np.copyto(flat.reshape(view.shape), view)
            if self.pixels and join:
                matrix = flat.reshape(images * self.positions, self.depth).T
            elif self.pixels:
                matrix = flat.reshape(images, self.positions, self.depth).transpose(0, 2, 1)
            elif join:
                matrix = flat.reshape(self.depth, images * self.positions)
            else:
                matrix = flat.reshape(images, self.depth, self.positions)
            yield first, images, matrix

    def weight_matrix(self, w: Any) -> Any:
        """w (O, C, *kernel) as (O, depth), in this layout's order."""
        return np.moveaxis(w, 1, -1).reshape(len(w), -1) if self.pixels else w.reshape(len(w), -1)

    def weight_shape(self, matrix: Any) -> Any:
        """(O, depth) in this layout's order as (O, C, *kernel)."""
        if self.pixels:
            return np.moveaxis(matrix.reshape(len(matrix), *self.kernel, self.channels), -1, 1)
        return matrix.reshape(len(matrix), -1, *self.kernel)


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
    windows = Windows(x, kernel, stride, pads, dilation, outputs, groups)
    matrix = windows.weight_matrix(w)
    y3 = y.reshape(images, out, -1)
    if windows.pixels and windows.positions <= 256:
        for first, n, columns in windows.joined():
            y3[first : first + n] = (columns.T @ matrix.T).reshape(n, windows.positions, out).transpose(0, 2, 1)
        return
    grouped = matrix.reshape(groups, out // groups, -1)
    kept = tuple(map(slice, outputs))
    result: Any = np.empty((windows.step, groups, out // groups, windows.positions), y.dtype) if windows.flat else None
    for first, n, columns in windows.per_image():
        split = columns.reshape(n, groups, -1, windows.positions) if groups > 1 else columns[:, None]
        if windows.flat:
            np.matmul(grouped, split, out=result[:n])
            y[first : first + n] = result[:n].reshape(n, out, *windows.grid)[(..., *kept)]
        else:
            np.matmul(grouped, split, out=y3[first : first + n].reshape(n, groups, out // groups, -1))


def correlate_dw(x: Any, dy: Any, dw: Any, stride: Sizes, pads: Pads, dilation: Sizes, groups: int) -> None:
    """The gradient of `correlate` for w, written into dw."""
    images, out, *rest = dy.shape
    kernel, outputs = dw.shape[2:], tuple(rest)
    if not dy.size or not dw.size:
        dw[...] = 0
        return
    if groups > 1 and prefers_pixels(dw.shape[1], kernel, dilation, outputs):
        for part, up, target in _groups(groups, (x, 1), (dy, 1), (dw, 0)):
            correlate_dw(part, up, target, stride, pads, dilation, 1)
        return
    windows = Windows(x, kernel, stride, pads, dilation, outputs, groups)
    rows: Any = (np.zeros if windows.flat else np.empty)((out, windows.step, *windows.grid), dy.dtype)
    kept = tuple(map(slice, outputs))
    total: Any = 0
    for first, n, columns in windows.joined():
        # A last, smaller chunk has its own array: rows[:, :n] would not be one block.
        target = rows if n == windows.step else np.zeros((out, n, *windows.grid), dy.dtype)
        target[(..., *kept)] = dy[first : first + n].swapaxes(0, 1)
        up = target.reshape(groups, out // groups, -1)
        if groups > 1:
            total = total + up @ columns.reshape(groups, -1, columns.shape[1]).swapaxes(1, 2)
        else:
            total = total + up[0] @ columns.T
    dw[...] = windows.weight_shape(total.reshape(out, -1))


def mirrored(sizes: Sizes, outputs: Sizes, kernel: Sizes, padding: Sizes, dilation: Sizes) -> Pads:
    """The padding with which a flipped kernel, with stride 1, leads from the outputs back to the input."""
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    lows = [r - p for r, p in zip(reach, padding, strict=True)]
    return [(low, size + r - n - low) for low, size, r, n in zip(lows, sizes, reach, outputs, strict=True)]


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
    """As `correlate_dx` for one group: each output's share of a window, by one matrix product, added at the window's place; channels last if many."""
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
