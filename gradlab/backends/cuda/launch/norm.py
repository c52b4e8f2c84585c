"""Normalisations: rows (layer norm, rms norm) by `kernels/norm.cu`, channels (batch norm) by `kernels/channel.cu`."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.backends.cuda.launch import row_forms
from gradlab.backends.cuda.launch.row_forms import (
    RESULTS,
    STATE,
    TOTALS,
    WHOLE,
    Call,
    aligned,
    floating,
    forms_of,
    held_form,
    parts_for,
    policy,
    split,
)
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work
from gradlab.dtype import FLOAT64
from gradlab.spec import count

ROWS, CHANNELS = "norm.cu", "channel.cu"
# As forms.HELD, for two arrays and two sums for each column.
HELD = ((4, 8), (32, 8), (128, 8), (256, 16), (512, 16))
MOST_ADDED = 256  # rows that are added one after the other
HELD_DOUBLE = ((4, 8), (32, 8), (128, 8), (512, 8))


def _optional(work: Work, array: Any) -> Any:
    return None if array is None else work.contiguous(array)


def _rows_of(shape: tuple[int, ...], k: int) -> tuple[int, int]:
    """Number of rows, and their size."""
    return count(shape[: len(shape) - k]), count(shape[len(shape) - k :])


def shares_of(rows: int, lanes: int) -> int:
    """Blocks that add up rows for the gradients of weight and bias: as many as fill a GPU, more where one would add too many."""
    groups = -(-rows // max(128 // lanes, 1))
    return max(1, min(groups, max(528 if lanes <= 128 else 264, -(-groups // MOST_ADDED))))


def layer_norm(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    _row_norm(work, [_optional(work, a) for a in inputs], outputs, params)


def rms_norm(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    y, rstd = outputs
    _row_norm(work, [*(_optional(work, a) for a in inputs), None], [y, None, rstd], params)


def _row_norm(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x = inputs[0]
    rows, size = _rows_of(x.shape, params["k"])
    call = Call(inputs, outputs, params["eps"])
    row_forms.run(work, ROWS, policy("RowNorm", x.dtype), call, x.dtype, (rows, size, 1), forms_of(x.dtype))


def layer_norm_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    dy, x, weight, mean, rstd = (_optional(work, a) for a in inputs)
    _row_norm_backward(work, dy, x, weight, mean, rstd, outputs[0], outputs[1], outputs[2], params["k"])


def rms_norm_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    dy, x, weight, rstd = (_optional(work, a) for a in inputs)
    _row_norm_backward(work, dy, x, weight, None, rstd, outputs[0], outputs[1], None, params["k"])


def _row_norm_backward(work: Work, dy: Any, x: Any, weight: Any, mean: Any, rstd: Any, dx: Any, dweight: Any, dbias: Any, k: int) -> None:
    rows, size = _rows_of(x.shape, k)
    if not size:
        return
    dtype = x.dtype
    form = held_form(size, HELD_DOUBLE if dtype == FLOAT64 else HELD)
    if form is not None:
        lanes, items = form
        parts = shares_of(rows, lanes)
        partial = work.empty((parts, 2, size), work.wide(dtype))
        packed = int(size % (16 // dtype.itemsize) == 0 and aligned(work, dy, x, weight, dx))
        function = work.kernel(ROWS, "held_backward", dtype, lanes, items)
        work.launch(function, parts, max(lanes, 128), dy, x, weight, mean, rstd, None, dx, partial, rows, size, packed)
    else:
        call = Call((dy, x, weight, mean, rstd), (dx,))
        row_forms.run(work, ROWS, policy("RowNormBackward", dtype), call, dtype, (rows, size, 1), ())
        blocks = -(-size // 256)
        parts = work.most_rows(max(1, min(rows // 16, max(min(528 // blocks, 256), -(-rows // MOST_ADDED)))))
        partial = work.empty((parts, 2, size), work.wide(dtype))
        function = work.kernel(ROWS, "column_sums", dtype)
        work.launch(function, blocks, 256, dy, x, mean, rstd, partial, rows, parts, size, rows=parts)
    function, which = work.kernel(ROWS, "join_columns", dtype), 1 if mean is None else 2
    work.launch(function, -(-size // 32), 256, partial, dweight, dbias, parts, size, rows=which)


def _channels(
    work: Work, name: str, x: Any, inputs: list[Any], outputs: list[Any], number: float, beside: Any, relu: bool | None = None
) -> None:  # fmt: skip
    """A policy of channel.cu over an array [batch, channels, inner]. beside: another one like it, or None. relu: whether a ReLU follows;
    None for a gradient."""
    batch, channels, inner = split(x.shape, 1)
    if not channels:
        return
    if channels == 1:
        batch, inner = 1, batch * inner
    dtype = x.dtype
    chosen = policy(name, dtype, beside is not None)
    if inner == 1 and channels > 1:
        call = Call(inputs, outputs, number, (batch if relu is None else int(relu), 0), (beside,))
        row_forms.run(work, CHANNELS, chosen, call, dtype, (1, batch, channels), ())
        return
    width = min(16 // dtype.itemsize, 8)
    packed = int(inner % width == 0 and aligned(work, x, outputs[0], inputs[0], beside))
    across = min(256, 1 << (max(-(-inner // width), 1) - 1).bit_length())
    parts = min(parts_for(channels, batch * inner, 4096), 256)
    arrays = [*inputs, *[None] * (5 - len(inputs)), *outputs, *[None] * (4 - len(outputs))]
    partial = work.empty((parts * channels * STATE,), FLOAT64) if parts > 1 else None
    function = work.kernel(CHANNELS, "channel", chosen)
    for stage in (WHOLE,) if parts == 1 else (TOTALS, RESULTS):
        sizes = (channels, batch, inner, parts, packed | stage << 1)
        first = batch * inner if relu is None else int(relu)
        work.launch(function, channels * parts, 256, *arrays, partial, np.float64(number), first, across, *sizes, beside)


def batch_norm(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any], other: Any = None, relu: bool = False) -> None:
    """other: what is added to the result; relu: whether a ReLU follows."""
    arrays = [_optional(work, a) for a in inputs]
    _channels(work, "BatchNorm", arrays[0], arrays, outputs, params["eps"], _optional(work, other), relu)


def batch_norm_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any], result: Any = None) -> None:
    """result: of a ReLU behind the norm, where the gradient is what arrives there."""
    arrays = [_optional(work, a) for a in inputs]
    _channels(work, "BatchNormBackward", arrays[1], arrays, outputs, 0.0, _optional(work, result))


RULES = {
    (ROWS, "layer_norm"): Rule(layer_norm, floating),
    (ROWS, "layer_norm_backward"): Rule(layer_norm_backward, floating),
    (ROWS, "rms_norm"): Rule(rms_norm, floating),
    (ROWS, "rms_norm_backward"): Rule(rms_norm_backward, floating),
    (ROWS, "batch_norm"): Rule(batch_norm, floating),
    (ROWS, "batch_norm_backward"): Rule(batch_norm_backward, floating),
}
