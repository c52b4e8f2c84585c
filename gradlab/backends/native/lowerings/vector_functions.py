"""The functions of `interpreter.cpp`: one row, its dtypes given, on a block of elements. All are compiled ahead, into binary wheels.

Names are made of the texts, so that a function is only found if it is what would be compiled here.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.cuda.generate import Operand, main_dtype, reads
from gradlab.backends.cuda.types import STORAGE, compute_type
from gradlab.backends.native import prebuilt
from gradlab.call import Call, Value
from gradlab.dtype import FLOAT32, FLOAT64, HALF, INT64, immediate, wide
from gradlab.op import Op

HALVES = {"float16": "Float16", "bfloat16": "Bfloat16"}
MOST = 3  # inputs, and parameters: `Row` of interpreter.cpp


class Function(NamedTuple):
    """A vector function: its name and the text that makes it."""

    name: str
    text: str


def storage(dtype: np.dtype[Any]) -> str:
    """The C++ type that values of a dtype are stored in."""
    return HALVES.get(dtype.name) or STORAGE[dtype.name]


def limit(name: str, value: Any, main: np.dtype[Any]) -> Any:
    """The number that a limit `lo` or `hi` of a clamp stands for: None is none, and integers hold no more than their type."""
    low = name == "lo"
    if main.kind == "f" or main in HALF:
        return (-math.inf if low else math.inf) if value is None else value
    if main.kind == "b":
        return not low if value is None else value
    least, most = np.iinfo(main).min, np.iinfo(main).max
    if value is None:
        return least if low else most
    return min(max(int(value), least), most)


def _function(y: str, inputs: Sequence[tuple[str, str]], lines: Sequence[str], expression: str, near: str = "") -> Function:
    """y = the expression of one element of each input. near: the one of blocks without large numbers."""
    text = ["GRADLAB_KERNEL @K(void* k_y, void* const* k_x, const int64_t* k_n, int64_t k_count) {", f"  {y}* const k_to = ({y}*)k_y;"]
    text += [f"  const {kind}* const {name}_ = (const {kind}*)k_x[{i}];" for i, (name, kind) in enumerate(inputs)]
    text += [f"  {line}" for line in lines]
    for each in (near, expression) if near else (expression,):
        text += ["  if (all_near(x_, k_count))"] if each is near else []
        text += ["#pragma GCC ivdep", "  for (int64_t k_i = 0; k_i < k_count; ++k_i) {"]
        text += [f"    const {kind} {name} = {name}_[k_i];" for name, kind in inputs]
        text += [f"    k_to[k_i] = {each};", "  }", *(["  else"] if each is near else [])]
    text.append("}")
    body = "\n".join(text)
    name = f"e{hashlib.sha256(body.encode()).hexdigest()[:16]}"
    return Function(name, body.replace("@K", name))


def converting(kind: str, dtype: np.dtype[Any]) -> Function:
    """Half types: `widen` what is stored, `round` a float as the type would, `narrow` what has been rounded; `double`: round a double."""
    half = HALVES[dtype.name]
    if kind == "widen":
        return _function("float", [("x", half)], [], "cast<float>(x)")
    if kind == "narrow":
        return _function(half, [("x", "float")], [], f"cast<{half}>(x)")
    return _function("float", [("x", "double" if kind == "double" else "float")], [], f"rounded<{half}>(x)")


def parameters(op: Op) -> list[str]:
    """The parameters that a row's expression reads."""
    return [name for name in op.params if reads(op.cuda.expression, name)]


def copying(dtype: np.dtype[Any]) -> Function:
    """What moves numbers."""
    kind = STORAGE[dtype.name]
    return _function(kind, [("x", kind)], [], f"cast<{kind}>(x)")


# Powers as the row's NumPy function has them, which is quicker and closer.
POWERS: dict[Any, str] = {1: "x", 2: "x * x", 3: "x * x * x", -1: "T(1) / x"}
# Of scalar_forms.h: quicker ones; and those of blocks of float32 in which no number is large, of the same bits.
FORMS = {
    "gelu": "gelu(x)", "gelu_backward": "dy * gelu_slope(x)",
    "tan": "tangent(x)", "sinh": "hyperbolic_sine(x)", "cosh": "hyperbolic_cosine(x)",
}  # fmt: skip
NEAR = {"sin": "near_sin(x)", "cos": "near_cos(x)"}


