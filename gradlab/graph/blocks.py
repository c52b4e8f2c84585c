"""Fused elementwise calls in NumPy: a chain runs over blocks that fit the cache, and what only the chain itself needs lies in scratch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.cpu import immediate
from gradlab.graph.ir import Call, Value
from gradlab.graph.native.place import Place
from gradlab.graph.shares import LEAST, Job, pieces, straight, together
from gradlab.spec import count

BLOCK = 1 << 16  # elements of a block: smaller ones lose more to the calls than the cache gives
DEAR = 4  # what a row of several NumPy calls costs in terms of one
WORTH = 2  # blocks from which on it is worth the calls

# Rows of several NumPy calls that may write their result over an input all the same: the last call alone writes it.
IN_PLACE = frozenset(["relu", "relu_backward"])

Arrays = list[Any]  # by slot; of inputs and results only while the program runs
Run = Callable[[Arrays], None]


class Source(NamedTuple):
    """Where an operand of a call is: the array in a slot, a block of scratch, or a number."""

    slot: int = -1
    scratch: int = -1
    number: Any = None


class Work:
    """Scratch for the blocks of all loops of a program: one piece of memory for each value that is alive at a time.

    threads: whether the program uses some.
    """

    def __init__(self, threads: bool) -> None:
        self.threads = threads
        self._pieces: dict[tuple[int, int], Any] = {}

    def array(self, thread: int, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A thread's piece of that number as an array."""
        size = count(shape) * dtype.itemsize
        if (piece := self._pieces.get((thread, number))) is None or piece.size < size:
            piece = self._pieces[thread, number] = np.empty(max(size, BLOCK * 4), np.uint8)
        return piece[:size].view(dtype).reshape(shape)


