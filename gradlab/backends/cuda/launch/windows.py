"""Windows: pooling, im2col and col2im, resampling, convolution as a product with windows as columns."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab.backends.cuda.launch.gemm import Matrix, product
from gradlab.backends.cuda.launch.index import word
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.work import Work
from gradlab.dtype import FLOATING, HALF
from gradlab.spec import Spec, count

Sizes = tuple[int, ...]
SCRATCH = 256 << 20  # bytes of columns that a convolution holds at a time


def geometry(size: Sizes, out: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes) -> bytes:
    """The bytes of `Windows`."""
    lead = 3 - len(size)
    rows = ((size, 1), (out, 1), (kernel, 1), (stride, 1), (padding, 0), (dilation, 1))
    return struct.pack("18i", *(v for values, fill in rows for v in (*(fill,) * lead, *values)))


def planes(y: Any, x: Any) -> tuple[int, int, int]:
    """Number of planes of an output and an input, and their elements in each."""
    return count(y.shape[:2]), count(y.shape[2:]), count(x.shape[2:])


def spatial(at: int) -> Any:
    """Takes at most three spatial dimensions (of that input, or of the output where it is None)."""

    def takes(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
        return len(outs[0].shape) <= 5 and all(s is None or len(s.shape) <= 5 for s in specs)

    return takes


few = spatial(0)


def floating(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
    """Floating point, at most three spatial dimensions."""
    return outs[0].dtype in FLOATING and few(specs, outs, params)


def each(work: Work, function: Any, arrays: Sequence[Any], lead: int, per: int, most: int, *values: Any) -> None:
    """Launch one thread for each of `lead` · `per` elements, where all arrays have `lead` planes; at most 2^31 elements (of `most` in a plane) at a
    time. The kernel's arguments: the arrays, the values, the number of elements as an int."""
    if not lead or not per:
        return
    step = max(1, (2**31 - 1) // max(per, most, 1))
    for start in range(0, lead, step):
        number = min(step, lead - start)
        parts = arrays if step >= lead else [_planes(a, lead, start, number) for a in arrays]
        work.launch(function, -(-number * per // 256), 256, *parts, *values, np.int32(number * per))


def _planes(array: Any, lead: int, start: int, number: int) -> Any:
    """Some planes of a contiguous array."""
    return array.reshape((lead, -1))[start : start + number]


# ---------------------------------------------------------------- pooling


def max_pool(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x,), (values, indices) = inputs, outputs
    windows = geometry(x.shape[2:], values.shape[2:], params["kernel"], params["stride"], params["padding"], params["dilation"])
    each(work, work.kernel("pool.cu", "max_pool", x.dtype), (work.contiguous(x), values, indices), *planes(values, x), windows)


def adaptive_max_pool(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x,), (values, indices) = inputs, outputs
    ones = (1,) * (len(x.shape) - 2)
    windows = geometry(x.shape[2:], values.shape[2:], ones, ones, ones, ones)
    each(work, work.kernel("pool.cu", "adaptive_max_pool", x.dtype), (work.contiguous(x), values, indices), *planes(values, x), windows)


def _average(work: Work, name: str, x: Any, y: Any, sizes: Sizes, outs: Sizes, params: dict[str, Any]) -> None:
    kernel = params["kernel"]
    windows = geometry(sizes, outs, kernel, params["stride"], params["padding"], (1,) * len(kernel))
    divisor = 0 if params["divisor"] is None else params["divisor"]
    numbers = np.int32(params["include"]), np.int32(divisor)
    each(work, work.kernel("pool.cu", name, y.dtype), (work.contiguous(x), y), *planes(y, x), windows, *numbers)


def avg_pool(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    _average(work, "avg_pool", inputs[0], outputs[0], inputs[0].shape[2:], outputs[0].shape[2:], params)


def avg_pool_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    _average(work, "avg_pool_backward", inputs[0], outputs[0], outputs[0].shape[2:], inputs[0].shape[2:], params)


def plane_scatter(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (source, indices), (y,) = inputs, outputs
    if not y.size:
        return
    source, indices = work.contiguous(source), work.contiguous(indices)
    plane, each = count(y.shape[2:]), count(source.shape[2:])
    if not params.get("overlap", False):
        work.driver.fill_zero(y)
        work.each(work.kernel("pool.cu", "plane_scatter", y.dtype), source.size, source, indices, y, each, plane)
        return
    half = y.dtype in HALF
    total = work.zeros(y.shape, work.wide(y.dtype)) if half else y
    if not half:
        work.driver.fill_zero(y)
    planes = count(y.shape[:2])
    work.launch(work.kernel("pool.cu", "plane_add", y.dtype), -(-planes // 64), 64, source, indices, total, each, plane, planes)
    if half:
        work.each(work.kernel("pool.cu", "rounded", y.dtype), y.size, total, y)


def plane_gather(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x, indices), (y,) = inputs, outputs
    function = work.kernel("pool.cu", "plane_gather", word(y))
    work.each(function, y.size, work.contiguous(x), work.contiguous(indices), y, count(y.shape[2:]), count(x.shape[2:]))


# ---------------------------------------------------------------- windows as columns


def im2col(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x,), (y,) = inputs, outputs
    windows = geometry(x.shape[2:], params["outputs"], params["kernel"], params["stride"], params["padding"], params["dilation"])
    lead = count(x.shape[:2])
    if lead:
        each(work, work.kernel("vision.cu", "im2col", word(y)), (work.contiguous(x), y), lead, y.size // lead, x.size // lead, windows)


def col2im(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x,), (y,) = inputs, outputs
    windows = geometry(params["size"], params["outputs"], params["kernel"], params["stride"], params["padding"], params["dilation"])
    lead = count(y.shape[:2])
    if lead:
        each(work, work.kernel("vision.cu", "col2im", y.dtype, x.dtype), (work.contiguous(x), y), lead, y.size // lead, x.size // lead, windows)


# ---------------------------------------------------------------- convolution


class Convolution:
    """The sizes of one convolution, and its windows as columns [n, groups, c, windows] for a part of the batch."""

    def __init__(self, work: Work, x_shape: Sizes, w_shape: Sizes, y_shape: Sizes, params: dict[str, Any], dtype: Any) -> None:
        self.work, self.dtype = work, dtype
        self.groups = params["groups"]
        self.batch, self.channels = x_shape[:2]
        self.outputs = w_shape[0] // self.groups  # of each group
        self.kernel = w_shape[1] * count(w_shape[2:])  # elements of one window, of each group
        self.places = count(y_shape[2:])
        self.plane = count(x_shape[2:])
        self.windows = geometry(x_shape[2:], y_shape[2:], w_shape[2:], params["stride"], params["padding"], params["dilation"])
        self.columns_of_one = self.groups * self.kernel * self.places
        self.step = max(1, min(self.batch, SCRATCH // max(self.columns_of_one * dtype.itemsize, 1)))
        self.plain = count(w_shape[2:]) == 1 and self.plane == self.places and not any(params["padding"]) and set(params["stride"]) == {1}

    def parts(self) -> list[tuple[int, int]]:
        """Start and length of each part of the batch."""
        return [(i, min(self.step, self.batch - i)) for i in range(0, self.batch, self.step)]

    def columns(self, x: Any) -> Any:
        """The windows of (part of) a contiguous input; the input itself where a window is one element."""
        if self.plain:
            return x
        size = x.shape[0] * self.columns_of_one
        made = self.work.empty((size,), self.dtype)
        lead = x.shape[0] * self.channels
        each(self.work, self.work.kernel("vision.cu", "im2col", word(made)), (x, made), lead, size // lead, self.plane, self.windows)
        return made

    @property
    def column_batch(self) -> tuple[int, int]:
        """Strides of the columns along batch and groups."""
        return self.columns_of_one, self.kernel * self.places

    @property
    def output_batch(self) -> tuple[int, int]:
        """Strides of the output along batch and groups."""
        return self.groups * self.outputs * self.places, self.outputs * self.places


def convolution(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    """y[n, g] = w[g] · columns[n, g], and the bias of each output channel."""
    (x, w, b), (y,) = inputs, outputs
    if not y.size:
        return
    x, w = work.contiguous(x), work.contiguous(w)
    at = Convolution(work, x.shape, w.shape, y.shape, params, y.dtype)
    for start, length in at.parts():
        columns, out = at.columns(x[start : start + length]), y[start : start + length]
        # Computed as the transposed product, so that the bias lies along its columns: y^T [windows, outputs].
        for group in range(at.groups) if b is not None else (None,):
            groups = at.groups if group is None else 1
            g = group or 0
            product(
                work,
                Matrix(_from(columns, g * at.kernel * at.places), 1, 0, at.places, at.column_batch),
                Matrix(_from(w, g * at.outputs * at.kernel), at.kernel, 0, 1, (0, at.outputs * at.kernel)),
                _from(out, g * at.outputs * at.places), (1, at.places), (at.places, at.outputs, at.kernel),
                batch=(length, groups), c_batch=at.output_batch, bias=None if b is None else b[g * at.outputs : (g + 1) * at.outputs],
            )  # fmt: skip


def convolution_dx(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    """columns[n, g] = w[g]^T · dy[n, g], added up into the windows' places."""
    (dy, w), (y,) = inputs, outputs
    if not y.size:
        return
    dy, w = work.contiguous(dy), work.contiguous(w)
    at = Convolution(work, y.shape, w.shape, dy.shape, params, y.dtype)
    wide = work.wide(y.dtype)
    for start, length in at.parts():
        out = y[start : start + length]
        columns = out if at.plain else work.empty((length * at.columns_of_one,), wide)
        source, weight = dy[start : start + length], w
        product(
            work, Matrix(weight, 1, 0, at.kernel, (0, at.outputs * at.kernel)), Matrix(source, 1, 0, at.places, at.output_batch), columns,
            (at.places, 1), (at.kernel, at.places, at.outputs), batch=(length, at.groups), c_batch=at.column_batch,
        )  # fmt: skip
        if not at.plain:
            lead = length * at.channels
            function = work.kernel("vision.cu", "col2im", y.dtype, wide)
            each(work, function, (columns, out), lead, at.plane, columns.size // lead, at.windows)


def convolution_dw(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    """dw[g] = the sum over n of dy[n, g] · columns[n, g]^T, as one product whose inner dimension is (n, windows)."""
    (x, dy), (y,) = inputs, outputs
    if not y.size:
        return
    if not x.size or not dy.size:
        work.driver.fill_zero(y)
        return
    x, dy = work.contiguous(x), work.contiguous(dy)
    at = Convolution(work, x.shape, y.shape, dy.shape, params, y.dtype)
    columns = at.columns(x)
    product(
        work, Matrix(dy, at.places, at.output_batch[0], 1, (at.output_batch[1],)),
        Matrix(columns, at.places, at.column_batch[0], 1, (at.column_batch[1],)), y, (at.kernel, 1),
        (at.outputs, at.kernel, at.batch * at.places), k2=at.places, batch=(at.groups,), c_batch=(at.outputs * at.kernel,),
    )  # fmt: skip


def _from(array: Any, offset: int) -> Any:
    """A contiguous array from its element number `offset` on, flat."""
    return array.reshape(-1)[offset:] if offset else array


RULES = {
    ("pool.cu", "max_pool"): Rule(max_pool, few),
    ("pool.cu", "adaptive_max_pool"): Rule(adaptive_max_pool, few),
    ("pool.cu", "avg_pool"): Rule(avg_pool, few),
    ("pool.cu", "avg_pool_backward"): Rule(avg_pool_backward, few),
    ("pool.cu", "max_pool_backward"): Rule(plane_scatter),
    ("pool.cu", "max_unpool"): Rule(plane_scatter),
    ("pool.cu", "max_pool_gather"): Rule(plane_gather),
    ("vision.cu", "im2col"): Rule(im2col, few),
    ("vision.cu", "col2im"): Rule(col2im, lambda specs, outs, params: len(outs[0].shape) <= 5),
    ("conv.cu", "convolution"): Rule(convolution, floating),
    ("conv.cu", "convolution_dx"): Rule(convolution_dx, floating),
    ("conv.cu", "convolution_dw"): Rule(convolution_dw, floating),
}
