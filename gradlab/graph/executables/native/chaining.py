"""Depth first over images: neighbouring tasks that go along a batch run as a chain, a few images at a time.

What one task writes is then still in the second-level cache when the next one reads it, and what only the chain reads needs memory for as
many images as are under way. Results are the same to the bit: tasks of a chain depend on each other image by image, and nothing that all
images share is written in it. Tasks in between come before the chain where they depend on nothing in it, else behind it.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from gradlab.backends.native.cache_sizes import caches
from gradlab.backends.native.lowering import TaskSpec
from gradlab.backends.native.place import ARENA, OWN, RESERVED, SCRATCH, STATUS, Place
from gradlab.graph.executables.native.cache_cost import Sizes, Traffic
from gradlab.graph.executables.native.fusion import Unit
from gradlab.graph.ir.graph import Call

LONGEST = 256  # tasks between the first and the last of a chain
PATIENCE = 8  # tasks in between, one after the other
WORTH = 1 << 23  # bytes that a thread need not fetch from the third-level cache: some 50 microseconds
NEARLY, HALF = 0.95, 0.5  # of the gain: fewer images that gain as much need less memory
EVEN = 0.85  # of the threads' time that has to be used where the last images do not occupy all of them


class Item(NamedTuple):
    """One step of a program: what it belongs to, the call that explains a refused index, and the task; None for a step in NumPy."""

    unit: int
    call: Call | None
    task: TaskSpec | None


class Access(NamedTuple):
    """Memory that a task touches: of which base (and, of work space, of which unit), bytes from low to high, the step from one image to the
    next, and whether it is written."""

    space: tuple[int, int]
    low: int
    high: int
    step: int
    written: bool


class Walk(NamedTuple):
    """A value that tasks of a chain touch image by image, all of it: the bytes of an image, the first and the last of these tasks."""

    step: int
    first: int
    last: int


class Block(NamedTuple):
    """Steps number first..last of a program. links: those of the chain; before, after: the others. chunk: how many images at a
    time; least: the fewest that gain half as much. walked: by base; local: those that nobody else touches."""

    first: int
    last: int
    before: list[int]
    links: list[int]
    after: list[int]
    images: int
    chunk: int
    least: int
    threads: int
    gain: float
    walked: dict[int, Walk]
    local: set[int]


def enabled() -> bool:
    """GRADLAB_DEPTH_FIRST=0 says no."""
    return os.environ.get("GRADLAB_DEPTH_FIRST") != "0"


def low(p: Place) -> int:
    """The first byte."""
    return p.offset + p.dtype.itemsize * sum(min(s * (n - 1), 0) for n, s in zip(p.shape, p.strides))


def high(p: Place) -> int:
    """The byte behind the last."""
    return p.offset + p.dtype.itemsize * (1 + sum(max(s * (n - 1), 0) for n, s in zip(p.shape, p.strides)))


def conflict(a: Access, b: Access) -> bool:
    """Whether it matters which comes first."""
    return (a.written or b.written) and a.space == b.space and a.low < b.high and b.low < a.high


def image_by_image(a: Access, b: Access, images: int) -> bool:
    """Whether an image of one never meets another image of the other."""
    if a.step != b.step or a.step <= 0:
        return False
    shift = b.low - a.low
    return _extent(a, images) - a.step <= shift <= a.step - _extent(b, images)


def _extent(a: Access, images: int) -> int:
    """From the first byte of an image to the one behind its last."""
    return a.high - a.low - a.step * (images - 1)


class _Touched:
    """Accesses by what they touch."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], list[Access]] = defaultdict(list)

    def add(self, accesses: Sequence[Access]) -> None:
        for a in accesses:
            self._found[a.space].append(a)

    def meet(self, accesses: Sequence[Access]) -> bool:
        """Whether it matters which comes first."""
        return any(conflict(a, b) for b in accesses for a in self._found.get(b.space, ()))

    def meet_by_image(self, accesses: Sequence[Access], images: int) -> bool:
        """Whether that matters for images of the same number alone."""
        return all(image_by_image(a, b, images) for b in accesses for a in self._found.get(b.space, ()) if conflict(a, b))


