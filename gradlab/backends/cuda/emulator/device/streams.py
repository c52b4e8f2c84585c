"""Streams that run late: work waits in its stream until somebody waits for it.

What runs in which order is decided by a schedule, and only events constrain it, as on a GPU. A program whose result depends on the schedule
lacks an event.

late      nothing runs before it must; of what a wait does not need, nothing runs; streams that are free run one after the other, the
          youngest first. In a captured graph the branch that was captured last runs first.
random    streams that are free go on in any order, by a fixed seed, also those that nobody waits for.
eager     everything runs when it is submitted, as with CUDA_LAUNCH_BLOCKING=1: an error is raised where the work was submitted.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gradlab.backends.cuda.emulator.device.hazards import Accesses, Entry, Lane, Timeline, Use, note_uses

if TYPE_CHECKING:
    from gradlab.backends.cuda.emulator.device.capture import Capture, Mark
    from gradlab.backends.cuda.emulator.device.pool import Block

SCHEDULES = ("late", "random", "eager")
ASIDE = 0.5  # schedule random: how often another stream goes on
MOST_WAITING = 1024  # entries in a stream; a GPU's queue is about as long

_numbers = itertools.count(1)


class Moment(NamedTuple):
    """A place in a stream: all that was submitted to it before."""

    stream: Stream
    position: int
    clock: dict[Lane, int]


class Task(NamedTuple):
    """Work in a stream. after: what it waits for. mark: it is an event's moment, which comes as soon as the work before is done."""

    run: Callable[[], None] | None
    uses: Sequence[Use]  # keeps the memory
    after: Moment | None
    mark: bool = False


class Stream:
    """A queue of work. `ptr` is what stands for its handle, 0 for the default stream."""

    def __init__(self, device: int, default: bool = False) -> None:
        self.device_id = device
        self.ptr = 0 if default else next(_numbers) << 8
        self.name = f"the default stream of cuda:{device}" if default else f"stream {self.ptr >> 8} of cuda:{device}"
        self.timeline = Timeline(self.name, device)
        self.waiting: deque[Task] = deque()
        self.done = 0
        self.capture: Capture | None = None

    def __repr__(self) -> str:
        return f"<{self.name}>"


class Event:
    """`when` it was recorded last: a moment, or a mark in a capture; `time` when that came."""

    __slots__ = ("time", "when")

    def __init__(self) -> None:
        self.when: Moment | Mark | None = None
        self.time = 0.0


