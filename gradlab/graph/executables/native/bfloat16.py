"""Rows that round float32 operands to bfloat16 and sum up in float32 what they multiply: pairs of numbers (pairs.h)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab.backends.native import compiler
from gradlab.backends.native.lowerings import winograd
from gradlab.backends.native.lowerings.products import FEW
from gradlab.dtype import FLOAT32, HALF
from gradlab.graph.passes.fused_rows import (
    convolution_batch_norm,
    convolution_batch_norm_relu,
    convolution_relu,
    convolution_relu_pool,
)
from gradlab.op import Op
from gradlab.ops.conv import convolution, convolution_dw, convolution_dx, convolution_rule
from gradlab.ops.linalg import matmul
from gradlab.ops.linear import linear

ENDING = "_bfloat16"  # of their names
BFLOAT16 = next(d for d in HALF if d.name == "bfloat16")
DEEP = 16  # the least depth that fills instructions


def rounded(x: Any) -> Any:
    """The nearest numbers of bfloat16, as float32."""
    return x.astype(BFLOAT16).astype(np.float32)


def _row(op: Op) -> Op:
    def cpu(x: Any, w: Any, *others: Any, **params: Any) -> None:
        op.cpu(rounded(x), rounded(w), *others, **params)
        y = others[len(op.inputs) - 2]
        if op.name in ROUNDED:
            y[...] = rounded(y)

    return Op(op.name + ENDING, op.rule, cpu=cpu, params=op.params, outputs=op.outputs)


CONVOLUTIONS = (
    convolution, convolution_dx, convolution_relu, convolution_relu_pool, convolution_batch_norm, convolution_batch_norm_relu,
)  # fmt: skip
ROUNDED = frozenset(op.name for op in CONVOLUTIONS)  # whose (first) results are
ROWS = {op.name: _row(op) for op in (matmul, linear, *CONVOLUTIONS, convolution_dw)}
FITTING = {ROWS[op.name] for op in CONVOLUTIONS[:4]}
OPERANDS = {row.name: 2 for row in ROWS.values()}  # of each the operands that it rounds


def takes(name: str, inputs: Sequence[Any], outputs: Sequence[Any], params: dict[str, Any]) -> bool:
    """Whether a row of float32 operands, which stand for bfloat16, is to be one of these: where the processor multiplies such numbers, and
    their kernel takes it."""
    if name not in ROWS or not compiler.bfloat16() or None in inputs[:2]:
        return False
    x, w, y = inputs[0].spec, inputs[1].spec, outputs[0].spec
    if any(s.dtype != FLOAT32 for s in (x, w, y)):
        return False
    if name.startswith("convolution"):
        if len(params["stride"]) != 2:
            return False
        weight = w
        if name == "convolution_dw":
            weight, y = y, w
        elif name == "convolution_relu_pool":
            y = convolution_rule(x, w, None, **params)
        return winograd.by_pairs(x, y, weight.shape[2:], params["stride"], params["dilation"], params["groups"])
    if len(x.shape) < 2 or len(w.shape) < 2:
        return False
    rows = y.shape[-2] if name == "matmul" else math.prod(y.shape[:-1])
    return rows > FEW and y.shape[-1] > FEW and x.shape[-1] >= DEEP and math.prod(y.shape) > 0
