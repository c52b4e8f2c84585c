"""Fused elementwise loops as C."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from gradlab import ops
from gradlab.backends.cuda.generate import reads
from gradlab.backends.native.lowerings.loops import cost
from gradlab.backends.native.place import Place
from gradlab.deploy.emitter import RUNTIME, WORTH, Emitter, broadcast, nest
from gradlab.deploy.types import TYPES, ctype, loaded, scalar_function, stored, translated
from gradlab.graph.ir.graph import Call, Value
from gradlab.kernel import Elementwise

VECTORS = (RUNTIME / "vectors.h").read_text()


def scalar_files(dtype: str) -> tuple[str, ...]:
    """The runtime's files of scalar functions for a compute type."""
    kind = np.dtype(dtype).kind
    if kind == "f":
        return ("scalar_float.h" if dtype == "float32" else "scalar_double.h", "scalar_real.h", "scalar_any.h")
    if kind == "b":
        return ("scalar_bool.h", "scalar_any.h")
    return ("scalar_whole.h", "scalar_signed.h" if kind == "i" else "scalar_unsigned.h", "scalar_any.h")


@lru_cache
def functions_of(dtype: str) -> frozenset[str]:
    """The scalar functions that there are for a compute type."""
    texts = "".join((RUNTIME / file).read_text() for file in scalar_files(dtype))
    return frozenset(re.findall(rf"\bgl_(\w+?)_(?:@S|{TYPES[dtype].suffix})\(", texts))


def why_not(call: Call) -> str:
    """Why a call is no loop; "" if it is one."""
    if not isinstance(call.op.cuda, Elementwise) or len(call.outputs) != 1 or call.op.variadic:
        return "it is not elementwise"
    values = [*call.outputs, *(x for x in call.inputs if isinstance(x, Value))]
    if odd := next((v.spec.dtype.name for v in values if v.spec.dtype.name not in TYPES), ""):
        return f"dtype {odd}"
    if any(x is None for x in call.inputs):
        return "an input is left out"
    expression = call.op.cuda.expression
    if reads(expression, "index"):
        return "its expression reads the element's index"
    _, suffix, used = scalar_function(call)
    if missing := sorted(used - functions_of(_dtype_of(suffix))):
        return f"its expression calls {', '.join(missing)}, which the runner has no C for"
    return ""


def _dtype_of(suffix: str) -> str:
    return next(n for n, t in TYPES.items() if t.suffix == suffix)


def emit_loop(calls: Sequence[Call], stored_values: Sequence[Value], places: dict[int, Place], out: Emitter) -> None:
    """One loop over calls of one shape. stored_values: those that others need."""
    shape = calls[0].outputs[0].spec.shape
    if 0 in shape:
        return
    made = {c.outputs[0].id for c in calls}
    loads: dict[int, Value] = {x.id: x for c in calls for x in c.inputs if isinstance(x, Value) and x.id not in made}
    bodies = []
    for call in calls:
        text, suffix, used = scalar_function(call)
        if used:
            out.scalar(_dtype_of(suffix))
        for v in (call.outputs[0], *(x for x in call.inputs if isinstance(x, Value))):
            if v.spec.dtype.name in ("float16", "bfloat16"):
                out.part("half.h")
        bodies.append(out.function(text, "f"))
    like = places[stored_values[0].id].strides
    order = sorted(range(len(shape)), key=lambda d: -like[d])  # pictures whose channels come last are walked as they lie
    operands: list[tuple[str, str, Sequence[int]]] = []
    names: dict[int, str] = {}
    heads, pointers, arguments = [], [], []
    for i, v in enumerate([*loads.values(), *stored_values]):
        const = "const " if i < len(loads) else ""
        kind = f"{const}{ctype(v.spec.dtype).storage} *"
        place = places[v.id]
        steps = broadcast(place, shape)
        operands.append((f"a{i}_", kind, [steps[d] for d in order]))
        heads.append(f"{const}void *p{i}")
        pointers.append(f"  {kind}const a{i}_0 = p{i};")
        arguments.append(place)

    def body(at: dict[str, str]) -> list[str]:
        lines: list[str] = []
        for i, v in enumerate(loads.values()):
            names[v.id] = f"x{i}"
            element = f"a{i}_[" + at[f"a{i}_"] + "]"
            lines.append(f"const {ctype(v.spec.dtype).compute} x{i} = {loaded(element, v.spec.dtype)};")
        for i, (call, name) in enumerate(zip(calls, bodies)):
            result = call.outputs[0]
            given = ", ".join(names[x.id] for x in call.inputs if isinstance(x, Value))
            value = f"{name}({given})"
            if result.spec.dtype.name in ("float16", "bfloat16"):  # as memory would round it
                half = result.spec.dtype.name.replace("float", "f")
                value = f"gl_from_{half}(gl_to_{half}({value}))"
            lines.append(f"const {ctype(result.spec.dtype).compute} v{i} = {value};")
            names[result.id] = f"v{i}"
        for j, v in enumerate(stored_values, len(loads)):
            lines.append(f"a{j}_[{at[f'a{j}_']}] = {stored(names[v.id], v.spec.dtype)};")
        return lines

    work = math.prod(shape) * sum(map(cost, calls))
    function = [
        f"static void @F({', '.join(heads)}) {{", *pointers,
        *nest([shape[d] for d in order], operands, body, parallel=work > WORTH), "}",
    ]  # fmt: skip
    out.call("\n".join(function), *arguments)


def activation_case(name: str, number: int, out: Emitter) -> str:
    """A case of the runtime's `gl_activate`: a row of one float input, in place; whole vectors first where the runtime has it of those."""
    out.scalar("float32")
    text, _ = translated(ops.ROWS[name].cuda.expression, "float", "f32")
    single = f"{{ const float v = x[i]; x[i] = {_renamed(text)}; }}"
    if f" gl_{name}_of(" not in VECTORS:
        return f"  case {number}: GL_IVDEP for (int64_t i = 0; i < n; ++i) {single} break;"
    vectors = f"for (int64_t i = 0; i < whole; i += GL_LANES) GL_PUT(x + i, gl_{name}_of(GL_GET(x + i)));"
    return (
        f"  case {number}: {{\n#if GL_VECTORS_f32\n    const int64_t whole = n - n % GL_LANES;\n    {vectors}\n"
        f"#else\n    const int64_t whole = 0;\n#endif\n    GL_IVDEP for (int64_t i = whole; i < n; ++i) {single}\n  }} break;"
    )


def _renamed(text: str) -> str:
    return re.sub(r"\bx\b", "v", text)
