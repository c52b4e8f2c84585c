"""Streams of work and events in them."""

from __future__ import annotations

from typing import Any

from gradlab.cuda.cpu_driver import driver
from gradlab.cuda.devices import index_of, on
from gradlab.device import Device


class Event:
    """A moment in a stream: recorded there, waited for by other streams or the host, and, with `enable_timing`, the time between two of
    them."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        if interprocess:
            raise NotImplementedError("Event: interprocess events are not offered; exchange data through the host instead")
        driver()  # says what is missing
        self._timing = enable_timing
        self._handle: Any = None  # made when it is first recorded, on that stream's device
        self._device: int | None = None

    @property
    def _recorded(self) -> bool:
        return self._handle is not None

    def record(self, stream: Stream | None = None) -> None:
        """Let the event happen when the work so far of a stream (the current one) is done. RuntimeError if it was recorded on another
        device before."""
        stream = current_stream() if stream is None else stream
        known = driver()
        if self._handle is None:
            with on(stream.device_index):
                self._handle = known.new_event(self._timing)
            self._device = stream.device_index
        elif self._device != stream.device_index:
            raise RuntimeError(f"record: the event belongs to cuda:{self._device}, the stream to cuda:{stream.device_index}")
        known.record_event(self._handle, stream._handle)

    def wait(self, stream: Stream | None = None) -> None:
        """Let later work of a stream (the current one) wait for the event."""
        (current_stream() if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        """Whether it has happened (True, too, where it was never recorded)."""
        return not self._recorded or driver().event_done(self._handle)

    def synchronize(self) -> None:
        """Wait until it has happened."""
        if self._recorded:
            driver().synchronize_event(self._handle)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another. RuntimeError unless both have timing on and have happened."""
        for event in (self, end_event):
            if not event._timing:
                raise RuntimeError("elapsed_time: both events need enable_timing=True")
            if not event._recorded:
                raise RuntimeError("elapsed_time: both events must have been recorded")
            if not event.query():
                raise RuntimeError("elapsed_time: an event has not happened yet; call synchronize() first")
        return driver().elapsed(self._handle, end_event._handle)


class Stream:
    """A queue of work on a device. Work of different streams may overlap; within one it runs in order."""

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        self.device_index = index_of(device)
        with on(self.device_index):
            self._handle = driver().new_stream(priority)

    @property
    def device(self) -> Device:
        """The device whose work it takes."""
        return Device("cuda", self.device_index)

    @property
    def cuda_stream(self) -> int:
        """The driver's handle."""
        return int(self._handle.ptr)

    def synchronize(self) -> None:
        """Wait for all its work."""
        driver().synchronize_stream(self._handle)

    def query(self) -> bool:
        """Whether all its work is done."""
        return driver().stream_done(self._handle)

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event (a new one unless given) in this stream."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let later work of this stream wait for an event."""
        if event._recorded:
            driver().wait_event(self._handle, event._handle)

    def wait_stream(self, stream: Stream) -> None:
        """Let later work of this stream wait for the work so far of another."""
        self.wait_event(stream.record_event())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.device_index == other.device_index and self._handle.ptr == other._handle.ptr

    def __hash__(self) -> int:
        return hash((self.device_index, self._handle.ptr))

    def __repr__(self) -> str:
        return f"<gradlab.cuda.Stream device=cuda:{self.device_index}>"


def _wrapped(handle: Any, index: int) -> Stream:
    made = object.__new__(Stream)
    made.device_index, made._handle = index, handle
    return made


def current_stream(device: Any = None) -> Stream:
    """The stream that work of this thread goes to, on a device (the current one)."""
    index = index_of(device)
    with on(index):
        return _wrapped(driver().current_stream(), index)


def default_stream(device: Any = None) -> Stream:
    """The stream that a device's work (the current one's) goes to unless told otherwise."""
    index = index_of(device)
    with on(index):
        return _wrapped(driver().default_stream(), index)


def set_stream(stream: Stream | None) -> None:
    """Let work of this thread go to a stream (None: nothing changes), on its device."""
    if stream is not None:
        known = driver()
        known.set_device(stream.device_index)
        known.use_stream(stream._handle)


class stream:
    """Within the block, work goes to a stream (None: nothing changes), on its device: `with gl.cuda.stream(s):`."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self._before: list[Any] = []

    def __enter__(self) -> Stream | None:
        if self.stream is not None:
            known = driver()
            before = known.current_device()
            known.set_device(self.stream.device_index)
            self._before.append((before, known.current_stream()))
            known.use_stream(self.stream._handle)
        return self.stream

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            known = driver()
            device, handle = self._before.pop()
            known.set_device(self.stream.device_index)
            known.use_stream(handle)
            known.set_device(device)
