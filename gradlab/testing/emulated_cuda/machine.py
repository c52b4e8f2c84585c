"""The emulated GPU as CUDA's functions see it: handles, addresses, contexts of threads, and statuses in place of errors."""

from __future__ import annotations

import bisect
import ctypes
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab.backends.cuda.emulated import EmulatedDriver
from gradlab.backends.cuda.emulator import EmulatedFunction, KernelFault
from gradlab.backends.cuda.emulator.device.capture import Capture, Graph
from gradlab.backends.cuda.emulator.device.hazards import Use
from gradlab.backends.cuda.emulator.device.pool import Block, Life
from gradlab.backends.cuda.emulator.device.streams import Event, Stream
from gradlab.testing.emulated_cuda.statuses import (
    CAPTURE_IMPLICIT,
    CAPTURE_INVALIDATED,
    CAPTURE_UNJOINED,
    CAPTURE_UNMATCHED,
    CAPTURE_UNSUPPORTED,
    INVALID_CONTEXT,
    INVALID_HANDLE,
    INVALID_VALUE,
    Refused,
)

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2  # modes of a capture

ALIGNMENT = 256
SHARED = 48 << 10  # bytes of dynamic shared memory that a launch may take unless its function was told
LEGACY, PER_THREAD = 1, 2  # handles of default streams


class BlockingStream(Stream):
    """A stream that waits for the legacy default stream's earlier work, and for which that waits."""


class HandledEvent(Event):
    """An event of a device."""

    __slots__ = ("device", "timing")

    def __init__(self, device: int, timing: bool) -> None:
        super().__init__()
        self.device, self.timing = device, timing


class Kernel:
    """A function of a module, which belongs to one device's context."""

    def __init__(self, function: EmulatedFunction, device: int) -> None:
        self.function, self.device, self.shared = function, device, SHARED


class Handles(dict[int, Any]):
    """Things by numbers that look like addresses and are none."""

    _numbers = itertools.count(1)

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def give(self, thing: Any) -> int:
        """A handle for it."""
        made = next(self._numbers) << 12
        self[made] = thing
        return made

    def find(self, handle: int) -> Any:
        """What a handle stands for."""
        try:
            return self[handle]
        except KeyError:
            raise Refused(INVALID_HANDLE, f"{handle:#x} is no {self.kind}, or it was destroyed") from None

    def take(self, handle: int) -> Any:
        """The same; the handle is none from now on."""
        found = self.find(handle)
        del self[handle]
        return found


