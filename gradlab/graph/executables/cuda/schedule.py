"""A second stream for what is off the critical path, such as the weights' gradients.

Units keep the order of the line. Each gets one of two streams by list scheduling over estimated times: a unit that the critical path does
not wait for goes to the side if it would begin there in time. Events order uses of the same memory; the planner of buffers is told how
long a value may be in use if the side runs ahead of the main stream or falls behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradlab.graph.executables.native.fusion import Unit
from gradlab.graph.ir.graph import Call, Value
from gradlab.graph.ir.memory_plan import Moment
from gradlab.spec import count

MAIN, SIDE = 0, 1
LAG = 16  # units after which the main stream waits for the side: so long values may stay that the side reads
LEAST = 2  # units that are worth a second stream
_PRODUCTS = ("matmul", "linear", "conv", "attention")


@dataclass
class Schedule:
    """streams: of each unit. waits: the unit of the other stream that must have run before it, or -1."""

    streams: list[int] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)

    @property
    def parallel(self) -> bool:
        """Whether there are two streams."""
        return SIDE in self.streams


def microseconds(call: Call) -> float:
    """About how long a call takes on a large GPU: a fixed part, its bytes, and for products their arithmetic."""
    values = [*call.outputs, *(x for x in call.inputs if isinstance(x, Value))]
    time = 2.0 + sum(count(v.spec.shape) * v.spec.dtype.itemsize for v in values) / 2e6
    if any(call.op.name.startswith(name) for name in _PRODUCTS):
        sizes = sorted(count(v.spec.shape) for v in values)[-3:]
        time += 4.0 + 2 * float(sizes[0] * sizes[-1] * sizes[len(sizes) // 2]) ** 0.5 / 2e7
    return time


def _cost(unit: Unit) -> float:
    if unit.parts:
        return 2.0 + len(unit.parts) / 4
    return max(map(microseconds, unit.calls)) if unit.loop else sum(map(microseconds, unit.calls))


def line_up(units: Sequence[Unit], reads: Sequence[set[Any]], writes: Sequence[set[Any]], movable: Callable[[Unit], bool]) -> Schedule:
    """Streams for units, by the memory that each reads and writes."""
    costs = list(map(_cost, units))
    before = _order(reads, writes)
    begin = [0.0] * len(units)
    for i, earlier in enumerate(before):
        begin[i] = max((begin[j] + costs[j] for j in earlier), default=0.0)
    tail = costs[:]
    for i in reversed(range(len(units))):
        for j in before[i]:
            tail[j] = max(tail[j], costs[j] + tail[i])
    whole = max((b + t for b, t in zip(begin, tail)), default=0.0)
    streams, ends, free = [], [0.0] * len(units), [0.0, 0.0]
    for i, unit in enumerate(units):
        ready = max((ends[j] for j in before[i]), default=0.0)
        slack = whole - begin[i] - tail[i]
        main, side = max(free[MAIN], ready), max(free[SIDE], ready)
        stream = SIDE if movable(unit) and slack > costs[i] / 2 and side <= max(main, begin[i] + slack) else MAIN
        ends[i] = free[stream] = (side if stream == SIDE else main) + costs[i]
        streams.append(stream)
    if streams.count(SIDE) < LEAST:
        return Schedule([MAIN] * len(units), [-1] * len(units))
    waits, reached = [], [-1, -1]  # reached: the latest unit of the other stream that each has waited for
    sides = [i for i, s in enumerate(streams) if s == SIDE]
    for i, stream in enumerate(streams):
        needed = max((j for j in before[i] if streams[j] != stream), default=-1)
        if stream == MAIN:
            needed = max([needed, *(j for j in sides if j <= i - LAG)])
        waits.append(needed if needed > reached[stream] else -1)
        reached[stream] = max(reached[stream], needed)
    return Schedule(streams, waits)


def _order(reads: Sequence[set[Any]], writes: Sequence[set[Any]]) -> list[set[int]]:
    """The units that each must come after: those that wrote what it reads or writes, and those that read what it writes."""
    writer: dict[Any, int] = {}
    readers: dict[Any, set[int]] = {}
    found = []
    for i, (read, written) in enumerate(zip(reads, writes, strict=True)):
        earlier = {writer[k] for k in read | written if k in writer}
        for k in written:
            earlier |= readers.pop(k, set())
            writer[k] = i
        for k in read:
            readers.setdefault(k, set()).add(i)
        earlier.discard(i)
        found.append(earlier)
    return found


def spread(schedule: Schedule, moments: Sequence[Moment], together: Sequence[bool]) -> list[Moment]:
    """Moments for the planner in which each value lives as long as it may be in use.

    together: units that run in one launch at the end: what they read lives to the end.
    """
    count_ = len(moments)
    born: dict[int, int] = {}
    last: dict[int, int] = {}
    reached = -1  # by the side, of the main stream
    starts = []
    for i, stream in enumerate(schedule.streams):
        if stream == SIDE:
            reached = max(reached, schedule.waits[i])
        starts.append(reached + 1 if stream == SIDE else i)
    ends, joined = [0] * count_, count_  # joined: where the main stream waits for what lies behind
    waits = [(i, w) for i, w in enumerate(schedule.waits) if w >= 0 and schedule.streams[i] == MAIN]
    for i in reversed(range(count_)):
        while waits and waits[-1][1] >= i:
            joined = waits.pop()[0]
        ends[i] = count_ - 1 if together[i] else i if schedule.streams[i] == MAIN else max(joined - 1, i)
    for i, moment in enumerate(moments):
        for n in moment.makes:
            born[n], last[n] = starts[i], ends[i]
        for n in moment.reads:
            if n in last:
                last[n] = max(last[n], ends[i])
    makes: list[list[int]] = [[] for _ in range(count_)]
    reads: list[list[int]] = [[] for _ in range(count_)]
    for n, i in born.items():
        makes[i].append(n)
        reads[last[n]].append(n)
    # A loop of the main stream may write over what it reads for the last time, unless the side may still be reading that.
    aside = {n for moment, stream in zip(moments, schedule.streams) if stream == SIDE for n in moment.reads}
    over = [
        {v: [n for n in dying if n not in aside] for v, dying in moment.over.items()} if stream == MAIN else {}
        for moment, stream in zip(moments, schedule.streams)
    ]
    return [Moment(r, m, o) for r, m, o in zip(reads, makes, over, strict=True)]
