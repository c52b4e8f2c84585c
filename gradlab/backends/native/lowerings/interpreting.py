"""Fused elementwise loops where there is no compiler: programs for `interpreter.cpp`, of prebuilt vector functions over blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gradlab.backends.cuda.layout import merged
from gradlab.backends.native import prebuilt
from gradlab.backends.native.lowering import Lowering, TaskSpec, Unsupported, widest
from gradlab.backends.native.lowerings.iteration_order import in_order, walk
from gradlab.backends.native.lowerings.looping import along_first, broadcast
from gradlab.backends.native.lowerings.movements import MOST_DIMS
from gradlab.backends.native.lowerings.vector_functions import MOST, bits_of, converting, copying, part_of
from gradlab.backends.native.place import Place
from gradlab.call import Value
from gradlab.dtype import HALF, wide

if TYPE_CHECKING:
    from gradlab.backends.native.lowerings.loops import Loop

DENSE, GATHERED, ONCE = 0, 1, 2  # as in interpreter.cpp
MOST_SLOTS = 160
CACHE = 1 << 15  # bytes of all slots that are not operands where they lie
LEAST, LONGEST = 256, 2048  # elements of a block
LONGEST_PERIOD = 4096  # elements after which an operand returns, if a block is to hold whole periods


class _Row(NamedTuple):
    function: str
    target: int
    inputs: list[int]
    numbers: list[int]


class _Operand:
    """How a place is walked through in the order of the loop."""

    def __init__(self, place: Place, strides: Sequence[int], shape: Sequence[int]) -> None:
        self.place = place
        sizes, (steps,) = merged(tuple(shape), [tuple(strides)])
        self.sizes, self.steps = sizes or [1], steps or [0]
        self.way = DENSE if not sizes or self.steps == [1] else GATHERED
        self.period = math.prod(self.sizes[:-1]) if self.way and self.steps[-1] == 0 else 0
        if len(self.sizes) > MOST_DIMS:
            raise Unsupported

    @property
    def words(self) -> list[int]:
        """As the kernel reads it."""
        pad = [0] * (MOST_DIMS - len(self.sizes))
        return [self.way, self.place.dtype.itemsize, len(self.sizes), *self.sizes, *pad, *self.steps, *pad]


class _Writing:
    """A program as it grows. Slots are numbered in the order of the kernel once all are known."""

    def __init__(self, loop: Loop, loads: Sequence[_Operand], stores: Sequence[_Operand]) -> None:
        self.loop, self.loads, self.stores = loop, loads, stores
        self.operands = [*loads, *stores]
        self.sizes: list[int] = [o.place.dtype.itemsize for o in self.operands]  # bytes of an element of each slot
        self.numbers: dict[tuple[int, int], int] = {}  # bytes and bits: its slot
        self.rows: list[_Row] = []
        self._free: dict[int, list[int]] = {}
        self._at: dict[int, int] = {}
        self._write()

    def _slot(self, size: int) -> int:
        waiting = self._free.get(size)
        if waiting:
            return waiting.pop()
        self.sizes.append(size)
        return len(self.sizes) - 1

    def _number(self, value: Any, dtype: np.dtype[Any]) -> int:
        key = dtype.itemsize, bits_of(value, dtype)
        if key not in self.numbers:
            self.sizes.append(dtype.itemsize)
            self.numbers[key] = len(self.sizes) - 1
        return self.numbers[key]

    def _write(self) -> None:
        calls, stored, loaded = self.loop.calls, self.loop.stored, self.loop.loaded
        last = {x.id: i for i, c in enumerate(calls) for x in c.inputs if isinstance(x, Value)}
        homes = {v.id: len(loaded) + i for i, v in enumerate(stored)}
        late: list[_Row] = []
        for i, v in enumerate(loaded):
            self._at[v.id] = i
            if v.spec.dtype in HALF:
                self._at[v.id] = self._slot(4)
                self.rows.append(_Row(converting("widen", v.spec.dtype).name, self._at[v.id], [i], []))
        for i, call in enumerate(calls):
            v = call.outputs[0]
            part = part_of(call)
            if part is None:
                raise Unsupported
            inputs = [self._at[x.id] if isinstance(x, Value) else self._number(*x) for x in part.inputs]
            own = wide(v.spec.dtype)
            home = homes.get(v.id, -1)
            direct = home >= 0 and own == v.spec.dtype and not self._read_later(home, i, last)
            target = home if direct else self._slot(own.itemsize)
            self.rows.append(_Row(part.function.name, target, inputs, part.numbers))
            self._at[v.id] = target
            if v.spec.dtype in HALF and part.function != converting("double", v.spec.dtype):
                self.rows.append(_Row(converting("round", v.spec.dtype).name, target, [target], []))
            if home >= 0 and not direct:
                way = converting("narrow", v.spec.dtype) if own != v.spec.dtype else copying(own)
                late.append(_Row(way.name, home, [target], []))
            for x in {x.id: x for x in call.inputs if isinstance(x, Value)}.values():
                if last[x.id] == i and self._at[x.id] >= len(self.operands) and x.id not in homes:
                    self._free.setdefault(self.sizes[self._at[x.id]], []).append(self._at[x.id])
            if v.id not in last and v.id not in homes:
                self._free.setdefault(own.itemsize, []).append(target)
        self.rows += late

    def _read_later(self, home: int, row: int, last: dict[int, int]) -> bool:
        """Whether what is written has to wait for rows that read the same memory."""
        target = self.operands[home]
        if target.way != DENSE:
            return False
        later = (o for v, o in zip(self.loop.loaded, self.loads) if last[v.id] > row and o.way == DENSE)
        return any(_overlap(o.place, target.place) for o in later)


def _overlap(a: Place, b: Place) -> bool:
    if a.base != b.base:
        return False
    ends = [p.offset + (p.size * p.dtype.itemsize) for p in (a, b)]
    return a.offset < ends[1] and b.offset < ends[0]


def lower(loop: Loop, ctx: Lowering, work: float) -> TaskSpec:
    """The task of a loop, its work in simple operations."""
    from_, to = [ctx.places[v.id] for v in loop.loaded], [ctx.places[v.id] for v in loop.stored]
    order = walk(to[0])
    shape = in_order(loop.shape, order)
    operands = [_Operand(p, in_order(broadcast(p, loop.shape), order), shape) for p in (*from_, *to)]
    writing = _Writing(loop, operands[: len(from_)], operands[len(from_) :])
    along = along_first(loop.shape, [*from_, *to], order)
    total, images = math.prod(loop.shape), along.images if along is not None else 1
    period = 1
    for o in writing.loads:
        if o.period and (both := math.lcm(period, o.period)) <= LONGEST_PERIOD:
            o.way, period = ONCE, both
    # Numbers come first in the kernel's order, then operands, then what is in between.
    numbers = list(writing.numbers.values())
    between = [i for i in range(len(operands), len(writing.sizes)) if i not in set(numbers)]
    slots = [*numbers, *range(len(operands)), *between]
    if len(slots) > MOST_SLOTS:
        raise Unsupported
    place = {slot: i for i, slot in enumerate(slots)}
    held = [0 if i < len(operands) and operands[i].way == DENSE else writing.sizes[i] for i in slots]
    block = max(LEAST, min(LONGEST, CACHE // max(sum(held), 1) // 64 * 64, -(-total // 256) * 64))
    block = max(period, block // period * period)
    starts, room = [], 0
    for size in held:
        starts.append(room)
        room += -(-size * block // 64) * 64
    words = [images, total // images, block, len(numbers), len(from_), len(to), len(writing.rows), len(slots), max(room, 64), *starts]
    for size, bits in writing.numbers:
        words += [size, bits]
    for o in operands:
        words += o.words
    for row in writing.rows:
        address = prebuilt.address(row.function)
        if not address:
            raise Unsupported
        inputs = [place[i] for i in row.inputs]
        words += [address, place[row.target], *inputs, *[0] * (MOST - len(inputs)), *row.numbers, *[0] * (MOST - len(row.numbers))]
    return TaskSpec("gradlab_interpret", tuple(words), (*from_, *to), min(widest(work), max(1, -(-total // block))), along)


__all__ = ["lower"]
