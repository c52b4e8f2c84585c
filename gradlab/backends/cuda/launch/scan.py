"""Along one dimension: running sums, products and extremes.

They take one thread for each line (`scan.cu`) where lines are many or short, else one block or several (`prefix.cu`).
"""

from __future__ import annotations

from typing import Any

from gradlab.backends.cuda.launch import prefix
from gradlab.backends.cuda.launch.row_forms import split
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work
from gradlab.dtype import BOOL


def _lines(shape: tuple[int, ...], dim: int) -> tuple[int, int, int]:
    """count, inner and number of lines."""
    outer, size, inner = split(shape, dim)
    return size, inner, outer * inner


def _by_blocks(
    work: Work, name: str, types: tuple[Any, ...], inputs: list[Any], outputs: list[Any], dim: int, *more: int
) -> bool:
    """Run a kernel of prefix.cu if blocks suit the lines: rows of neighbours, or few long lines, which are made rows of neighbours."""
    size, inner, lines = _lines(outputs[0].shape, dim)
    if not (size > 64 if inner == 1 else size >= 1024 and lines < 4096) or outputs[0].dtype == BOOL:
        return False
    if inner == 1:
        prefix.run(work, name, types, (*(work.contiguous(x) for x in inputs), *outputs, *more), lines, size)
        return True
    rank = len(outputs[0].shape)
    order = (*(d for d in range(rank) if d != dim), dim)
    back = tuple(sorted(range(rank), key=order.__getitem__))
    made = [work.empty(tuple(y.shape[d] for d in order), y.dtype) for y in outputs]
    prefix.run(work, name, types, (*(work.contiguous(x.transpose(order)) for x in inputs), *made, *more), lines, size)
    for y, m in zip(outputs, made, strict=True):
        work.copy(y, m.transpose(back))
    return True


def running(mode: int) -> Rule:
    """cumsum, cumprod, logcumsumexp."""

    def run(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
        (y,) = outputs
        if y.size and not _by_blocks(work, "prefix", (y.dtype, mode), inputs, outputs, params["dim"]):
            size, inner, lines = _lines(y.shape, params["dim"])
            function = work.kernel("scan.cu", "running", y.dtype, mode)
            work.launch(function, -(-lines // 128), 128, work.contiguous(inputs[0]), y, size, inner, lines)

    return Rule(run)


def recurrence(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (y,) = outputs
    if y.size and not _by_blocks(work, "prefix_recurrence", (y.dtype,), inputs, outputs, params["dim"], int(params["reverse"])):
        size, inner, lines = _lines(y.shape, params["dim"])
        a, b = (work.contiguous(x) for x in inputs)
        function = work.kernel("scan.cu", "recurrence", y.dtype)
        work.launch(function, -(-lines // 128), 128, a, b, y, int(params["reverse"]), size, inner, lines)


def running_extreme(largest: bool) -> Rule:
    """cummax, cummin."""

    def run(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
        values, indices = outputs
        if values.size and not _by_blocks(
            work, "prefix_extreme", (values.dtype,), inputs, outputs, params["dim"], int(not largest)
        ):
            size, inner, lines = _lines(values.shape, params["dim"])
            function = work.kernel("scan.cu", "running_extreme", values.dtype, largest)
            work.launch(function, -(-lines // 128), 128, work.contiguous(inputs[0]), values, indices, size, inner, lines)

    return Rule(run)


RULES = {
    ("scan.cu", "cumsum"): running(0), ("scan.cu", "cumprod"): running(1), ("scan.cu", "logcumsumexp"): running(2),
    ("scan.cu", "recurrence"): Rule(recurrence), ("scan.cu", "cummax"): running_extreme(True),
    ("scan.cu", "cummin"): running_extreme(False),
}  # fmt: skip
