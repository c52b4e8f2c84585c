"""Adding into places named by an index, for more sources than each place could look through: sorted by place, summed run by run."""

from __future__ import annotations

from typing import Any

from gradlab.backends.cuda.launch import atomic
from gradlab.backends.cuda.launch.sort import KEY32, MOST, sorted_keys
from gradlab.backends.cuda.launch_context import WORD_TYPES, Work

FILE = "segment.cu"


def fits(number: int, size: int) -> bool:
    """Whether sources and places fit the sort."""
    return number <= MOST and size <= MOST


def add(
    work: Work, y: Any, places: Any, source: Any, inner: int, size: int, *, mode: int = 0, keep: bool = True, skip: int = -1
) -> None:
    """y[outer, places[n], inner] += source[outer, n, inner], in the order of n; contiguous arrays, `places` of int64.

    mode: 0 adds, 2 multiplies, 3 and 4 take the maximum and minimum. keep: the old value of a place takes part. skip: a place that gets
    nothing. A source of one element stands for all.
    """
    number = places.size
    if not number or not y.size:
        return
    if atomic.allowed(y, mode, keep):
        atomic.add(work, y, places, source, inner, size, skip)
        return
    width = y.size // size
    keys, order = work.empty((number,), KEY32), work.empty((number,), KEY32)
    work.launch(work.kernel(FILE, "places_as_keys"), -(-number // 256), 256, places, keys, order, size, skip, number)
    keys, order = sorted_keys(work, keys, order, 1, number, size.bit_length())
    tile = 64 if width >= 32 else 16
    threads = -(-number // tile) * width
    wide = work.wide(y.dtype)
    head, tail = work.empty((threads,), wide), work.empty((threads,), wide)
    each = int(source.size != 1 or number * width == 1)
    function = work.kernel(FILE, "segments", y.dtype)
    work.each(function, threads, keys, order, source, y, head, tail, number, size, inner, mode, int(keep), each, tile, width)
    if number > tile:
        function = work.kernel(FILE, "join_segments", y.dtype)
        work.each(function, threads, keys, y, head, tail, number, size, inner, mode, tile, width)


def put(work: Work, y: Any, places: Any, source: Any, size: int) -> None:
    """y[places[n], :] = source[n, :]; of several sources for a place the last one stays."""
    number = places.size
    if not number or not y.size:
        return
    width = y.size // size
    claims = work.zeros((size,), KEY32)
    work.each(work.kernel(FILE, "claim"), number, places, claims, size)
    each = int(source.size != 1 or number * width == 1)
    function = work.kernel(FILE, "write_claimed", WORD_TYPES[y.dtype.itemsize])
    work.each(function, number * width, places, claims, source, y, size, width, each)
