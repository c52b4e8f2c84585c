"""C's names for dtypes, numbers and scalar expressions."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.cuda.generate import Operand, main_dtype, reads
from gradlab.backends.native.lowerings.vector_functions import limit
from gradlab.dtype import immediate, wide
from gradlab.graph.ir.graph import Call, Value


class CType(NamedTuple):
    """storage: of an element in memory; compute: of a value in an expression; suffix: of the functions for it; code: in the weights file;
    descr: in .npy files."""

    storage: str
    compute: str
    suffix: str
    code: int
    descr: str


TYPES = {
    "float32": CType("float", "float", "f32", 1, "<f4"),
    "float64": CType("double", "double", "f64", 2, "<f8"),
    "float16": CType("uint16_t", "float", "f32", 3, "<f2"),
    "bfloat16": CType("uint16_t", "float", "f32", 4, "<V2"),
    "int8": CType("int8_t", "int8_t", "i8", 5, "|i1"),
    "int16": CType("int16_t", "int16_t", "i16", 6, "<i2"),
    "int32": CType("int32_t", "int32_t", "i32", 7, "<i4"),
    "int64": CType("int64_t", "int64_t", "i64", 8, "<i8"),
    "uint8": CType("uint8_t", "uint8_t", "u8", 9, "|u1"),
    "uint32": CType("uint32_t", "uint32_t", "u32", 11, "<u4"),
    "uint64": CType("uint64_t", "uint64_t", "u64", 12, "<u8"),
    "bool": CType("uint8_t", "bool", "b8", 13, "|b1"),
}
WRAPPING = frozenset(["add", "sub", "mul", "neg", "square"])  # rows whose expressions add and multiply with C's own operators
_NAME = re.compile(r"\b([A-Za-z_]\w*)\s*\(")


class Unsupported(Exception):
    """A call that the runner has no code for; the text says what about it."""


def ctype(dtype: Any) -> CType:
    """The C side of a dtype. Raises Unsupported for one that has none."""
    found = TYPES.get(np.dtype(dtype).name)
    if found is None:
        raise Unsupported(f"dtype {np.dtype(dtype).name}")
    return found


def loaded(text: str, dtype: Any) -> str:
    """An element in memory as a value."""
    name = np.dtype(dtype).name
    if name == "float16":
        return f"gl_from_f16({text})"
    if name == "bfloat16":
        return f"gl_from_bf16({text})"
    return f"({text} != 0)" if name == "bool" else text


def stored(text: str, dtype: Any) -> str:
    """A value as an element in memory."""
    name = np.dtype(dtype).name
    if name == "float16":
        return f"gl_to_f16({text})"
    if name == "bfloat16":
        return f"gl_to_bf16({text})"
    return f"({ctype(dtype).storage})({text})"


def literal(value: Any, dtype: Any) -> str:
    """A Python number as a C constant of the dtype's compute type."""
    kind = ctype(dtype).compute
    number = immediate(value, np.dtype(dtype)).item() if not isinstance(value, np.generic) else value.item()
    if isinstance(number, bool):
        return "true" if number else "false"
    if isinstance(number, int):
        if number > 2**63 - 1:
            return f"UINT64_C({number})"
        return f"({kind})INT64_C({number})" if number > -(2**63) else "INT64_MIN"
    if math.isnan(number):
        return f"({kind})NAN"
    if math.isinf(number):
        return f"({kind}){'-' if number < 0 else ''}INFINITY"
    return f"({kind}){float(number).hex()}"


def double(value: float) -> str:
    """A Python number as a C double."""
    return literal(float(value), np.float64).removeprefix("(double)")


def _parameter(name: str, value: Any, main: np.dtype[Any]) -> str | None:
    """The declaration of a parameter that an expression reads; None for one that is no number."""
    kind = ctype(main).compute
    if name in ("lo", "hi"):
        return f"const {kind} {name} = {literal(limit(name, value, main), wide(main))};"
    if isinstance(value, bool):
        return f"const bool {name} = {'true' if value else 'false'};"
    if isinstance(value, int):
        return f"const int64_t {name} = {literal(value, np.int64)};"
    return f"const double {name} = {double(value)};" if isinstance(value, float) else None


def translated(expression: str, compute: str, suffix: str) -> tuple[str, frozenset[str]]:
    """An expression in the terms of kernels/scalar_math.h as C, and the functions that it calls."""
    used = set()

    def change(found: re.Match[str]) -> str:
        name = found.group(1)
        if name == "T":
            return f"({compute})("
        if name in ("bool", "int"):
            return f"({name})("
        used.add(name)
        return f"gl_{name}_{suffix}("

    return _NAME.sub(change, expression), frozenset(used)


def scalar_function(call: Call) -> tuple[str, str, frozenset[str]]:
    """The text of an elementwise call's function (named @F), the suffix of its compute type, and the functions that it calls."""
    op = call.op
    like = next((x.spec.dtype for x in call.inputs if isinstance(x, Value)), None)
    out = call.outputs[0].spec.dtype
    operands, lines, heads = [], [], []
    for name, x in zip(op.inputs, call.inputs, strict=True):
        dtype = x.spec.dtype if isinstance(x, Value) else like if like is not None else out
        operands.append((name, dtype, isinstance(x, Value)))
    main = main_dtype(tuple(Operand(n, d, not v) for n, d, v in operands), out)
    kind = ctype(main)
    compute = kind.compute
    wraps = op.name in WRAPPING and main.kind == "i"
    for (name, dtype, is_value), x in zip(operands, call.inputs, strict=True):
        own = ctype(dtype).compute
        if wraps and own == compute:
            own = "uint64_t"
        if is_value:
            heads.append(f"{own} {name}")
        else:
            lines.append(f"  const {own} {name} = {f'({own})' if wraps else ''}{literal(x, op.number_dtype(dtype))};")
    for name, value in call.params.items():
        if reads(op.cuda.expression, name):
            declared = _parameter(name, value, main)
            if declared is None:
                raise Unsupported(f"its parameter {name}={value!r}")
            lines.append("  " + declared)
    text, used = translated(op.cuda.expression, compute, kind.suffix)
    result = ctype(out).compute
    head = f"GL_INLINE {result} @F({', '.join(heads) or 'void'}) {{"
    value = f"({text}) != 0" if result == "bool" else f"({result})({text})"
    return "\n".join([head, *lines, f"  return {value};", "}"]), kind.suffix, used
