"""Sizes that are known when the model runs alone: their expressions (`gradlab.graph.ir.dims`) as ONNX nodes on the inputs' shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.dtype import FLOAT64, INT64

if TYPE_CHECKING:
    from gradlab.onnx.emitter import Emitter, Wire

ARITHMETIC = {"add": "Add", "sub": "Sub", "mul": "Mul", "pow": "Pow"}
ROUNDING = {"floor": "Floor", "ceil": "Ceil"}


def size_of(e: Emitter, expression: Any, leaves: dict[str, tuple[Wire, int]]) -> Wire:
    """An expression of sizes as a vector of one number, int64 (float64 where it divides). leaves: where names are."""
    if isinstance(expression, str):
        wire, dim = leaves[expression]
        found: Wire = e("Shape", wire, start=dim, end=dim + 1)
        return found
    if not isinstance(expression, (tuple, list)):
        return e.constant([expression], INT64 if isinstance(expression, int) else FLOAT64)
    name, *operands = expression
    parts = [size_of(e, x, leaves) for x in operands]
    if name == "truediv":
        return e("Div", *(e.cast(p, FLOAT64) for p in parts))
    if name == "neg":
        return e("Neg", parts[0])
    if name in ROUNDING:
        return e.cast(e(ROUNDING[name], parts[0]), INT64)
    if name == "trunc":
        return e.cast(parts[0], INT64)
    if any(p.dtype != INT64 for p in parts):
        parts = [e.cast(p, FLOAT64) for p in parts]
    if name in ARITHMETIC:
        total = parts[0]
        for p in parts[1:]:
            total = e(ARITHMETIC[name], total, p)
        return total
    a, b = parts
    rest = e("Mod", a, b, fmod=int(a.dtype != INT64))  # of integers with the divisor's sign, as in Python
    if name == "mod":
        return rest
    assert name == "floordiv", name
    return e("Div", a - rest, b) if a.dtype == INT64 else e("Floor", e("Div", a, b))


def plain(value: Any) -> Any:
    """A number without what it was computed from."""
    return int.__int__(value) if isinstance(value, int) else float(np.float64(value))
