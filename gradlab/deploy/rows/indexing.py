"""Reading and writing by index tensors. An index out of range ends the run with an error code; nothing is read or written there."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.backends.native.place import Place
from gradlab.deploy.emitter import Emitter, Step, broadcast, emits, nest
from gradlab.deploy.rows.movements import fill
from gradlab.deploy.types import ctype, loaded, stored
from gradlab.ops.indexing import place as start_of


@emits("embedding")
def embedding(step: Step, out: Emitter) -> None:
    weight, at, y = step.inputs[0], out.dense(step.inputs[1]), step.outputs[0]
    if not y.size:
        return
    if weight.strides[1] != 1:
        weight = out.dense(weight)
    rows, width = weight.shape
    size = weight.dtype.itemsize
    text = ["static int @F(const void *p0, const void *p1, void *p2) {", "  const char *const table = p0;",
            "  const int64_t *const at = p1;", "  char *const y = p2;", f"  for (int64_t i = 0; i < {at.size}; ++i) {{",
            f"    if (at[i] < 0 || at[i] >= {rows}) return @P_INDEX;",
            f"    memcpy(y + i * {width * size}, table + at[i] * {weight.strides[0] * size}, {width * size});",
            "  }", "  return 0;", "}"]  # fmt: skip
    out.call("\n".join(text), weight, at, y, fails=True)


def _advanced(step: Step, out: Emitter, x: Place, at: Place, other: Place, write: str, wrap: bool) -> None:
    """Loops over `other` (what is read or written by the index), which lies beside the indexed x."""
    dims = step.params["dims"]
    shape = other.shape
    depth, start = len(at.shape) - 1, start_of(dims)
    rest = [d for d in range(len(x.shape)) if d not in dims]
    x_steps = [x.strides[d] for d in rest]
    x_steps = [*x_steps[:start], *(0,) * depth, *x_steps[start:]]
    at_steps = [*(0,) * start, *at.strides[1:], *(0,) * (len(rest) - start)]
    kind = ctype(x.dtype).storage
    reads = write.startswith("{c}")
    x_kind, other_kind = (f"const {kind} *", f"{kind} *") if reads else (f"{kind} *", f"const {kind} *")

    def body(where: dict[str, str]) -> list[str]:
        lines = []
        for i, d in enumerate(dims):
            shift = f" + {i * at.strides[0]}" if i else ""
            lines.append(f"int64_t t{i} = b[{where['b']}{shift}];")
            if wrap:
                lines.append(f"if (t{i} < 0) t{i} += {x.shape[d]};")
            lines.append(f"if (t{i} < 0 || t{i} >= {x.shape[d]}) return @P_INDEX;")
        place = " + ".join([where["a"], *(f"t{i} * {x.strides[d]}" for i, d in enumerate(dims))])
        return [*lines, write.format(a=f"a[{place}]", c=f"c[{where['c']}]")]

    heads = ("const void *p0" if reads else "void *p0") + ", const void *p1, " + ("void *p2" if reads else "const void *p2")
    text = [f"static int @F({heads}) {{", f"  {x_kind}a0 = p0;", "  const int64_t *b0 = p1;", f"  {other_kind}c0 = p2;"]
    operands = [("a", x_kind, x_steps), ("b", "const int64_t *", at_steps), ("c", other_kind, other.strides)]
    text += nest(shape, operands, body, ivdep=False)
    out.call("\n".join([*text, "  return 0;", "}"]), x, at, other, fails=True)


@emits("index")
def index(step: Step, out: Emitter) -> None:
    if step.outputs[0].size:
        _advanced(step, out, step.inputs[0], step.inputs[1], step.outputs[0], "{c} = {a};", step.params["wrap"])


@emits("index_put")
def index_put(step: Step, out: Emitter) -> None:
    x, at, value = step.inputs
    y = step.outputs[0]
    out.copy(x, y)
    if value.size:
        write = "{a} = {a} + {c};" if step.params["accumulate"] else "{a} = {c};"
        _advanced(step, out, y, at, value, _half(out, write, y.dtype), step.params["wrap"])


@emits("index_backward")
def index_backward(step: Step, out: Emitter) -> None:
    dy, at = step.inputs
    y = step.outputs[0]
    fill(out, y)
    if dy.size and y.size:
        _advanced(step, out, y, at, dy, _half(out, "{a} = {a} + {c};", y.dtype), True)


def _half(out: Emitter, write: str, dtype: np.dtype[Any]) -> str:
    """The same in float for half types."""
    if dtype.name not in ("float16", "bfloat16") or "+" not in write:
        return write
    out.part("half.h")
    return "{a} = " + stored(f"{loaded('{a}', dtype)} + {loaded('{c}', dtype)}", dtype) + ";"


def _along(step: Step, out: Emitter, x: Place, at: Place, other: Place, write: str) -> None:
    """Loops over an index tensor of x's rank; along `dim` it says where."""
    dim = step.params["dim"]
    kind = ctype(x.dtype).storage
    reads = write.startswith("{c}")
    x_kind, other_kind = (f"const {kind} *", f"{kind} *") if reads else (f"{kind} *", f"const {kind} *")
    x_steps = [0 if d == dim else s for d, s in enumerate(x.strides)]

    def body(where: dict[str, str]) -> list[str]:
        place = f"{where['a']} + t * {x.strides[dim]}"
        return [f"const int64_t t = b[{where['b']}];", f"if (t < 0 || t >= {x.shape[dim]}) return @P_INDEX;",
                write.format(a=f"a[{place}]", c=f"c[{where['c']}]")]  # fmt: skip

    heads = ("const void *p0" if reads else "void *p0") + ", const void *p1, " + ("void *p2" if reads else "const void *p2")
    text = [f"static int @F({heads}) {{", f"  {x_kind}a0 = p0;", "  const int64_t *b0 = p1;", f"  {other_kind}c0 = p2;"]
    operands = [("a", x_kind, x_steps), ("b", "const int64_t *", at.strides), ("c", other_kind, broadcast(other, at.shape))]
    text += nest(at.shape, operands, body, ivdep=False)
    out.call("\n".join([*text, "  return 0;", "}"]), x, at, other, fails=True)


