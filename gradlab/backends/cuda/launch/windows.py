"""Windows: pooling, im2col and col2im."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from gradlab.backends.cuda.launch.indexing import word
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work
from gradlab.spec import Spec, count

Sizes = tuple[int, ...]
LARGEST = 2**31 - 256  # elements of a launch, so that the last block's threads too are numbered by an int


def geometry(size: Sizes, out: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes) -> bytes:
    """The bytes of `Windows`."""
    lead = 3 - len(size)
    rows = ((size, 1), (out, 1), (kernel, 1), (stride, 1), (padding, 0), (dilation, 1))
    return struct.pack("18i", *(v for values, fill in rows for v in (*(fill,) * lead, *values)))


def planes(y: Any, x: Any) -> tuple[int, int, int]:
    """Number of planes of an output and an input, and their elements in each."""
    return count(y.shape[:2]), count(y.shape[2:]), count(x.shape[2:])


def few(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
    """At most three spatial dimensions, and planes, windows and their places that an int can number."""
    shapes = [s.shape for s in (*specs, *outs) if s is not None]
    windows = zip_longest(*(params.get(p, ()) for p in ("kernel", "stride", "padding", "dilation")), fillvalue=1)
    reach = max((stride + 2 * padding + dilation * kernel for kernel, stride, padding, dilation in windows), default=0)
    longest = max((*params.get("size", ()), *(n for s in shapes for n in s[2:])), default=0)
    planes = (count(s) // max(count(s[:2]), 1) for s in shapes)
    return max(map(len, shapes)) <= 5 and max(longest + reach, *planes) <= LARGEST


def few_columns(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
    """The same, of windows that are written as columns."""
    return few(specs, outs, params) and count(params["kernel"]) * count(params["outputs"]) <= LARGEST


def each(work: Work, function: Any, arrays: Sequence[Any], lead: int, per: int, most: int, *values: Any) -> None:
    """Launch one thread for each of `lead` · `per` elements, where all arrays have `lead` planes; at most 2^31 elements at a
    time, counting `most` in a plane. The kernel's arguments: the arrays, the values, the number of elements as an int."""
    if not lead or not per:
        return
    step = max(1, LARGEST // max(per, most, 1))
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


def plane_gather(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x, indices), (y,) = inputs, outputs
    function, sizes = work.kernel("pool.cu", "plane_gather", word(y)), (count(y.shape[2:]), count(x.shape[2:]))
    site = work.faults.plane("max_pool_gather", sizes[1])
    work.each(function, y.size, work.contiguous(x), work.contiguous(indices), y, work.faults.record, site, *sizes)
    work.faults.check()


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
        each(
            work,
            work.kernel("vision.cu", "col2im", y.dtype, x.dtype),
            (work.contiguous(x), y),
            lead,
            y.size // lead,
            x.size // lead,
            windows,
        )


RULES = {
    ("pool.cu", "max_pool"): Rule(max_pool, few),
    ("pool.cu", "adaptive_max_pool"): Rule(adaptive_max_pool, few),
    ("pool.cu", "avg_pool"): Rule(avg_pool, few),
    ("pool.cu", "avg_pool_backward"): Rule(avg_pool_backward, few),
    ("pool.cu", "max_pool_gather"): Rule(plane_gather),
    ("vision.cu", "im2col"): Rule(im2col, few_columns),
    ("vision.cu", "col2im"): Rule(col2im, few_columns),
}
