"""Captures: work that is submitted to a captured stream becomes a graph's node, with edges from the order in its stream and from events.

A stream joins by waiting for an event recorded in the capture, and has to be waited for before the end, as on a GPU. Replaying runs the
nodes in an order that only the edges constrain.
"""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gradlab.backends.cuda.emulator.device.hazards import Accesses, Entry, Lane, Timeline, Use, note_uses

if TYPE_CHECKING:
    from gradlab.backends.cuda.emulator.device.pool import Block, Pool
    from gradlab.backends.cuda.emulator.device.streams import Stream


class Mark(NamedTuple):
    """An event recorded in a capture: the nodes before it."""

    capture: Capture
    tips: frozenset[int]
    clock: dict[Lane, int]


class Node(NamedTuple):
    """Work of a graph. after: the nodes that it waits for."""

    label: str
    run: Callable[[], None]
    uses: Sequence[Use]
    after: frozenset[int]


class _Branch:
    """A stream within a capture: the nodes that its next one waits for."""

    def __init__(self, stream: Stream) -> None:
        self.timeline = Timeline(stream.name, stream.device_id)
        self.tips: frozenset[int] = frozenset()


class Arena:
    """Memory of captured graphs: a pool that is given back when the last of them is gone, and whoever else holds this."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        weakref.finalize(self, pool.close)


class Capture:
    """A capture that goes on. `origin` is the stream in which it began, `arena` where memory comes from (None: there may be no new one)."""

    def __init__(self, origin: Stream, arena: Arena | None) -> None:
        self.origin, self.arena = origin, arena
        self.pool = None if arena is None else arena.pool
        self.nodes: list[Node] = []
        self.broken: str | None = None
        self._branches = {origin: _Branch(origin)}
        self._accesses: dict[Block, Accesses] = {}
        origin.capture = self

    def add(self, stream: Stream, label: str, uses: Sequence[Use], run: Callable[[], None]) -> None:
        """A node."""
        branch = self._branches[stream]
        number = branch.timeline.advance()
        note_uses(self._accesses, uses, branch.timeline, Entry(branch.timeline.lane, number, label))
        self.nodes.append(Node(label, run, uses, branch.tips))
        branch.tips = frozenset((len(self.nodes) - 1,))

    def mark(self, stream: Stream) -> Mark:
        """An event."""
        branch = self._branches[stream]
        branch.timeline.advance()
        return Mark(self, branch.tips, dict(branch.timeline.clock))

    def join(self, stream: Stream, mark: Mark) -> None:
        """Let a stream's later nodes wait for a mark; a stream that is not captured joins."""
        if stream.capture is None:
            if self.origin.capture is not self:
                raise RuntimeError("wait_event: the event was recorded in a capture that has ended")
            if stream.ptr == 0:
                raise RuntimeError("wait_event: the default stream cannot join a capture; use gl.cuda.Stream()")
            stream.capture = self
            self._branches[stream] = _Branch(stream)
        elif stream.capture is not self:
            raise RuntimeError("wait_event: the event belongs to another capture")
        branch = self._branches[stream]
        branch.tips |= mark.tips
        branch.timeline.after(mark.clock)

    def end(self) -> list[Node]:
        """The nodes. RuntimeError where a branch was not waited for."""
        streams = list(self._branches)
        for stream in streams:
            stream.capture = None
        if self.broken is not None:
            raise RuntimeError(f"the capture has failed before: {self.broken}")
        covered = self._branches[self.origin].timeline.clock
        for stream, branch in self._branches.items():
            lane = branch.timeline.lane
            if stream is not self.origin and covered.get(lane, 0) < lane.submitted:
                raise RuntimeError(
                    f"end_capture: {self.origin.name} has not waited for {stream.name}, which joined the capture; call "
                    "wait_stream(that stream) at the end"
                )
        return self.nodes


class Graph:
    """A captured graph. `arena` is the memory that belongs to it."""

    def __init__(self, nodes: list[Node], arena: Arena | None) -> None:
        self.nodes, self.arena = nodes, arena
        pool = None if arena is None else arena.pool
        merged: dict[tuple[Block, int], bool] = {}
        for node in nodes:
            for use in node.uses:
                place = (use.block, use.address)
                merged[place] = merged.get(place, False) or use.writes
        # What is not the graph's own has to be there when it runs.
        self.lives = {block: block.life for block, _ in merged if block.pool is not pool}
        self.uses = [Use(block, address, writes) for (block, address), writes in merged.items()]

    def run(self, preferred: list[int]) -> None:
        """Run all nodes; among those that may run, the most preferred first."""
        rank = {node: place for place, node in enumerate(preferred)}
        left = [len(node.after) for node in self.nodes]
        followers: list[list[int]] = [[] for _ in self.nodes]
        for number, node in enumerate(self.nodes):
            for earlier in node.after:
                followers[earlier].append(number)
        ready = [rank[number] for number, count in enumerate(left) if count == 0]
        heapq.heapify(ready)
        while ready:
            number = preferred[heapq.heappop(ready)]
            self.nodes[number].run()
            for follower in followers[number]:
                left[follower] -= 1
                if left[follower] == 0:
                    heapq.heappush(ready, rank[follower])
