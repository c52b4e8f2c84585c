"""Products of sparse matrices by `kernels/sparse.cu`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradlab.backends.cuda.launch.row_forms import aligned
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work
from gradlab.dtype import BOOL
from gradlab.spec import Spec

FILE = "sparse.cu"
FEW = 2  # columns, of which a warp adds up a row's entries
THREADS = 128
PACK = 4  # columns that a thread reads at a time, where 16 bytes hold as many


def _lanes(parts: int) -> int:
    """How many neighbouring threads work on that many parts: the power of two from there, at most a warp."""
    return min(32, 1 << max(parts - 1, 0).bit_length())


def _ready(work: Work, inputs: list[Any]) -> list[Any]:
    return [None if a is None else work.contiguous(a) for a in inputs]


def spmm(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    values, dense, _, col, starts, order, *_ = _ready(work, inputs)
    (y,) = outputs
    rows, width = y.shape
    if not y.size:
        return
    if width <= FEW:
        work.launch(work.kernel(FILE, "spmv", y.dtype), -(-rows // 4), THREADS, values, dense, col, starts, order, y, width, rows)
        return
    step = min(PACK, 16 // y.dtype.itemsize)
    packed = width % step == 0 and aligned(work, dense, y)
    parts = width // step if packed else width
    lanes = _lanes(parts)
    work.launch(
        work.kernel(FILE, "spmm", y.dtype), -(-rows // (THREADS // lanes)), THREADS, values, dense, col, starts, order, y, width, lanes,
        int(packed), rows, rows=-(-parts // lanes),
    )  # fmt: skip


def sddmm(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    a, b, row, col, *_ = _ready(work, inputs)
    (y,) = outputs
    if y.size:
        lanes = _lanes(a.shape[1])
        blocks = -(-y.size // (THREADS // lanes))
        work.launch(work.kernel(FILE, "sddmm", y.dtype), blocks, THREADS, a, b, row, col, y, a.shape[1], lanes, y.size)


def numbers(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
    """Whether the matrices hold numbers."""
    return outs[0].dtype != BOOL


RULES = {(FILE, "spmm"): Rule(spmm, numbers), (FILE, "sddmm"): Rule(sddmm, numbers)}
