"""The C of a whole program: places, lines, parts of the runtime, and the file around them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradlab.backends.native.place import ARENA, Place
from gradlab.deploy.emitter import EMIT, RUNTIME, Emitter, Step
from gradlab.deploy.flow import bodies, emit_flow, is_flow
from gradlab.deploy.freezing import Frozen
from gradlab.deploy.loops import activation_case, emit_loop, scalar_files, why_not
from gradlab.deploy.rows import convs, indexing, movements, products, quantized, reductions, rowwise
from gradlab.deploy.rows.pictures import channels_in_order
from gradlab.deploy.types import TYPES, Unsupported, ctype
from gradlab.deploy.weights import Weights
from gradlab.dtype import HALF
from gradlab.graph.executables.native.planning import FIRST, Arranged, arrange
from gradlab.graph.executables.numpy.executable import Line
from gradlab.graph.ir.graph import Call, Value
from gradlab.graph.passes.channels_last import channels_last
from gradlab.graph.passes.replacing import is_ours
from gradlab.kernel import source_folders
from gradlab.spec import Spec, count

KERNELS, _ = source_folders("cpu")
FAMILIES = (products, convs, quantized, reductions, rowwise, movements, indexing)
ORDER = (
    "half.h", "vectors.h", "gemm.c", "conv.c", "pictures.c", "winograd.c", "products.c", "quantized.c", "rowwise.c", "attention.c",
    "order.c",
)  # fmt: skip
# Rows that only move elements: half types stay what they are. All others compute them in float.
MOVES = frozenset([
    "cat", "flip", "slice_backward", "slice_scatter", "diagonal_embed", "diagonal_scatter", "tril", "triu", "pad", "im2col", "view",
    "permute", "transpose", "t", "expand", "squeeze", "unsqueeze", "slice", "diagonal", "unfold", "as_strided", "embedding", "index",
    "index_put", "index_backward", "gather", "scatter", "scatter_add", "gather_backward",
])  # fmt: skip
# Rows that write pictures whose channels come last.
ANY_ORDER = frozenset(
    ["convolution", "max_pool", "avg_pool", "cat", "pad", "resample", "resample_backward", "slice_backward", "slice_scatter"]
)
_FILL = re.compile(r"@F(\d+)@( \+ (\d+))?")
_SHARED = re.compile(r'^#include "(\w+\.h)"\n', re.MULTILINE)  # headers of gradlab's own kernels; their includes of each other stay out
_OWN = re.compile(r"@C(\d+)@( \+ (\d+))?")


class Refused(NotImplementedError):
    """A program that cannot become C, with every reason and its source line."""


@dataclass
class Text:
    """What was generated. arena and unshared: bytes of the intermediate values, with and without sharing."""

    source: str
    header: str
    weights: Weights
    arena: int
    unshared: int
    scratch: int
    functions: int
    calls: int
    inputs: tuple[Spec, ...] = ()
    outputs: tuple[Spec, ...] = ()
    space: int = 0  # of all that is written but the stack


def reasons(frozen: Frozen) -> list[str]:
    """Why a line cannot be C, one text for each call that is in the way."""
    found = []
    for call in frozen.calls:
        reason = ""
        emitted = (call.op.name in EMIT and is_ours(call.op)) or is_flow(call)
        if is_flow(call):
            try:
                known = [frozen.known.get(x.id) if isinstance(x, Value) else None for x in call.inputs]
                found += [text for body in bodies(call, known) for text in reasons(body)]
            except Unsupported as error:
                reason = str(error)
        elif call.op.dynamic:
            reason = f"the size of its result depends on values; use {call.op.instead}"
        elif not emitted and (reason := why_not(call)) == "it is not elementwise":
            reason = "the runner has no C for it"
        if not reason:
            values = [*call.outputs, *(x for x in call.inputs if isinstance(x, Value))]
            odd = next((v.spec.dtype.name for v in values if v.spec.dtype.name not in TYPES), "")
            reason = f"dtype {odd}" if odd else ""
        if reason:
            found.append(f"{call.op.name}: {reason}" + _where(call))
    return found


def _where(call: Call) -> str:
    source = call.source()
    return f" ({source})" if source else ""


def generate(frozen: Frozen, name: str, static: bool = False) -> Text:
    """The C file, its header and the weights; static: the file holds them, and allocates nothing. Raises Refused."""
    problems = reasons(frozen)
    if problems:
        raise Refused("; ".join(dict.fromkeys(problems)))
    out = Emitter({}, small=static)
    line, arranged = _written(frozen, out, ("X{}", "Y{}"))
    weights = Weights()
    lines = _resolved(out, weights, static)
    cases = [activation_case(kind, number, out) for kind, number in out.activations.items()]
    given, made = (tuple(v.spec for v in values) for values in (line.inputs, line.outputs))
    return Text(
        _file(name, line, out, lines, weights, cases, arranged, static), _header(name, line, static), weights, arranged.plan.size,
        arranged.plan.unshared, out.scratch_size + out.own_size, len(out.functions), len(lines), given, made,
        arranged.plan.size + sum(_spaces(out)),
    )  # fmt: skip


def _written(frozen: Frozen, out: Emitter, named: tuple[str, str]) -> tuple[Line, Arranged]:
    """The lines of a program, or of a body. named: what its inputs and outputs are called."""
    graph = replace(frozen.graph, calls=frozen.calls, outputs=frozen.outputs)
    graph = graph if out.small else channels_last(graph)
    line = Line(graph.calls, graph.inputs, frozen.fixed, graph.outputs, [])
    arranged = arrange(line, last=graph.last)
    names = {ARENA: "A"}
    names.update({FIRST + i: named[0].format(i) for i in range(len(line.inputs))})
    names.update({FIRST + len(line.inputs) + i: named[1].format(i) for i in range(len(line.outputs))})
    start = FIRST + len(line.inputs) + len(line.outputs)
    names.update({start + i: f"@F{len(out.fixed) + i}@" for i in range(len(line.fixed))})
    out.names = names
    out.fixed.extend(frozen.fixed.values())
    for kind in sorted({kind for kind, _ in frozen.endings.values() if kind}):
        out.activations.setdefault(kind, len(out.activations) + 1)
    for unit in arranged.units:
        out.begin()
        if unit.loop:
            _loop(unit.calls, arranged, out)
        else:
            for call in unit.calls:
                _call(call, arranged, frozen, out)
    out.begin()
    for number, target in arranged.copies:
        out.copy(arranged.places[number], target)
    return line, arranged


def _body(frozen: Frozen, out: Emitter) -> int:
    _, arranged = _written(frozen, out, ("X[{}]", "Y[{}]"))
    return arranged.plan.size


def _loop(calls: list[Call], arranged: Arranged, out: Emitter) -> None:
    stored = [c.outputs[0] for c in calls if c.outputs[0].id in arranged.places]
    emit_loop(calls, stored, arranged.places, out)


def _call(call: Call, arranged: Arranged, frozen: Frozen, out: Emitter) -> None:
    places = arranged.places
    if call.op.name == "clone":
        out.copy(places[call.inputs[0].id], places[call.outputs[0].id])
        return
    if call.op.name not in EMIT and not is_flow(call):
        _loop([call], arranged, out)
        return
    activation, adds = frozen.endings.get(call.outputs[0].id, ("", False))
    given = call.inputs[:-1] if adds else call.inputs
    inputs: list[Any] = [places[x.id] if isinstance(x, Value) else x for x in given]
    outputs = [places[v.id] for v in call.outputs]
    known = [frozen.known.get(x.id) if isinstance(x, Value) else None for x in given]
    step = Step(call, inputs, outputs, known, activation, places[call.inputs[-1].id] if adds else None)
    copies: list[tuple[Place, Place]] = []
    if call.op.name not in ANY_ORDER and not all(place.contiguous for place in outputs):
        step, copies = channels_in_order(step, out)
    try:
        if is_flow(call):
            emit_flow(step, out, _body)
        elif call.op.name not in MOVES and any(p.dtype in HALF for p in [*inputs, *outputs] if isinstance(p, Place)):
            _in_float(step, out)
        else:
            EMIT[call.op.name](step, out)
    except Unsupported as error:
        raise Refused(f"{call.op.name}: {error}{_where(call)}") from None
    for made, place in copies:
        out.copy(made, place)


def _in_float(step: Step, out: Emitter) -> None:
    """Half types: inputs made float, the row computed, results rounded."""
    out.part("half.h")
    inputs = [out.dense(p, np.float32) if isinstance(p, Place) and p.dtype in HALF else p for p in step.inputs]
    outputs = [out.scratch(p.shape, np.float32) if p.dtype in HALF else p for p in step.outputs]
    EMIT[step.name](Step(step.call, inputs, outputs, [None] * len(inputs)), out)
    for place, target in zip(outputs, step.outputs):
        if place is not target:
            out.copy(place, target)


def _resolved(out: Emitter, weights: Weights, bare: bool) -> list[str]:
    """The lines, and those of the bodies, with places in the weights file in them; only what they read gets into it."""
    arrays: dict[str, int] = {}
    fixed = out.fixed
    for text in [*out.lines, *(text for _, lines in out.bodies for text in lines)]:
        for i, _, _ in _FILL.findall(text):
            if f"F{i}" not in arrays:
                arrays[f"F{i}"] = weights.add("constant", fixed[int(i)])
        for i, _, _ in _OWN.findall(text):
            if f"C{i}" not in arrays:
                arrays[f"C{i}"] = weights.add(*out.constants[int(i)])
    offsets = weights.offsets()
    if bare:  # without header and table
        offsets = [at - offsets[0] for at in offsets]

    def place(kind: str) -> Any:
        return lambda found: f"W + {offsets[arrays[kind + found.group(1)]] + int(found.group(3) or 0)}"

    def filled(lines: list[str]) -> list[str]:
        return [_OWN.sub(place("C"), _FILL.sub(place("F"), text)) for text in lines]

    out.bodies = [(head, filled(lines)) for head, lines in out.bodies]
    return filled(out.lines)


# ---------------------------------------------------------------- the file


def _template(file: str, dtype: str) -> str:
    text = _SHARED.sub(lambda found: _SHARED.sub("", (KERNELS / found.group(1)).read_text()), (RUNTIME / file).read_text())
    if not dtype:
        return text
    kind = ctype(dtype)
    unsigned = f"u{kind.compute}" if kind.compute.startswith("int") else kind.compute
    if kind.compute in ("int8_t", "int16_t"):
        unsigned = "uint32_t"
    storage = kind.storage if dtype == "bool" and file == "order.c" else kind.compute
    text = text.replace("@BEFORE", "a < b || (a == a && b != b)" if kind.suffix in ("f32", "f64") else "a < b")
    return text.replace("@T", storage).replace("@S", kind.suffix).replace("@U", unsigned).replace("@L", "f" if dtype == "float32" else "")


def _scalars(out: Emitter) -> list[str]:
    return [_template(file, dtype) for dtype in out.scalars for file in scalar_files(dtype)]


def _signature(name: str, line: Line, static: bool) -> str:
    given = [f"const {ctype(v.spec.dtype).storage} *x{i}" for i, v in enumerate(line.inputs)]
    made = [f"{ctype(v.spec.dtype).storage} *y{i}" for i, v in enumerate(line.outputs)]
    return f"int {name}_run({', '.join([*([] if static else [f'{name} *context']), *given, *made]) or 'void'})"


def _described(letter: str, spec: Spec, i: int) -> str:
    return f"{letter}{i}: {spec.dtype.name}[{', '.join(map(str, spec.shape))}]"


ERRORS = {
    "OK": "no error", "MEMORY": "not enough memory", "FILE": "the weights file cannot be read",
    "FORMAT": "this is no weights file (its first bytes are not GLWEIGHT)",
    "ENDIAN": "the weights were written on a machine of the other byte order",
    "VERSION": "the weights file has a version that this program does not know",
    "SIZE": "the weights file has another size than this program's (cut off?)", "MISMATCH": "the weights belong to another program",
    "CHECKSUM": "the weights file is damaged (a checksum is wrong)", "INDEX": "an index is out of range", "NULL": "a pointer is NULL",
    "PROCESSOR": "this program was compiled for a processor with more vector instructions than this one has",
}  # fmt: skip


def _header(name: str, line: Line, static: bool) -> str:
    prefix = name.upper()
    described = "\n".join(
        " *   " + text
        for text in (
            *(_described("x", v.spec, i) for i, v in enumerate(line.inputs)),
            *(_described("y", v.spec, i) for i, v in enumerate(line.outputs)),
        )
    )
    text = (RUNTIME / ("static_header.h" if static else "header.h")).read_text()
    codes = ", ".join(f"{prefix}_{code}" + (" = 0" if code == "OK" else "") for code in ERRORS)
    fields = {"@NAME": name, "@PREFIX": prefix, "@ARRAYS": described, "@CODES": codes, "@RUN": _signature(name, line, static)}
    return _filled(text, fields)


def module(name: str, text: Text, program: bool = True) -> str:
    """The JavaScript that loads and runs the program as WebAssembly; program: and that makes one for Node of it."""
    shown = [
        json.dumps([{"name": f"{letter}{i}", "dtype": s.dtype.name, "shape": list(s.shape)} for i, s in enumerate(specs)])
        for letter, specs in (("x", text.inputs), ("y", text.outputs))
    ]
    fields = {
        "@NAME": name, "@INPUTS": shown[0], "@OUTPUTS": shown[1], "@MEMORY": str(list(ERRORS).index("MEMORY")),
        "@DESCRS": json.dumps({dtype: kind.descr for dtype, kind in TYPES.items()}),
    }  # fmt: skip
    files = ("module.js", "module_main.js") if program else ("module.js",)
    return _filled("".join((RUNTIME / file).read_text() for file in files), fields)


def _filled(text: str, fields: Mapping[str, str]) -> str:
    for key, value in fields.items():
        text = text.replace(key, value)
    return text


def _file(
    name: str, line: Line, out: Emitter, lines: list[str], weights: Weights, cases: list[str], arranged: Arranged, static: bool
) -> str:  # fmt: skip
    prefix = name.upper()
    parts = [(RUNTIME / "base.h").read_text(), *_scalars(out)]
    for file in ORDER:
        parts += [_template(f, dtype) for f, dtype in out.parts if f == file]
    body = "\n".join(parts).replace("@ACTIVATIONS", "\n".join(cases)).replace("@RELU", str(out.activations.get("relu", -1)))
    functions = "\n\n".join(text.replace("@F", own) for text, own in out.functions.items())
    unused = "".join(f" (void){name};" for name in ("team", "W", "A", "S", "X", "Y"))
    for head, texts in out.bodies:
        indented = "\n".join("  " + text for text in texts)
        functions += f"\n\n{head} {{\n  int error = 0;\n  (void)error;{unused}\n{indented}\n  return 0;\n}}"
    entries = ",\n".join(
        "  {"
        + f'"{label}", {ctype(a.dtype).code}, {a.ndim}, {{{", ".join(map(str, (*a.shape, *(0,) * (8 - a.ndim))))}}}, {offset}, {a.nbytes}'
        + "}"
        for label, a, offset in zip(weights.names, weights.arrays, weights.offsets())
    )
    arrays = [*((v.spec, 0) for v in line.inputs), *((v.spec, 1) for v in line.outputs)]
    table = ",\n".join(
        f'  {{"{ctype(s.dtype).descr}", {len(s.shape)}, {{{", ".join(map(str, s.shape or (0,)))}}}, '
        f"{count(s.shape) * s.dtype.itemsize}, {made}}}"
        for s, made in arrays
    )
    given = ", ".join([f"data[{i}]" for i in range(len(arrays))])
    needs = [f"x{i}" for i, v in enumerate(line.inputs) if 0 not in v.spec.shape] + [
        f"y{i}" for i, v in enumerate(line.outputs) if 0 not in v.spec.shape
    ]
    check = " || ".join([*([] if static else ["context == NULL"]), *(f"{n} == NULL" for n in needs)]) or "false"
    pointers = [f"  const char *const X{i} = (const char *)x{i};\n  (void)X{i};" for i in range(len(line.inputs))]
    pointers += [f"  char *const Y{i} = (char *)y{i};\n  (void)Y{i};" for i in range(len(line.outputs))]
    messages = "\n".join(f'  case {prefix}_{code}: return "{text}";' for code, text in ERRORS.items())
    fields = {
        "@RUNTIME": body, "@FUNCTIONS": functions, "@SIGNATURE": _signature(name, line, static), "@CHECK": check,
        "@POINTERS": "\n".join(pointers),
        "@LINES": "\n".join("  " + text for text in lines), "@WEIGHTS": (RUNTIME / "weights.c").read_text(),
        "@PROCESSOR": (RUNTIME / "processor.c").read_text().rstrip(),
        "@ENTRIES": entries or "  {NULL, 0, 0, {0}, 0, 0}",
        "@COUNT": str(len(weights.arrays)), "@SIZE": f"UINT64_C({weights.size})", "@FINGERPRINT": f"UINT64_C({weights.fingerprint})",
        "@MESSAGES": messages, "@RANK": str(max([len(s.shape) for s, _ in arrays] + [1])), "@TABLE": table or '  {"", 0, {0}, 0, 0}',
        "@ARRAYS": str(len(arrays)), "@INPUTS": str(len(line.inputs)), "@GIVEN": (", " + given) if given else "",
        "@ARENA": str(arranged.plan.size), "@SCRATCH": str(_spaces(out)[0]), "@EACH": str(_spaces(out)[1]),
        "@ERRORVARIABLE": "  int error = 0;\n  (void)error;", "@NAME": name, "@P_": f"{prefix}_",
    }  # fmt: skip
    if static:
        fields |= {"@WEIGHTS": _words(weights), "@ALIGN": "16"}
    return _filled((RUNTIME / ("static.c" if static else "program.c")).read_text(), fields)


def _spaces(out: Emitter) -> tuple[int, int]:
    return max(out.scratch_size, 64), max(out.own_size, 64)


def _words(weights: Weights) -> str:
    """The arrays as numbers of C, which a little-endian machine reads."""
    words = np.frombuffer(weights.bytes()[weights.offsets()[0] :], "<u4").tolist() if weights.arrays else [0]
    return "\n".join("  " + " ".join(f"0x{word:x}u," for word in words[i : i + 12]) for i in range(0, len(words), 12))
