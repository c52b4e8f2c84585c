"""The memory of a program's results and small inputs, by device: what `Runner` needs besides the executable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from gradlab import dispatch
from gradlab.device import CPU, Device


class Memory(Protocol):
    """Makes arrays of one device."""

    device: Device

    @property
    def empty(self) -> Callable[[tuple[int, ...], np.dtype[Any]], Any]:
        """An array whose values nobody has set."""

    @property
    def zeros(self) -> Callable[[tuple[int, ...], np.dtype[Any]], Any]:
        """An array of zeros."""

    def words(self, sizes: Sequence[tuple[int, np.dtype[Any]]]) -> tuple[list[Any], list[Any], Callable[[], None] | None]:
        """Small vectors of 8-byte numbers that the host writes before each run: as NumPy arrays, as the program's arrays, and what carries
        the former to the latter (None where they are the same)."""


class HostMemory:
    """NumPy's."""

    device = CPU
    empty: Any = staticmethod(np.empty)
    zeros: Any = staticmethod(np.zeros)

    def words(self, sizes: Sequence[tuple[int, np.dtype[Any]]]) -> tuple[list[Any], list[Any], Callable[[], None] | None]:
        made = [np.zeros(n, dtype) for n, dtype in sizes]
        return made, made, None


class Turns:
    """Streams take turns with memory that a program keeps from run to run, which nobody outside knows of: one that runs it next waits for
    the one that ran it before."""

    __slots__ = ("driver", "last")

    def __init__(self, driver: Any) -> None:
        self.driver, self.last = driver, driver.current_stream()

    def take(self) -> None:
        """Before the memory is touched in the current stream. A capture does not run, and cannot wait for what lies outside of it."""
        driver = self.driver
        stream = driver.current_stream()
        if stream == self.last or driver.capturing():
            return
        event = driver.new_event(False)
        driver.record_event(event, self.last)
        driver.wait_event(stream, event)
        self.last = stream


class CudaMemory:
    """A GPU's, from its pool."""

    def __init__(self, device: Device) -> None:
        backend: Any = dispatch.backend_for(device)
        self.device, self.backend, self.driver = device, backend, backend.driver

    def _there(self, make: Callable[[], Any]) -> Any:
        driver, index = self.driver, self.device.index
        before = driver.current_device()
        if index is None or index == before:
            return make()
        driver.set_device(index)
        try:
            return make()
        finally:
            driver.set_device(before)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return self._there(lambda: self.driver.empty(shape, dtype))

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return self._there(lambda: self.backend.work.zeros(shape, dtype))

    def words(self, sizes: Sequence[tuple[int, np.dtype[Any]]]) -> tuple[list[Any], list[Any], Callable[[], None] | None]:
        """All in one buffer: one copy carries them, and none is made where nothing has changed."""
        total = sum(n for n, _ in sizes)
        if not total:
            return [np.zeros(0, dtype) for _, dtype in sizes], [self.empty((0,), dtype) for _, dtype in sizes], None
        host = np.zeros(total, np.int64)
        there = self.empty((8 * total,), np.dtype(np.uint8))
        ends = np.cumsum([n for n, _ in sizes]).tolist()
        ours = [host[end - n : end].view(dtype) for end, (n, dtype) in zip(ends, sizes, strict=True)]
        theirs = [there[8 * (end - n) : 8 * end].view(dtype) for end, (n, dtype) in zip(ends, sizes, strict=True)]
        sent: list[bytes] = [b""]
        turns = self._there(lambda: Turns(self.driver))

        def send() -> None:
            self._there(turns.take)
            now = host.tobytes()
            if now != sent[0]:
                self._there(lambda: self.driver.write(there, host.view(np.uint8)))
                sent[0] = now

        return ours, theirs, send


def memory_of(device: Device) -> Memory:
    """The memory of a device."""
    return HostMemory() if device.type == "cpu" else CudaMemory(device)
