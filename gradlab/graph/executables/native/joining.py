"""Elementwise loops whose one result is only added up (or averaged, or searched for an extreme) become part of the reduction's kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradlab.backends.cuda.types import STORAGE, compute_type
from gradlab.backends.native import compiler
from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported
from gradlab.backends.native.lowerings.iteration_order import alike, dense
from gradlab.backends.native.lowerings.loops import Loop, cost, function_of, storage
from gradlab.backends.native.lowerings.reductions import NAMES, reduction
from gradlab.backends.native.place import Place, place_of
from gradlab.dtype import FLOAT32, FLOAT64
from gradlab.graph.executables.native.epilogues import end, lower_ended
from gradlab.graph.executables.native.fusion import Unit
from gradlab.graph.executables.native.recurrent import Step, step
from gradlab.graph.ir.graph import Call, Value

CHEAP = 8.0  # simple operations an element that one thread may do alone where the result is one number


def join(units: Sequence[Unit], relative: dict[int, Place], leaving: set[int]) -> list[Unit]:
    """The units, with loops moved into the reductions that alone need them, or into products. Of a unit of the first kind the last call is
    the reduction, of one of the second the first is the product.

    relative: for each value that whose memory it lies in, and how. leaving: values that are needed after the last unit.
    """
    readers: dict[int, list[int]] = {}  # whose memory -> the units that read it
    for i, u in enumerate(units):
        for n in u.reads():
            readers.setdefault(relative[n].base, []).append(i)
    makers = {v.id: i for i, u in enumerate(units) if u.loop for c in u.calls for v in c.outputs}
    found = list(units)
    for i, u in enumerate(units if compiler.compiles() else ()):
        call = u.calls[0]
        if u.loop or call.op.name not in NAMES:
            continue
        x = call.inputs[0]
        at = makers.get(x.id, -1)
        if at < 0 or x.id in leaving or readers[x.id] != [i]:
            continue
        others = [v.id for c in found[at].calls for v in c.outputs if v.id != x.id and (v.id in leaving or v.id in readers)]
        own, rest = _needed(found[at].calls, [x.id]), _needed(found[at].calls, others)
        if not {c.outputs[0].id for c in own} & {c.outputs[0].id for c in rest} and _fits(Unit(own, True), u, relative):
            found[at] = Unit(rest, True, found[at].values)
            found[i] = Unit([*own, call], False, u.values, True)
    return step(end([u for u in found if u.calls], relative, leaving), relative, leaving)


def _needed(calls: Sequence[Call], ends: Sequence[int]) -> list[Call]:
    """The calls of a loop that lead to some of its results."""
    wanted, found = set(ends), []
    for c in reversed(calls):
        if c.outputs[0].id in wanted:
            found.append(c)
            wanted.update(x.id for x in c.inputs if isinstance(x, Value))
    return found[::-1]


def _fits(loop: Unit, unit: Unit, relative: dict[int, Place]) -> bool:
    """Whether the loop walks through memory in one direction, and one thread is enough for it where there is one result."""
    x, y = unit.calls[0].inputs[0].spec, unit.calls[0].outputs[0].spec
    if x.dtype not in (FLOAT32, FLOAT64) or y.dtype != x.dtype or math.prod(x.shape) == 0:
        return False
    if math.prod(y.shape) < 2 and sum(map(cost, loop.calls)) > CHEAP:
        return False
    try:
        for call in loop.calls:
            function_of(call)
    except Unsupported:
        return False
    whole = [p for p in (relative[n] for n in loop.reads()) if p.size != 1]
    return all(p.shape == x.shape and alike(p, whole[0]) for p in whole) and (not whole or dense(whole[0]))


def lower_joined(unit: Unit, ctx: Lowering) -> list[TaskSpec]:
    """The tasks of a joined unit: the reduction, of an array whose elements are computed when they are asked for; or the product."""
    if isinstance(unit.ending, Step):
        return unit.ending.lower(ctx)
    if unit.ending is not None:
        return lower_ended(unit, ctx)
    call = unit.calls[-1]
    loop = Loop(unit.calls[:-1], [])
    x, y = call.inputs[0], ctx.place(call.outputs[0])
    kind = STORAGE[x.spec.dtype.name]
    functions, names = loop.functions()
    places = [ctx.place(v) for v in loop.loaded]
    fields, loads, load = [], [], {}
    for i, (v, p) in enumerate(zip(loop.loaded, places)):
        own = compute_type(v.spec.dtype)
        fields.append(f"  const {storage(v.spec.dtype)}* a{i};")
        loads.append(f"const {own} x{i} = cast<{own}>(a{i}[{'0' if p.size == 1 else 'at + i'}]);")
        load[v.id] = f"x{i}"
    lines = loop.body(names, load)
    result = loop.at[x.id]
    count = len(places)
    made = [
        "struct @K_made {", *fields, "  int64_t at;",
        f"  @K_made operator+(int64_t n) const {{ return {{{''.join(f'a{i}, ' for i in range(count))}at + n}}; }}",
        f"  {kind} operator[](int64_t i) const {{", *(f"    {line}" for line in [*loads, *lines]),
        f"    return cast<{kind}>({result});", "  }", "};",
    ]  # fmt: skip
    given = "".join(f"(const {storage(v.spec.dtype)}*)p[{i + 1}], " for i, v in enumerate(loop.loaded))
    source = f"const @K_made x = {{{given}0}};"
    lies = next((p for p in places if p.size != 1), place_of(0, x.spec))  # in the order of what it is made of
    return reduction(call, lies, y, ctx, [*functions, *made], source, tuple(places), sum(map(cost, loop.calls)))
