"""Text of fused elementwise loops: several rows on one iteration space, intermediate values in registers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab.backends.cuda.generate import Operand, main_dtype, reads
from gradlab.backends.cuda.layout import merged
from gradlab.backends.cuda.types import STORAGE, compute_type
from gradlab.backends.native import compiler, prebuilt
from gradlab.backends.native.lowering import HEADER, Lowering, TaskSpec, Unsupported, widest
from gradlab.backends.native.lowerings import interpreting
from gradlab.backends.native.lowerings.iteration_order import in_order, walk
from gradlab.backends.native.lowerings.looping import along_first, broadcast
from gradlab.backends.native.lowerings.vector_functions import (
    HALVES as HALVES,
    expression_of as expression_of,
    limit,
    storage as storage,
    why_not,
)
from gradlab.call import Call, Value
from gradlab.dtype import HALF, immediate, real_of, wide
from gradlab.kernel import Elementwise, is_dear

# Limits as compilers make vectors of them: of `clamp`'s own form, in which either limit may be no number, GCC makes branches.
CLAMP = re.compile(r"clamp\(([^,]+), T\(([^)]+)\), T\(([^)]+)\)\)")
LIMITED = r"(((\1) <= T(\2) ? T(\2) : (\1)) >= T(\3) ? T(\3) : ((\1) <= T(\2) ? T(\2) : (\1)))"
SHORT, TILE = 64, 256  # elements: a dimension that is too short for a loop of its own, and one that is long enough


def is_elementwise(call: Call, halves: bool = False) -> bool:
    """Whether a call can be a part of a fused loop. halves: of one that rounds to half types."""
    return not why_not_elementwise(call, halves)


def why_not_elementwise(call: Call, halves: bool = False) -> str:
    """Why a call cannot be a part of a fused loop; "" if it can."""
    if not isinstance(call.op.cuda, Elementwise) or len(call.outputs) != 1 or call.op.variadic:
        return "not elementwise"
    values = [*call.outputs, *(x for x in call.inputs if isinstance(x, Value))]
    if odd := next((v.spec.dtype.name for v in values if (v.spec.dtype in HALF and not halves) or v.spec.dtype.name not in STORAGE), ""):
        return f"loops do not compute in {odd}"
    if any(x is None for x in call.inputs):
        return "an input is left out"
    if reads(call.op.cuda.expression, "index"):
        return "its expression reads the element's index"
    return "" if compiler.compiles() or prebuilt.level() is None else why_not(call)


def literal(value: Any, dtype: np.dtype[Any]) -> str:
    """A Python number as a C++ expression of the dtype's compute type."""
    kind = compute_type(dtype)
    number = immediate(value, dtype).item()
    if isinstance(number, bool):
        return "true" if number else "false"
    if isinstance(number, complex):
        return f"{kind}({literal(number.real, real_of(dtype))}, {literal(number.imag, real_of(dtype))})"
    if isinstance(number, int):
        return f"({kind}){number}{'ULL' if number > 2**63 - 1 else 'LL'}" if number != -(2**63) else "(-9223372036854775807LL - 1)"
    if math.isnan(number):
        return f'({kind})__builtin_nan("")'
    if math.isinf(number):
        return f"({kind}){'-' if number < 0 else ''}__builtin_inf()"
    return f"({kind}){float(number).hex()}"


def parameter(name: str, value: Any, main: np.dtype[Any]) -> str | None:
    """The declaration of a parameter that an expression reads; None for one that is no number."""
    kind = compute_type(main)
    if name in ("lo", "hi"):
        return f"const {kind} {name} = {literal(limit(name, value, main), wide(main))};"
    if isinstance(value, bool):
        return f"const bool {name} = {'true' if value else 'false'};"
    if isinstance(value, int):
        return f"const long long {name} = {literal(value, np.dtype(np.int64))};"
    return f"const double {name} = {literal(value, np.dtype(np.float64))};" if isinstance(value, float) else None


