"""Mega-kernels: neighbouring rows of small tensors run as one kernel of one block, with barriers between them.

A launch costs a captured graph a microsecond or more, whatever it computes; a row of some thousand elements costs one block less than
that. So what is small enough by the model of `stages.py` runs together, and what only the part itself reads lies in shared memory.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Any

from gradlab.backends.cuda.compiler import program
from gradlab.backends.cuda.launch.loss import class_site
from gradlab.backends.cuda.launch.optim import FORMS
from gradlab.backends.cuda.launch_context import Work
from gradlab.backends.cuda.types import STORAGE, compute_type
from gradlab.backends.native.lowerings.loops import Loop
from gradlab.backends.native.place import ARENA, Place
from gradlab.graph.executables.cuda import stages, stages_rows, stages_updates
from gradlab.graph.executables.cuda.loops import written
from gradlab.graph.executables.cuda.ordering import group_of
from gradlab.graph.executables.native.fusion import Unit
from gradlab.graph.executables.native.planning import Arranged
from gradlab.graph.ir.graph import Call, Value
from gradlab.graph.ir.memory_plan import Moment, plan_buffers
from gradlab.spec import count

LAUNCH = 1.5  # microseconds that one launch of a captured graph takes at least
ROOM = 40 << 10  # bytes of shared memory for the values
_STAGES = stages_rows.STAGES  # with all that were registered
MOST_STAGES = 96  # of one kernel: the time to compile it grows with each
THREADS = stages.THREADS
MOST_POINTERS = 400  # a kernel's arguments have 4096 bytes


def enabled() -> bool:
    """GRADLAB_MEGA=0 switches it off."""
    return os.environ.get("GRADLAB_MEGA", "1") != "0"


# ---------------------------------------------------------------- choosing


def gathered(units: Sequence[Unit], places: dict[int, Place], ends: set[int]) -> list[Unit]:
    """The units, with neighbours that are small as one unit with `parts`.

    places: for each value the one in whose memory it lies (as base), and how. ends: values that leave the program, by that one.
    """
    found: list[Unit] = []
    run: list[list[Unit]] = []

    def close() -> None:
        found.extend(_joined(run, units, places, ends))
        run.clear()

    for members in _groups(units):
        price = _cost(members, places)
        if price is None or price > LAUNCH:
            close()
            found.extend(members)
        else:
            run.append(members)
    close()
    return found


def apart(call: Call, places: dict[int, Place]) -> bool:
    """Whether a call is a kernel of its own: no stage of a larger one."""
    if not enabled():
        return True
    price = _cost([Unit([call], False)], places)
    return price is None or price > LAUNCH


def _cost(units: Sequence[Unit], places: dict[int, Place]) -> float | None:
    unit = units[0]
    if any(_reach(places[n]) > 2**31 - 1 for u in units for n in u.reads()):
        return None  # stages number elements in 32 bits
    if unit.loop:
        loop = Loop(unit.calls, [])
        return stages.loop_cost(loop) if count(loop.shape) else None
    if unit.calls[0].op.name in FORMS:
        return stages_updates.update_cost([u.calls[0] for u in units], places)
    known = _STAGES.get(unit.calls[0].op.name)
    return None if known is None else known.cost(unit.calls[0], places)


def _reach(place: Place) -> int:
    """How far the last element is from the first."""
    return sum((n - 1) * abs(s) for n, s in zip(place.shape, place.strides))


def _joined(run: list[list[Unit]], units: Sequence[Unit], places: dict[int, Place], ends: set[int]) -> list[Unit]:
    """One unit for a run of small ones; halves of it where it is too much for one kernel."""
    flat = [u for members in run for u in members]
    if len(run) < 2:
        return flat
    calls = [c for u in flat for c in u.calls]
    own = {v.id for c in calls for v in c.outputs}
    outside = list(dict.fromkeys(n for u in flat for n in u.reads() if places[n].base not in own))
    unit = Unit(calls, False, parts=flat, outside=outside)
    inside = _inside(unit, units, places, ends)
    pointers = len({places[n].base for n in outside}) + len(own - inside.keys())
    if len(flat) > MOST_STAGES or pointers > MOST_POINTERS or _shared(unit, inside, places).size > ROOM:
        middle = len(run) // 2
        return [*_joined(run[:middle], units, places, ends), *_joined(run[middle:], units, places, ends)]
    return [unit]


def _inside(unit: Unit, units: Sequence[Unit], places: dict[int, Place], ends: set[int]) -> dict[int, Value]:
    """Values that only the unit itself reads."""
    members = {id(u) for u in unit.parts}
    elsewhere = {places[n].base for u in units if id(u) not in members for n in u.reads()} | ends
    return {v.id: v for c in unit.calls for v in c.outputs if v.id not in elsewhere}


def _shared(unit: Unit, inside: dict[int, Value], places: dict[int, Place]) -> Any:
    """Shared memory for values that no register holds: those that one stage makes and another one reads, or that a stage must write."""
    read = {places[n].base for u in unit.parts for n in u.reads()}
    specs = {n: v.spec for n, v in inside.items() if n in read}
    for u in unit.parts:
        if not u.loop:
            specs.update({v.id: v.spec for v in u.calls[0].outputs if v.id in inside})
    moments = [
        Moment([places[n].base for u in group for n in u.reads()], [v.id for u in group for c in u.calls for v in c.outputs])
        for group in _groups(unit.parts)  # within a stage there are no barriers
    ]
    return plan_buffers(moments, specs)


# ---------------------------------------------------------------- writing


def launch(
    work: Work, unit: Unit, arranged: Arranged, env: dict[int, Any], base: Callable[[int], Any]
) -> tuple[Callable[[], None], str, str]:
    """What launches a unit with parts, the kernel's name, and its text.

    env: the arrays of values that have memory outside of the kernel. base: the array of a place's base.
    """

    def owner(number: int) -> int:
        array = base(number)
        return id(array if array.base is None else array.base)

    def site(call: Call) -> int:
        return class_site(work, call.inputs[0].spec.shape[1], call.params["ignore_index"])

    name, text, given = kernel_of(unit, arranged, owner, site)
    full = f"gradlab::{name}"
    label = f"a kernel of {len(unit.parts)} stages"
    function = work.compiler.generated(("mega", full), lambda: program("stages.cuh", text), [full], label)[full]
    return functools.partial(work.launch, function, 1, THREADS, *(env[n] for n in given), work.faults.record), name, text


def kernel_of(
    unit: Unit, arranged: Arranged, owner: Callable[[int], Any], site: Callable[[Call], int]
) -> tuple[str, str, list[int]]:
    """A kernel's name and text, and the values whose arrays it is given.

    owner: what stands for the memory of a place's base. site: what a call reports a class that is not there as.
    """
    relative, places = arranged.relative, arranged.places
    inside = {v.id: v for c in unit.calls for v in c.outputs if v.id not in places}
    plan = _shared(unit, inside, relative)
    pointers: dict[int, str] = {}  # values that lie outside -> names of arguments
    made = {relative[v.id].base for c in unit.calls for v in c.outputs}

    def at(value: Value) -> stages.At:
        p = relative[value.id]
        kind = STORAGE[p.dtype.name]
        if p.base in plan.places:
            text = f"reinterpret_cast<{kind}*>(shared + {plan.places[p.base]})"
        else:
            text = pointers.setdefault(p.base, f"g{len(pointers)}")
            if relative[p.base].dtype != p.dtype:  # seen as other bits, or as parts of complex numbers
                text = f"reinterpret_cast<{'' if p.base in made else 'const '}{kind}*>({text})"
        return stages.At(f"({text} + {p.offset // p.dtype.itemsize})" if p.offset else text, p)

    writer = stages.Writer(at, site)
    barriers = _Barriers(relative, places, plan, owner)
    lines: list[str] = []
    held = f"reinterpret_cast<double*>(shared + {plan.size})"
    needed = 0
    for group in _groups(unit.parts):
        part, call = group[0], group[0].calls[0]
        if call.op.name in FORMS and not part.loop:
            calls = [u.calls[0] for u in group]
            memory = held.replace("double", compute_type(call.inputs[0].spec.dtype))
            counters = stages_updates.write_counters(calls, memory, writer)
            if counters:
                first = needed == 0  # the constants of an earlier group may still be read where these go
                needed = max(needed, len(calls) * stages_updates.CONSTANTS * 8)
                lines += [*(barriers.before(group) if first else ["__syncthreads();"]), *counters, "__syncthreads();"]
                barriers.clear()
            lines += [*barriers.before(group), *stages_updates.write_updates(calls, memory, writer)]
        else:
            lines += barriers.before(group)
            if part.loop:
                lines += stages.write_loop(Loop(part.calls, [v for c in part.calls for v in c.outputs if _stored(v, plan, places)]), writer)
            else:
                lines += _STAGES[call.op.name].write(call, writer)
    # What is only read is const: whoever looks at the kernel's parameters takes two readers of one array for what they are.
    kinds = {n: STORAGE[relative[n].dtype.name] if n in made else f"const {STORAGE[relative[n].dtype.name]}" for n in pointers}
    names = ", ".join(f"{kinds[n]}* {name}" for n, name in pointers.items())
    body = "\n".join([
        *(text.replace("@F", name) for text, name in writer.functions.items()),
        # One block: without the 1, ptxas spills around calls on sm_100, as if registers were scarce.
        f"__global__ void __launch_bounds__({THREADS}, 1) @K({names}, FaultWord* fault) {{",
        *([f"    __shared__ __align__(16) unsigned char shared[{plan.size + needed}];"] if plan.size + needed else []),
        *("    " + line for line in lines),
        "}",
    ])  # fmt: skip
    body = written(body)
    name = f"mega_{hashlib.sha256(body.encode()).hexdigest()[:16]}"
    return name, body.replace("@K", name), list(pointers)


def _groups(units: Sequence[Unit]) -> list[list[Unit]]:
    """Units by stage: an optimizer's updates that are alike, and do not read what one another make, are one."""
    groups: list[list[Unit]] = []
    for unit in units:
        if groups and not unit.loop and unit.calls[0].op.name in FORMS and _alike(groups[-1], unit):
            groups[-1].append(unit)
        else:
            groups.append([unit])
    return groups


