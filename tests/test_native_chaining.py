"""Depth first over images: which tasks run as a chain, that no image meets another, and that results and memory are as task by task."""

from __future__ import annotations

import itertools
import random
import zlib
from types import SimpleNamespace

import numpy as np
import pytest

from gradlab.backends.native.cache_sizes import Caches, caches
from gradlab.backends.native.lowering import Along, TaskSpec
from gradlab.backends.native.place import ARENA, OWN, SCRATCH, Place, own_base
from gradlab.graph.executables.native import cache_cost, chaining
from gradlab.graph.executables.native.chaining import Access, Item, Search, conflict, image_by_image
from gradlab.graph.executables.native.planning import FIRST, Planning
from gradlab.graph.executables.native.replanning import Chain, chained
from gradlab.graph.ir import memory_plan
from gradlab.graph.ir.memory_plan import Moment, Room, plan_buffers
from gradlab.spec import Spec

BYTE = np.dtype(np.uint8)


def small_caches(monkeypatch, second, third):
    """Caches so small that chains of little programs gain."""
    monkeypatch.setattr(chaining, "caches", lambda: Caches(second, third))
    monkeypatch.setattr(chaining, "WORTH", 1)
    monkeypatch.setattr(cache_cost, "CALL", 0)
    monkeypatch.setattr(memory_plan, "WORTH", 1)


# ---------------------------------------------------------------- the machine's caches


def test_the_caches_are_read_from_the_system(tmp_path):
    known = [(1, "Data", "48K"), (2, "Instruction", "64K"), (2, "Unified", "1M"), (3, "Unified", "32768K")]
    for i, (level, kind, size) in enumerate(known):
        folder = tmp_path / f"index{i}"
        folder.mkdir()
        for name, value in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{value}\n")
    assert caches(tmp_path) == Caches(1 << 20, 32 << 20)
    assert caches(tmp_path / "none") == Caches()
    (tmp_path / "index2" / "size").write_text("what")
    assert caches.__wrapped__(tmp_path) == Caches(Caches().second, 32 << 20)
    assert min(caches()) > 0


# ---------------------------------------------------------------- what may be in one chain


@pytest.mark.parametrize("seed", range(3))
def test_image_by_image_is_what_comparing_every_byte_says(seed):
    r = random.Random(seed)
    for _ in range(300):
        images = r.randint(1, 4)
        both = []
        for _ in range(2):
            step, extent = r.randint(1, 6), r.randint(1, 8)
            low = r.randint(0, 12)
            both.append(Access((5, 0), low, low + step * (images - 1) + extent, step, True))
        a, b = both
        of = [[set(range(x.low + k * x.step, x.high - (images - 1 - k) * x.step)) for k in range(images)] for x in both]
        meet = any(of[0][k] & of[1][j] for k, j in itertools.permutations(range(images), 2))
        if conflict(a, b) and image_by_image(a, b, images):
            assert not meet
        if a.step == b.step and images > 1 and not meet and all(x.high - x.low - x.step * (images - 1) <= x.step for x in both):
            # What is refused for no reason lies so that only images farther apart than there are would meet.
            assert image_by_image(a, b, images) or abs(a.low - b.low) > a.step - max(x.high - x.low - x.step * (images - 1) for x in both)


