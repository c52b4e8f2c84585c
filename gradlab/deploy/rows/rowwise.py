"""Softmax, norms, attention and the cells of recurrent networks: kernels written by hand, for float and double."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradlab.backends.native.place import Place
from gradlab.deploy.emitter import Emitter, Step, broadcast, emits, nest
from gradlab.deploy.rows.products import FLOAT32, constant, written
from gradlab.deploy.rows.reductions import lines
from gradlab.deploy.types import Unsupported, ctype, double
from gradlab.taps import adjoint_taps, taps


def _rowwise(out: Emitter, dtype: object) -> str:
    out.scalar(dtype)
    out.part("rowwise.c", dtype)
    return ctype(dtype).suffix


_KINDS = {"softmax": 0, "log_softmax": 1, "masked_softmax": 2}


@emits(*_KINDS)
def softmax(step: Step, out: Emitter) -> None:
    x, y = step.inputs[0], step.outputs[0]
    if not y.size:
        return
    suffix = _rowwise(out, y.dtype)
    storage = ctype(y.dtype).storage
    dim, kind = step.params["dim"], _KINDS[step.name]
    if not x.shape:
        x, y = (Place(p.base, p.offset, (1,), (1,), p.dtype) for p in (x, y))
    n = x.shape[dim]
    sizes, strides, along = lines(x, dim, [y], False)
    if along == [1, 1]:
        text = ["static void @F(const void *p0, void *p1) {", f"  const {storage} *a0 = p0;", f"  {storage} *b0 = p1;"]
        text += nest(sizes, [("a", f"const {storage} *", strides[0]), ("b", f"{storage} *", strides[1])],
                     lambda at: [f"gl_softmax_{suffix}({n}, a + {at['a']}, b + {at['b']}, {kind});"], ivdep=False,
                     parallel=y.size > 20000 and len(sizes) > 1)  # fmt: skip
        out.call("\n".join([*text, "}"]), x, y)
        return
    space = out.scratch((n,), y.dtype)
    text = [
        "static void @F(const void *p0, void *p1, void *p2) {",
        f"  const {storage} *a0 = p0;",
        f"  {storage} *b0 = p1, *const line = p2;",
    ]
    text += nest(sizes, [("a", f"const {storage} *", strides[0]), ("b", f"{storage} *", strides[1])], lambda at: [
        f"for (int64_t r = 0; r < {n}; ++r) line[r] = a[{at['a']} + r * {along[0]}];",
        f"gl_softmax_{suffix}({n}, line, line, {kind});",
        f"for (int64_t r = 0; r < {n}; ++r) b[{at['b']} + r * {along[1]}] = line[r];"], ivdep=False)  # fmt: skip
    out.call("\n".join([*text, "}"]), x, y, space)


@emits("layer_norm", "rms_norm")
def layer_norm(step: Step, out: Emitter) -> None:
    x, weight = out.dense(step.inputs[0]), step.inputs[1]
    layer = step.name == "layer_norm"
    bias = step.inputs[2] if layer else None
    y = step.outputs[0]
    n = math.prod(x.shape[len(x.shape) - step.params["k"] :])
    rows = x.size // max(n, 1)
    if not y.size:
        return
    suffix = _rowwise(out, y.dtype)
    mean = (step.output(1) or out.scratch((rows,), y.dtype)) if layer else None
    rstd = step.output(2 if layer else 1) or out.scratch((rows,), y.dtype)
    given = [None if p is None else out.dense(p) for p in (weight, bias)]
    pointers = ", ".join(constant(out.pointer(p)) for p in (x, *given))
    out.line(
        f"gl_layer_norm_{suffix}(&team, {rows}, {n}, {pointers}, {double(step.params['eps'])}, {written(out.pointer(y))}, "
        f"{written(out.pointer(mean)) if mean is not None else 'NULL'}, {written(out.pointer(rstd))})"
    )


@emits("batch_norm")
def batch_norm(step: Step, out: Emitter) -> None:
    x = out.dense(step.inputs[0])
    y = step.outputs[0]
    batch, channels = x.shape[:2]
    places = math.prod(x.shape[2:])
    suffix = _rowwise(out, y.dtype)
    given = [None if p is None else out.dense(p) for p in step.inputs[1:3]]
    stats = [step.output(i) or out.scratch((channels,), y.dtype) for i in (1, 2, 3)]
    pointers = ", ".join(constant(out.pointer(p)) for p in (x, *given))
    results = ", ".join(written(out.pointer(p)) for p in (y, *stats))
    out.line(f"gl_batch_norm_{suffix}({batch}, {channels}, {places}, {pointers}, {double(step.params['eps'])}, {results})")


@emits("lstm_cell", "gru_cell")
def cell(step: Step, out: Emitter) -> None:
    gates, own, state = (_rows(x, out) for x in step.inputs[:3])
    size = state.shape[-1]
    rows = state.size // max(size, 1)
    if not state.size:
        return
    suffix = _rowwise(out, state.dtype)
    hidden = step.outputs[0]
    lstm = step.name == "lstm_cell"
    made = [hidden]
    if lstm:
        made.append(step.output(1) or out.scratch(state.shape, state.dtype))
    acts = step.output(2 if lstm else 1)
    given = ", ".join(f"{constant(out.pointer(p))}, {_row_step(p)}" for p in (gates, own, state))
    out.line(f"gl_{step.name}_{suffix}({rows}, {size}, {given}, {', '.join(written(out.pointer(p)) for p in made)}, "
             f"{'NULL' if acts is None else written(out.pointer(acts))})")  # fmt: skip


def _rows(place: Place, out: Emitter) -> Place:
    """A matrix whose rows lie without gaps, however far apart."""
    fine = place.strides[-1] == 1 and (len(place.shape) < 3 or place.contiguous)
    return place if fine else out.dense(place)


def _row_step(place: Place) -> int:
    return place.strides[-2] if len(place.shape) == 2 else place.shape[-1]


@emits("scaled_dot_product_attention")
def attention(step: Step, out: Emitter) -> None:
    q, k, v, mask = step.inputs[:4]
    y, lse = step.outputs[0], step.output(1)
    if y.dtype != FLOAT32:
        raise Unsupported(f"attention of {y.dtype.name}")
    if not y.size:
        return
    _rowwise(out, FLOAT32)
    out.part("gemm.c")
    out.part("attention.c")
    q, k, v = (p if p.strides[-1] == 1 else out.dense(p) for p in (q, k, v))
    batch, heads, rows, width = q.shape
    keys, values = k.shape[2], v.shape[3]
    wide_keys, wide_values = (-(-n // 16) * 16 for n in (keys, values))
    out.own((wide_keys * width + wide_values * keys + 48 * wide_keys) * 4)
    kind, steps = 0, (0, 0, 0, 0)
    if mask is not None:
        kind = 1 if mask.dtype.kind == "b" else 2
        steps = broadcast(mask, (batch, heads, rows, keys))  # type: ignore[assignment]
    numbers = [batch, heads, rows, keys, width, values]
    moves = ["{" + ", ".join(map(str, p.strides[:3])) + "}" for p in (q, k, v, y)]
    shape = ", ".join([*map(str, numbers), *moves, "{" + ", ".join(map(str, steps)) + "}", f"(float){double(step.params['scale'])}",
                       str(int(step.params["causal"])), str(kind)])  # fmt: skip
    pointers = ", ".join(constant(out.pointer(p)) for p in (q, k, v, mask))
    result = "NULL" if lse is None else written(out.pointer(lse))
    out.line(f"gl_attention(&team, &(const gl_attention_shape){{{shape}}}, {pointers}, {written(out.pointer(y))}, {result})")


@emits("resample", "resample_backward")
def resample(step: Step, out: Emitter) -> None:
    """Each output is a weighted sum of a few inputs along one dimension."""
    x, y = step.inputs[0], step.outputs[0]
    if not y.size:
        return
    index, weight, none = taps_of(step)
    if weight is None and none is not None:
        weight = (~none).astype(np.float64)[:, None]
    dim = step.params["dim"]
    outputs, most = index.shape
    at = out.constant(index, ("taps", index.tobytes(), index.shape), "taps")
    kind = ctype(y.dtype).storage
    shares = None
    if weight is not None:
        typed = weight.astype(y.dtype)
        if none is not None:
            typed[none] = 0
        shares = out.constant(typed, ("shares", typed.tobytes(), typed.dtype), "shares")
    sizes, strides, along = lines(x, dim, [y], False)

    def body(place: dict[str, str]) -> list[str]:
        source = f"a[{place['a']} + index[o * {most} + t] * {along[0]}]"
        to = f"b[{place['b']} + o * {along[1]}]"
        if shares is None:
            return [f"for (int64_t o = 0, t = 0; o < {outputs}; ++o) {to} = {source};"]
        return [f"for (int64_t o = 0; o < {outputs}; ++o) {{", f"  {kind} sum = 0;",
                f"  for (int64_t t = 0; t < {most}; ++t) sum += {source} * share[o * {most} + t];", f"  {to} = sum;", "}"]  # fmt: skip

    text = ["static void @F(const void *p0, void *p1, const void *q0, const void *q1) {", f"  const {kind} *a0 = p0;",
            f"  {kind} *b0 = p1;", "  const int64_t *const index = q0;", f"  const {kind} *const share = q1;",
            "  (void)share;"]  # fmt: skip
    text += nest(sizes, [("a", f"const {kind} *", strides[0]), ("b", f"{kind} *", strides[1])], body, ivdep=False)
    out.call("\n".join([*text, "}"]), x, y, at, shares)


def taps_of(step: Step) -> tuple[Any, Any, Any]:
    """The table's taps."""
    from_rows = taps if step.name == "resample" else adjoint_taps
    found = from_rows(step.params["table"])
    return found.index, found.weight, found.none
