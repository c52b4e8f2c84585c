"""Memory planning: every intermediate value gets a place in one arena; values that do not live at the same time share."""

from __future__ import annotations

import bisect
import ctypes
import heapq
import mmap
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gradlab.spec import Spec, count

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


class Room(NamedTuple):
    """Memory outside of the arena that is free for values which live between two moments, both of them included."""

    size: int
    first: int
    last: int


class Moment(NamedTuple):
    """One step of a program, as the planner sees it: which memory it reads, and what it makes. Views count as what they look at.

    over: of what it makes, the values read that it may be written over, if they are not needed any more.
    """

    reads: Sequence[int]
    makes: Sequence[int]
    over: Mapping[int, Sequence[int]] = {}


@dataclass
class Plan:
    """Offsets in the arena by value number, the arena's size, what the values would take without sharing, and the least they could take.

    guests: (room, offset) of the values that lie in rooms; they have no place in the arena. lent: their bytes.
    """

    places: dict[int, int] = field(default_factory=dict)
    size: int = 0
    unshared: int = 0
    least: int = 0
    guests: dict[int, tuple[int, int]] = field(default_factory=dict)
    lent: int = 0


def arena(size: int) -> Any:
    """Bytes for a plan, on huge pages where the system has them. What the run before had in its place goes back to the system first."""
    return np.frombuffer(_mapped(size), np.uint8)


