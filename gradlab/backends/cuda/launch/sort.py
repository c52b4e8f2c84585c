"""Rows that order and count. One stable sort of unsigned keys (`kernels/sort.cu`) does it all, the same code on every device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab.backends.cuda.launch.argmax import find
from gradlab.backends.cuda.launch.prefix import running_largest
from gradlab.backends.cuda.launch.row_forms import split
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import THREADS, WORD_TYPES, Work
from gradlab.dtype import FLOATING, INT64
from gradlab.spec import Spec, count

FILE = "sort.cu"
MOST = 2**32 - 2  # elements whose places fit the sort
BLOCK_ROW = 2048  # longest row that a block sorts in shared memory
TILE = 2048
KEY32, KEY64 = np.dtype(np.uint32), np.dtype(np.uint64)


def key_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of the keys of a dtype."""
    return KEY64 if dtype.itemsize == 8 else KEY32


def numbered(work: Work, function: Any, number: int, *values: Any) -> None:
    """One thread for each of `number` elements; the count is not the kernel's last argument but among the values."""
    if number:
        work.launch(function, -(-number // THREADS), THREADS, *values)


def sorted_keys(work: Work, keys: Any, order: Any, rows: int, size: int, bits: int) -> tuple[Any, Any]:
    """Rows of keys [rows, size], of which the lowest `bits` count, in stable ascending order, and the place of each in the flat array
    before. `order` holds each element's own place. Both are written to."""
    if size <= 1:
        return keys, order
    if size <= BLOCK_ROW:
        half = max(32, 1 << (size - 1).bit_length() >> 1)
        shared = 2 * half * (keys.dtype.itemsize + 4)
        work.launch(work.kernel(FILE, "sort_block", keys.dtype), rows, half, keys, order, half, size, shared=shared)
        return keys, order
    total = rows * size
    tiles = -(-total // TILE)
    counts, totals = work.empty((256 * tiles,), KEY32), work.empty((256,), KEY32)
    others = work.empty((total,), keys.dtype), work.empty((total,), KEY32)
    counting, scatter = work.kernel(FILE, "radix_count", keys.dtype), work.kernel(FILE, "radix_scatter", keys.dtype)
    offsets = work.kernel(FILE, "radix_offsets")
    passes = [(shift, 0) for shift in range(0, bits, 8)]
    if rows > 1:
        passes += [(shift, size) for shift in range(0, (rows - 1).bit_length(), 8)]
    now = keys, order
    for shift, row_size in passes:
        work.launch(counting, tiles, 256, *now, counts, shift, row_size, tiles, total)
        work.launch(offsets, 256, 256, counts, totals, tiles)
        work.launch(scatter, tiles, 256, *now, *others, counts, totals, shift, row_size, tiles, total)
        now, others = others, now
    return now


def sorted_rows(work: Work, x: Any, dim: int, descending: bool = False) -> tuple[Any, Any]:
    """The sorted keys and the order of a contiguous array along `dim`, as rows [outer · inner, size]."""
    outer, size, inner = split(x.shape, dim)
    dtype = key_type(x.dtype)
    keys, order = work.empty((x.size,), dtype), work.empty((x.size,), KEY32)
    work.each(work.kernel(FILE, "keys", x.dtype), x.size, x, keys, order, int(descending), size, inner)
    return sorted_keys(work, keys, order, outer * inner, size, dtype.itemsize * 8)


def word(array: Any) -> str:
    """The C++ type of words of an array's element size."""
    return WORD_TYPES[array.dtype.itemsize]


def take_first(work: Work, x: Any, values: Any, indices: Any, dim: int, descending: bool) -> None:
    """The first of each sorted row, as many as the outputs have."""
    if not indices.size:
        return
    _, order = sorted_rows(work, x, dim, descending)
    _, size, inner = split(x.shape, dim)
    wanted = indices.shape[dim] if indices.shape else 1
    work.each(work.kernel(FILE, "pick_sorted", word(x)), indices.size, x, order, values, indices, wanted, size, inner)


def sort(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    values, indices = outputs
    take_first(work, work.contiguous(inputs[0]), values, indices, params["dim"], params["descending"])


def topk(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    values, indices = outputs
    take_first(work, work.contiguous(inputs[0]), values, indices, params["dim"], params["largest"])


def mode(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x, (values, indices) = work.contiguous(inputs[0]), outputs
    if not indices.size:
        return
    _, size, inner = split(x.shape, params["dim"])
    keys, order = sorted_rows(work, x, params["dim"])
    start = work.empty((x.size,), INT64)
    work.each(work.kernel(FILE, "run_starts", x.dtype), x.size, keys, start, size)
    running_largest(work, start, indices.size, size)
    work.launch(work.kernel(FILE, "mode", word(x)), indices.size, 256, x, order, start, values, indices, size, inner)


def median(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x, (values, indices) = work.contiguous(inputs[0]), outputs
    if not indices.size:
        return
    _, size, inner = split(x.shape, params["dim"])
    keys, order = sorted_rows(work, x, params["dim"])
    work.each(work.kernel(FILE, "median", x.dtype), values.size, x, keys, order, values, indices, int(params["pass_nan"]), size, inner)


def median_of_all(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x, (y,) = work.contiguous(inputs[0]), outputs
    if not x.size:
        work.copy(y, work.number(math.nan, Spec((), y.dtype)))
        return
    x = x.reshape((x.size,))
    keys, order = sorted_rows(work, x, 0)
    work.each(work.kernel(FILE, "median", x.dtype), 1, x, keys, order, y, None, int(params["pass_nan"]), x.size, 1)


def searchsorted(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (boundaries, x), (y,) = (work.contiguous(a) for a in inputs), outputs
    columns = 0 if len(boundaries.shape) == 1 else x.shape[-1]
    function = work.kernel(FILE, "searchsorted", x.dtype, y.dtype)
    work.each(function, y.size, boundaries, x, y, int(params["right"]), boundaries.shape[-1], columns)


def isin(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x, test), (y,) = (work.contiguous(a) for a in inputs), outputs
    keys, _ = sorted_rows(work, test.reshape((test.size,)), 0) if test.size else (None, None)
    work.each(work.kernel(FILE, "isin", x.dtype), y.size, x, keys, y, int(params["invert"]), test.size)


def extreme(work: Work, x: Any, largest: bool) -> Any:
    """The largest or smallest element of a contiguous array, a NaN if there is one, as an array of one element."""
    value, at = work.empty((1,), x.dtype), work.empty((1,), INT64)
    find(work, x, largest, value, at, (1, x.size, 1))
    return value


def histc(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x, (y,) = work.contiguous(inputs[0]), outputs
    bins, lo, hi = params["bins"], float(params["lo"]), float(params["hi"])
    if not (math.isfinite(lo) and math.isfinite(hi)):
        raise RuntimeError(f"histc: the range [{lo}, {hi}] is not finite; pass min and max")
    counts = work.zeros((bins,), KEY64)
    if x.size:
        limits = (extreme(work, x, False), extreme(work, x, True)) if lo == hi == 0 else (None, None)
        site = work.faults.values("histc: the range of the values is not finite; pass min and max")
        given = np.float64(lo), np.float64(hi)
        work.each(work.kernel(FILE, "histogram", x.dtype), x.size, x, *limits, counts, bins, *given, work.faults.record, site)
    work.each(work.kernel(FILE, "convert_counts", y.dtype), bins, counts, y)
    work.faults.check()


def sortable(at: int = 0) -> Any:
    """The rule takes arrays whose places fit the sort; `at` says which input is sorted."""

    def takes(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
        spec = specs[at]
        return spec is not None and count(spec.shape) <= MOST

    return takes


def floats(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
    """Floating point input."""
    return specs[0] is not None and specs[0].dtype in FLOATING


RULES = {
    (FILE, "sort"): Rule(sort, sortable()), (FILE, "topk"): Rule(topk, sortable()), (FILE, "mode"): Rule(mode, sortable()),
    ("scan.cu", "median"): Rule(median, sortable()), ("scan.cu", "median_of_all"): Rule(median_of_all, sortable()),
    (FILE, "searchsorted"): Rule(searchsorted), (FILE, "isin"): Rule(isin, sortable(1)), (FILE, "histc"): Rule(histc, floats),
}  # fmt: skip
