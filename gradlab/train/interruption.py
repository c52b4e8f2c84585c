"""Ctrl-C as a request: the loop ends at its next safe point, instead of wherever it happens to be."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """The signal that asked the program to stop, or None."""

    signal: int | None = None

    def requested(self) -> bool:
        return self.signal is not None

    def exit_code(self) -> int:
        """What a shell reports for a program ended by the signal."""
        return 128 + (self.signal or 0)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """A second request does not wait: whoever presses Ctrl-C twice means it."""
        if self.requested():
            raise KeyboardInterrupt
        self.signal = number


@contextmanager
def interruption() -> Iterator[Interruption]:
    """While the block runs, Ctrl-C, SIGTERM (a scheduler's end of time) and SIGHUP (a terminal that closed) are noted, and end nothing.
    Those that the program was told to ignore, as `nohup` and a shell's `&` do, stay ignored."""
    request = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield request  # Python lets only the main thread have handlers
        return
    there = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows has no SIGHUP
    numbers = [number for number in there if signal.getsignal(number) is not signal.SIG_IGN]
    former = {number: signal.signal(number, request.handle) for number in numbers}
    try:
        yield request
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
