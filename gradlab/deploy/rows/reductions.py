"""Reductions over any dimensions, extremes with their places, running results."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradlab.backends.native.place import Place
from gradlab.deploy.emitter import Emitter, Step, emits, merged, nest, strides_text
from gradlab.deploy.rows.convs import _lowest
from gradlab.deploy.types import ctype, loaded, stored


def _dims(x: Place, dim: Any) -> tuple[int, ...]:
    return (dim,) if isinstance(dim, int) and x.shape else () if isinstance(dim, int) else tuple(dim)


def _accumulator(dtype: Any) -> str:
    """Sums of float run in double; sums of integers wrap without a sign."""
    return "double" if dtype.kind == "f" else "uint64_t" if dtype.kind in "iu" else ctype(dtype).compute


_COMBINE = {
    "sum": ("0", "{a} + {v}"), "mean": ("0", "{a} + {v}"), "prod": ("1", "{a} * {v}"), "all": ("true", "{a} && {v}"),
    "any": ("false", "{a} || {v}"), "amax": ("", "{v} > {a} || {v} != {v} ? {v} : {a}"),
    "amin": ("", "{v} < {a} || {v} != {v} ? {v} : {a}"),
}  # fmt: skip


def _highest(dtype: Any) -> str:
    return (
        "INFINITY" if dtype.kind == "f" else f"INT64_C({np.iinfo(dtype).max})" if dtype.kind == "i" else f"UINT64_C({np.iinfo(dtype).max})"
    )


@emits(*_COMBINE)
def reduction(step: Step, out: Emitter) -> None:
    x = step.inputs[0]
    y = step.outputs[0]
    if not y.size:
        return
    name = step.name
    dims = _dims(x, step.params["dim"])
    start, combine = _COMBINE[name]
    kind = _accumulator(x.dtype) if name in ("sum", "mean", "prod") else "bool" if name in ("all", "any") else ctype(x.dtype).compute
    if name in ("amax", "amin"):
        if x.dtype.kind == "b":
            start, combine = ("false", "{a} || {v}") if name == "amax" else ("true", "{a} && {v}")
        else:
            low = "0" if x.dtype.kind == "u" else _lowest(x.dtype)
            start = low if name == "amax" else _highest(x.dtype)
            if x.dtype.kind != "f":
                combine = combine.replace(" || {v} != {v}", "")
    count = math.prod(x.shape[d] for d in dims)
    finish = f"total / (double){count}" if name == "mean" else "total"
    reduce(
        step,
        out,
        x,
        y,
        dims,
        kind,
        start,
        combine,
        lambda at: f"({kind}){loaded(at, x.dtype)}" if kind != "bool" else f"({at} != 0)",
        finish,
    )


def reduce(
    step: Step, out: Emitter, x: Place, y: Place, dims: tuple[int, ...], kind: str, start: str, combine: str, load: Any, finish: str
) -> None:
    """A function with a loop over what is kept and one over what is not. Sixteen partial results where neighbours are reduced; where
    neighbours are kept, columns of them."""
    kept = [d for d in range(len(x.shape)) if d not in dims]
    y_steps: list[int] = []
    size = 1
    for d in reversed(kept):
        y_steps.insert(0, size)
        size *= x.shape[d]
    kept_sizes, (kept_x, kept_y) = merged([x.shape[d] for d in kept], [[x.strides[d] for d in kept], y_steps])
    sizes, (steps,) = merged([x.shape[d] for d in dims], [[x.strides[d] for d in dims]])
    element = ctype(x.dtype).storage
    text = ["static void @F(const void *p0, void *p1) {", f"  const {element} *const x = p0;", f"  {ctype(y.dtype).storage} *const y = p1;"]
    inner_columns = bool(kept_sizes) and kept_x[-1] == 1 and (not steps or steps[-1] != 1) and kept_sizes[-1] >= 8
    pad = "  "
    if math.prod(x.shape) > 200000 and kept_sizes and len(kept_sizes) > int(inner_columns):
        text.append("  GL_PARALLEL")
    outer = kept_sizes[:-1] if inner_columns else kept_sizes
    at_x, at_y = ["x"], ["y"]
    for level, n in enumerate(outer):
        text.append(f"{pad}for (int64_t i{level} = 0; i{level} < {n}; ++i{level}) {{")
        pad += "  "
        at_x.append(strides_text(f"i{level}", kept_x[level]))
        at_y.append(strides_text(f"i{level}", kept_y[level]))
    text.append(f"{pad}const {element} *const own = {' + '.join(t for t in at_x if not t.endswith('* 0'))};")
    text.append(f"{pad}{ctype(y.dtype).storage} *const to = {' + '.join(at_y)};")
    out_value = stored(finish, y.dtype)
    if inner_columns:
        n = kept_sizes[-1]
        text += [f"{pad}for (int64_t c = 0; c < {n}; c += 32) {{", f"{pad}  const int64_t width = {n} - c < 32 ? {n} - c : 32;",
                 f"{pad}  {kind} part[32];", f"{pad}  for (int64_t l = 0; l < 32; ++l) part[l] = {start};"]  # fmt: skip
        depth = pad + "  "
        at = ["own", "c"]
        for level, r in enumerate(sizes):
            text.append(f"{depth}for (int64_t r{level} = 0; r{level} < {r}; ++r{level}) {{")
            depth += "  "
            at.append(strides_text(f"r{level}", steps[level]))
        text.append(f"{depth}const {element} *const line = {' + '.join(at)};")
        value = combine.format(a="part[l]", v="v")
        for loop in ("for (int64_t l = 0; l < 32; ++l)", "for (int64_t l = 0; l < width; ++l)"):
            test = "if (width == 32) " if loop.endswith("32; ++l)") else "else "
            text.append(f"{depth}{test}{{ {loop} {{ const {kind} v = {load('line[l]')}; part[l] = {value}; }} }}")
        for _ in sizes:
            depth = depth[:-2]
            text.append(f"{depth}}}")
        text.append(f"{pad}  for (int64_t l = 0; l < width; ++l) {{ const {kind} total = part[l]; to[c + l] = {out_value}; }}")
        text.append(f"{pad}}}")
    else:
        text.append(f"{pad}{kind} total = {start};")
        lanes = bool(sizes) and steps[-1] == 1 and sizes[-1] >= 16
        if lanes:
            text += [f"{pad}{kind} part[16];", f"{pad}for (int l = 0; l < 16; ++l) part[l] = {start};"]
        depth = pad
        at = ["own"]
        for level, r in enumerate(sizes[:-1] if lanes else sizes):
            text.append(f"{depth}for (int64_t r{level} = 0; r{level} < {r}; ++r{level}) {{")
            depth += "  "
            at.append(strides_text(f"r{level}", steps[level]))
        merge = combine.format(a="total", v="v")
        if lanes:
            n = sizes[-1]
            value = combine.format(a="part[l]", v="v")
            text += [
                f"{depth}const {element} *const line = {' + '.join(at)};",
                f"{depth}for (int64_t i = 0; i < {n // 16 * 16}; i += 16)",
                f"{depth}  for (int l = 0; l < 16; ++l) {{ const {kind} v = {load('line[i + l]')}; part[l] = {value}; }}",
            ]
            if n % 16:
                text.append(
                    f"{depth}for (int64_t i = {n // 16 * 16}; i < {n}; ++i) {{ const {kind} v = {load('line[i]')}; total = {merge}; }}"
                )
        else:
            text.append(f"{depth}const {kind} v = {load('*(' + ' + '.join(at) + ')')};")
            text.append(f"{depth}total = {merge};")
        for _ in sizes[:-1] if lanes else sizes:
            depth = depth[:-2]
            text.append(f"{depth}}}")
        if lanes:
            text.append(f"{pad}for (int l = 0; l < 16; ++l) {{ const {kind} v = part[l]; total = {merge}; }}")
        text.append(f"{pad}*to = {out_value};")
    for _ in outer:
        pad = pad[:-2]
        text.append(f"{pad}}}")
    out.call("\n".join([*text, "}"]), x, y)


@emits("mse")
def mse(step: Step, out: Emitter) -> None:
    a, b = (out.dense(x) for x in step.inputs[:2])
    y = step.outputs[0]
    kind = ctype(a.dtype).storage
    divisor = max(a.size, 1) if step.params["mean"] else 1
    text = ["static void @F(const void *p0, const void *p1, void *p2) {", f"  const {kind} *const a = p0, *const b = p1;",
            f"  {kind} *const y = p2;", "  double total = 0;",
            f"  for (int64_t i = 0; i < {a.size}; ++i) total += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);",
            f"  *y = ({kind})(total / {divisor});", "}"]  # fmt: skip
    out.call("\n".join(text), a, b, y)


# ---------------------------------------------------------------- along one dimension


def lines(x: Place, dim: int, others: list[Place], kept_one: bool) -> tuple[list[int], list[list[int]], list[int]]:
    """Sizes of the other dimensions, each operand's strides there, and along `dim`. kept_one: the others' may be 1 or gone there."""
    rest = [d for d in range(len(x.shape)) if d != dim]
    sizes = [x.shape[d] for d in rest]
    strides = [[x.strides[d] for d in rest]]
    along = [x.strides[dim] if x.shape else 0]
    for p in others:
        if len(p.shape) == len(x.shape):
            strides.append([p.strides[d] for d in rest])
            along.append(p.strides[dim] if x.shape else 0)
        else:
            strides.append(list(p.strides))
            along.append(0)
    return sizes, strides, along


def _at(x: Place, at: dict[str, str], step: int | None = None) -> str:
    """The element at a line's start, or the r-th of the line."""
    return loaded(f"a[{at['a']}]" if step is None else f"a[{at['a']} + r * {step}]", x.dtype)