class Engine:
    """Submits and runs work of all streams of all devices. One lock: work runs in the thread that waits for it."""

    def __init__(self, schedule: str, seed: int = 0) -> None:
        if schedule not in SCHEDULES:
            raise RuntimeError(f"GRADLAB_EMULATED_STREAMS is {schedule!r}; it may be {', '.join(SCHEDULES)}")
        self.schedule = schedule
        self.lock = threading.RLock()
        self._random = random.Random(seed)
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._lanes: weakref.WeakSet[Lane] = weakref.WeakSet()  # of dropped streams too, for as long as memory remembers them
        self._busy: dict[Stream, None] = {}  # streams with waiting work, which their owner may have dropped
        self._accesses: weakref.WeakKeyDictionary[Block, Accesses] = weakref.WeakKeyDictionary()

    # ------------------------------------------------------------ submitting

    def submit(self, stream: Stream, label: str, uses: Sequence[Use], run: Callable[[], None]) -> None:
        """Add work to a stream, or to the graph that it captures. KernelFault if it may meet other streams' work in memory."""
        with self.lock:
            if stream.capture is not None:
                # Poison is part of the graph for the graph's own memory; other memory may be written before the graph is launched.
                pool = stream.capture.pool
                whole = with_poison([use for use in uses if use.block.pool is pool], run)
                stream.capture.add(stream, label, uses, whole)
                return
            whole = with_poison(uses, run)
            timeline = stream.timeline
            number = timeline.advance()
            try:
                note_uses(self._accesses, uses, timeline, Entry(timeline.lane, number, label))
            except BaseException:
                self._push(stream, Task(None, (), None))
                raise
            self._push(stream, Task(whole, uses, None))

    def _push(self, stream: Stream, task: Task) -> None:
        stream.waiting.append(task)
        self._busy[stream] = None
        if task.mark and len(stream.waiting) == 1:
            self._run_first(stream)
        elif self.schedule == "eager":
            self._reach(stream, stream.timeline.lane.submitted)
        elif len(stream.waiting) > MOST_WAITING:
            self._reach(stream, stream.timeline.lane.submitted - MOST_WAITING // 2)

    def record(self, event: Event, stream: Stream) -> None:
        """Let an event happen when the stream's work so far is done."""
        with self.lock:
            if stream.capture is not None:
                event.when = stream.capture.mark(stream)
                return
            number = stream.timeline.advance()
            event.when = moment = Moment(stream, number, dict(stream.timeline.clock))

            def happen() -> None:
                if event.when is moment:
                    event.time = time.perf_counter()

            self._push(stream, Task(happen, (), None, True))

    def wait(self, stream: Stream, event: Event) -> None:
        """Let the stream's later work wait for the event, as it was recorded last."""
        with self.lock:
            when = event.when
            if when is None:
                return
            if not isinstance(when, Moment):
                when.capture.join(stream, when)
                return
            if stream.capture is not None:
                raise RuntimeError(
                    "a captured stream waits for an event that was recorded outside of its capture: the graph could not wait for it; let "
                    "the stream wait before the capture begins"
                )
            stream.timeline.after(when.clock)
            stream.timeline.advance()
            self._push(stream, Task(None, (), when))

    # ------------------------------------------------------------ waiting

    def _allowed(self, when: Moment | Mark | None, what: str) -> Moment | None:
        if when is not None and not isinstance(when, Moment):
            raise RuntimeError(f"{what}: the event was recorded in a capture, where nothing runs; record it outside")
        return when

    def event_done(self, event: Event) -> bool:
        """Whether it has happened. Asking lets a little time pass."""
        with self.lock:
            when = self._allowed(event.when, "query")
            return when is None or self._passed(when.stream, when.position, when.clock)

    def stream_done(self, stream: Stream) -> bool:
        """Whether all its work is done. Asking lets a little time pass."""
        with self.lock:
            return self._passed(stream, stream.timeline.lane.submitted, stream.timeline.clock)

    def _passed(self, stream: Stream, position: int, clock: dict[Lane, int]) -> bool:
        if stream.done < position:
            self._reach(stream, stream.done + 1)
            return False
        _saw(clock)
        return True

    def synchronize_event(self, event: Event) -> None:
        """Run what the event waits for."""
        with self.lock:
            when = self._allowed(event.when, "synchronize")
            if when is not None:
                self._reach(when.stream, when.position)
                _saw(when.clock)

    def synchronize_stream(self, stream: Stream) -> None:
        """Run the stream's work, and what it waits for."""
        with self.lock:
            self._reach(stream, stream.timeline.lane.submitted)
            _saw(stream.timeline.clock)

    def synchronize_device(self, device: int) -> None:
        """Run all work of a device."""
        with self.lock:
            while busy := [s for s in self._busy if s.device_id == device]:
                stream = self._random.choice(busy) if self.schedule == "random" else busy[-1]
                self._reach(stream, stream.timeline.lane.submitted)
            for lane in self._lanes:
                if lane.device == device:
                    lane.seen = lane.submitted

    def advance(self, device: int) -> None:
        """Run all work of a device that was submitted, as time lets it: the host knows no more than before."""
        with self.lock:
            while busy := [s for s in self._busy if s.device_id == device]:
                self._reach(busy[-1], busy[-1].timeline.lane.submitted)

    def _reach(self, stream: Stream, position: int) -> None:
        """Run a stream's work up to a position. What raises is done; the rest stays."""
        needed = [(stream, position)]
        while needed:
            stream, position = needed[-1]
            if stream.done >= position:
                needed.pop()
                continue
            if self.schedule == "random" and self._random.random() < ASIDE:
                other = self._random.choice(list(self._busy))
                if _ready(other.waiting[0]):
                    self._run_first(other)
                    continue
            task = stream.waiting[0]
            if not _ready(task):
                assert task.after is not None
                needed.append((task.after.stream, task.after.position))
                continue
            self._run_first(stream)

    def _run_first(self, stream: Stream) -> None:
        """Run the first task, and the marks behind it."""
        waiting = stream.waiting
        task = waiting.popleft()
        stream.done += 1
        try:
            if task.run is not None:
                task.run()
        finally:
            while waiting and waiting[0].mark:
                mark = waiting.popleft()
                stream.done += 1
                assert mark.run is not None
                mark.run()
            if not waiting:
                self._busy.pop(stream, None)

    # ------------------------------------------------------------ streams

    def new_stream(self, device: int, default: bool = False) -> Stream:
        """A stream of a device."""
        made = Stream(device, default)
        with self.lock:
            self._streams.add(made)
            self._lanes.add(made.timeline.lane)
        return made

    def find(self, device: int, ptr: int) -> Stream | None:
        """The stream of a handle."""
        with self.lock:
            return next((s for s in self._streams if s.ptr == ptr and s.device_id == device), None)

    def order(self, count: int) -> list[int]:
        """In which order a graph's nodes are preferred, where their edges leave a choice."""
        if self.schedule == "eager":
            return list(range(count))
        if self.schedule == "random":
            return self._random.sample(range(count), count)
        return list(range(count - 1, -1, -1))


def _ready(task: Task) -> bool:
    return task.after is None or task.after.stream.done >= task.after.position


def _saw(clock: dict[Lane, int]) -> None:
    """The host knows that all that a clock covers is done."""
    for lane, number in clock.items():
        lane.seen = max(lane.seen, number)


def with_poison(uses: Sequence[Use], run: Callable[[], None]) -> Callable[[], None]:
    """The work, preceded by poison for memory that was given out and not used yet."""
    fresh: list[Any] = []
    for use in uses:
        if use.block.fresh:
            use.block.fresh = False
            fresh.append(use.block)
    if not fresh:
        return run

    def poisoned() -> None:
        for block in fresh:
            block.poison()
        run()

    return poisoned
