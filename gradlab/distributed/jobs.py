"""Calls that run beside the program, in a thread of their own, one after another."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from gradlab.distributed.transport import Job


class Started(Job):
    """A call in the thread."""

    def __init__(self) -> None:
        self._end = threading.Event()

    def done(self) -> bool:
        """Whether it has ended."""
        return self._end.is_set()

    def wait(self, seconds: float | None = None) -> None:
        """Until it has ended; raises what it raised."""
        if not self._end.wait(seconds):
            raise TimeoutError(f"wait: a collective has not ended after {seconds:g} s")
        if self.error is not None:
            raise self.error


class Jobs:
    """The thread, which begins with its first call."""

    def __init__(self, name: str) -> None:
        self._name, self._thread = name, None
        self._queue: SimpleQueue[tuple[Callable[[], None], Started] | None] = SimpleQueue()
        self._last: Started | None = None

    _thread: threading.Thread | None

    def start(self, call: Callable[[], None]) -> Job:
        """Run it after those that were started before."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        job = self._last = Started()
        self._queue.put((call, job))
        return job

    def before_mine(self) -> None:
        """Wait for what was started, where it is not the thread that asks."""
        if self._last is not None and threading.current_thread() is not self._thread:
            self._last._end.wait()
            self._last = None

    def close(self, wait: bool) -> None:
        """End the thread, after what was started unless that is in vain."""
        if self._thread is not None:
            self._queue.put(None)
            if wait:
                self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (found := self._queue.get()) is not None:
            call, job = found
            try:
                call()
            except BaseException as error:
                job.error = error
            job._end.set()