class Search:
    """Finds chains. outputs: the bases of results, in which tasks may write besides intermediate values."""

    def __init__(self, items: Sequence[Item], units: Sequence[Unit], places: dict[int, Place], outputs: range, threads: int) -> None:
        self._items, self._units, self._places, self._outputs, self._threads = items, units, places, outputs, threads
        self._accesses: dict[int, list[Access]] = {}
        self._written: dict[int, list[tuple[int, int, int]]] = {}
        self._touching: dict[int, set[int]] = defaultdict(set)  # base -> steps
        for i, item in enumerate(items):
            for base in self._bases(item):
                self._touching[base].add(i)

    def _bases(self, item: Item) -> set[int]:
        if item.task is not None:
            return {p.base for p in item.task.places}
        unit = self._units[item.unit]
        return {self._places[n].base for n in (*unit.reads(), *(v.id for c in unit.calls for v in c.outputs)) if n in self._places}

    def blocks(self, ends: set[int]) -> list[Block]:
        """Chains that gain something. ends: bases that are needed behind all steps."""
        found: list[Block] = []
        at = 0
        while at < len(self._items):
            block = self._grown(at, ends) if self._starts(at) else None
            if block is not None:
                found.append(block)
            at = at + 1 if block is None else block.last + 1
        return found

    def _starts(self, i: int) -> bool:
        """Whether a chain may begin with a step: a task that touches more than stays in a cache anyway."""
        task = self._items[i].task
        if task is None or task.along is None or task.along.images < 2:
            return False
        return task.along.images * sum(task.along.steps) > caches().second and not self._bars(i)

    def _bars(self, i: int) -> bool:
        """Whether a step stays where it is: one that may stop the run, or that writes what outlives it."""
        task = self._items[i].task
        if task is None or any(p.base == STATUS for p in task.places):
            return True
        return any(a.written and a.space[0] > ARENA and a.space[0] not in self._outputs for a in self._of(i))

    def _of(self, i: int) -> list[Access]:
        """What a task touches."""
        if i in self._accesses:
            return self._accesses[i]
        item = self._items[i]
        task = item.task
        assert task is not None
        steps = task.along.steps if task.along is not None else (0,) * len(task.places)
        stepped = {p for p, step in zip(task.places, steps) if step}
        found = []
        for p, step in zip(task.places, steps, strict=True):
            if p.base == ARENA or not p.size or (task.along is not None and not step and p in stepped):
                continue  # stands for an operand that is left out
            space = (p.base, item.unit if p.base == SCRATCH else 0)
            begin, end = low(p), high(p)
            if p.base in (SCRATCH, RESERVED):
                written = True
            else:
                written = any(b == p.base and l < end and begin < h for b, l, h in self._results(item.unit))
            # What all images share is not written by a task that goes along them.
            found.append(Access(space, begin, end, step, written and (task.along is None or step != 0)))
        self._accesses[i] = found
        return found

    def _results(self, unit: int) -> list[tuple[int, int, int]]:
        """Where a unit's results lie."""
        if unit not in self._written:
            places = [self._places[v.id] for c in self._units[unit].calls for v in c.outputs if v.id in self._places]
            self._written[unit] = [(p.base, low(p), high(p)) for p in places if p.size]
        return self._written[unit]

    def _grown(self, start: int, ends: set[int]) -> Block | None:
        """The chain that begins with a task, as long as that gains."""
        links, before, after = [start], list[int](), list[int]()
        linked, later = _Touched(), _Touched()  # what those that come in the chain or behind it touch
        linked.add(self._of(start))
        traffic = Traffic(self._images(start), caches())
        traffic.add(*self._sizes(start))
        best: Block | None = None
        for i in range(start + 1, min(len(self._items), start + LONGEST)):
            if i - links[-1] > PATIENCE or self._bars(i):
                break
            own = self._of(i)
            if self._images(i) == self._images(start) and not later.meet(own) and linked.meet_by_image(own, self._images(start)):
                traffic.add(*self._sizes(i))
                block = self._measured([*links, i], before, after, traffic, ends)
                if block is None or block.gain <= (best.gain if best is not None else 0):
                    break
                best = block
                links.append(i)
                linked.add(own)
            elif linked.meet(own) or later.meet(own):
                after.append(i)
                later.add(own)
            else:
                before.append(i)
        return best if best is not None and best.gain >= WORTH else None

    def _images(self, i: int) -> int:
        task = self._items[i].task
        return task.along.images if task is not None and task.along is not None else 0

    # ------------------------------------------------------------ what it gains

    def _measured(self, links: list[int], before: list[int], after: list[int], traffic: Traffic, ends: set[int]) -> Block | None:
        """The chain with as many images at a time as is best."""
        tasks = [self._items[i].task for i in links]
        along = [t.along for t in tasks if t is not None and t.along is not None]
        images, together = along[0].images, math.lcm(*(a.together for a in along))
        threads = min(self._threads, sum(t.widest for t in tasks if t is not None))
        walked = self._walked(links, images)
        local = {base for base in walked if self._touching[base].issubset(links) and base not in ends}
        apart = traffic.cost(-(-images // threads), threads)
        gains = {n: apart - traffic.cost(n, threads, local) for n in _chunks(images, together, threads)}
        if not gains:
            return None
        most = max(gains.values())
        chunk, least = (min(n for n, gain in gains.items() if gain >= min(most, most * part)) for part in (NEARLY, HALF))
        inside = [j for j in before if j < links[-1]], [j for j in after if j < links[-1]]
        return Block(links[0], links[-1], inside[0], links, inside[1], images, chunk, least, threads, gains[chunk], walked, local)

    def _sizes(self, i: int) -> tuple[Sizes, int]:
        """Bytes that a task touches of an image, and those that all images share."""
        stepped, shared = Sizes(), Sizes()
        for a in self._of(i):
            size = min(a.step, _extent(a, self._images(i))) if a.step else a.high - a.low
            into, key = stepped if a.step else shared, (a.space, a.low)
            into[key] = max(size, into.get(key, 0))
        return stepped, sum(shared.values())

    def _walked(self, links: list[int], images: int) -> dict[int, Walk]:
        """The intermediate values that these tasks touch image by image, and no others between them."""
        found: dict[int, Walk] = {}
        others = set[int]()
        for i in links:
            for a in self._of(i):
                base = a.space[0]
                if base > OWN:
                    continue
                walk = found.setdefault(base, Walk(a.step, i, i))
                inside = a.step > 0 and 0 <= a.low and a.low + _extent(a, images) <= a.step
                if not inside or walk.step != a.step:
                    others.add(base)
                found[base] = walk._replace(last=i)
        between = set(range(links[0], links[-1])).difference(links)
        return {base: walk for base, walk in found.items() if base not in others and not between & self._touching[base]}


def _chunks(images: int, together: int, threads: int) -> list[int]:
    """Numbers of images that may be done at a time, so that all threads have as much to do."""
    found: dict[int, None] = {}
    rounds = 1
    while True:
        chunk = _up(-(-images // (threads * rounds)), together)
        pieces = -(-images // chunk)
        if images >= EVEN * _up(pieces, threads) * chunk:
            found[chunk] = None
        if chunk <= together:
            return list(found)
        rounds += (rounds + 1) // 2  # 1 2 3 5 8 12 ...


def _up(n: int, step: int) -> int:
    return -(-n // step) * step
