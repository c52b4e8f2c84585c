"""Who used which memory when, and whether events order it: found when work is submitted, whatever order it then runs in.

Every stream has a lane: the numbers of what was submitted to it. A timeline's clock says how far into each lane everything submitted from
now on comes after. Two uses of memory are ordered if the later one's clock covers the earlier one's number, or if the host has waited for
it.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gradlab.backends.cuda.emulator.launching import KernelFault

if TYPE_CHECKING:
    from gradlab.backends.cuda.emulator.device.pool import Block


class Lane:
    """A stream's numbers. `submitted`: how many there are. `seen`: the host knows that everything up to here is done."""

    __slots__ = ("__weakref__", "device", "name", "seen", "submitted")

    def __init__(self, name: str, device: int) -> None:
        self.name, self.device = name, device
        self.submitted = self.seen = 0


class Timeline:
    """A lane, and what its next entry comes after."""

    __slots__ = ("clock", "lane")

    def __init__(self, name: str, device: int) -> None:
        self.lane = Lane(name, device)
        self.clock: dict[Lane, int] = {}

    def advance(self) -> int:
        """The number of the next entry."""
        lane = self.lane
        lane.submitted += 1
        self.clock[lane] = lane.submitted
        return lane.submitted

    def after(self, clock: dict[Lane, int]) -> None:
        """Let what follows come after all that a clock covers."""
        mine = self.clock
        for lane, number in clock.items():
            if mine.get(lane, 0) < number:
                mine[lane] = number


class Use(NamedTuple):
    """Memory that work takes: the block, the address that it was given, and whether it may write there."""

    block: Block
    address: int
    writes: bool


class Entry(NamedTuple):
    """Work that used memory: its lane, its number there, and what it was."""

    lane: Lane
    number: int
    label: str


class Accesses:
    """The uses of one block: of its present life by address and lane, of earlier lives by lane alone."""

    __slots__ = ("life", "past", "reads", "writes")

    def __init__(self, life: int) -> None:
        self.life = life
        self.past: dict[Lane, Entry] = {}
        self.reads: dict[int, dict[Lane, Entry]] = {}
        self.writes: dict[int, dict[Lane, Entry]] = {}

    def note(self, use: Use, timeline: Timeline, entry: Entry) -> None:
        """Note a use; KernelFault if another stream's earlier one is not ordered before it."""
        if self.life != use.block.life:
            for kind in (self.reads, self.writes):
                for entries in kind.values():
                    self.past |= entries
                kind.clear()
            self.life = use.block.life
        if self.past:
            for earlier in list(self.past.values()):
                if _ordered(earlier, timeline):
                    del self.past[earlier.lane]  # what comes after this comes after that
                else:
                    raise KernelFault(
                        entry.label,
                        f"memory of cuda:{use.block.device} ({use.block.size} bytes) is reused in {timeline.lane.name} before its user "
                        f"{earlier.label} in {earlier.lane.name} has run, and no event orders them: let the stream that frees it wait "
                        "(wait_stream, wait_event) for the other one before, or keep the tensor",
                    )
        for kind in (self.writes, self.reads) if use.writes else (self.writes,):
            for earlier in kind.get(use.address, {}).values():
                if earlier.lane is not timeline.lane and not _ordered(earlier, timeline):
                    did, does = ("writes" if kind is self.writes else "reads"), ("writes" if use.writes else "reads")
                    raise KernelFault(
                        entry.label,
                        f"it {does} memory of cuda:{use.block.device} ({use.block.size} bytes) in {timeline.lane.name} that "
                        f"{earlier.label} {did} in {earlier.lane.name}, and no event orders them: call wait_stream or wait_event between",
                    )
        kept = self.writes if use.writes else self.reads
        kept.setdefault(use.address, {})[entry.lane] = entry


def _ordered(earlier: Entry, timeline: Timeline) -> bool:
    return earlier.number <= max(timeline.clock.get(earlier.lane, 0), earlier.lane.seen)


def note_uses(table: MutableMapping[Block, Accesses], uses: Sequence[Use], timeline: Timeline, entry: Entry) -> None:
    """Note all uses of one piece of work."""
    for use in uses:
        accesses = table.get(use.block)
        if accesses is None:
            accesses = table[use.block] = Accesses(use.block.life)
        accesses.note(use, timeline, entry)