def expression_of(op: Op, params: dict[str, Any], dtype: np.dtype[Any] | None, cpu: bool = True) -> str:
    """A row's scalar function, of operands of that dtype. cpu: for this processor, which has forms that a GPU has not."""
    expression: str = FORMS.get(op.name, op.cuda.expression) if cpu else op.cuda.expression
    return POWERS.get(params.get("exponent"), expression) if op.name == "pow" and dtype is not None and dtype.kind == "f" else expression


def function(op: Op, inputs: Sequence[np.dtype[Any]], out: np.dtype[Any], params: dict[str, Any] | None = None) -> Function:
    """Of a row for these dtypes, none of them a half type. params: where the function is another one for some."""
    main = main_dtype(tuple(map(Operand, op.inputs, inputs)), out)
    lines = [f"typedef {compute_type(main)} T;"]
    for i, name in enumerate(parameters(op)):
        kind = "T" if name in ("lo", "hi") else "double" if main.kind == "f" else "long long"
        lines.append(f"const {kind} {name} = *(const {kind}*)(k_n + {i});")
    given = [(name, compute_type(dtype)) for name, dtype in zip(op.inputs, inputs)]
    near = NEAR.get(op.name, "") if main == out == FLOAT32 else ""
    return _function(STORAGE[out.name], given, lines, f"cast<{STORAGE[out.name]}>({expression_of(op, params or {}, main)})", near)


def bits_of(value: Any, dtype: np.dtype[Any]) -> int:
    """A number as the first bytes of 64 bits."""
    return int(struct.unpack("<q", np.array(value, dtype).tobytes().ljust(8, b"\0"))[0])


class Part(NamedTuple):
    """What runs for a call: a function, its inputs (values, or numbers with their dtypes) and its parameters as 64 bits."""

    function: Function
    inputs: list[Value | tuple[Any, np.dtype[Any]]]
    numbers: list[int]


def part_of(call: Call) -> Part | None:
    """None for a call that has no such function."""
    op, out = call.op, call.outputs[0].spec.dtype
    like = next((x.spec.dtype for x in call.inputs if isinstance(x, Value)), out)
    inputs: list[Any] = []
    dtypes = []
    for x in call.inputs:
        dtype = x.spec.dtype if isinstance(x, Value) else like
        if "c" in (dtype.kind, out.kind):
            return None
        own = wide(dtype)
        dtypes.append(own)
        inputs.append(x if isinstance(x, Value) else (immediate(x, op.number_dtype(dtype)).item(), own))
    if op.name == "cast" and out == np.float16 and dtypes == [FLOAT64]:
        return Part(converting("double", out), inputs, [])
    main = main_dtype(tuple(map(Operand, op.inputs, dtypes)), wide(out))
    numbers = []
    for name in parameters(op):
        value = call.params[name]
        if name in ("lo", "hi"):
            numbers.append(bits_of(immediate(limit(name, value, main), main), main))
        elif not isinstance(value, (bool, int, float)):
            return None
        elif main.kind == "f":
            numbers.append(bits_of(value, FLOAT64))
        elif isinstance(value, float) and value != int(value):
            return None
        else:
            numbers.append(bits_of(immediate(int(value), INT64), INT64))
    if max(len(inputs), len(numbers)) > MOST:
        return None
    return Part(function(op, dtypes, wide(out), call.params), inputs, numbers)


def why_not(call: Call) -> str:
    """Why the prebuilt functions cannot do an elementwise call; "" if they can."""
    part = part_of(call)
    return "" if part is not None and prebuilt.address(part.function.name) else "no prebuilt function does this, and there is no compiler"


__all__ = [
    "HALVES", "NEAR", "POWERS", "Function", "Part", "bits_of", "converting", "copying", "expression_of", "function", "limit", "part_of",
    "storage", "why_not",
]  # fmt: skip
