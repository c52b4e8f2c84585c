"""Memory planning: every intermediate value gets a place in one arena; values that do not live at the same time share."""

from __future__ import annotations

import heapq
import mmap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gradlab.spec import Spec, count

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


class Moment(NamedTuple):
    """One step of a program, as the planner sees it: which memory it reads, and what it makes. Views count as what they look at."""

    reads: Sequence[int]
    makes: Sequence[int]


@dataclass
class Plan:
    """Offsets in the arena by value number, the arena's size, and what the values would take without sharing."""

    places: dict[int, int] = field(default_factory=dict)
    size: int = 0
    unshared: int = 0


def arena(size: int) -> Any:
    """Bytes for a plan, on huge pages where the system has them."""
    memory = mmap.mmap(-1, max(size, 1))
    if size >= 1 << 21 and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def plan_buffers(moments: Sequence[Moment], specs: dict[int, Spec], to_the_end: Iterable[int] = ()) -> Plan:
    """Places for all values with a spec in `specs`, by best fit over the free gaps in the order of the moments."""
    born: dict[int, int] = {}
    last: dict[int, int] = {}
    for i, moment in enumerate(moments):
        for n in moment.makes:
            if n in specs:
                born[n] = last[n] = i
        for n in moment.reads:
            if n in born:
                last[n] = i
    for n in to_the_end:
        if n in born:
            last[n] = len(moments)
    plan = Plan()
    busy: list[tuple[int, int, int]] = []  # end of life, offset, size
    gaps: list[tuple[int, int]] = []  # offset, size, sorted and merged
    for number, start in born.items():
        while busy and busy[0][0] < start:
            _, offset, size = heapq.heappop(busy)
            _release(gaps, offset, size)
        spec = specs[number]
        need = -(-max(count(spec.shape) * spec.dtype.itemsize, 1) // ALIGNMENT) * ALIGNMENT
        plan.unshared += need
        offset = _take(gaps, need)
        if offset < 0:
            offset = plan.size
            if gaps and gaps[-1][0] + gaps[-1][1] == plan.size:  # the last gap reaches the end: stretch it
                offset = gaps.pop()[0]
            plan.size = offset + need
        plan.places[number] = offset
        heapq.heappush(busy, (last[number], offset, need))
    return plan


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