def function_of(call: Call, cpu: bool = True) -> tuple[str, list[tuple[str, np.dtype[Any]]]]:
    """The text of a call's scalar function (named @F), and its array arguments' names and dtypes."""
    op = call.op
    like = next((x.spec.dtype for x in call.inputs if isinstance(x, Value)), None)
    operands, lines, arguments = [], [], []
    for name, x in zip(op.inputs, call.inputs, strict=True):
        if isinstance(x, Value):
            operands.append(Operand(name, x.spec.dtype))
            arguments.append((name, x.spec.dtype))
        else:
            dtype = like if like is not None else call.outputs[0].spec.dtype
            operands.append(Operand(name, dtype, True))
            lines.append(f"  const {compute_type(dtype)} {name} = {literal(x, op.number_dtype(dtype))};")
    out = call.outputs[0].spec.dtype
    main = main_dtype(tuple(operands), out)
    for name, value in call.params.items():
        if reads(op.cuda.expression, name):
            declared = parameter(name, value, main)
            if declared is None:
                raise Unsupported
            lines.append("  " + declared)
    head = ", ".join(f"{compute_type(dtype)} {name}" for name, dtype in arguments)
    text = [f"GRADLAB_FUNCTION auto @F({head}) {{", f"  typedef {compute_type(main)} T;", *lines]
    odd = any(isinstance(v, float) and math.isnan(v) for v in call.params.values())
    expression = expression_of(op, call.params, like, cpu)
    text += [f"  return {expression if odd else CLAMP.sub(LIMITED, expression)};", "}"]
    return "\n".join(text), arguments


def cost(call: Call) -> float:
    """Simple operations of one element."""
    return 12.0 if is_dear(call.op.cuda.expression) else 1.0


class Loop:
    """Calls of one shape that run as one loop. `stored`: the values that others need."""

    def __init__(self, calls: Sequence[Call], stored: Sequence[Value]) -> None:
        self.calls, self.stored = calls, stored
        self.shape = calls[0].outputs[0].spec.shape
        made = {c.outputs[0].id for c in calls}
        loaded: dict[int, Value] = {}
        for c in calls:
            for x in c.inputs:
                if isinstance(x, Value) and x.id not in made:
                    loaded[x.id] = x
        self.loaded = list(loaded.values())

    def functions(self, cpu: bool = True) -> tuple[list[str], dict[int, str]]:
        """The scalar functions' texts, and the name of each call's function by its output. cpu: for this processor, not for a GPU."""
        texts: dict[str, str] = {}
        names = {}
        for call in self.calls:
            text, _ = function_of(call, cpu)
            name = texts.setdefault(text, f"@K_f{len(texts)}")
            names[call.outputs[0].id] = name
        return [text.replace("@F", name) for text, name in texts.items()], names

    def body(self, names: dict[int, str], load: dict[int, str]) -> list[str]:
        """Statements that compute every value `v<i>` of one element from the loaded ones."""
        at = dict(load)
        lines = []
        for i, call in enumerate(self.calls):
            arguments = ", ".join(at[x.id] for x in call.inputs if isinstance(x, Value))
            dtype = call.outputs[0].spec.dtype
            out = compute_type(dtype)
            make = f"rounded<{HALVES[dtype.name]}>" if dtype in HALF else f"cast<{out}>"
            lines.append(f"const {out} v{i} = {make}({names[call.outputs[0].id]}({arguments}));")
            at[call.outputs[0].id] = f"v{i}"
        self.at = at
        return lines