@emits("max", "min", "argmax", "argmin")
def extreme(step: Step, out: Emitter) -> None:
    x = step.inputs[0]
    places = list(step.outputs)
    if not places[0].size:
        return
    name = step.name
    with_values = not name.startswith("arg")
    more = ">" if name.endswith("max") else "<"
    dim = step.params["dim"]
    n = x.shape[dim] if x.shape else 1
    sizes, strides, along = lines(x, dim, places, True)
    kind = ctype(x.dtype)
    nan = " || (v != v && best == best)" if x.dtype.kind == "f" else ""
    heads = [f"const {kind.storage} *", *(f"{ctype(p.dtype).storage} *" for p in places)]
    arguments = "const void *p0, " + ", ".join(f"void *p{i + 1}" for i in range(len(places)))

    placed = not with_values or len(places) > 1

    def body(at: dict[str, str]) -> list[str]:
        found = [
            f"{kind.compute} best = {_at(x, at)};", *(["int64_t where = 0;"] if placed else []),
            f"for (int64_t r = 1; r < {n}; ++r) {{",
            f"  const {kind.compute} v = {_at(x, at, along[0])};",
            f"  if (v {more} best{nan}) {{ best = v; {'where = r; ' if placed else ''}}}", "}",
        ]  # fmt: skip
        names = "bcd"
        if with_values:
            found.append(f"b[{at['b']}] = {stored('best', x.dtype)};")
        if placed:
            target = names[int(with_values)]
            found.append(f"{target}[{at[target]}] = where;")
        return found

    names = "abcd"
    text = [f"static void @F({arguments}) {{", *(f"  {head}{names[i]}0 = p{i};" for i, head in enumerate(heads))]
    text += nest(sizes, [(names[i], heads[i], strides[i]) for i in range(len(heads))], body, ivdep=False)
    out.call("\n".join([*text, "}"]), x, *places)


