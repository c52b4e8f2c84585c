"""Norms of a sum by `kernels/residual.cu`, rows of a table plus positions by `kernels/embedding.cu`."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.backends.cuda.launch import norm, row_forms
from gradlab.backends.cuda.launch.row_forms import Call, Forms, aligned, floating, held_form, policy
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work
from gradlab.dtype import FLOAT64
from gradlab.spec import count

NORMS, EMBEDDING = "residual.cu", "embedding.cu"
# As forms.HELD and norms.HELD, but fewer: every one is compiled for every type.
HELD = ((32, 16), (256, 16))
HELD_BACKWARD, HELD_BACKWARD_DOUBLE = ((32, 8), (128, 8), (512, 16)), ((32, 8), (128, 8), (512, 8))


def backward_forms(dtype: np.dtype[Any]) -> Forms:
    """The forms that hold rows of the derivative. A double takes two registers."""
    return HELD_BACKWARD_DOUBLE if dtype == FLOAT64 else HELD_BACKWARD


def _ready(work: Work, inputs: list[Any]) -> list[Any]:
    return [None if a is None else work.contiguous(a) for a in inputs]


def layer_norm_residual(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    _forward(work, _ready(work, inputs), outputs, params)


def rms_norm_residual(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    y, s, rstd = outputs
    _forward(work, [*_ready(work, inputs), None], [y, s, None, rstd], params)


def _forward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    shape, dtype, k = inputs[0].shape, inputs[0].dtype, params["k"]
    sizes = (count(shape[: len(shape) - k]), count(shape[len(shape) - k :]), 1)
    row_forms.run(work, NORMS, policy("SumNorm", dtype), Call(inputs, outputs, params["eps"]), dtype, sizes, HELD)


def layer_norm_residual_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    dy, ds, s, weight, *statistics = _ready(work, inputs)
    _backward(work, dy, ds, s, weight, statistics, outputs, params, norm.layer_norm_backward)


def rms_norm_residual_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    dy, ds, s, weight, *statistics = _ready(work, inputs)
    _backward(work, dy, ds, s, weight, statistics, outputs, params, norm.rms_norm_backward)


def _backward(
    work: Work, dy: Any, ds: Any, s: Any, weight: Any, statistics: list[Any], outputs: list[Any], params: dict[str, Any], plain: Any
) -> None:  # fmt: skip
    k, dtype, dx = params["k"], s.dtype, outputs[0]
    rows, size = count(s.shape[: len(s.shape) - k]), count(s.shape[len(s.shape) - k :])
    if not size:
        return
    form = held_form(size, backward_forms(dtype))
    if form is None:
        plain(work, [dy, s, weight, *statistics], outputs, params)
        work.each(work.kernel(NORMS, "add_rest", dtype), dx.size, dx, ds)
        return
    lanes, items = form
    parts = norm.shares_of(rows, lanes)
    partial = work.empty((parts, 2, size), work.wide(dtype))
    packed = int(size % (16 // dtype.itemsize) == 0 and aligned(work, dy, ds, s, weight, dx))
    mean, rstd = statistics if len(statistics) == 2 else (None, *statistics)
    function = work.kernel(norm.ROWS, "held_backward", dtype, lanes, items)
    work.launch(function, parts, max(lanes, 128), dy, s, weight, mean, rstd, ds, dx, partial, rows, size, packed)
    dweight, dbias = outputs[1:] if mean is not None else (outputs[1], None)
    function = work.kernel(norm.ROWS, "join_columns", dtype)
    work.launch(function, -(-size // 32), 256, partial, dweight, dbias, parts, size, rows=len(outputs) - 1)


def embedding_add(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    table, positions, at = (work.contiguous(a) for a in inputs)
    (y,) = outputs
    if not y.size:
        return
    (size, width), lines = table.shape, at.size
    vector = 16 // y.dtype.itemsize
    packed = width % vector == 0 and aligned(work, table, positions, y)
    accesses = width // vector if packed else width
    lanes = min(1 << (accesses - 1).bit_length(), 128)
    site = work.faults.index("embedding", table.shape, (0,))
    blocks = -(-lines * lanes // 128)
    work.launch(
        work.kernel(EMBEDDING, "embedding_add", y.dtype), blocks, 128, table, positions, at, y, work.faults.record, site, size,
        at.shape[-1], width, lanes, int(packed), lines,
    )  # fmt: skip
    work.faults.check()


RULES = {
    (NORMS, "layer_norm_residual"): Rule(layer_norm_residual, floating),
    (NORMS, "layer_norm_residual_backward"): Rule(layer_norm_residual_backward, floating),
    (NORMS, "rms_norm_residual"): Rule(rms_norm_residual, floating),
    (NORMS, "rms_norm_residual_backward"): Rule(rms_norm_residual_backward, floating),
    (EMBEDDING, "embedding_add"): Rule(embedding_add, floating),
}
