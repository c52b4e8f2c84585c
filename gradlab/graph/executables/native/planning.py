"""From a line of calls to units with places: views resolved, loops fused, memory planned, updates done in place where that is safe."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gradlab.backends.native.lowerings.iteration_order import alike, dense, same_way
from gradlab.backends.native.place import ARENA, Place, last_place, own_base, place_of, viewed
from gradlab.graph.executables.native.assembling import assembled, chosen, readers_of, with_wholes
from gradlab.graph.executables.native.fusion import Unit, fuse
from gradlab.graph.executables.native.index_checks import may_fail, settled
from gradlab.graph.executables.native.joining import join
from gradlab.graph.executables.native.overwriting import overwritten
from gradlab.graph.executables.numpy.cache_blocks import still_read
from gradlab.graph.ir.graph import Call, Value
from gradlab.graph.ir.linear import Line
from gradlab.graph.ir.memory_plan import Moment, Plan, Room, plan_buffers
from gradlab.spec import Spec

FIRST = 2


class Planning(NamedTuple):
    """What the arena was planned by: of each unit its moment, the values that lie in it, those that live to the end, and the rooms."""

    moments: list[Moment]
    planned: dict[int, Spec]
    ends: list[int]
    rooms: list[Room]


@dataclass
class Arranged:
    """A line, arranged in memory.

    places   of every value that has memory
    early    calls whose indices have to be checked before all others run
    copies   (value, base) to copy at the end: results and updates that could not be written where they belong
    """

    units: list[Unit]
    places: dict[int, Place]
    plan: Plan
    inputs: int  # bases FIRST .. are the inputs, then the outputs, then the fixed arrays
    copies: list[tuple[int, Place]] = field(default_factory=list)
    fixed: list[Any] = field(default_factory=list)
    early: list[Call] = field(default_factory=list)
    relative: dict[int, Place] = field(default_factory=dict)  # of each value the one in whose memory it lies (as base), and how
    planning: Planning | None = None


Spread = Callable[[list[Unit], list[Moment], dict[int, int], dict[int, Place]], list[Moment]]


Gather = Callable[[list[Unit], dict[int, Place], set[int]], list[Unit]]


def arrange(
    line: Line, spread: Spread | None = None, joined: bool = False, gather: Gather | None = None, halves: bool = False,
    assembling: bool = False, lending: bool = False, careful: bool = False, own: bool = False,
    last: frozenset[int] = frozenset(), stops: Callable[[Call], bool] = may_fail,
    apart: Callable[..., bool] | None = None,
) -> Arranged:
    """Give every value its place.

    joined: whether loops may become part of reductions (`joining.py`).
    spread: for units that do not run strictly one after the other: from the units, their moments, the value that each value is a view of,
    and the places outside of the arena, the moments to plan the arena by.
    halves: whether loops compute with half types.
    assembling: whether kernels write parts of a `cat` where the whole lies (`assembling.py`).
    lending: whether intermediate values may lie in results that are made later.
    careful: whether loops run call by call, not element by element.
    own: whether places of intermediate values are in memory of their own (`own_base`); where the plan puts that is then up to the caller.
    last: numbers of images whose channels come last in memory.
    stops: whether a call may end a run; what it would leave half done, state, is not written before it.
    apart: with `assembling`, for kernels that write no result over an operand: whether a call is a kernel of its own.
    gather: makes units with parts; from the units, the relative places, and the values that leave the program.
    """
    wanted = [v.id for v in line.outputs] + [new.id for _, new in line.updates]
    relative = _relative_places(line, set(wanted) if assembling else None, last=last)
    parts: dict[int, Place] = {}
    if assembling:
        leaving = {relative[n].base for n in wanted}
        if apart is None:
            parts = assembled(line, relative, leaving | last)
            parts.update(overwritten(line, relative, parts, leaving))
        else:
            parts = assembled(line, relative, leaving | last, functools.partial(apart, places=relative))
        relative = _relative_places(line, set(wanted), parts, last) if parts else relative
    root = {n: p.base for n, p in relative.items()}
    specs = {v.id: v.spec for call in line.calls for v in call.outputs}
    views = {n for n, p in relative.items() if p.base != n and n not in parts}
    clones = [c for c in line.calls if last and c.op.name == "clone"]
    turning = {c.outputs[0].id for c in clones if not same_way(relative[c.inputs[0].id], relative[c.outputs[0].id])}
    units = fuse(line.calls, views, halves, last, turning)
    if joined:
        units = join(units, relative, {root[n] for n in wanted})
    if gather is not None:
        units = gather(units, relative, {root[n] for n in wanted})
    moments = [Moment([root[n] for n in u.reads()], [v.id for c in u.calls for v in c.outputs], _over(u, relative, careful)) for u in units]
    moments = with_wholes(moments, parts) if parts else moments
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
    uses = _Uses([part for u in units for part in (u.parts or [u])], root, stops)
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
        place = _own_place(FIRST + inputs + i, v, last)
        if v.id in specs and root[v.id] == v.id and v.id not in bases:
            bases[v.id] = place
        else:
            copies.insert(0, (v.id, place))  # before the updates: a result may be what state was
    planned = {n: s for n, s in specs.items() if n in stored and root[n] == n and n not in bases}
    for u in units:  # rows with several outputs write all of them
        if not u.loop and not u.parts:
            planned.update({v.id: v.spec for v in u.calls[-1].outputs if v.id not in bases and v.id not in parts})
    if spread is not None:
        moments = spread(units, moments, root, bases)
    rooms, early = _lent(line, units, relative, bases) if lending else ([], [])
    ends = [root[n] for n, _ in copies]
    plan = plan_buffers(moments, planned, ends, rooms)
    if own:
        bases.update({n: place_of(own_base(n), specs[n]) for n in (*plan.places, *plan.guests)})
    else:
        bases.update({n: place_of(ARENA, specs[n], offset) for n, offset in plan.places.items()})
        bases.update({n: place_of(FIRST + inputs + room, specs[n], offset) for n, (room, offset) in plan.guests.items()})
    planning = Planning(moments, planned, ends, rooms if plan.guests else [])
    places = {}
    for n, p in relative.items():
        base = bases.get(p.base)
        if base is not None:
            places[n] = Place(base.base, base.offset + p.offset, p.shape, p.strides, p.dtype)
    return Arranged(units, places, plan, inputs, copies, fixed, early if plan.guests else [], relative, planning)


def _own_place(base: int, value: Value, last: frozenset[int]) -> Place:
    """The place of a value that is no view, at the beginning of a base."""
    return last_place(base, value.spec) if value.id in last else place_of(base, value.spec)


def _relative_places(
    line: Line, leaving: set[int] | None = None, parts: dict[int, Place] | None = None, last: frozenset[int] = frozenset()
) -> dict[int, Place]:
    """For each value the value in whose memory it lies (as `base`) and how. A view that would copy is a value of its own.

    leaving: values that have to be in row-major order; None if all have. parts: places that were decided before.
    """
    found: dict[int, Place] = {v.id: _own_place(v.id, v, last) for v in line.inputs}
    for v, array in line.fixed.items():
        found[v.id] = Place(v.id, 0, array.shape, tuple(s // array.itemsize for s in array.strides), array.dtype)
    readers = {} if leaving is None else readers_of(line)
    for call in line.calls:
        if call.op.view:
            view = viewed(found[call.inputs[0].id], call.op, call.params)
            if view is not None:
                found[call.outputs[0].id] = view
                continue
        own = {} if leaving is None else chosen(call, readers, leaving)
        for v in call.outputs:
            found[v.id] = (parts or {}).get(v.id) or own.get(v.id) or _own_place(v.id, v, last)
    return found


def _lent(line: Line, units: list[Unit], relative: dict[int, Place], bases: dict[int, Place]) -> tuple[list[Room], list[Call]]:
    """Of each result when its memory is free for others: behind all that can fail, before what makes the result. And the early checks."""
    first, early = settled(units, relative, {v.id for v in line.inputs})
    made: dict[int, int] = {}  # the first unit that writes into a base
    for i, unit in enumerate(units):
        for call in unit.calls:
            for v in call.outputs:
                if (place := bases.get(relative[v.id].base)) is not None:
                    made.setdefault(place.base, i)
    found = []
    for i, v in enumerate(line.outputs):
        place = place_of(FIRST + len(line.inputs) + i, v.spec)
        found.append(Room(place.size * place.dtype.itemsize, first, made.get(place.base, len(units)) - 1))
    return found, early


def _over(unit: Unit, relative: dict[int, Place], careful: bool) -> dict[int, list[int]]:
    """For each result of a loop the values that it may be written over: those that the loop reads element by element, as it writes."""
    if not unit.loop:
        return unit.over
    own = relative[unit.calls[0].outputs[0].id]  # all results of a loop lie in one order
    made = {c.outputs[0].id for c in unit.calls}
    found: dict[int, bool] = {}  # whether all that is read of a value is read so
    for n in unit.reads():
        p = relative[n]
        found[p.base] = found.get(p.base, True) and p.offset == 0 and alike(p, own) and dense(p)
    good = [n for n, fine in found.items() if fine and n not in made]
    width = {n: relative[n].dtype.itemsize for n in good}
    read = {n: {relative[m].base for m in ms} for n, ms in still_read(unit.calls).items()} if careful else {}
    results = [c.outputs[0] for c in unit.calls]
    return {y.id: [n for n in good if width[n] == y.spec.dtype.itemsize and n not in read.get(y.id, ())] for y in results}


class _Uses:
    """Who makes and who reads what, in the order of the units."""

    def __init__(self, units: list[Unit], root: dict[int, int], stops: Callable[[Call], bool]) -> None:
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
                if stops(call):
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
