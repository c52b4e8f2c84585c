"""Running results along rows of neighbouring elements, for few long rows shared by several blocks: `kernels/prefix.cu`."""

from __future__ import annotations

from typing import Any

from gradlab.backends.cuda.launch_context import Work
from gradlab.dtype import INT64

FILE = "prefix.cu"
TILE = 1024
TARGET_BLOCKS = 1056  # eight for each of an H100's 132 multiprocessors
STATE_BYTES = 24  # the largest State
TOTALS, RUNNING, RESULTS = range(3)  # the stages of prefix.cu


def run(work: Work, name: str, types: tuple[Any, ...], arrays: tuple[Any, ...], rows: int, size: int) -> None:
    """Launch `name<types...>` over [rows, size]; how many blocks share a row depends on the sizes alone."""
    if not rows or not size:
        return
    tiles = -(-size // TILE)
    parts = max(1, min(TARGET_BLOCKS // rows, tiles // 4, 256))
    function = work.kernel(FILE, name, *types)
    if parts == 1:
        work.launch(function, rows, 256, *arrays, None, rows, size, 1, RESULTS)
        return
    totals = work.empty((rows * parts * STATE_BYTES // 8,), INT64)
    used = -(-tiles // -(-tiles // parts))  # blocks that have something to do
    work.launch(function, rows * parts, 256, *arrays, totals, rows, size, parts, TOTALS)
    if used > 1:
        work.launch(function, -(-rows // 256), 256, *arrays, totals, rows, size, parts, RUNNING)
    work.launch(function, rows * parts, 256, *arrays, totals, rows, size, parts, RESULTS)


def running_count(work: Work, mask: Any) -> Any:
    """How many elements of a contiguous bool array are true up to each, as a flat int64 array."""
    made = work.empty((mask.size,), INT64)
    run(work, "prefix_count", (), (mask, made), 1, mask.size)
    return made


def running_largest(work: Work, values: Any, rows: int, size: int) -> None:
    """Each row's int64 numbers become their running maximum."""
    run(work, "prefix_largest", (), (values,), rows, size)
