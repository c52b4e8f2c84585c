"""Memory planning: every intermediate value gets a place in one arena; values that do not live at the same time share."""

from __future__ import annotations

import bisect
import ctypes
import heapq
import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gradlab.spec import Spec, count

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


class Moment(NamedTuple):
    """One step of a program, as the planner sees it: which memory it reads, and what it makes. Views count as what they look at.

    over: of what it makes, the values read that it may be written over, if they are not needed any more.
    """

    reads: Sequence[int]
    makes: Sequence[int]
    over: Mapping[int, Sequence[int]] = {}


@dataclass
class Plan:
    """Offsets in the arena by value number, the arena's size, and what the values would take without sharing."""

    places: dict[int, int] = field(default_factory=dict)
    size: int = 0
    unshared: int = 0


def arena(size: int) -> Any:
    """Bytes for a plan, on huge pages where the system has them. What the run before had in its place goes back to the system first."""
    if size >= 1 << 21:
        give_back()
    memory = mmap.mmap(-1, max(size, 1))
    if size >= 1 << 21 and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def give_back() -> None:
    """Let the C library return memory that was freed: glibc keeps what the eager run took, tens of megabytes beside the arena."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


class _Buffer:
    """Memory for one value, or for several of which each is written over the one before."""

    __slots__ = ("end", "numbers", "offset", "size", "start")

    def __init__(self, number: int, start: int, end: int, size: int) -> None:
        self.numbers, self.start, self.end, self.size, self.offset = [number], start, end, size, 0


MANY = 2000  # buffers; above that only the placement whose time does not grow with their square
CLOSE = 1.005  # of the least possible size: good enough


def plan_buffers(moments: Sequence[Moment], specs: dict[int, Spec], to_the_end: Iterable[int] = ()) -> Plan:
    """Places for all values with a spec in `specs`: by best fit in the order of the moments, or the largest first, whichever needs less."""
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
    plan.size = _in_order(buffers)
    if plan.size > CLOSE * _least(buffers) and len(buffers) <= MANY:
        offsets = [b.offset for b in buffers]
        size = _by_size(buffers)
        if size < plan.size:
            plan.size = size
        else:
            for b, offset in zip(buffers, offsets):
                b.offset = offset
    plan.places = {number: holder.offset for number, holder in holders.items()}
    return plan


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


def _by_size(buffers: Sequence[_Buffer]) -> int:
    """Give offsets, the largest buffer first, each as low as the earlier ones that live at the same time allow; the size of it all.

    (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020, "greedy by size".)
    """
    total = 0
    placed: list[_Buffer] = []  # by offset
    for b in sorted(buffers, key=lambda b: (-b.size, b.start)):
        at = 0
        for other in placed:
            if other.start <= b.end and b.start <= other.end:
                if other.offset - at >= b.size:
                    break
                at = max(at, other.offset + other.size)
        b.offset = at
        total = max(total, at + b.size)
        bisect.insort(placed, b, key=lambda b: b.offset)
    return total


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
