"""The arena's plan once it is known what runs when: a chain (`chaining.py`) is one moment, for an image may be behind it before another one
has begun, and what only a chain touches is no longer in the arena."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gradlab.backends.native.lowering import TaskSpec
from gradlab.backends.native.place import OWN, SCRATCH, Place, own_base
from gradlab.graph.executables.native.chaining import Block, Item, high
from gradlab.graph.executables.native.planning import Planning
from gradlab.graph.ir.memory_plan import ALIGNMENT, CLOSE, Moment, Plan, Room, plan_buffers
from gradlab.spec import Spec, count

BYTE = np.dtype(np.uint8)


class Link(NamedTuple):
    """A task of a chain and the unit that it belongs to; of each of its places the step from one image to the next, and from one thread's
    to the next thread's."""

    unit: int
    task: TaskSpec
    steps: tuple[int, ...]
    apart: tuple[int, ...]


class Chain(NamedTuple):
    """Tasks that run as one, so many images at a time."""

    links: tuple[Link, ...]
    images: int
    chunk: int
    threads: int


class Order(NamedTuple):
    """A program with chains: its steps, where values lie, the bytes of work space, and those of each chain."""

    steps: list[Item | Chain]
    plan: Plan
    scratch: int
    needs: list[int]


def moments_of(items: Sequence[Item], planning: Planning) -> list[Moment]:
    """Of each step what it reads and makes for the first time. What a step in NumPy does is that of its unit."""
    made: set[int] = set()
    found = []
    for item in items:
        unit = planning.moments[item.unit]
        if item.task is None:
            made.update(unit.makes)
            found.append(unit)
            continue
        numbers = dict.fromkeys(OWN - p.base for p in item.task.places if p.base <= OWN)
        makes = [n for n in numbers if n not in made]
        found.append(Moment([n for n in numbers if n in made], makes, {n: unit.over[n] for n in makes if n in unit.over}))
        made.update(makes)
    return found


def merged(moments: Sequence[Moment], blocks: Sequence[Block]) -> tuple[list[Moment], list[int]]:
    """The moments, with those of a block as one, and the new number of each."""
    found: list[Moment] = []
    numbers: list[int] = []
    at = 0
    for block in blocks:
        for i in range(at, block.first):
            numbers.append(len(found))
            found.append(moments[i])
        numbers += [len(found)] * (block.last + 1 - block.first)
        found.append(_together(moments[block.first : block.last + 1], block))
        at = block.last + 1
    for i in range(at, len(moments)):
        numbers.append(len(found))
        found.append(moments[i])
    return found, numbers


def _together(moments: Sequence[Moment], block: Block) -> Moment:
    makes = [n for m in moments for n in m.makes]
    made, local = set(makes), {OWN - base for base in block.local}
    reads = list(dict.fromkeys(n for m in moments for n in m.reads if n not in made))
    touched = Counter(n for m in moments for n in {*m.reads, *m.makes})
    # What a step may write over may be written over in the block too if no other step of the block touches it.
    over = {n: [x for x in xs if x not in made and touched[x] == 1] for m in moments for n, xs in m.over.items()}
    # So may an image of what the chain has read before it writes the first image of the result.
    walked = {OWN - base: walk for base, walk in block.walked.items()}
    for y in walked.keys() & made - local:
        step, first, _ = walked[y]
        over[y] = [*over.get(y, ()), *(x for x, w in walked.items() if x not in made and w.step == step and w.last < first)]
    return Moment(reads, [n for n in makes if n not in local], over)


def _rooms(rooms: Sequence[Room], items: Sequence[Item], numbers: Sequence[int]) -> list[Room]:
    """Rooms by the new numbers: a moment that is only partly inside is outside."""
    units = [item.unit for item in items]
    found = []
    for room in rooms:
        inside = [i for i, unit in enumerate(units) if room.first <= unit <= room.last]
        if not inside:
            continue
        first, last = inside[0], inside[-1]
        begin = numbers[first] + (first > 0 and numbers[first - 1] == numbers[first])
        end = numbers[last] - (last + 1 < len(numbers) and numbers[last + 1] == numbers[last])
        found.append(Room(room.size, begin, end))
    return found


def planned(items: Sequence[Item], blocks: Sequence[Block], planning: Planning) -> Plan:
    """The arena's plan for a program with these chains."""
    moments, numbers = merged(moments_of(items, planning), blocks)
    local = {OWN - base for block in blocks for base in block.local}
    specs = {n: s for n, s in planning.planned.items() if n not in local}
    return plan_buffers(moments, specs, planning.ends, _rooms(planning.rooms, items, numbers))


def _fitted(size: int, taken: list[tuple[int, int]]) -> int:
    """Where so many bytes lie beside what is taken, as low as they can. They are then taken too."""
    at = 0
    for begin, end in sorted(taken):
        if begin - at >= size:
            break
        at = max(at, end)
    taken.append((at, at + size))
    return at