_RUNNING = {
    "cumsum": ("0", "total + v"), "cumprod": ("1", "total * v"), "logcumsumexp": ("-INFINITY", "gl_logaddexp_f64(total, v)"),
}  # fmt: skip


@emits(*_RUNNING)
def running(step: Step, out: Emitter) -> None:
    x, y = step.inputs[0], step.outputs[0]
    if not y.size:
        return
    if not x.shape:
        out.copy(x, y)
        return
    start, combine = _RUNNING[step.name]
    kind = _accumulator(x.dtype)
    if step.name == "logcumsumexp":
        out.scalar(np.float64)
    dim = step.params["dim"]
    sizes, strides, along = lines(x, dim, [y], False)
    a, b = ctype(x.dtype).storage, ctype(y.dtype).storage

    def body(at: dict[str, str]) -> list[str]:
        return [
            f"{kind} total = {start};", f"for (int64_t r = 0; r < {x.shape[dim]}; ++r) {{",
            f"  const {kind} v = ({kind}){_at(x, at, along[0])};", f"  total = {combine};",
            f"  b[{at['b']} + r * {along[1]}] = {stored('total', y.dtype)};", "}",
        ]  # fmt: skip

    text = ["static void @F(const void *p0, void *p1) {", f"  const {a} *a0 = p0;", f"  {b} *b0 = p1;"]
    text += nest(sizes, [("a", f"const {a} *", strides[0]), ("b", f"{b} *", strides[1])], body, ivdep=False)
    out.call("\n".join([*text, "}"]), x, y)


@emits("recurrence")
def recurrence(step: Step, out: Emitter) -> None:
    a, b, y = step.inputs[0], step.inputs[1], step.outputs[0]
    if not y.size:
        return
    dim = step.params["dim"]
    n = y.shape[dim]
    sizes, strides, along = lines(a, dim, [b, y], False)
    kind = ctype(y.dtype).storage
    index = f"{n - 1} - s" if step.params["reverse"] else "s"

    def body(at: dict[str, str]) -> list[str]:
        return [
            "double state = 0;", f"for (int64_t s = 0; s < {n}; ++s) {{", f"  const int64_t r = {index};",
            f"  state = (double)a[{at['a']} + r * {along[0]}] * state + (double)b[{at['b']} + r * {along[1]}];",
            f"  c[{at['c']} + r * {along[2]}] = ({kind})state;", "}",
        ]  # fmt: skip

    text = ["static void @F(const void *p0, const void *p1, void *p2) {", f"  const {kind} *a0 = p0, *b0 = p1;", f"  {kind} *c0 = p2;"]
    kinds = [f"const {kind} *", f"const {kind} *", f"{kind} *"]
    text += nest(sizes, [(name, k, s) for name, k, s in zip("abc", kinds, strides)], body, ivdep=False)
    out.call("\n".join([*text, "}"]), a, b, y)


