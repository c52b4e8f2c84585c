"""Updates of optimizers as stages of a mega-kernel: one that moves the counters on, and one that updates all parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradlab.backends.cuda.launch.optim import FORMS
from gradlab.backends.cuda.types import STORAGE, compute_type
from gradlab.backends.native.place import Place
from gradlab.dtype import FLOATING
from gradlab.graph.executables.cuda.stages import STAGE, THREADS, TURN, Writer, offset, size_of, turns
from gradlab.graph.ir.graph import Call, Value

CONSTANTS = 8  # as in optim.cuh


def update_cost(calls: Sequence[Call], places: dict[int, Place]) -> float | None:
    """Of updates that may run in one launch; None where one has no stage."""
    form = FORMS[calls[0].op.name]
    for call in calls:
        p, gradient, *rest = call.inputs
        *buffers, h = rest
        floats = [x for x in (p, gradient, h, *buffers) if isinstance(x, Value)]
        if not isinstance(h, Value) or h.spec.dtype.name != "float64" or any(x.spec.dtype not in FLOATING for x in floats):
            return None
        if p.spec.dtype != calls[0].inputs[0].spec.dtype or not all(places[x.id].contiguous for x in floats if x is not gradient):
            return None
    if form.counts and len(calls) > THREADS:
        return None
    return 2 * STAGE + sum(TURN * turns(size_of(c)) for c in calls)


def write_counters(calls: Sequence[Call], held: str, writer: Writer) -> list[str]:
    """One thread for each parameter: its counters move on, its constants go to the memory `held`."""
    form = FORMS[calls[0].op.name]
    if not form.counts:
        return []
    first = len(form.places) + 2
    types = STORAGE[calls[0].inputs[first].spec.dtype.name]
    extras = list(range(form.extras))
    made = len(form.places) + 1
    columns = [("step[0]", [c.inputs[first + form.extras] for c in calls])]
    columns += [(f"extra[{i}][0]", [c.inputs[first + i] for c in calls]) for i in extras]
    columns += [("new_step[0]", [c.outputs[made + form.extras] for c in calls])]
    columns += [(f"new_extra[{i}][0]", [c.outputs[made + i] for c in calls]) for i in extras]
    lines = [f"if (threadIdx.x < {len(calls)}) {{", f"    Counter<{types}> counter;"]
    for name, values in columns:
        texts = [writer.at(v).text for v in values]
        lines.append(f"    counter.{name} = {texts[0]};")
        lines += [f"    if (threadIdx.x == {n}) counter.{name} = {text};" for n, text in enumerate(texts) if n]
    kind, h = compute_type(calls[0].inputs[0].spec.dtype), writer.at(calls[0].inputs[-1]).text
    lines.append(f"    constants<{kind}, {types}, {form.kind}>({h}, counter, 0, {held} + threadIdx.x * {CONSTANTS});")
    return [*lines, "}"]


def write_updates(calls: Sequence[Call], held: str, writer: Writer) -> list[str]:
    """All parameters, one after the other."""
    form, params = FORMS[calls[0].op.name], calls[0].params
    flag = "true" if params.get("nesterov", params.get("decoupled", False)) else "false"
    maximize = "true" if params["maximize"] else "false"
    dtype = calls[0].inputs[0].spec.dtype
    kind, storage = compute_type(dtype), STORAGE[dtype.name]
    lines = ["{", f"    {kind} c[{CONSTANTS}];"]
    if not form.counts:
        lines.append(f"    constants<{kind}, {form.kind}>({writer.at(calls[0].inputs[-1]).text}, c);")
    for n, call in enumerate(calls):
        p, gradient, *rest = call.inputs
        olds: list[Any] = [None] * max(form.buffers, 1)
        news: list[Any] = [None] * max(form.buffers, 1)
        for place, old, new in zip(form.places, rest, call.outputs[1:], strict=False):
            olds[place], news[place] = old, new
        kept = sum(1 << k for k, old in enumerate(olds) if isinstance(old, Value))
        g = writer.at(gradient)
        if form.counts:
            lines.append(f"    for (int k = 0; k < {CONSTANTS}; ++k) c[k] = {held}[{n * CONSTANTS} + k];")
        lines += [
            f"    for (int i = threadIdx.x; i < {size_of(call)}; i += {THREADS}) {{",
            f"        {kind} p = load({writer.at(p).text}[i]), b[{len(olds)}];",
            *(f"        b[{k}] = {f'load({writer.at(old).text}[i])' if isinstance(old, Value) else '0'};" for k, old in enumerate(olds)),
            f"        const {kind} g = load({g.text}[{offset(g.strides, g.place.shape, 'i')}]);",
            f"        step<{kind}, {form.kind}>(c, p, g, b, {flag}, {maximize}, {kept});",
            f"        {writer.at(call.outputs[0]).text}[i] = store<{storage}>(p);",
            *(f"        {writer.at(new).text}[i] = store<{storage}>(b[{k}]);" for k, new in enumerate(news) if new is not None),
            "    }",
        ]
    return [*lines, "}"]
