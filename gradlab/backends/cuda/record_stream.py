"""Memory that other streams still work with when nobody holds it any more: `Tensor.record_stream`.

A pool gives freed memory out again to the stream that it was allocated on, at once: that stream's later work comes after its earlier work.
Of another stream's work it knows nothing. Memory of an array that was named here is therefore kept when the array is dropped. At the next
allocation an event is recorded in each of the streams; the memory goes back to its pool once all of them have happened.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any


class Kept:
    """Memory that waits for streams; `events` once there are any."""

    __slots__ = ("device", "events", "memory", "streams")

    def __init__(self, memory: Any, device: int, streams: dict[int, Any]) -> None:
        self.memory, self.device, self.streams = memory, device, streams
        self.events: list[Any] | None = None


class Lingering:
    """The memory of one driver's arrays that waits for streams. `memory` gives what holds an array's memory, without the array."""

    def __init__(self, driver: Any, memory: Callable[[Any], Any]) -> None:
        self._driver, self._memory = driver, memory
        self._lock = threading.Lock()
        self._streams: dict[int, dict[int, Any]] = {}  # of arrays that live: by the array's id the streams by their handles
        self.waiting: deque[Kept] = deque()

    def record(self, array: Any, stream: Any) -> None:
        """Let the array's memory wait for the stream's work when the array and its views are gone."""
        owner = array if array.base is None else array.base
        with self._lock:
            streams = self._streams.get(id(owner))
            if streams is None:
                streams = self._streams[id(owner)] = {}
                kept = Kept(self._memory(owner), self._driver.device_of(owner), streams)
                weakref.finalize(owner, self._dropped, id(owner), kept).atexit = False
            streams[stream.ptr] = stream

    def _dropped(self, number: int, kept: Kept) -> None:
        """A finalizer may run in the middle of anything: it takes no lock and calls nobody."""
        del self._streams[number]
        self.waiting.append(kept)

    def release(self, wait: bool = False) -> None:
        """Let go of the memory whose streams are done; `wait`: of all of it, after waiting."""
        driver = self._driver
        with self._lock:
            for _ in range(len(self.waiting)):
                kept = self.waiting.popleft()
                if kept.events is None:
                    kept.events = self._events(kept)
                if wait:
                    for event in kept.events:
                        driver.synchronize_event(event)
                elif not all(map(driver.event_done, kept.events)):
                    self.waiting.append(kept)

    def _events(self, kept: Kept) -> list[Any]:
        """Events behind what is queued now, with the streams' device current."""
        driver = self._driver
        before = driver.current_device()
        driver.set_device(kept.device)
        try:
            events = []
            for stream in kept.streams.values():
                event = driver.new_event(False)
                driver.record_event(event, stream)
                events.append(event)
            return events
        finally:
            driver.set_device(before)