@emits("cummax", "cummin")
def running_extreme(step: Step, out: Emitter) -> None:
    x, values, indices = step.inputs[0], step.outputs[0], step.output(1)
    if not values.size:
        return
    if indices is None:
        indices = out.scratch(values.shape, np.int64)
    dim = step.params["dim"]
    n = x.shape[dim] if x.shape else 1
    sizes, strides, along = lines(x, dim, [values, indices], False)
    kind = ctype(x.dtype)
    more = ">=" if step.name == "cummax" else "<="
    nan = "v != v || " if x.dtype.kind == "f" else ""
    stays = " && best == best" if x.dtype.kind == "f" else ""

    def body(at: dict[str, str]) -> list[str]:
        return [
            f"{kind.compute} best = {_at(x, at)};", "int64_t where = 0;", f"for (int64_t r = 0; r < {n}; ++r) {{",
            f"  const {kind.compute} v = {_at(x, at, along[0])};",
            f"  if ({nan}(v {more} best{stays})) {{ best = v; where = r; }}",
            f"  b[{at['b']} + r * {along[1]}] = {stored('best', x.dtype)};", f"  c[{at['c']} + r * {along[2]}] = where;", "}",
        ]  # fmt: skip

    kinds = [f"const {kind.storage} *", f"{kind.storage} *", "int64_t *"]
    text = [
        "static void @F(const void *p0, void *p1, void *p2) {",
        *(f"  {k}{name}0 = p{i};" for i, (name, k) in enumerate(zip("abc", kinds))),
    ]
    text += nest(sizes, [(name, k, s) for name, k, s in zip("abc", kinds, strides)], body, ivdep=False)
    out.call("\n".join([*text, "}"]), x, values, indices)


@emits("sort", "topk")
def ordered(step: Step, out: Emitter) -> None:
    x, values, indices = step.inputs[0], step.outputs[0], step.output(1)
    if not values.size:
        return
    if not x.shape:
        raise_to = out.scratch((), np.int64) if indices is None else indices
        out.copy(x, values)
        out.line(f"memset({out.pointer(raise_to)}, 0, 8)")
        return
    dim = step.params["dim"]
    n, k = x.shape[dim], values.shape[dim]
    downwards = int(step.params["descending"] if step.name == "sort" else step.params["largest"])
    kind = ctype(x.dtype)
    out.part("order.c", np.uint8 if x.dtype.kind == "b" else x.dtype)
    suffix = ctype(np.uint8 if x.dtype.kind == "b" else x.dtype).suffix
    keys, order = out.scratch((n,), x.dtype), out.scratch((2 * n,), np.int64)
    others = [values] if indices is None else [values, indices]
    sizes, strides, along = lines(x, dim, others, False)
    kinds = [f"const {kind.storage} *", f"{kind.storage} *", "int64_t *"][: 1 + len(others)]

    def body(at: dict[str, str]) -> list[str]:
        found = [f"for (int64_t r = 0; r < {n}; ++r) keys[r] = a[{at['a']} + r * {along[0]}];",
                 f"gl_order_{suffix}({n}, keys, {downwards}, order, order + {n});",
                 f"for (int64_t r = 0; r < {k}; ++r) b[{at['b']} + r * {along[1]}] = keys[order[r]];"]  # fmt: skip
        if indices is not None:
            found.append(f"for (int64_t r = 0; r < {k}; ++r) c[{at['c']} + r * {along[2]}] = order[r];")
        return found

    arguments = "const void *p0, void *p1" + (", void *p2" if indices is not None else "") + ", void *q0, void *q1"
    text = [f"static void @F({arguments}) {{", *(f"  {t}{name}0 = p{i};" for i, (name, t) in enumerate(zip("abc", kinds)))]
    text += [f"  {kind.storage} *const keys = q0;", "  int64_t *const order = q1;"]
    text += nest(sizes, [(name, t, s) for name, t, s in zip("abc", kinds, strides)], body, ivdep=False)
    out.call("\n".join([*text, "}"]), x, *others, keys, order)