class Program:
    """A random program of tasks that stand for any function of what they read: some go along images, some do not."""

    def __init__(self, seed):
        r = self.r = random.Random(seed)
        self.images = r.choice([2, 3, 4, 6, 8])
        self.items, self.units, self.moments, self.specs, self.places = [], [], [], {}, {}
        self.writes = []  # of each item how many of its operands, the first ones, it writes
        self.stepped = [self._input(r.choice([16, 64, 80]) * self.images) for _ in range(2)]
        self.shared = [self._input(r.choice([8, 40])) for _ in range(2)]
        self.inputs = len(self.places)
        self.outputs = r.randint(1, 2)
        self.next = 100
        self.made_outputs = {}
        count = r.randint(4, 14)
        for i in range(count):
            self._unit(i, count)
        self.ends = [n for n in self.stepped if n >= 100 and r.random() < 0.15]
        rooms = [Room(size, 0, unit - 1) for unit, size in self.made_outputs.values()]
        self.plan = plan_buffers(self.moments, self.specs, self.ends, rooms)
        self.planning = Planning(self.moments, self.specs, self.ends, rooms if self.plan.guests else [])

    def _input(self, size):
        number = len(self.places)
        self.places[number] = Place(FIRST + number, 0, (size,), (1,), BYTE)
        return number

    def _value(self, size, last):
        number = self.next
        self.next += 1
        base = own_base(number)
        if last and len(self.made_outputs) < self.outputs:
            base = FIRST + self.inputs + len(self.made_outputs)
            self.made_outputs[base] = (len(self.units), size)
        else:
            self.specs[number] = Spec((size,), BYTE)
        self.places[number] = Place(base, 0, (size,), (1,), BYTE)
        return number

    def _task(self, reads, writes, along, extra=()):
        """reads, writes: values, or places of work space."""
        places = [self.places[v] if isinstance(v, int) else v for v in (*writes, *reads)]
        step, whole = None, []
        if along:
            steps = []
            for i, v in enumerate((*writes, *reads)):
                size = places[i].size
                steps.append(size // self.images if (v in self.stepped if isinstance(v, int) else v in extra) else 0)
                odd = self.r.random() if i >= len(writes) and steps[i] else 1
                if odd < 0.05:  # every image reads all of them
                    steps[i] = 0
                elif odd < 0.1:  # an image reads half of another one
                    steps[i] //= 2
                    places[i] = places[i]._replace(shape=(size // 2,), offset=self.r.choice([0, size // 2]))
                elif odd < 0.15:  # or a part of its own
                    places[i] = places[i]._replace(shape=(size - 4,), offset=4)
            step = Along(self.images, self.r.choice([1, 1, 1, 2]), (0,), tuple(steps))
            whole = [p for p, s in zip(places, steps) if s]
        number = len(self.items)
        task = TaskSpec(f"k{number}", (self.images,), tuple(places), self.r.choice([1, 4]), step)
        self.items.append(Item(len(self.units), None, task))
        self.writes.append(len(writes))
        return [v for v, p in zip(reads, places[len(writes) :]) if p in whole and p == self.places.get(v)]

    def _unit(self, i, count):
        r, n = self.r, self.images
        last = count - i <= self.outputs
        kind = r.choice(["along"] * 5 + ["weights", "weights", "records", "sum", "small"])
        reads = r.sample(self.stepped[-4:], r.randint(1, 2))
        over = {}
        if kind in ("along", "weights", "records"):
            given = [*reads, *r.sample(self.shared[-3:], r.randint(0, 1))]
            size = r.choice([self.places[reads[0]].size, r.choice([16, 64, 80, 128]) * n])
            y = self._value(size, last)
            self.stepped.append(y)
            outputs = [y]
            if kind == "along":
                over = {y: [v for v in self._task(given, [y], True) if self.places[v].size == size]}
            else:
                space = Place(SCRATCH, 0, (r.choice([64, 200]),), (1,), BYTE)
                self._task(self.shared[-1:], [space], False)
                if kind == "weights":
                    self._task([*given, space], [y], True)
                else:
                    records = Place(SCRATCH, 256, (24 * n,), (1,), BYTE)
                    total = self._value(40, False)
                    self._task([*given, space], [y, records], True, (records,))
                    self._task([records], [total], False)
                    self.shared.append(total)
                    outputs.append(total)
            given = [*given, *self.shared[-2:]]
        else:
            given = reads if kind == "sum" else r.sample(self.shared, 1)
            total = self._value(r.choice([8, 40]), False)
            outputs = [total]
            self._task(given, [total], False)
            self.shared.append(total)
        values = [SimpleNamespace(id=v) for v in outputs]
        self.units.append(SimpleNamespace(calls=[SimpleNamespace(outputs=values)], reads=lambda: given))
        self.moments.append(Moment([v for v in dict.fromkeys(given) if v >= 100 and v not in outputs], outputs, over))

    # ------------------------------------------------------------ running it

    def memory(self, locate, arena):
        """A function that gives the memory of a place's base, filled with what nobody should read."""
        fill = np.random.default_rng(1)
        kept = {}

        def at(p, unit):
            base, offset = locate(p, unit)
            size = max(arena, 1) if base == ARENA else 1 << 12
            if base not in kept:
                given = isinstance(base, int) and FIRST <= base < FIRST + self.inputs
                kept[base] = (np.random.default_rng(base) if given else fill).integers(0, 256, size, np.uint8)
            return kept[base], offset

        return at

    def do(self, number, task, at, first, count, steps=None):
        """Some images of a task, or all of it. steps: where they are not the task's own: 0 where memory is for these images alone."""
        unit, along = self.items[number].unit, task.along
        operands = []
        for i, p in enumerate(task.places):
            step = along.steps[i] if along is not None else 0
            kept, offset = at(p, unit)
            operands.append((kept, offset, step, p.size - step * (self.images - 1), step and steps is not None and not steps[i]))
        for k in range(first, first + count) if along is not None else [0]:
            parts = [kept[o + (k - first * alone) * step :][:size] for kept, o, step, size, alone in operands]
            seen = zlib.crc32(b"".join(part.tobytes() for part in parts[self.writes[number] :]), number)
            for j, part in enumerate(parts[: self.writes[number]]):
                part[:] = (np.arange(part.size) * 40503 + seen * (j + 1) >> 7).astype(np.uint8)

    def results(self, at):
        places = [self.places[n] for n in self.ends] + [Place(b, 0, (s,), (1,), BYTE) for b, (_, s) in self.made_outputs.items()]
        found = []
        for p in places:
            memory, offset = at(p, -1)
            found.append(memory[offset : offset + p.size].copy())
        return found


def check(program, seed):
    """Run a program depth first, and compare with every value in memory of its own. The number of tasks in chains."""
    r = random.Random(seed)
    sizes = [p.offset + p.size for item in program.items for p in item.task.places if p.base == SCRATCH]
    scratch = -(-max(sizes, default=0) // 64) * 64
    outputs = range(FIRST + program.inputs, FIRST + program.inputs + program.outputs)
    search = Search(program.items, program.units, program.places, outputs, r.choice([1, 2, 3]))
    limit = program.plan.size + scratch + r.choice([0, 0, 1 << 20])
    blocks = search.blocks({own_base(n) for n in program.ends})
    order = chained(program.items, blocks, program.planning, limit)
    if order is None:
        return 0
    assert order.plan.size + order.scratch <= limit * memory_plan.CLOSE

    def apart(p, unit):
        return ("scratch", unit) if p.base == SCRATCH else p.base, p.offset

    def planned(p, unit):
        if p.base >= ARENA:
            return p.base, p.offset
        if p.base == SCRATCH:
            return ARENA, order.plan.size + p.offset
        number = OWN - p.base
        if number in order.plan.places:
            return ARENA, order.plan.places[number] + p.offset
        room, offset = order.plan.guests[number]
        return list(program.made_outputs)[room], offset + p.offset

    plain = program.memory(apart, 0)
    for i, item in enumerate(program.items):
        program.do(i, item.task, plain, 0, program.images)
    at = program.memory(planned, order.plan.size + order.scratch)
    numbers = {item.task.kernel: i for i, item in enumerate(program.items)}
    for step in order.steps:
        if isinstance(step, Chain):
            run(program, step, numbers, at, r)
        else:
            program.do(numbers[step.task.kernel], step.task, at, 0, program.images)
    for got, want in zip(program.results(at), program.results(plain), strict=True):
        np.testing.assert_array_equal(got, want)
    return sum(len(step.links) for step in order.steps if isinstance(step, Chain))


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_any_order_of_images_gives_the_results_of_the_program(first, monkeypatch):
    found = 0
    for seed in range(first, first + 100):
        r = random.Random(seed)
        small_caches(monkeypatch, r.choice([16, 64, 250]), r.choice([64, 900, 4000]))
        found += check(Program(seed), seed)
    assert found > 20


def run(program, chain, numbers, at, r):
    """A chain on several threads that are as fast as chance will have it."""
    waiting = [(first, min(chain.chunk, chain.images - first)) for first in range(0, chain.images, chain.chunk)]
    r.shuffle(waiting)
    busy = {}
    while waiting or busy:
        thread = r.randrange(chain.threads)
        if thread not in busy:
            if waiting:
                busy[thread] = (*waiting.pop(), 0)
            continue
        first, count, k = busy.pop(thread)
        link = chain.links[k]
        places = tuple(p._replace(offset=p.offset + thread * apart) for p, apart in zip(link.task.places, link.apart))
        program.do(numbers[link.task.kernel], link.task._replace(places=places), at, first, count, link.steps)
        if k + 1 < len(chain.links):
            busy[thread] = (first, count, k + 1)