def lower_loop(loop: Loop, ctx: Lowering) -> TaskSpec:
    """The task of a loop."""
    work = math.prod(loop.shape) * sum(map(cost, loop.calls))
    if not ctx.generates:
        return interpreting.lower(loop, ctx, work)
    loads = [(v, ctx.places[v.id]) for v in loop.loaded]
    stores = [(v, ctx.places[v.id]) for v in loop.stored]
    order = walk(stores[0][1])
    strides = [in_order(broadcast(p, loop.shape), order) for _, p in [*loads, *stores]]
    sizes, steps = merged(in_order(loop.shape, order), strides)
    sizes, steps = sizes or [1], [s or [0] for s in steps]
    period, again = _periodic(sizes, steps)
    if again:
        sizes, steps = [period * sizes[1], *sizes[2:]], [[s[0], *s[2:]] for s in steps]
    functions, names = loop.functions()
    text = [HEADER, "namespace gradlab {", *functions]
    text.append("GRADLAB_KERNEL @K(char** p, const int64_t* v, int part, int parts) {")
    pointers = []
    for i, (v, _) in enumerate([*loads, *stores]):
        kind = storage(v.spec.dtype)
        const = "const " if i < len(loads) else ""
        text.append(f"  {const}{kind}* const a{i} = ({const}{kind}*)p[{i}];")
        pointers.append(f"a{i}")
    outer = math.prod(sizes[1:])
    inner = sizes[0]
    along = along_first(loop.shape, [p for _, p in [*loads, *stores]], order)
    count = inner if outer == 1 else outer
    counted = f"v[0] * {count // along.images}LL" if along is not None else f"{count}LL"
    block = period * (TILE // period)
    if outer == 1:
        text.append(f"  const Share mine = share({counted}, part, parts, {block if again else 64});")
        text += _inner(loop, names, loads, stores, pointers, [s[0] for s in steps], ("mine.first", "mine.last"), "  ", period, again)
    else:
        text.append(f"  const Share mine = share({counted}, part, parts);")
        text.append("  for (int64_t o = mine.first; o < mine.last; ++o) {")
        rest, indices = "o", []
        for d, n in enumerate(sizes[1:], 1):
            last = d == len(sizes) - 1
            text.append(f"    const int64_t i{d} = {rest if last else f'{rest} % {n}'};")
            if not last:
                text.append(f"    const int64_t r{d} = {rest} / {n};")
                rest = f"r{d}"
            indices.append(f"i{d}")
        shifted = []
        for i, step in enumerate(steps):
            terms = [f"{index} * {s}LL" for index, s in zip(indices, step[1:]) if s]
            text.append(f"    {'const ' if i < len(loads) else ''}auto* const b{i} = a{i}{''.join(f' + {t}' for t in terms)};")
            shifted.append(f"b{i}")
        text += _inner(loop, names, loads, stores, shifted, [s[0] for s in steps], ("0", f"{inner}LL"), "    ", period, again)
        text.append("  }")
    text += ["}", "}  // namespace gradlab"]
    numbers = (along.images,) if along is not None else ()
    return TaskSpec(ctx.generate("\n".join(text)), numbers, tuple(p for _, p in [*loads, *stores]), widest(work), along)


def _periodic(sizes: Sequence[int], steps: Sequence[Sequence[int]]) -> tuple[int, set[int]]:
    """The innermost size, and the operands that are the same at each step of the next dimension, if the loop runs over both at once: where
    the innermost is short, and all other operands lie without gaps. Such operands are laid out several times in a row."""
    again = {i for i, s in enumerate(steps) if len(s) > 1 and s[0] and not s[1]}
    if len(sizes) < 2 or sizes[0] > SHORT or sizes[0] * sizes[1] < 2 * TILE or not any(s[0] == 1 and s[1] for s in steps):
        return 1, set()
    fine = all(i in again or s[1] == s[0] * sizes[0] for i, s in enumerate(steps))
    return (sizes[0], again) if fine else (1, set())


def _inner(
    loop: Loop, names: dict[int, str], loads: list[Any], stores: list[Any], pointers: list[str], steps: list[int],
    ends: tuple[str, str], indent: str, period: int, again: set[int],
) -> list[str]:  # fmt: skip
    """The innermost loop, from the first of `ends` to the last. What does not change along it is loaded before it; again: what returns
    after `period` steps."""
    text: list[str] = []
    inside: list[str] = []
    load: dict[int, str] = {}
    first, last = ends
    block = period * (TILE // period)
    for i, (v, _) in enumerate(loads):
        kind = compute_type(v.spec.dtype)
        load[v.id] = f"x{i}"
        if i in again:
            text.append(f"{kind} t{i}[{block}];")
            text.append(f"for (int64_t j = 0; j < {block}; ++j) t{i}[j] = cast<{kind}>({pointers[i]}[j % {period} * {steps[i]}LL]);")
            inside.append(f"const {kind} x{i} = t{i}[i - begin];")
            continue
        index = f"[i * {steps[i]}LL]" if steps[i] not in (0, 1) else "[i]" if steps[i] else "[0]"
        line = f"const {kind} x{i} = cast<{kind}>({pointers[i]}{index});"
        (inside if steps[i] else text).append(line)
    lines = loop.body(names, load)
    for j, (v, _) in enumerate(stores, len(loads)):
        kind = storage(v.spec.dtype)
        index = f"[i * {steps[j]}LL]" if steps[j] not in (0, 1) else "[i]" if steps[j] else "[0]"
        lines.append(f"{pointers[j]}{index} = cast<{kind}>({loop.at[v.id]});")
    if again:
        text.append(f"for (int64_t begin = {first}; begin < {last}; begin += {block}) {{")
        text.append(f"const int64_t end = begin + {block} < {last} ? begin + {block} : {last};")
        first, last = "begin", "end"
    return [
        *(indent + line for line in text),
        "#pragma GCC ivdep",
        f"{indent}for (int64_t i = {first}; i < {last}; ++i) {{",
        *(f"{indent}  {line}" for line in [*inside, *lines]),
        f"{indent}}}{'}' if again else ''}",
    ]
