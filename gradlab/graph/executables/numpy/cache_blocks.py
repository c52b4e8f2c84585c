"""Fused elementwise calls in NumPy: a chain runs over blocks that fit the cache, and what only the chain itself needs lies in scratch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.native.place import Place
from gradlab.dtype import immediate
from gradlab.graph.executables.numpy.row_threads import LEAST, pieces, together
from gradlab.graph.executables.numpy.source_text import Writing
from gradlab.graph.ir.graph import Call, Value
from gradlab.spec import count

BLOCK = 1 << 16  # elements of a block: smaller ones lose more to the calls than the cache gives
DEAR = 4  # what a row of several NumPy calls costs in terms of one
WORTH = 2  # blocks from which on it is worth the calls

# Rows of several NumPy calls that may write their result over an input all the same: the last call alone writes it.
IN_PLACE = frozenset(["relu", "relu_backward"])

Arrays = list[Any]  # by slot; None where an array comes with each run


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
            inputs = [self._source(x, c.op.number_dtype(like), at) for x in c.inputs]
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
        block = BLOCK if threaded else WORTH * BLOCK
        length, step = (size, block) if self.flat else (self.shape[0], max(1, block // count(self.shape[1:])))
        return None if step >= length else [slice(a, min(a + step, length)) for a in range(0, length, step)]

    @property
    def flat(self) -> bool:
        """Whether everything lies in memory in the order of its elements, or is one number."""
        return all(count(p.shape) == 1 or (p.shape == self.shape and p.contiguous) for p in self.operands.values())

    def write(self, writing: Writing, texts: Sequence[str], arrays: Arrays, work: Work) -> list[str]:
        """Statements that run it. texts: by slot what stands for its array; arrays: by slot."""
        threaded = work.threads and count(self.shape) * sum(1 if plain(c) else DEAR for c in self.calls) >= 2 * LEAST
        cuts, flat = self.cuts(threaded), self.flat
        if cuts is None:
            own = [writing.name(work.array(0, i, self.shape, d)) for i, d in enumerate(self.scratch)]
            return self._calls(writing, {slot: texts[slot] for slot in self.operands}, own)
        shapes = [(c.stop - c.start, *(() if flat else self.shape[1:])) for c in cuts]
        edges = pieces(len(cuts), len(cuts)) if threaded else [(0, len(cuts))]
        moving = {slot: f"a{slot}" for slot in self.operands if arrays[slot] is None}
        parted = {slot: self._parted(p, flat) for slot, p in self.operands.items()}
        ready = {slot: f"b{slot}" for slot in self.operands if slot not in moving}
        scratch = [f"t{i}" for i in range(len(self.scratch))]
        # One function for all blocks of a thread: a list of what is known before, and the arrays that come with each run.
        lists = []
        for k, (first, last) in enumerate(edges):
            rows = []
            for cut, shape in zip(cuts[first:last], shapes[first:last]):
                known = [parted[slot](arrays[slot], cut) for slot in ready]
                rows.append((cut, *known, *(work.array(k, i, shape, d) for i, d in enumerate(self.scratch))))
            lists.append(rows)
        body, inside = [], dict(ready)
        for slot, text in moving.items():
            inside[slot] = f"b{slot}"
            body.append(f"    b{slot} = {writing.call(parted[slot], [text, 'cut'])}")
        body += [f"    {line}" for line in self._calls(writing, inside, scratch)]
        run = writing.function(["rows", *moving.values()], [f"for {', '.join(['cut', *ready.values(), *scratch])}, in rows:", *body])
        given = [texts[slot] for slot in moving]
        if len(lists) == 1:
            return [writing.call(run, [writing.name(lists[0]), *given])]
        jobs = [f"[({writing.name(run)}, ({', '.join([writing.name(rows), *given])},), {{}})]" for rows in lists]
        return [writing.call(together, [f"[{', '.join(jobs)}]"])]

    def _parted(self, place: Place, flat: bool) -> Callable[[Any, Any], Any]:
        """A function that takes an array and a slice and gives the block."""
        if flat:
            if count(place.shape) == 1 and place.shape != self.shape:
                return lambda a, cut: a.reshape(())
            return lambda a, cut: a.reshape(-1)[cut]
        if len(place.shape) < len(self.shape) or place.shape[0] != self.shape[0]:
            return lambda a, cut: a
        return lambda a, cut: a[cut]

    def _calls(self, writing: Writing, slots: dict[int, str], scratch: Sequence[str]) -> list[str]:
        """The statements of one block."""

        def text(s: Source, quick: bool = True) -> str:
            if s.slot >= 0 or s.scratch >= 0:
                return slots[s.slot] if s.slot >= 0 else scratch[s.scratch]
            return writing.name(np.asarray(s.number) if quick else s.number)  # which NumPy is faster with than with a number

        found = []
        for c, inputs, output in self.steps:
            given = [text(s, plain(c)) for s in (*inputs, output)]
            found.append(writing.call(c.op.cpu, given, params_of(c)))
        return [*found, *(writing.call(np.copyto, [slots[slot], text(source)]) for slot, source in self.copies)]


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
