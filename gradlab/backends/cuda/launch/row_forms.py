"""How rows are walked: which form of `kernels/rows.cuh` suits an array [outer, count, inner], and its launches.

The choice depends on the sizes alone, never on the device, so that one array gives the same bits everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.cuda.launch_context import Work
from gradlab.backends.cuda.types import STORAGE
from gradlab.dtype import FLOAT64
from gradlab.spec import Spec, count

TARGET_BLOCKS = 528  # four for each of an H100's 132 multiprocessors
MOST_PARTS = 256  # the blocks that share a row: at most as many as a block that merges their totals has threads
STATE = 4  # float64 words that the totals of one row take at most

WHOLE, TOTALS, RESULTS = range(3)  # the stages of rows.cuh

# Threads and elements of each in registers, for rows of up to their product. A double takes two registers.
HELD = ((4, 8), (16, 8), (32, 16), (32, 32), (256, 16), (512, 32))
HELD_DOUBLE = ((4, 8), (16, 8), (32, 16), (256, 16), (512, 16))
HELD_ANY = ((4, 8), (32, 32))  # extremes: of every dtype

Sizes = tuple[int, int, int]
Forms = Sequence[tuple[int, int]]


class Call(NamedTuple):
    """What the kernels of a policy are given."""

    ins: Sequence[Any]
    outs: Sequence[Any]
    number: float = 0.0
    extra: tuple[int, int] = (0, 0)
    more: tuple[Any, ...] = ()  # behind all the others, where a file's kernels take more than rows.cuh's


def split(shape: tuple[int, ...], dim: int) -> Sizes:
    """outer, count, inner."""
    return (count(shape[:dim]), shape[dim], count(shape[dim + 1 :])) if shape else (1, 1, 1)


def floating(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
    """Floating point outputs."""
    return outs[0].dtype.kind in "fV"


def threads_for(size: int) -> int:
    """How many threads work on a row of that size."""
    return 32 if size <= 64 else 128 if size <= 1024 else 256 if size <= 4096 else 512


def policy(name: str, dtype: np.dtype[Any], *more: Any) -> str:
    """The C++ type."""
    written = [STORAGE[dtype.name], *(str(m).lower() if isinstance(m, bool) else str(m) for m in more)]
    return f"gradlab::{name}<{', '.join(written)}>"


def aligned(work: Work, *arrays: Any) -> bool:
    """Whether all begin at multiples of 16 bytes."""
    joined = 0
    for a in arrays:
        if a is not None:
            joined |= work.pointer(a)
    return joined % 16 == 0


def held_form(size: int, forms: Forms) -> tuple[int, int] | None:
    """The smallest form that holds a row."""
    return next((form for form in forms if size <= form[0] * form[1]), None)


def parts_for(blocks: int, size: int, least: int) -> int:
    """How many blocks share a row, if `blocks` of them were launched otherwise; none gets fewer than `least` elements."""
    return max(1, min(TARGET_BLOCKS // max(blocks, 1), size // least, MOST_PARTS))


def forms_of(dtype: np.dtype[Any]) -> Forms:
    """The forms that hold rows of floats."""
    return HELD_DOUBLE if dtype == FLOAT64 else HELD


def run(
    work: Work, file: str, policy: str, call: Call, dtype: np.dtype[Any], sizes: Sizes, forms: Forms, writes: bool = True
) -> None:
    """Launch a policy of `file` over the rows of contiguous arrays. `writes`: it has a result for each element."""
    outer, size, inner = sizes
    rows = outer * inner
    if not rows:
        return
    ins, outs = [*call.ins, *[None] * (5 - len(call.ins))], [*call.outs, *[None] * (4 - len(call.outs))]
    mode = int(inner == 1 and size % (16 // dtype.itemsize) == 0 and aligned(work, *ins, *(outs if writes else ())))

    def launch(
        name: str, types: tuple[Any, ...], blocks: int, threads: int, stage: int, partial: Any, parts: int, columns: int = 1
    ) -> None:  # fmt: skip
        function = work.kernel(file, name, policy, *types)
        work.launch(
            function, blocks, threads, *ins, *outs, partial, np.float64(call.number), *call.extra, rows, size, inner, parts,
            mode | stage << 1, *call.more, rows=columns,
        )  # fmt: skip

    if inner > 1:
        blocks = -(-rows // 32)
        parts = parts_for(blocks, size, 128)
        if parts == 1:
            launch("columns", (), blocks, 256, WHOLE, None, 1)
            return
        partial = work.empty((parts * rows * STATE,), FLOAT64)
        launch("columns", (), blocks, 256, TOTALS, partial, parts, parts)
        launch("columns", (), blocks, 256, RESULTS, partial, parts, parts if writes else 1)
        return
    form = held_form(size, forms)
    if form is not None:
        lanes, items = form
        teams = 128 // lanes if lanes < 128 else 1
        launch("held", (lanes, items), -(-rows // teams), max(lanes, 128), WHOLE, None, 1)
        return
    parts = parts_for(rows, size, 8192)
    if parts == 1:
        launch("looped", (), rows, 512, WHOLE, None, 1)
        return
    partial = work.empty((parts * rows * STATE,), FLOAT64)
    launch("looped", (), rows * parts, 512, TOTALS, partial, parts)
    launch("looped", (), rows * parts if writes else rows, 512, RESULTS, partial, parts)
