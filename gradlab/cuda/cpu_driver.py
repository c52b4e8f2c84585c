"""The driver where "cuda" means the CPU (`gradlab run --device cpu`): one device, whose streams wait for nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from gradlab.backends.cuda.loading import load
from gradlab.device import Device


@dataclass(frozen=True)
class _Queue:
    ptr: int = 0


class _Moment:
    at = 0.0


class Host:
    """What streams and devices ask of a driver."""

    def current_device(self) -> int:
        """The only one."""
        return 0

    def device_count(self) -> int:
        """One."""
        return 1

    def set_device(self, index: int) -> None:
        """It is current."""

    def new_stream(self, priority: int) -> _Queue:
        """All streams are one."""
        return _Queue()

    def current_stream(self) -> _Queue:
        """The only one."""
        return _Queue()

    default_stream = current_stream

    def use_stream(self, handle: Any) -> None:
        """It is used."""

    def synchronize_stream(self, handle: Any) -> None:
        """All is done."""

    def stream_done(self, handle: Any) -> bool:
        """All is done."""
        return True

    def wait_event(self, stream: Any, event: Any) -> None:
        """It has happened."""

    def new_event(self, timing: bool) -> _Moment:
        """A moment to come."""
        return _Moment()

    def record_event(self, event: _Moment, stream: Any) -> None:
        """Now."""
        event.at = time.perf_counter()

    def synchronize_event(self, event: Any) -> None:
        """It has happened."""

    def event_done(self, event: Any) -> bool:
        """It has happened."""
        return True

    def elapsed(self, start: _Moment, end: _Moment) -> float:
        """Milliseconds."""
        return (end.at - start.at) * 1000

    def device_name(self, index: int) -> str:
        """What scripts print."""
        return "CPU"


_host = Host()


def driver() -> Any:
    """The GPU's driver, or the host's where "cuda" means the CPU. RuntimeError says what is missing."""
    return _host if Device("cuda").type == "cpu" else load().driver
