"""An elementwise row behind a product of matrices runs in the product's kernel, on rows of the result that the cache still holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from gradlab.backends.native.lowering import Lowering, TaskSpec
from gradlab.backends.native.lowerings.loops import cost
from gradlab.backends.native.lowerings.products import Ending, product_of
from gradlab.backends.native.place import Place
from gradlab.dtype import FLOAT32
from gradlab.graph.executables.native.fusion import Unit
from gradlab.graph.executables.native.half_casts import ROUND
from gradlab.graph.ir.graph import Call, Value

# Kinds of `epilogues.h` by the rows of the loop.
SIMPLE = {"relu": 1, "relu_backward": 2, "add": 3, "gelu_tanh": 4, "gelu_tanh_backward": 6}
KEPT, AGAIN = 5, 7
BEFORE, AFTER = 16, 256  # times what is rounded to
ROUNDED = {ROUND["bfloat16"]: 1, ROUND["float16"]: 2}
NEAR = 2  # units between the product and the loop that may stand aside for the loop

class Work(NamedTuple):
    """What the kernel does: the kind of its ending, where the product's result lies, what else it reads, and what it writes beside. done:
    whether nothing more can follow."""

    kind: int
    result: Value
    inputs: list[Value]
    beside: Value | None
    done: bool = True


def end(units: Sequence[Unit], relative: dict[int, Place], leaving: set[int]) -> list[Unit]:
    """The units, with loops moved into the products that they read. Of such a unit the first call is the product."""
    readers: dict[int, list[int]] = {}  # whose memory -> the units that read it
    makers: dict[int, int] = {}
    for i, u in enumerate(units):
        for n in u.reads():
            readers.setdefault(relative[n].base, []).append(i)
        makers.update((v.id, i) for c in u.calls for v in c.outputs)
    found = list(units)
    for i, u in enumerate(units):
        if u.loop or u.joined or not _is_product(u.calls[0], relative):
            continue
        made = u.calls[0].outputs[0]
        work, taken = Work(0, made, [], None, done=False), list[int]()
        while not work.done:  # a rounding, then what reads that, maybe in another shape
            at = made.id
            j = next((j for j in readers.get(at, ()) if 0 < j - i <= 1 + NEAR + len(taken) and found[j].loop), None)
            if j is None or j in taken:
                break
            alone = readers[at] == [j] and at not in leaving
            results = (v.id for c in units[j].calls for v in c.outputs)
            wanted = {n for n in results if n in leaving or any(k != j for k in readers.get(n, ()))}
            more = _fits(made, units[j], relative, alone, wanted, work.kind)
            if more is None or any(makers.get(relative[n].base, -1) >= i for n in units[j].reads() if relative[n].base != at):
                break
            taken.append(j)
            work, made = more, more.result
        if not taken:
            continue
        over = {work.beside.id: [x.id for x in work.inputs if _apart(x, relative)]} if work.beside is not None else {}
        parts = [u, *(units[j] for j in taken)]
        calls, values = [c for part in parts for c in part.calls], set[int]().union(*(part.values for part in parts))
        made_here = {v.id for c in calls for v in c.outputs}
        outside = list(dict.fromkeys(n for part in parts for n in part.reads() if relative[n].base not in made_here))
        found[i] = Unit(calls, False, values, True, outside=outside, over=over, ending=work)
        for j in taken:
            found[j] = Unit([], True)
    return [u for u in found if u.calls]


def _is_product(call: Call, relative: dict[int, Place]) -> bool:
    """Whether it is a product of two matrices that the kernel takes, with a result that lies apart and in row-major order."""
    name = call.op.name.removesuffix("_bfloat16")
    if name not in ("matmul", "linear"):
        return False
    values = [x for x in (*call.inputs, *call.outputs) if isinstance(x, Value)]
    if any(v.spec.dtype != FLOAT32 or math.prod(v.spec.shape) == 0 for v in values) or None in call.inputs[:2]:
        return False
    if name == "matmul" and not all(len(v.spec.shape) == 2 for v in values):
        return False
    made = call.outputs[0]
    bias = call.inputs[2] if len(call.inputs) > 2 else None
    if bias is not None and (bias.spec.shape != made.spec.shape[-1:] or relative[bias.id].strides != (1,)):
        return False
    return len(made.spec.shape) > 1 and _apart(made, relative)


def _apart(value: Value, relative: dict[int, Place]) -> bool:
    return relative[value.id].base == value.id and relative[value.id].contiguous


def _fits(made: Value, loop: Unit, relative: dict[int, Place], alone: bool, wanted: set[int], before: int) -> Work | None:
    """What the product's kernel has to do to do the loop's work; None if it cannot. alone: whether only the loop reads the product.

    wanted: results of the loop that others need. before: the kind so far, in which the product has been rounded.
    """
    values = [x for c in loop.calls for x in (*c.inputs, *c.outputs)]
    if not all(isinstance(x, Value) and _alike(x, made, relative) for x in values):
        return None
    if not all(_apart(c.outputs[0], relative) for c in loop.calls):
        return None
    calls = list(loop.calls)
    if calls[0].op in ROUNDED and relative[calls[0].inputs[0].id].base == made.id:
        if not alone or before:
            return None
        before, made = BEFORE * ROUNDED[calls[0].op], calls.pop(0).outputs[0]
        alone = made.id not in wanted
        if not calls:
            return Work(before, made, [], None, done=False)
    rounded = {c.inputs[0].id: c for c in calls if c.op in ROUNDED}
    calls = [c for c in calls if c.op not in ROUNDED]
    ends = [rounded[c.outputs[0].id].outputs[0] if c.outputs[0].id in rounded else c.outputs[0] for c in calls]
    kinds = {rounded[c.outputs[0].id].op for c in calls if c.outputs[0].id in rounded}
    if not calls or len(rounded) not in (0, len(calls)) or len(kinds) > 1 or {v.id for v in ends} != wanted - {made.id}:
        return None
    work = _computed(calls, ends, made, relative, alone)
    return work and work._replace(kind=work.kind + before + sum(AFTER * ROUNDED[op] for op in kinds))


def _computed(calls: list[Call], ends: list[Value], made: Value, relative: dict[int, Place], alone: bool) -> Work | None:
    """The same without roundings. ends: what becomes of the results of the calls; made: the product."""
    *before, last = calls
    if last.op.name not in SIMPLE:
        return None
    kind, result = SIMPLE[last.op.name], ends[-1]
    if last.op.name == "gelu_tanh":
        if before or relative[last.inputs[0].id].base != made.id:
            return None
        return Work(kind, result, [], None) if alone else Work(KEPT, made, [], result)
    inputs = [x for x in last.inputs if relative[x.id].base != made.id]
    first = relative[last.inputs[0].id].base == made.id
    if not alone or len(inputs) != len(last.inputs) - 1 or not (first or last.op.name == "add"):
        return None
    if not before:
        return Work(kind, result, inputs, None)
    again = before[0]  # makes gelu anew beside its gradient
    if len(before) == 1 and again.op.name == "gelu_tanh" and kind == SIMPLE["gelu_tanh_backward"] and again.inputs[0] is inputs[0]:
        return Work(AGAIN, result, inputs, ends[0])
    return None


def _alike(x: Value, made: Value, relative: dict[int, Place]) -> bool:
    """Whether a value's elements lie in memory as those of the product do."""
    return x.spec.dtype == FLOAT32 and math.prod(x.spec.shape) == math.prod(made.spec.shape) and relative[x.id].contiguous


def lower_ended(unit: Unit, ctx: Lowering) -> list[TaskSpec]:
    """The tasks of a product and its ending."""
    work: Work = unit.ending
    places = [ctx.place(x) for x in (*work.inputs, *([work.beside] if work.beside is not None else []))]
    return product_of(unit.calls[0], ctx.place(work.result), Ending(work.kind, tuple(places), sum(map(cost, unit.calls[1:]))), ctx)
