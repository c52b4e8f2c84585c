"""Elementwise rows as loops that take sizes, steps and numbers as parameters: one for each row, its dtypes, and which operands repeat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab.backends.cuda.generate import Operand, main_dtype, reads
from gradlab.backends.cuda.layout import merged
from gradlab.backends.cuda.types import compute_type
from gradlab.backends.native.lowering import HEADER, Lowering, TaskSpec, Unsupported, bits, widest
from gradlab.backends.native.lowerings.iteration_order import in_order, walk
from gradlab.backends.native.lowerings.looping import broadcast
from gradlab.backends.native.lowerings.loops import CLAMP, LIMITED, Loop, cost, expression_of, lower_loop, why_not_elementwise
from gradlab.backends.native.lowerings.vector_functions import HALVES, NEAR, limit, storage
from gradlab.call import Call, Value
from gradlab.dtype import FLOAT32, HALF, wide
from gradlab.op import Op
from gradlab.quiet import quietly

OUTER = 3  # dimensions around the innermost one
BLOCK = 512  # elements that are looked at before they are computed with
SHORT, FEW = 16, 1 << 12  # an innermost dimension that is not worth a loop of its own, unless there are few elements


def lower(call: Call, ctx: Lowering) -> list[TaskSpec]:
    """The task of one elementwise call."""
    if why_not_elementwise(call, halves=True) or not all(isinstance(x, Value) for x in call.inputs):
        raise Unsupported
    y, operands = ctx.place(call.outputs[0]), [ctx.place(x) for x in call.inputs]
    if y.size == 0:
        return []
    if any(p.dtype.kind in "iu" for p in operands):  # division by zero is refused by NumPy's function, and large integers are rare
        raise Unsupported
    if not ctx.generates:
        return [lower_loop(Loop([call], [call.outputs[0]]), ctx)]
    order = walk(y)
    strides = [in_order(broadcast(p, y.shape), order) for p in (y, *operands)]
    sizes, steps = merged(in_order(y.shape, order), strides)
    sizes, steps = sizes or [1], [s or [1] for s in steps]
    inner = tuple(s[0] for s in steps)
    if len(sizes) > OUTER + 1 or not set(inner) <= {0, 1} or inner[0] != 1 or (len(sizes) > 1 and sizes[0] < SHORT and y.size > FEW):
        raise Unsupported
    dtypes = tuple(x.spec.dtype for x in call.inputs)
    text, given = kernel_text(call.op, dtypes, y.dtype, inner[1:], call.params)
    pad = OUTER + 1 - len(sizes)
    numbers = [*sizes, *(1,) * pad]
    for step in steps:
        numbers += [*step[1:], *(0,) * pad]
    work = y.size * cost(call)
    most = math.prod(sizes[1:]) if len(sizes) > 1 else sizes[0]
    return [TaskSpec(ctx.generate(text), (*numbers, *given), (y, *operands), min(most, widest(work)))]


def kernel_text(
    op: Op, dtypes: Sequence[np.dtype[Any]], out: np.dtype[Any], inner: Sequence[int], params: dict[str, Any]
) -> tuple[str, list[int]]:
    """The text of the loop and the numbers behind its sizes and steps. inner: of each operand its step along the innermost dimension."""
    declared, given = declarations(op, dtypes, out, params)
    arrays = range(len(dtypes))
    main = main_dtype(tuple(Operand(name, d) for name, d in zip(op.inputs, dtypes)), out)
    head = ", ".join(f"{compute_type(d)} {name}" for name, d in zip(op.inputs, dtypes))
    more = "".join(f", {kind} {name}" for kind, name, _ in declared)
    make = f"rounded<{HALVES[out.name]}>" if out in HALF else f"cast<{compute_type(out)}>"
    expression = CLAMP.sub(LIMITED, expression_of(op, params, dtypes[0]))
    text = [
        HEADER, "namespace gradlab {", f"GRADLAB_FUNCTION auto @K_f({head}{more}) {{", f"  typedef {compute_type(main)} T;",
        f"  return {expression};", "}",
        "GRADLAB_KERNEL @K(char** p, const int64_t* v, int part, int parts) {",
    ]  # fmt: skip
    at = (OUTER + 1) + OUTER * (1 + len(dtypes))
    text += [f"  const {kind} {name} = {read.format(at + i)};" for i, (kind, name, read) in enumerate(declared)]
    pointers = [f"{storage(out)}* y0", *(f"const {storage(dtypes[i])}* x{i}" for i in arrays)]
    step = [f"[i * {s}]" if s == 0 else "[i]" for s in inner]
    values = [f"const {compute_type(dtypes[i])} c{i} = cast<{compute_type(dtypes[i])}>(x{i}[0]);" for i in arrays if not inner[i]]
    loads = ", ".join(f"cast<{compute_type(dtypes[i])}>(x{i}{step[i]})" if inner[i] else f"c{i}" for i in arrays)
    names = "".join(f", {name}" for _, name, _ in declared)
    text += [
        f"  const auto row = [=]({', '.join(pointers)}, int64_t first, int64_t last) {{",
        *(f"    {line}" for line in values),
        *_loops(op, dtypes, out, inner, f"y0[i] = cast<{storage(out)}>({make}(@K_f({loads}{names})));"),
        "  };",
        f"  {storage(out)}* const y = ({storage(out)}*)p[0];",
        *(f"  const {storage(dtypes[i])}* const a{i} = (const {storage(dtypes[i])}*)p[{i + 1}];" for i in arrays),
        "  const int64_t outer = v[1] * v[2] * v[3];",
        "  if (outer == 1) {", "    const Share mine = share(v[0], part, parts, 64);",
        f"    row(y, {', '.join(f'a{i}' for i in arrays)}, mine.first, mine.last);", "    return;", "  }",
        "  const Share mine = share(outer, part, parts);",
        "  int64_t i1 = mine.first % v[1], i2 = mine.first / v[1] % v[2], i3 = mine.first / v[1] / v[2];",
        "  for (int64_t o = mine.first; o < mine.last; ++o) {",
        f"    row({', '.join(_moved(i) for i in range(-1, len(dtypes)))}, 0, v[0]);",
        "    if (++i1 == v[1]) {", "      i1 = 0;", "      if (++i2 == v[2]) i2 = 0, ++i3;", "    }",
        "  }", "}", "}  // namespace gradlab",
    ]  # fmt: skip
    return "\n".join(text), given


def _loops(op: Op, dtypes: Sequence[np.dtype[Any]], out: np.dtype[Any], inner: Sequence[int], each: str) -> list[str]:
    """The innermost loop from `first` to `last`; where no number of a block is large, by a quicker function of the same bits."""
    loop = ["#pragma GCC ivdep", f"    for (int64_t i = first; i < last; ++i) {each}"]
    if op.name not in NEAR or not dtypes[0] == out == FLOAT32 or inner[0] == 0:
        return loop
    near = NEAR[op.name].replace("(x)", "(x0[i])")
    return [
        f"    for (int64_t end = last, b = first; b < end; b += {BLOCK}) {{",
        f"      const int64_t first = b, last = end - b < {BLOCK} ? end : b + {BLOCK};",
        "      if (all_near(x0 + first, last - first)) {", loop[0], f"      for (int64_t i = first; i < last; ++i) y0[i] = {near};",
        "      } else {", *loop, "      }", "    }",
    ]  # fmt: skip


def _moved(operand: int) -> str:
    """An operand's pointer at indices i1, i2 and i3."""
    first = OUTER + 1 + OUTER * (operand + 1)
    return f"{'y' if operand < 0 else f'a{operand}'} + i1 * v[{first}] + i2 * v[{first + 1}] + i3 * v[{first + 2}]"