@emits("gather")
def gather(step: Step, out: Emitter) -> None:
    if step.outputs[0].size:
        _along(step, out, step.inputs[0], step.inputs[1], step.outputs[0], "{c} = {a};")


_WRITES = {"prod": "{a} = {a} * {c};", "amax": "{a} = gl_maximum_@S({a}, {c});", "amin": "{a} = gl_minimum_@S({a}, {c});"}


@emits("scatter", "scatter_add", "scatter_reduce", "gather_backward")
def scatter(step: Step, out: Emitter) -> None:
    y = step.outputs[0]
    if step.name == "gather_backward":
        source, at = step.inputs
        fill(out, y)
    else:
        x, at, source = step.inputs
        out.copy(x, y)
    if not at.size or not y.size:
        return
    write = "{a} = {c};" if step.name == "scatter" else _half(out, "{a} = {a} + {c};", y.dtype)
    if step.name == "scatter_reduce":
        if not step.params["include_self"]:
            kind = step.params["reduce"]
            neutral = "1" if kind == "prod" else _neutral(kind, y.dtype)
            _along(step, out, y, at, source, "{a} = (" + neutral + ");")
        write = _WRITES[step.params["reduce"]].replace("@S", ctype(y.dtype).suffix)
        out.scalar(y.dtype)
    _along(step, out, y, at, source, write)


def _neutral(kind: str, dtype: np.dtype[Any]) -> str:
    if dtype.kind == "f":
        return "-INFINITY" if kind == "amax" else "INFINITY"
    info = np.iinfo(dtype)
    return f"INT64_C({info.min + 1}) - 1" if kind == "amax" else f"INT64_C({info.max})"