class Machine(EmulatedDriver):
    """Devices, behind what CUDA's own functions are given and give back."""

    def __init__(self, devices: int) -> None:
        super().__init__(devices)
        self._given: dict[int, Life] = {}
        self._pinned: dict[int, np.ndarray[Any, Any]] = {}
        self._pinned_starts: list[int] = []
        self.streams, self.events, self.graphs = Handles("stream"), Handles("event"), Handles("graph")
        self.executables, self.modules, self.kernels = Handles("graph"), Handles("module"), Handles("function")
        self._by_thread = threading.local()
        self._capturing: dict[Stream, tuple[int, int]] = {}  # the thread and the mode of each capture that goes on, by its origin

    # ------------------------------------------------------------ contexts

    @property
    def context(self) -> int | None:
        """The device whose context is current in this thread."""
        return getattr(self._by_thread, "context", None)

    @context.setter
    def context(self, device: int | None) -> None:
        self._by_thread.context = device

    def enter(self) -> None:
        """What the runtime does with nearly every call: the current device's context becomes current in the thread."""
        self._by_thread.context = self.current_device()

    def need_context(self) -> int:
        """The device of the current context."""
        found = self.context
        if found is None:
            raise Refused(INVALID_CONTEXT, "no context is current in this thread")
        return found

    # ------------------------------------------------------------ streams

    def stream(self, handle: int) -> Stream:
        """The stream of a handle, on the current device for the default streams."""
        device = self.current_device()
        if handle in (0, LEGACY):
            return self._defaults[device]
        if handle == PER_THREAD:
            kept: dict[int, Stream] = self._by_thread.__dict__.setdefault("streams", {})
            if device not in kept:
                kept[device] = self._new(BlockingStream(device))
            return kept[device]
        found: Stream = self.streams.find(handle)
        return found

    def _new(self, made: Stream) -> Stream:
        with self.engine.lock:
            self.engine._streams.add(made)
            self.engine._lanes.add(made.timeline.lane)
        return made

    def create_stream(self, non_blocking: bool) -> int:
        """A stream's handle."""
        device = self.current_device()
        return self.streams.give(self._new(Stream(device) if non_blocking else BlockingStream(device)))

    def current_stream(self) -> Stream:
        """The stream that a call in this thread was given."""
        found: Stream | None = getattr(self._by_thread, "stream", None)
        return self._defaults[self.current_device()] if found is None else found

    def at(self, handle: int) -> Stream:
        """The stream of a handle, which what this thread submits next goes to, in the order that the legacy default stream gives."""
        stream = self._by_thread.stream = self.stream(handle)
        default = self._defaults[stream.device_id]
        if stream is default:
            for other in [s for s in self.engine._streams if type(s) is BlockingStream and s.device_id == stream.device_id]:
                if other.capture is not None:
                    other.capture.broken = "the legacy default stream was used, which would wait for a captured stream"
                    raise Refused(CAPTURE_IMPLICIT, other.capture.broken)
                self._after(stream, other)
        elif type(stream) is BlockingStream and stream.capture is None:
            self._after(stream, default)
        return stream

    def _after(self, stream: Stream, earlier: Stream) -> None:
        lane = earlier.timeline.lane
        if stream.timeline.clock.get(lane, 0) < lane.submitted:
            event = Event()
            self.engine.record(event, earlier)
            self.engine.wait(stream, event)

    def synchronize_device(self) -> None:
        """Wait for all work of the current device, and look at what lies around its memory."""
        self._by_thread.stream = None
        self.synchronize()

    def submit(self, label: str, reads: Sequence[int], writes: Sequence[int], run: Callable[[], None], stream: int) -> None:
        """Work of a library, by the addresses that it reads and writes, in the stream of a handle."""
        found = self.at(stream)
        self.launches += 1
        self.engine.submit(found, label, self._uses(reads, writes, label), run)

    # ------------------------------------------------------------ captures

    def forbid_in_captures(self, what: str) -> None:
        """Refuse what could not be undone while a capture that does not allow it goes on."""
        for stream, (thread, mode) in list(self._capturing.items()):
            if mode == GLOBAL or (mode == THREAD_LOCAL and thread == threading.get_ident()):
                self.spoil(stream, f"{what} while a stream is captured, in a mode that does not allow it")

    def spoil(self, stream: Stream, what: str) -> None:
        """Refuse what a captured stream cannot do. The capture has failed."""
        assert stream.capture is not None
        stream.capture.broken = what
        raise Refused(CAPTURE_UNSUPPORTED, what)

    def wait_for_no_capture(self, stream: Stream, what: str) -> None:
        """Refuse waiting for a captured stream."""
        if stream.capture is not None:
            self.spoil(stream, f"{what} of a captured stream: nothing runs before the graph is launched")

    def begin(self, stream: Stream, mode: int) -> None:
        """Capture a stream."""
        if stream is self._defaults[stream.device_id]:
            raise Refused(CAPTURE_UNSUPPORTED, "the legacy default stream cannot be captured")
        if stream.capture is not None:
            raise Refused(INVALID_VALUE, "the stream is captured already")
        with self.engine.lock:
            Capture(stream, None)
            self._capturing[stream] = threading.get_ident(), mode

    def end(self, stream: Stream) -> int:
        """The graph that was captured in a stream."""
        capture = stream.capture
        if capture is None:
            raise Refused(INVALID_VALUE, "the stream is not captured")
        if capture.origin is not stream:
            raise Refused(CAPTURE_UNMATCHED, "the capture did not begin in this stream")
        thread, mode = self._capturing.pop(stream)
        broken = capture.broken
        if broken is None and mode != RELAXED and thread != threading.get_ident():
            broken = "it ends in another thread than it began in"
        with self.engine.lock:
            try:
                nodes = capture.end()
            except RuntimeError as error:
                raise Refused(CAPTURE_UNJOINED if broken is None else CAPTURE_INVALIDATED, str(error)) from None
        return self.graphs.give(Graph(nodes, None))

    # ------------------------------------------------------------ memory

    def allocate(self, size: int) -> int:
        """Device memory. It reads as NaN, as what a kernel finds there is nobody's."""
        self.forbid_in_captures("allocating memory")
        with self.engine.lock:
            life = self._pools[self.current_device()].malloc(max(size, 1), 0, np.dtype(np.uint8), self._release_cached)
            block = life._block
            block.poison()
            block.fresh = False  # CUDA knows no lives within it: parts of it are used at different times
            self._given[block.address] = life
        return block.address

    def _release_cached(self) -> None:
        for pool in self._pools:
            pool.release()

    def free(self, address: int) -> None:
        """Give memory back, once all work of its device is done."""
        if address == 0:
            return
        self.forbid_in_captures("freeing memory")
        with self.engine.lock:
            life = self._given.get(address)
            if life is None:
                raise Refused(INVALID_VALUE, f"{address:#x} is not where memory begins that was allocated")
            self.engine.synchronize_device(life._block.device)
            del self._given[address]

    def pin(self, size: int) -> int:
        """Memory of the host that devices reach."""
        self.forbid_in_captures("allocating memory of the host")
        room = np.full(size + ALIGNMENT, 0xFF, np.uint8)
        address = -(-room.ctypes.data // ALIGNMENT) * ALIGNMENT
        with self.engine.lock:
            self._pinned[address] = room[address - room.ctypes.data :][:size]
            bisect.insort(self._pinned_starts, address)
        return address

    def unpin(self, address: int) -> None:
        """Give it back, once all work is done."""
        if address == 0:
            return
        with self.engine.lock:
            if address not in self._pinned:
                raise Refused(INVALID_VALUE, f"{address:#x} is no memory of the host that was allocated")
            for device in range(self.device_count()):
                self.engine.synchronize_device(device)
            del self._pinned[address]
            self._pinned_starts.remove(address)

    def pinned(self, address: int) -> bool:
        """Whether it lies in memory of the host that devices reach."""
        with self.engine.lock:
            position = bisect.bisect_right(self._pinned_starts, address) - 1
            if position < 0:
                return False
            start = self._pinned_starts[position]
            return address < start + max(self._pinned[start].size, 1)

    def _on_host(self, address: int) -> bool:
        return self.pinned(address)

    def block(self, address: int) -> Block | None:
        """The device memory that holds an address."""
        found = self._find(address)
        return found if found is not None and found.alive else None

    def _device_range(self, address: int, size: int, what: str) -> bool:
        """Whether it is memory of a device; Refused where it reaches beyond."""
        block = self.block(address)
        if block is None:
            return False
        if address + size > block.address + block.size:
            raise Refused(INVALID_VALUE, f"{what}: {size} bytes from {address:#x} reach beyond {block.size} bytes at {block.address:#x}")
        return True

    def move(self, target: int, source: int, size: int, kind: int, handle: int) -> None:
        """Copy bytes. kind: cudaMemcpyKind. The host waits where its own memory is not pinned."""
        if size == 0:
            return
        to_device = self._device_range(target, size, "the copy's target")
        from_device = self._device_range(source, size, "the copy's source")
        for name, wanted, is_device, address in (
            ("target", kind in (1, 3), to_device, target), ("source", kind in (2, 3), from_device, source),
        ):  # fmt: skip
            if kind != 4 and wanted != is_device and not self.pinned(address):
                raise Refused(INVALID_VALUE, f"the copy's {name} at {address:#x} is {'no ' if wanted else ''}memory of a device")
        stream = self.at(handle)
        staged = None
        if not from_device and not self.pinned(source) and stream.capture is None:
            staged = ctypes.string_at(source, size)

        def run() -> None:
            ctypes.memmove(target, source if staged is None else staged, size)

        self._work(stream, "a copy", [source] if from_device else [], [target] if to_device else [], run)
        if not to_device and not self.pinned(target) and stream.capture is None:
            self.engine.synchronize_stream(stream)

    def fill(self, address: int, value: int, size: int, handle: int) -> None:
        """Set bytes."""
        if size == 0:
            return
        on_device = self._device_range(address, size, "memset")
        if not on_device and not self.pinned(address):
            raise Refused(INVALID_VALUE, f"memset: {address:#x} is no memory of a device")
        stream = self.at(handle)
        self._work(stream, "memset", [], [address] if on_device else [], lambda: _set(address, value & 0xFF, size))

    def _work(self, stream: Stream, label: str, reads: Sequence[int], writes: Sequence[int], run: Callable[[], None]) -> None:
        self.engine.submit(stream, label, self._uses(reads, writes, label), run)

    def call(self, handle: int, function: Callable[[], None]) -> None:
        """Let the host do something when a stream's work so far is done."""
        self.engine.submit(self.at(handle), "a function of the host", (), function)

    # ------------------------------------------------------------ launches

    def start(
        self, handle: int, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int, stream: int, parameters: int
    ) -> None:
        """Launch a function."""
        kernel: Kernel = self.kernels.find(handle)
        device = self.need_context()
        if kernel.device != device:
            raise Refused(INVALID_HANDLE, f"{kernel.function.name} was loaded on cuda:{kernel.device}, the context is cuda:{device}'s")
        if shared > kernel.shared:
            raise Refused(
                INVALID_VALUE, f"{kernel.function.name}: {shared} bytes of dynamic shared memory, and its limit was left at {kernel.shared}"
            )
        with self.engine.lock:
            found = self.at(stream)
            if found.device_id != device:
                raise Refused(INVALID_HANDLE, f"{found.name} in a launch on cuda:{device}")
            if parameters == 0 and kernel.function.signature:
                raise Refused(INVALID_VALUE, f"{kernel.function.name} takes {len(kernel.function.signature)} parameters")
            table = parameters or ctypes.addressof((ctypes.c_void_p * 1)())
            self.launch(kernel.function, grid, block, table, shared)

    def replay(self, graph: Graph, handle: int) -> None:
        """Launch a graph."""
        for block, life in graph.lives.items():
            if not block.alive or block.life != life:
                raise KernelFault("a captured graph", f"memory of cuda:{block.device} that it works with was freed after the capture")
        stream = self.at(handle)
        if stream.capture is not None:
            self.spoil(stream, "a graph's launch (a child graph)")
        self.replays += 1
        order = self.engine.order(len(graph.nodes))
        self.engine.submit(stream, "a captured graph", list[Use](graph.uses), lambda: graph.run(order))


def _set(address: int, value: int, size: int) -> None:
    ctypes.memset(address, value, size)