def declarations(
    op: Op, dtypes: Sequence[np.dtype[Any]], out: np.dtype[Any], params: dict[str, Any]
) -> tuple[list[tuple[str, str, str]], list[int]]:
    """Of each parameter that the expression reads its C++ type, its name and how it is read; and the numbers to be read."""
    main = main_dtype(tuple(Operand(name, d) for name, d in zip(op.inputs, dtypes)), out)
    found, given = list[tuple[str, str, str]](), list[int]()
    for name, value in params.items():
        if not reads(op.cuda.expression, name):
            continue
        if name in ("lo", "hi"):
            value = limit(name, value, main)
            kind = compute_type(main)
            if wide(main).kind == "f":
                value = float(quietly(wide(main).type, value))
                if math.isnan(value):
                    raise Unsupported
            else:
                value = int(value)
        else:
            kind = "bool" if isinstance(value, bool) else "long long" if isinstance(value, int) else "double"
        if not isinstance(value, (int, float)) or (isinstance(value, int) and not -(1 << 63) <= value < 1 << 63):
            raise Unsupported
        found.append((kind, name, f"({kind})::real(v[{{}}])" if isinstance(value, float) else f"({kind})v[{{}}]"))
        given.append(bits(value) if isinstance(value, float) else int(value))
    return found, given
