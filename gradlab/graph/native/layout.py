"""From a line of calls to units with places: views resolved, loops fused, memory planned, updates done in place where that is safe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gradlab.graph.execute import Line
from gradlab.graph.ir import Call, Value
from gradlab.graph.memory import Moment, Plan, plan_buffers
from gradlab.graph.native.fusion import Unit, fuse
from gradlab.graph.native.joining import join
from gradlab.graph.native.place import ARENA, Place, place_of, viewed

STATUS = 1  # the base of the word in which a kernel reports a fault
FIRST = 2
# Rows that check values while they run (indices).
MAY_FAIL = frozenset(
    [
        "index", "gather", "scatter", "embedding", "index_select", "cross_entropy", "nll_loss", "take", "index_put", "max_pool_backward",
        "scan", "switch", "while_loop",
    ]
)  # fmt: skip


@dataclass
class Arranged:
    """A line, arranged in memory.

    places   of every value that has memory
    copies   (value, base) to copy at the end: results and updates that could not be written where they belong
    """

    units: list[Unit]
    places: dict[int, Place]
    plan: Plan
    inputs: int  # bases FIRST .. are the inputs, then the outputs, then the fixed arrays
    copies: list[tuple[int, Place]] = field(default_factory=list)
    fixed: list[Any] = field(default_factory=list)
    relative: dict[int, Place] = field(default_factory=dict)  # of each value the one in whose memory it lies (as base), and how


Spread = Callable[[list[Unit], list[Moment], dict[int, int], dict[int, Place]], list[Moment]]


Gather = Callable[[list[Unit], dict[int, Place], set[int]], list[Unit]]


def arrange(line: Line, spread: Spread | None = None, joined: bool = False, gather: Gather | None = None) -> Arranged:
    """Give every value its place.

    joined: whether loops may become part of reductions (`joining.py`).
    spread: for units that do not run strictly one after the other: from the units, their moments, the value that each value is a view of,
    and the places outside of the arena, the moments to plan the arena by.
    gather: makes units with parts; from the units, the relative places, and the values that leave the program.
    """
    relative = _relative_places(line)
    root = {n: p.base for n, p in relative.items()}
    specs = {v.id: v.spec for call in line.calls for v in call.outputs}
    views = {n for n, p in relative.items() if p.base != n}
    units = fuse(line.calls, views)
    wanted = [v.id for v in line.outputs] + [new.id for _, new in line.updates]
    if joined:
        units = join(units, relative, {root[n] for n in wanted})
    if gather is not None:
        units = gather(units, relative, {root[n] for n in wanted})
    moments = [Moment([root[n] for n in u.reads()], [v.id for c in u.calls for v in c.outputs], _over(u, relative)) for u in units]
    stored = {n for m in moments for n in m.reads} | {root[n] for n in wanted}
    # Bases of what lies outside the arena.
    bases: dict[int, Place] = {}
    inputs = len(line.inputs)
    for i, v in enumerate(line.inputs):
        bases[v.id] = place_of(FIRST + i, v.spec)
    start = FIRST + inputs + len(line.outputs)
    fixed = list(line.fixed.values())
    for i, (v, array) in enumerate(line.fixed.items()):
        strides = tuple(s // array.itemsize for s in array.strides)
        bases[v.id] = Place(start + i, 0, array.shape, strides, array.dtype)
    copies: list[tuple[int, Place]] = []
    uses = _Uses([part for u in units for part in (u.parts or [u])], root)
    # State that leaves the program as it was, or goes into other state, is read after all calls.
    lasting = {root[v.id] for v in line.outputs} | {root[new.id] for old, new in line.updates if root[new.id] != old.id}
    for old, new in line.updates:
        target = bases[old.id]
        free = old in line.fixed and old.id not in lasting
        if free and new.id in specs and new.id not in bases and uses.in_place(old.id, new.id, target):
            bases[new.id] = target
        else:
            copies.append((new.id, target))
    for i, v in enumerate(line.outputs):
        place = place_of(FIRST + inputs + i, v.spec)
        if v.id in specs and root[v.id] == v.id and v.id not in bases:
            bases[v.id] = place
        else:
            copies.insert(0, (v.id, place))  # before the updates: a result may be what state was
    planned = {n: s for n, s in specs.items() if n in stored and root[n] == n and n not in bases}
    for u in units:  # rows with several outputs write all of them
        if not u.loop and not u.parts:
            planned.update({v.id: v.spec for v in u.calls[-1].outputs if v.id not in bases})
    if spread is not None:
        moments = spread(units, moments, root, bases)
    plan = plan_buffers(moments, planned, [root[n] for n, _ in copies])
    bases.update({n: place_of(ARENA, specs[n], offset) for n, offset in plan.places.items()})
    places = {}
    for n, p in relative.items():
        base = bases.get(p.base)
        if base is not None:
            places[n] = base if p.base == n else Place(base.base, base.offset + p.offset, p.shape, p.strides, p.dtype)
    return Arranged(units, places, plan, inputs, copies, fixed, relative)


def _relative_places(line: Line) -> dict[int, Place]:
    """For each value the value in whose memory it lies (as `base`) and how. A view that would copy is a value of its own."""
    found: dict[int, Place] = {v.id: place_of(v.id, v.spec) for v in line.inputs}
    for v, array in line.fixed.items():
        found[v.id] = Place(v.id, 0, array.shape, tuple(s // array.itemsize for s in array.strides), array.dtype)
    for call in line.calls:
        if call.op.view:
            view = viewed(found[call.inputs[0].id], call.op, call.params)
            if view is not None:
                found[call.outputs[0].id] = view
                continue
        for v in call.outputs:
            found[v.id] = place_of(v.id, v.spec)
    return found


def _over(unit: Unit, relative: dict[int, Place]) -> dict[int, list[int]]:
    """For each result of a loop the values that it may be written over: those that the loop reads element by element, as it writes."""
    if not unit.loop:
        return {}
    shape = unit.calls[0].outputs[0].spec.shape
    own = {c.outputs[0].id for c in unit.calls}
    found: dict[int, bool] = {}  # whether all that is read of a value is read so
    for n in unit.reads():
        p = relative[n]
        found[p.base] = found.get(p.base, True) and p.offset == 0 and p.shape == shape and p.contiguous
    good = [n for n, fine in found.items() if fine and n not in own]
    width = {n: relative[n].dtype.itemsize for n in good}
    return {c.outputs[0].id: [n for n in good if width[n] == c.outputs[0].spec.dtype.itemsize] for c in unit.calls}


class _Uses:
    """Who makes and who reads what, in the order of the units."""

    def __init__(self, units: list[Unit], root: dict[int, int]) -> None:
        self._units, self._root = units, root
        self._maker: dict[int, int] = {}
        self._readers: dict[int, list[tuple[int, Value]]] = {}  # of a value or a view of it
        self._last_to_fail = -1
        for i, unit in enumerate(units):
            for call in unit.calls:
                self._maker.update((v.id, i) for v in call.outputs)
                for x in call.inputs:
                    if isinstance(x, Value):
                        self._readers.setdefault(root[x.id], []).append((i, x))
                if _may_fail(call):
                    self._last_to_fail = i

    def in_place(self, old: int, new: int, target: Place) -> bool:
        """Whether `new` may be computed into the memory of `old`: nobody reads `old` afterwards, and the kernel reads it element by
        element."""
        if not target.contiguous or self._root[new] != new:
            return False
        maker, readers = self._maker[new], self._readers.get(old, [])
        if self._last_to_fail > maker or any(i > maker for i, _ in readers):
            return False
        inside = [x for i, x in readers if i == maker]
        if not inside:
            return True
        unit = self._units[maker]
        if unit.loop:  # every element is read before it is written, if all readers walk as the result does
            return all(x.id == old and x.spec.shape == unit.calls[0].outputs[0].spec.shape for x in inside)
        return unit.calls[0].op.name.endswith("_update") and all(x.id == old for x in inside)


def _may_fail(call: Call) -> bool:
    """Whether a call checks values while it runs (indices); state must not be written before it."""
    return call.op.name in MAY_FAIL