class Chain:
    """Elementwise calls of one shape.

    calls    in order
    slots    of each value that has memory the slot of its array
    places   of the same values: where that is
    """

    def __init__(self, calls: Sequence[Call], slots: dict[int, int], places: dict[int, Place]) -> None:
        self.calls = calls
        self.shape = tuple(calls[0].outputs[0].spec.shape)
        self.slots = slots
        self._late = self._written_late(places)
        self.steps, self.scratch, self.copies = self._assigned()
        reads = {x.id for c in calls for x in c.inputs if isinstance(x, Value)} | {c.outputs[0].id for c in calls}
        self.operands = {slots[n]: places[n] for n in reads if n in slots}

    def _written_late(self, places: dict[int, Place]) -> set[int]:
        """Results that lie over something which a call still reads after, or while, they are made: they go through scratch."""
        found, read = set(), still_read(self.calls)
        for i, c in enumerate(self.calls):
            y = c.outputs[0]
            if y.id not in self.slots:
                continue
            others = {n for n in read[y.id] if n != y.id and n in self.slots}
            others |= {d.outputs[0].id for d in self.calls[:i] if d.outputs[0].id in self.slots}
            if any(overlap(places[y.id], places[n]) for n in others):
                found.add(y.id)
        return found

    def _assigned(self) -> tuple[list[tuple[Call, list[Source], Source]], list[np.dtype[Any]], list[tuple[int, Source]]]:
        """The calls with their operands, the dtypes of the scratch, and what is copied from scratch to a slot behind each block."""
        last = {x.id: i for i, c in enumerate(self.calls) for x in c.inputs if isinstance(x, Value)}
        last.update((n, len(self.calls)) for n in self._late)
        at: dict[int, int] = {}
        free: list[int] = []
        dtypes: list[np.dtype[Any]] = []
        steps = []
        for i, c in enumerate(self.calls):
            y = c.outputs[0]
            like = next((x.spec.dtype for x in c.inputs if isinstance(x, Value)), y.spec.dtype)
            inputs = [self._source(x, like, at) for x in c.inputs]
            dying = [at[n] for n in {x.id for x in c.inputs if isinstance(x, Value)} if n in at and last[n] == i]
            if in_place(c):
                free += dying
            if y.id in self.slots and y.id not in self._late:
                output = Source(self.slots[y.id])
            else:
                number = next((n for n in free if dtypes[n] == y.spec.dtype), -1)
                if number < 0:
                    number = len(dtypes)
                    dtypes.append(y.spec.dtype)
                else:
                    free.remove(number)
                at[y.id] = number
                output = Source(scratch=number)
            if not in_place(c):
                free += dying
            steps.append((c, inputs, output))
        copies = [(self.slots[n], Source(scratch=at[n])) for n in self._late]
        return steps, dtypes, copies

    def _source(self, x: Any, like: np.dtype[Any], at: dict[int, int]) -> Source:
        if not isinstance(x, Value):
            return Source(number=immediate(x, like))
        return Source(scratch=at[x.id]) if x.id in at else Source(self.slots[x.id])

    def cuts(self, threaded: bool) -> list[slice] | None:
        """Slices of the first dimension (where `flat`, of all elements), None to run it whole; threaded: whether threads share them."""
        size = count(self.shape)
        if size < WORTH * BLOCK or (len(self.calls) == 1 and plain(self.calls[0]) and not threaded):
            return None
        length, step = (size, BLOCK) if self.flat else (self.shape[0], max(1, BLOCK // count(self.shape[1:])))
        return None if step >= length else [slice(a, min(a + step, length)) for a in range(0, length, step)]

    @property
    def flat(self) -> bool:
        """Whether everything lies in memory in the order of its elements, or is one number."""
        return all(count(p.shape) == 1 or (p.shape == self.shape and p.contiguous) for p in self.operands.values())

    def run(self, arrays: Arrays, dynamic: set[int], work: Work) -> Run:
        """The function that runs it. arrays: by slot; those of `dynamic` slots come with each run, the others are there already."""
        threaded = work.threads and count(self.shape) * sum(1 if plain(c) else DEAR for c in self.calls) >= 2 * LEAST
        cuts, flat = self.cuts(threaded), self.flat
        shapes = [self.shape] if cuts is None else [(c.stop - c.start, *(() if flat else self.shape[1:])) for c in cuts]
        ready = not dynamic.intersection(self.operands)
        lines = len(pieces(len(shapes), len(shapes))) if ready and threaded else 1
        own = [[{s: work.array(k, i, s, d) for s in dict.fromkeys(shapes)} for i, d in enumerate(self.scratch)] for k in range(lines)]
        edges = [len(shapes) * k // lines for k in range(lines + 1)]
        thread = [k for k in range(lines) for _ in range(edges[k], edges[k + 1])]
        parts = [(None if cuts is None else cuts[i], [piece[s] for piece in own[thread[i]]]) for i, s in enumerate(shapes)]
        parted = {slot: self._parted(p, flat) for slot, p in self.operands.items()}
        if ready:
            jobs: list[list[Job]] = [[] for _ in range(lines)]
            for (cut, scratch), k in zip(parts, thread):
                jobs[k] += self._bound({slot: parted[slot](arrays[slot], cut) for slot in self.operands}, scratch)
            return (lambda now: straight(jobs[0])) if lines == 1 else (lambda now: together(jobs))

        def run(now: Arrays) -> None:
            for cut, own in parts:
                view = {slot: part(now[slot], cut) for slot, part in parted.items()}
                straight(self._bound(view, own))

        return run

    def _parted(self, place: Place, flat: bool) -> Callable[[Any, Any], Any]:
        """A function that takes an array and a slice and gives the block."""
        if flat:
            if count(place.shape) == 1 and place.shape != self.shape:
                return lambda a, cut: a if cut is None else a.reshape(())
            return lambda a, cut: a if cut is None else a.reshape(-1)[cut]
        whole = len(place.shape) < len(self.shape) or place.shape[0] != self.shape[0]
        return lambda a, cut: a if whole or cut is None else a[cut]

    def _bound(self, view: dict[int, Any], own: list[Any]) -> list[Job]:
        """The calls of one block with their arrays."""

        def array(s: Source) -> Any:
            return view[s.slot] if s.slot >= 0 else own[s.scratch] if s.scratch >= 0 else s.number

        found: list[Job] = [
            (c.op.cpu, (*map(array, inputs), array(output)), params_of(c)) for c, inputs, output in self.steps
        ]
        found += [(np.copyto, (view[slot], array(source)), {}) for slot, source in self.copies]
        return found


def params_of(call: Call) -> dict[str, Any]:
    """What a row's NumPy function is given by name: of a row that makes something of nothing not the device."""
    return call.params if call.inputs else {k: v for k, v in call.params.items() if k != "device"}


def in_place(call: Call) -> bool:
    """Whether a row's NumPy function may be given one of its inputs as the output."""
    return plain(call) or call.op.name in IN_PLACE


def plain(call: Call) -> bool:
    """Whether a row is one call of a NumPy function."""
    return isinstance(call.op.cpu, np.ufunc)


def still_read(calls: Sequence[Call]) -> dict[int, set[int]]:
    """Of each result of a chain what it must not be written over, because a call still reads it."""
    found = {}
    for i, c in enumerate(calls):
        rest = calls[i + 1 :] if in_place(c) else calls[i:]
        found[c.outputs[0].id] = {x.id for d in rest for x in d.inputs if isinstance(x, Value)}
    return found


def overlap(a: Place, b: Place) -> bool:
    """Whether two places may share memory."""
    return a.base == b.base and max(_low(a), _low(b)) < min(_high(a), _high(b))


def _low(p: Place) -> int:
    return p.offset + p.dtype.itemsize * sum(min(s * (n - 1), 0) for n, s in zip(p.shape, p.strides))


def _high(p: Place) -> int:
    return p.offset + p.dtype.itemsize * (1 + sum(max(s * (n - 1), 0) for n, s in zip(p.shape, p.strides)))