def _mapped(size: int) -> mmap.mmap:
    if size >= 1 << 21:
        give_back()
    # Private memory: the system gives huge pages to shared memory (Python's default) only where a mount option says so.
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
    memory = mmap.mmap(-1, max(size, 1), **private)
    if size >= 1 << 21 and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def give_back() -> None:
    """Let the C library return memory that was freed: glibc keeps what the eager run took, tens of megabytes beside the arena."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


class Shared:
    """Memory for the intermediate values of several programs, of which one runs at a time, under the lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._map: mmap.mmap | None = None

    def of(self, size: int) -> Any:
        """At least so many bytes: those that other programs use, if they are enough."""
        if self._map is None:
            self._map = _mapped(size)
        elif len(self._map) < size:
            self._map = _mapped(2 * size)  # the next larger program finds room, and what nobody has touched takes no memory
        return np.frombuffer(self._map, np.uint8)

    def rest(self) -> None:
        """Nobody needs it for a while: if no program is running, its pages go back to the system until they are touched again."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED") and self.lock.acquire(blocking=False):
            self._map.madvise(mmap.MADV_DONTNEED)
            self.lock.release()


class _Buffer:
    """Memory for one value, or for several of which each is written over the one before."""

    __slots__ = ("end", "numbers", "offset", "size", "start")

    def __init__(self, number: int, start: int, end: int, size: int) -> None:
        self.numbers, self.start, self.end, self.size, self.offset = [number], start, end, size, 0


MANY = 2000  # buffers; above that only the placement whose time does not grow with their square
ROUNDS = 16  # of placements, where the first needs too much
WORTH = 1 << 14  # bytes of the arena that are worth a room elsewhere
NEAR = 0.95  # of the most bytes alive: what a moment has that is as crowded
CLOSE = 1.005  # of the least possible size: good enough


def plan_buffers(
    moments: Sequence[Moment], specs: dict[int, Spec], to_the_end: Iterable[int] = (), rooms: Sequence[Room] = (), thorough: bool = True
) -> Plan:
    """Places for all values with a spec in `specs`: by best fit in the order of the moments, or the largest first, whichever needs less.

    rooms: values lie there instead where that makes the arena smaller. thorough: whether the second way, which takes long, is tried at all.
    """
    last: dict[int, int] = {}
    for i, moment in enumerate(moments):
        last.update((n, i) for n in moment.makes if n in specs)
        last.update((n, i) for n in moment.reads if n in last)
    last.update((n, len(moments)) for n in to_the_end if n in last)
    plan = Plan()
    holders: dict[int, _Buffer] = {}
    buffers: list[_Buffer] = []
    for i, moment in enumerate(moments):
        for number in moment.makes:
            if number not in specs:
                continue
            size = -(-max(count(specs[number].shape) * specs[number].dtype.itemsize, 1) // ALIGNMENT) * ALIGNMENT
            plan.unshared += size
            for dying in moment.over.get(number, ()):
                holder = holders.get(dying)
                if holder is not None and holder.end == i < last[number] and holder.size == size:
                    holder.numbers.append(number)
                    holder.end = last[number]
                    break
            else:
                holder = _Buffer(number, i, last[number], size)
                buffers.append(holder)
            holders[number] = holder
    if rooms and len(buffers) <= MANY:
        for b, room in lodge(buffers, rooms, len(moments)).items():
            plan.guests.update((n, (room, b.offset)) for n in b.numbers)
            plan.lent += b.size
        buffers = [b for b in buffers if b.numbers[0] not in plan.guests]
    plan.least = _least(buffers)
    plan.size = _in_order(buffers)
    if thorough and plan.size > CLOSE * plan.least and len(buffers) <= MANY:
        plan.size = _by_size(buffers, plan.size, plan.least)
    plan.places = {number: holder.offset for number, holder in holders.items() if number not in plan.guests}
    return plan


def lodge(buffers: Sequence[_Buffer], rooms: Sequence[Room], moments: int) -> dict[_Buffer, int]:
    """Rooms for buffers: as long as the moment with the most bytes alive has a buffer that finds room, the largest such; of equal ones that
    which lives at most other such moments. Sets offsets."""
    alive = np.zeros(moments + 1, np.int64)
    for b in buffers:
        alive[b.start : b.end + 1] += b.size
    found: dict[_Buffer, int] = {}
    inside: list[list[_Placed]] = [[] for _ in rooms]
    waiting, by_size = list(buffers), sorted((room.size, i) for i, room in enumerate(rooms))
    while True:
        at = int(alive.argmax())
        if alive[at] < WORTH:
            return found
        crowded = [0, *np.cumsum(alive > NEAR * alive[at]).tolist()]  # moments before each
        living = [b for b in waiting if b.start <= at <= b.end]
        for b in sorted(living, key=lambda b: (-b.size, crowded[b.start] - crowded[b.end + 1])):
            large = by_size[bisect.bisect_left(by_size, (b.size, -1)) :]
            fits = (i for _, i in large if rooms[i].first <= b.start and b.end <= rooms[i].last)
            i = next((i for i in fits if _low(b, inside[i]) + b.size <= rooms[i].size), -1)
            if i >= 0:
                break
            waiting.remove(b)  # rooms only get fuller
        else:
            return found
        waiting.remove(b)
        b.offset = _low(b, inside[i])
        bisect.insort(inside[i], _placed(b))
        found[b] = i
        alive[b.start : b.end + 1] -= b.size


def _least(buffers: Sequence[_Buffer]) -> int:
    """The most bytes that are alive at one moment."""
    change: dict[int, int] = {}
    for b in buffers:
        change[b.start] = change.get(b.start, 0) + b.size
        change[b.end + 1] = change.get(b.end + 1, 0) - b.size
    alive = most = 0
    for moment in sorted(change):
        alive += change[moment]
        most = max(most, alive)
    return most


def _in_order(buffers: Sequence[_Buffer]) -> int:
    """Give offsets by best fit over the free gaps, in order of birth; the size of it all."""
    total = 0
    busy: list[tuple[int, int, int]] = []  # end of life, offset, size
    gaps: list[tuple[int, int]] = []  # offset, size, sorted and merged
    for b in buffers:
        while busy and busy[0][0] < b.start:
            _, offset, size = heapq.heappop(busy)
            _release(gaps, offset, size)
        b.offset = _take(gaps, b.size)
        if b.offset < 0:
            b.offset = total
            if gaps and gaps[-1][0] + gaps[-1][1] == total:  # the last gap reaches the end: stretch it
                b.offset = gaps.pop()[0]
            total = b.offset + b.size
        heapq.heappush(busy, (b.end, b.offset, b.size))
    return total


def _by_size(buffers: Sequence[_Buffer], size: int, least: int) -> int:
    """Give offsets, the largest buffer first, each as low as the earlier ones that live at the same time allow; the size of it all.

    What ends at the top then comes before all others in a next round. Offsets stay as they were where no round needs less than `size`.
    (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020, "greedy by size".)
    """
    best = [b.offset for b in buffers]
    order = sorted(buffers, key=lambda b: (-b.size, b.start))
    for _ in range(1 + min(ROUNDS, MANY * 8 // (len(buffers) + 1))):
        placed: list[_Placed] = []
        for b in order:
            b.offset = _low(b, placed)
            bisect.insort(placed, _placed(b))
        total = max(b.offset + b.size for b in buffers)
        if total < size:
            size, best = total, [b.offset for b in buffers]
        if size <= CLOSE * least:
            break
        top = [b for b in order if b.offset + b.size == total]
        if order[: len(top)] == top:
            break
        order = [*top, *(b for b in order if b.offset + b.size != total)]
    for b, offset in zip(buffers, best):
        b.offset = offset
    return size


_Placed = tuple[int, int, int, int]  # of a buffer that has its place: where it begins and ends in memory, and in time


def _placed(b: _Buffer) -> _Placed:
    return b.offset, b.offset + b.size, b.start, b.end


def _low(b: _Buffer, placed: Sequence[_Placed]) -> int:
    """The lowest offset at which a buffer is beside all others that live at the same time; placed: by offset."""
    at, size, born, dies = 0, b.size, b.start, b.end
    for offset, top, start, end in placed:
        if start <= dies and born <= end and top > at:
            if offset - at >= size:
                break
            at = top
    return at


def _take(gaps: list[tuple[int, int]], need: int) -> int:
    """The smallest gap that fits, or -1."""
    best = min((g for g in gaps if g[1] >= need), key=lambda g: g[1], default=None)
    if best is None:
        return -1
    gaps.remove(best)
    if best[1] > need:
        gaps.append((best[0] + need, best[1] - need))
        gaps.sort()
    return best[0]


def _release(gaps: list[tuple[int, int]], offset: int, size: int) -> None:
    gaps.append((offset, size))
    gaps.sort()
    merged = [gaps[0]]
    for start, length in gaps[1:]:
        if merged[-1][0] + merged[-1][1] == start:
            merged[-1] = (merged[-1][0], merged[-1][1] + length)
        else:
            merged.append((start, length))
    gaps[:] = merged
