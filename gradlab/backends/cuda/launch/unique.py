"""Distinct slices along a dimension: `kernels/unique.cu`. The host reads how many there are, as for all of `dynamic_sizes.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.backends.cuda.launch.prefix import running_count
from gradlab.backends.cuda.launch.sort import FILE as SORT, KEY32, key_type, sorted_keys, word
from gradlab.backends.cuda.launch_context import Work
from gradlab.dtype import BOOL, INT64

FILE = "unique.cu"


def distinct_slices(work: Work, x: Any, dim: int, consecutive: bool) -> tuple[Any, Any, Any]:
    """The distinct slices, for each slice the number of its value, and how often each occurs."""
    moved = np.moveaxis(x, dim, 0)
    size, shape = moved.shape[0], moved.shape[1:]
    columns = int(np.prod(shape, dtype=np.int64))
    table = work.contiguous(moved)
    rows = work.empty((size,), KEY32)
    work.each(work.kernel(FILE, "first_order"), size, rows)
    if size > 1 and not consecutive:
        dtype = key_type(x.dtype)
        for column in range(columns - 1, -1, -1):
            keys, order, next_rows = work.empty((size,), dtype), work.empty((size,), KEY32), work.empty((size,), KEY32)
            work.each(work.kernel(FILE, "column_keys", x.dtype), size, table, rows, keys, order, column, columns)
            _, order = sorted_keys(work, keys, order, 1, size, dtype.itemsize * 8)
            work.each(work.kernel(FILE, "reorder"), size, rows, order, next_rows)
            rows = next_rows
    first = work.empty((size,), BOOL)
    work.each(work.kernel(FILE, "first_rows", x.dtype), size, table, rows, first, columns)
    running = running_count(work, first)
    number = int(work.driver.download(running[size - 1 :])[0]) if size else 0
    inverse, starts, counts = (work.empty((n,), INT64) for n in (size, number, number))
    chosen = work.empty((number,), KEY32)
    work.each(work.kernel(FILE, "number_rows"), size, rows, running, inverse, starts, chosen)
    work.each(work.kernel(SORT, "lengths"), number, starts, counts, size)
    values = work.empty((number, *shape), x.dtype)
    work.each(work.kernel(FILE, "take_rows", word(x)), values.size, table, chosen, values, columns)
    return work.contiguous(np.moveaxis(values, 0, dim)), inverse, counts