class _Scratch:
    """Work space in a program with chains: units that take part in one have their own."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items
        self.sizes: dict[int, int] = {}
        for item in items:
            for p in item.task.places if item.task is not None else ():
                if p.base == SCRATCH:
                    self.sizes[item.unit] = max(self.sizes.get(item.unit, 0), _up(high(p)))
        self.at: dict[int, int] = {}  # of units of blocks; those of all others begin at zero
        self.size = max(self.sizes.values(), default=0)

    def lay(self, block: Block, local: int) -> tuple[int, int]:
        """Give the units of a block their places; where the block's local values lie, of so many bytes, and the end of it all."""
        before, links, after = ({self._items[i].unit: None for i in some} for some in (block.before, block.links, block.after))
        units = [u for u in (*before, *links, *after) if u in self.sizes]
        own = {u for u in units if u in links or (u in before and u in after)}  # whose work space others in between must not touch
        taken = [(self.at[u], self.at[u] + self.sizes[u]) for u in units if u in self.at]
        for u in units:
            if u in own and u not in self.at:
                self.at[u] = _fitted(self.sizes[u], taken)
        others = [u for u in units if u not in self.at]
        common = _fitted(max((self.sizes[u] for u in others), default=0), taken)
        self.at.update(dict.fromkeys(others, common))
        start = _fitted(local, taken)
        self.size = max(self.size, *(end for _, end in taken))
        return start, max(end for _, end in taken)

    def moved(self, item: Item) -> Item:
        """The step, with its work space where it now lies."""
        shift = self.at.get(item.unit, 0)
        if not shift or item.task is None:
            return item
        places = tuple(p._replace(offset=p.offset + shift) if p.base == SCRATCH else p for p in item.task.places)
        return item._replace(task=item.task._replace(places=places))


def chained(items: Sequence[Item], blocks: Sequence[Block], planning: Planning, limit: int) -> Order | None:
    """The program with these chains, or with some of them, or with fewer images at a time, so that it needs no more than so many bytes."""
    if not blocks:
        return None
    chosen, plain, limit = list(blocks), _Scratch(items).size, int(limit * CLOSE)
    while True:
        order = _ordered(items, chosen, planning)
        if order.plan.size + order.scratch <= limit:
            return order
        # Work space does not fit beside the arena: that of fewer images may. Or the arena is too large: chains at its fullest moments go.
        free = limit - order.plan.size
        if free >= plain:
            wide = [b for b, size in zip(chosen, order.needs) if size > free]
            chosen = [b._replace(chunk=b.least) if b in wide else b for b in chosen if b not in wide or (b.local and b.chunk > b.least)]
        else:
            moments, numbers = merged(moments_of(items, planning), chosen)
            alive = _alive(moments, planning)
            chosen.sort(key=lambda b: alive[numbers[b.first]])
            chosen = sorted(chosen[: len(chosen) * 3 // 4], key=lambda b: b.first)
        if not chosen:
            return None


def _alive(moments: Sequence[Moment], planning: Planning) -> list[int]:
    """Bytes of the values that are alive at each moment, those counted too that might lie over others."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for i, moment in enumerate(moments):
        for n in moment.makes:
            first.setdefault(n, i)
        last.update((n, i) for n in (*moment.reads, *moment.makes))
    change = [0] * (len(moments) + 1)
    for n, i in first.items():
        spec = planning.planned[n]
        size = count(spec.shape) * spec.dtype.itemsize
        change[i] += size
        change[len(moments) if n in planning.ends else last[n] + 1] -= size
    return list(itertools.accumulate(change))


def _ordered(items: Sequence[Item], blocks: Sequence[Block], planning: Planning) -> Order:
    scratch = _Scratch(items)
    moments = moments_of(items, planning)
    laid, needs = [], []
    for block in blocks:
        offsets, size = _slot(moments, block)
        start, end = scratch.lay(block, size * block.threads)
        laid.append((block, offsets, size, start))
        needs.append(end)
    found: list[Item | Chain] = []
    at = 0
    for block, offsets, size, start in laid:
        found += map(scratch.moved, [*items[at : block.first], *(items[i] for i in block.before)])
        links = tuple(_link(scratch.moved(items[i]), offsets, size, start) for i in block.links)
        found.append(Chain(links, block.images, block.chunk, block.threads))
        found += (scratch.moved(items[i]) for i in block.after)
        at = block.last + 1
    found += map(scratch.moved, items[at:])
    return Order(found, planned(items, blocks, planning), scratch.size, needs)


def _slot(moments: Sequence[Moment], block: Block) -> tuple[dict[int, int], int]:
    """Where in the memory of one thread a chain's local values lie, and the size of it."""
    numbers = {OWN - base: Spec((block.walked[base].step * block.chunk,), BYTE) for base in block.local}
    plan = plan_buffers([moments[i] for i in block.links], numbers)
    return {own_base(n): offset for n, offset in plan.places.items()}, plan.size


def _link(item: Item, offsets: dict[int, int], size: int, start: int) -> Link:
    task = item.task
    assert task is not None and task.along is not None
    places: list[Place] = []
    steps: list[int] = []
    apart: list[int] = []
    for p, step in zip(task.places, task.along.steps, strict=True):
        inside = p.base in offsets
        places.append(p._replace(base=SCRATCH, offset=start + offsets[p.base] + p.offset) if inside else p)
        steps.append(0 if inside else step)
        apart.append(size if inside else 0)
    return Link(item.unit, task._replace(places=tuple(places)), tuple(steps), tuple(apart))


def _up(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT
