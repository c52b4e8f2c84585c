"""What a row reads, writes and computes, from the shapes of its operands: bytes and floating-point operations.

A multiplication and an addition are two operations, as everywhere; an element of an elementwise row counts as one, whatever its function.
Rows that only move, compare or choose values count as none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradlab.kernel import Elementwise, Reduction
from gradlab.op import Op

Shape = tuple[int, ...]
Formula = Callable[[Sequence[Any], Sequence[Any]], int]  # of the shapes of inputs (None where there is none) and of outputs
MOVING = frozenset((
    "full", "arange", "cast", "clone", "where", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor",
    "logical_not", "isnan", "isinf", "isfinite",
))  # fmt: skip


def _size(shape: Shape | None) -> int:
    return 0 if shape is None else math.prod(shape)


def _product(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    bias = _size(outputs[0]) if len(inputs) > 2 and inputs[2] is not None else 0
    return 2 * _size(outputs[0]) * inputs[0][-1] + bias


def _convolution(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    bias = _size(outputs[0]) if len(inputs) > 2 and inputs[2] is not None else 0
    return 2 * _size(outputs[0]) * _size(inputs[1][1:]) + bias


def _spread(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Each element of the first input meets each weight of its channel."""
    return 2 * _size(inputs[0]) * _size(inputs[1][1:])


def _attention(products: int) -> Formula:
    """So many products with the matrix of weights, of whose widths half are keys' and half are values'."""

    def formula(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
        q, k, v = inputs[-6:-3] if products > 2 else inputs[:3]
        return products * _size(q[:-1]) * k[-2] * (q[-1] + v[-1])

    return formula


def _sequence(weight: int) -> Formula:
    """Each row meets the whole weight; and what is done for each gate."""
    return lambda inputs, outputs: outputs[0][0] * 2 * _size(inputs[weight]) + 5 * _size(inputs[0])


def _each(times: int, at: int = 0) -> Formula:
    """For each element of an input."""
    return lambda inputs, outputs: times * _size(inputs[at])


FORMULAS: Mapping[str, Formula] = {
    **dict.fromkeys(("matmul", "wide_matmul", "linear", "linear_relu", "linear_gelu_tanh"), _product),
    **dict.fromkeys(("convolution", "convolution_act", "convolution_act_sums"), _convolution),
    **dict.fromkeys(("convolution_dx", "convolution_transpose"), _spread),
    "convolution_dw": lambda inputs, outputs: 2 * _size(inputs[1]) * _size(outputs[0][1:]),
    "scaled_dot_product_attention": _attention(2),
    "scaled_dot_product_attention_backward": _attention(5),
    "grouped_mm": lambda inputs, outputs: 2 * inputs[0][-1] * _size(outputs[0]) // (inputs[2][0] if len(outputs[0]) == 3 else 1),
    "spmm": lambda inputs, outputs: 2 * _size(inputs[0]) * inputs[1][-1],
    "mse": _each(3), "euclidean": _each(2), "var": _each(4), "prod": _each(1),
    "cumsum": _each(1), "cumprod": _each(1), "recurrence": _each(2),
    "softmax": _each(4), "masked_softmax": _each(5), "softmax_backward": _each(4),
    "log_softmax": _each(4), "log_softmax_backward": _each(4), "cross_entropy": _each(4), "cross_entropy_backward": _each(3),
    "layer_norm": _each(8), "layer_norm_residual": _each(9), "rms_norm": _each(5), "rms_norm_residual": _each(6), "batch_norm": _each(8),
    "layer_norm_backward": _each(14), "rms_norm_backward": _each(10), "batch_norm_backward": _each(12),
    "lstm_cell": _each(5), "lstm_cell_backward": lambda inputs, outputs: 4 * _size(outputs[0]),
    "gru_cell": _each(5), "gru_cell_backward": lambda inputs, outputs: 4 * _size(outputs[0]),
    **dict.fromkeys(("lstm_sequence", "gru_sequence", "rnn_sequence"), _sequence(1)),
    "lstm_sequence_backward": _sequence(4), "gru_sequence_backward": _sequence(3), "rnn_sequence_backward": _sequence(2),
    "dropout": _each(1),
    "sgd_update": _each(2), "sgd_momentum_update": _each(4), "adam_update": _each(12), "amsgrad_update": _each(13),
}  # fmt: skip


def flops(op: Op, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Of one run of a row: its inputs' shapes (None for what is a number, or not there) and its outputs'."""
    formula = FORMULAS.get(op.name)
    if formula is not None:
        try:
            return formula(inputs, outputs)
        except (IndexError, TypeError):  # a form of the row that the formula does not know
            return 0
    if isinstance(op.cuda, Elementwise):
        return 0 if op.name in MOVING or op.view else _size(outputs[0])
    return _size(inputs[0]) if isinstance(op.cuda, Reduction) and inputs else 0


def shape_of(value: Any) -> Shape | None:
    """Of an array; None of anything else."""
    shape = getattr(value, "shape", None)
    return None if shape is None else tuple(shape)


def moved(values: Sequence[Any]) -> int:
    """The bytes of arrays, or of Specs."""
    total = 0
    for value in values:
        size = getattr(value, "nbytes", None)
        if size is None:
            shape = getattr(value, "shape", None)
            size = 0 if shape is None else math.prod(shape) * np.dtype(value.dtype).itemsize
        total += size
    return total
