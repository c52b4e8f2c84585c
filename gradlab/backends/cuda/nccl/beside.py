"""What the processes of a group do beside the program's stream, in one stream of each device: started reductions, and messages between two.

Messages are kept until somebody waits for one of them, or anything else is done among the processes; then they are one NCCL group, whose
calls go on together. So processes that send to each other before they receive do not wait for each other in vain.
"""

from __future__ import annotations

import weakref
from typing import Any

from gradlab.backends.cuda.nccl import communicators
from gradlab.backends.cuda.nccl.names import TYPES


class Message:
    """An array on its way to another process, or from it."""

    error: BaseException | None = None

    def __init__(self, beside: Beside, array: Any, peer: int) -> None:
        self._beside, self.array, self.source, self.event = beside, array, peer, None

    event: Any

    def flush(self) -> None:
        """Begin, with all that were kept."""
        self._beside.flush()

    def done(self) -> bool:
        """Whether it has gone, or has come."""
        self.flush()
        return bool(self._beside.driver.event_done(self.event))

    def wait(self, seconds: float | None = None) -> None:
        """Let the program's stream wait for it."""
        self.flush()
        self._beside.driver.wait_event(self._beside.driver.current_stream(), self.event)


class Beside:
    """A stream beside the program's, and what is under way there."""

    def __init__(self, driver: Any) -> None:
        self.driver, self.stream, self._device = driver, driver.new_stream(0), driver.current_device()
        self.events: dict[int, Any] = {}  # the ends of what was started, by slot
        self._last: tuple[Any, bool] | None = None  # the latest of them, and whether it lies in a capture
        self._kept: list[tuple[Any, str, Message]] = []

    def run(self, call: Any, *arrays: Any) -> Any:
        """Call in that stream, after what is in the program's; an event behind it. The arrays are used there."""
        driver, program = self.driver, self.driver.current_stream()
        driver.wait_event(self.stream, _event(driver, program))
        driver.use_stream(self.stream)
        try:
            call()
        finally:
            driver.use_stream(program)
        captured = driver.capturing()
        for array in () if captured else arrays:
            driver.record_stream(array, self.stream)
        event = _event(driver, self.stream)
        self._last = event, captured
        return event

    def end(self, slot: int) -> None:
        """Let the program's stream wait for what was started there, if anything was."""
        event = self.events.pop(slot, None)
        if event is not None:
            self.driver.wait_event(self.driver.current_stream(), event)
            if not self.events:
                self._last = None

    def before_mine(self) -> None:
        """A communicator's calls in the program's stream come after those that were started beside it, as they do in every process."""
        self.flush()
        if self._last is not None and self._last[1] == self.driver.capturing():
            self.driver.wait_event(self.driver.current_stream(), self._last[0])

    def keep(self, found: Any, way: str, array: Any, peer: int) -> Message:
        """A message for the next group. way: "send" or "recv"."""
        message = Message(self, array, peer)
        self._kept.append((found, way, message))
        return message

    def flush(self) -> None:
        """Begin the messages that were kept."""
        if not self._kept:
            return
        kept, self._kept = self._kept, []
        (nccl, comm), driver = kept[0][0], self.driver
        device = driver.current_device()

        def call() -> None:
            nccl.groupStart()
            try:
                for _, way, message in kept:
                    array = message.array
                    kind = TYPES.get(array.dtype.name)
                    count = array.nbytes if kind is None else array.size
                    kind = TYPES["uint8"] if kind is None else kind
                    getattr(comm, way)(driver.pointer(array), count, kind, message.source, int(self.stream.ptr))
            finally:
                nccl.groupEnd()

        driver.set_device(self._device)
        try:
            event = self.run(call, *(message.array for _, _, message in kept))
        finally:
            driver.set_device(device)
        for _, _, message in kept:
            message.event = event


_known: weakref.WeakKeyDictionary[Any, dict[int, Beside]] = weakref.WeakKeyDictionary()  # by carrier and device


def beside_of(driver: Any, by: Any) -> Beside:
    """That of a group on the current device."""
    known, index = _known.setdefault(by, {}), driver.current_device()
    return known.get(index) or known.setdefault(index, Beside(driver))


def before_mine(driver: Any, by: Any) -> None:
    """See `Beside.before_mine`."""
    beside = _known.get(by, {}).get(driver.current_device())
    if beside is not None:
        beside.before_mine()


def message(driver: Any, by: Any, way: str, array: Any, peer: int | None) -> Message | None:
    """A message by the group's communicator, "send" or "recv"; None where its processes have made none yet: then it goes by the host.
    ValueError where it may come from any process: NCCL does not know who will send."""
    found = communicators.made(driver, by) if driver.device_of(array) == driver.current_device() else None
    if found is not None and peer is None:
        raise ValueError("recv: tensors of GPUs travel by NCCL, which receives from a process that is named: give src")
    return None if found is None or peer is None else beside_of(driver, by).keep(found, way, array, peer)


def _event(driver: Any, stream: Any) -> Any:
    event = driver.new_event(False)
    driver.record_event(event, stream)
    return event