def _alike(group: Sequence[Unit], unit: Unit) -> bool:
    first = group[0].calls[0]
    made = {v.id for u in group for v in u.calls[0].outputs}
    return first.op.name in FORMS and not group[0].loop and group_of(first) == group_of(unit.calls[0]) and made.isdisjoint(unit.reads())


def _stored(value: Value, plan: Any, places: dict[int, Place]) -> bool:
    return value.id in plan.places or value.id in places


class _Barriers:
    """Decides where a barrier has to stand: between a write and a later read or write of the same memory, or a read and a later write."""

    def __init__(self, relative: dict[int, Place], places: dict[int, Place], plan: Any, owner: Callable[[int], Any]) -> None:
        self._relative, self._places, self._plan, self._owner = relative, places, plan, owner
        self._reads: list[Any] = []
        self._writes: list[Any] = []

    def clear(self) -> None:
        """A barrier stands here."""
        self._reads, self._writes = [], []

    def before(self, units: Sequence[Unit]) -> list[str]:
        """The barrier that stages need before them, if any. What they do is noted."""
        reads = [self._memory(self._relative[n].base, u.loop and self._whole(n, u)) for u in units for n in u.reads()]
        writes = [self._memory(v.id, stages.by_element(u, c)) for u in units for c in u.calls for v in c.outputs]
        reads, writes = [m for m in reads if m is not None], [m for m in writes if m is not None]
        needed = _meet(self._writes, reads) or _meet(self._writes, writes) or _meet(self._reads, writes)
        if needed:
            self.clear()
        self._reads += reads
        self._writes += writes
        return ["__syncthreads();"] if needed else []

    def _whole(self, number: int, unit: Unit) -> bool:
        """Whether a loop reads a value as it lies: each element in the thread that writes the result's."""
        p = self._relative[number]
        wide = self._relative[p.base].dtype.itemsize  # as pairs of elements, what two threads have written is one
        return p.contiguous and p.offset == 0 and p.shape == unit.calls[0].outputs[0].spec.shape and wide == p.dtype.itemsize

    def _memory(self, number: int, own: bool) -> Any:
        """(space, first byte, end, value) of a value that has memory. own: whether thread i has its elements i, i + THREADS, …: then the
        value is named, and what writes and reads it so needs no barrier."""
        place = self._places.get(number)
        mine = number if own else None
        if number in self._plan.places:
            p = self._relative[number]
            start = self._plan.places[number]
            return ("shared", start, start + p.size * p.dtype.itemsize, mine)
        if place is None:
            return None
        if place.base == ARENA:
            return ("arena", place.offset, place.offset + place.size * place.dtype.itemsize, mine)
        return (self._owner(place.base), 0, 1, mine)


def _meet(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return any(a[0] == b[0] and a[1] < b[2] and b[1] < a[2] and (a[3] is None or a[3] != b[3]) for a in some for b in others)
