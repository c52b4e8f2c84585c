"""A step of an LSTM runs in the kernel of the product that it begins with, on sums that the cache still holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gradlab.backends.native.lowering import Lowering, TaskSpec, widest
from gradlab.backends.native.place import STATUS, Place
from gradlab.dtype import FLOAT32, INT64
from gradlab.graph.executables.native.fusion import Unit
from gradlab.graph.ir.graph import Call, Value

GATES = 4
PANEL = 32  # units that are packed together, on the machine with the widest vectors (gemm.h)
SHARED = 3  # steps with the same weight that make it worth packing it once
NEAR = 3  # units between a product and its cell


class Step(NamedTuple):
    """What one kernel does: the product of the hidden state and the weight, the look-up of the gates' inputs in a table if the cell alone
    needs it, and the cell."""

    product: Call
    found: Call | None
    cell: Call

    def lower(self, ctx: Lowering) -> list[TaskSpec]:
        """The tasks."""
        h, weight = (ctx.place(x) for x in self.product.inputs)
        outputs = [ctx.dense(v) for v in self.cell.outputs]
        gates, c = ctx.place(self.cell.inputs[0] if self.found is None else self.found.inputs[0]), ctx.place(self.cell.inputs[2])
        table, behind = 0, list[Place]()
        if self.found is not None:
            table, behind = gates.shape[0], [ctx.place(self.found.inputs[1]), Place(STATUS, 0, (), (), INT64)]
        (rows, units), depth = outputs[0].shape, weight.shape[0]
        panels, first = _packed(weight, units, ctx)
        parameters = (rows, units, depth, h.strides[0], gates.strides[0], c.strides[0], table)
        work = rows * units * GATES * (depth / 8 + 15)
        return [*first, TaskSpec("gradlab_lstm_step", parameters, (*outputs, h, panels, gates, c, *behind), widest(work))]


def _packed(weight: Place, units: int, ctx: Lowering) -> tuple[Place, list[TaskSpec]]:
    """A weight as panels, those of each gate by themselves, once for all steps if its place holds nothing else."""
    depth = weight.shape[0]
    size = GATES * -(-units // PANEL) * PANEL * depth * 4
    if weight in ctx.gates:
        return ctx.gates[weight], []
    if ctx.operands[weight] >= SHARED:
        space = ctx.gates[weight] = ctx.reserve(size)
    else:
        space = ctx.scratch(size)
    return space, [TaskSpec("gradlab_pack_gates", (units, depth, GATES, *weight.strides), (space, weight), widest(weight.size / 2))]


def step(units: Sequence[Unit], relative: dict[int, Place], leaving: set[int]) -> list[Unit]:
    """The units, with the products and look-ups that only an LSTM's cell reads moved into it."""
    if not any(u.calls[0].op.name == "lstm_cell" for u in units):
        return list(units)
    readers = Counter(relative[n].base for u in units for n in u.reads())
    makers = {v.id: i for i, u in enumerate(units) for c in u.calls for v in c.outputs}
    steps: dict[int, tuple[list[int], Step]] = {}
    for i, u in enumerate(units):
        cell = u.calls[0]
        if not _single(u) or cell.op.name != "lstm_cell" or not _takes(cell, relative):
            continue

        def made(x: Value, i: int = i) -> int:
            """The unit close before that makes what only the cell reads; -1 if there is none."""
            at = makers.get(x.id, -1)
            return at if relative[x.id].base == x.id and readers[x.id] == 1 and x.id not in leaving and i - NEAR <= at < i else -1

        at, look = made(cell.inputs[1]), made(cell.inputs[0])
        if at < 0 or not _is_product(units[at], relative):
            continue
        if look >= 0 and _is_look_up(units[look], relative):
            steps[i] = sorted((at, look)), Step(units[at].calls[0], units[look].calls[0], cell)
        else:
            steps[i] = [at], Step(units[at].calls[0], None, cell)
    weights = Counter(relative[s.product.inputs[1].id] for _, s in steps.values())
    changed = list(units)
    for i, (parts, s) in steps.items():
        if weights[relative[s.product.inputs[1].id]] < SHARED:
            continue
        calls = [*(units[j].calls[0] for j in parts), s.cell]
        own = {v.id for c in calls for v in c.outputs}
        outside = list(dict.fromkeys(x.id for c in calls for x in c.inputs if isinstance(x, Value) and x.id not in own))
        changed[i] = Unit(calls, False, own.union(outside), True, outside=outside, ending=s)
        for j in parts:
            changed[j] = Unit([], True)
    return [u for u in changed if u.calls]


def _single(unit: Unit) -> bool:
    return not (unit.loop or unit.joined or unit.parts)


def _rows(place: Place) -> bool:
    """Whether it is a matrix of float32 whose rows are contiguous."""
    return len(place.shape) == 2 and place.dtype == FLOAT32 and place.size > 0 and (place.strides[1] == 1 or place.shape[1] == 1)


def _takes(cell: Call, relative: dict[int, Place]) -> bool:
    """Whether the kernel takes a cell's operands as they lie."""
    if not all(isinstance(x, Value) and _rows(relative[x.id]) for x in cell.inputs):
        return False
    return all(relative[v.id].contiguous and v.spec.dtype == FLOAT32 for v in cell.outputs)


def _is_product(unit: Unit, relative: dict[int, Place]) -> bool:
    call = unit.calls[0]
    if not _single(unit) or call.op.name != "matmul" or not all(isinstance(x, Value) and len(x.spec.shape) == 2 for x in call.inputs):
        return False
    h, weight = (relative[x.id] for x in call.inputs)
    return _rows(h) and weight.dtype == FLOAT32 and weight.size > 0


def _is_look_up(unit: Unit, relative: dict[int, Place]) -> bool:
    call = unit.calls[0]
    if not _single(unit) or call.op.name != "embedding":
        return False
    table, at = (relative[x.id] for x in call.inputs)
    return table.contiguous and table.dtype == FLOAT32 and len(at.shape) == 1 and at.contiguous and at.dtype == INT64
