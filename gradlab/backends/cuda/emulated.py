"""The emulated GPU: NumPy memory behind a real device's rules, kernels compiled as C++ and run thread by thread, streams that run late.

Chosen by `GRADLAB_CUDA=emulated` (two devices) or `emulated:N`. It needs a C++ compiler and says so where there is none. Its parts are in
`emulator/` (kernels) and `emulator/device/` (memory, streams, captures). What a real GPU would get wrong without a word raises
KernelFault. Variables, read when the driver is made:

GRADLAB_EMULATED_STREAMS   when work runs: late (at the last moment), random, or eager (at once); see `emulator/device/streams.py`.
GRADLAB_EMULATED_ORDER     in which order a kernel's threads run: forward, reverse, random, or warps; see `emulator/function.py`.
GRADLAB_EMULATED_MEMORY    bytes that each device has.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from gradlab import dlpack
from gradlab.backends.cuda.driver import Forked, MemoryUse
from gradlab.backends.cuda.emulator import EmulatedFunction, KernelFault, compile_kernels
from gradlab.backends.cuda.emulator.device.array import LIBRARY, EmulatedArray
from gradlab.backends.cuda.emulator.device.capture import Arena, Capture, Graph
from gradlab.backends.cuda.emulator.device.hazards import Use
from gradlab.backends.cuda.emulator.device.launches import Arguments, check_kinds, uses_of
from gradlab.backends.cuda.emulator.device.pool import Block, DeviceMemory, Pool
from gradlab.backends.cuda.emulator.device.streams import Engine, Event, Stream
from gradlab.backends.cuda.emulator.guarded_memory import allocation, damage_around
from gradlab.backends.cuda.record_stream import Lingering
from gradlab.spec import count as elements

MEMORY = 8 << 30


class EmulatedDriver:
    """Work is checked when it is submitted and runs when somebody waits for it."""

    name = "emulated"
    array_type = EmulatedArray
    library = LIBRARY

    def __init__(self, devices: int = 2, memory: int | None = None, schedule: str | None = None) -> None:
        self._local = threading.local()
        self.launches = 0
        self.replays = 0  # launches of graphs
        self.order = os.environ.get("GRADLAB_EMULATED_ORDER", "forward")
        self.engine = Engine(os.environ.get("GRADLAB_EMULATED_STREAMS", "late") if schedule is None else schedule)
        limit = int(os.environ.get("GRADLAB_EMULATED_MEMORY", str(MEMORY))) if memory is None else memory
        self._memory = [DeviceMemory(index, limit) for index in range(devices)]
        self._pools = [Pool(device) for device in self._memory]
        self._defaults = [self.engine.new_stream(index, True) for index in range(devices)]
        self._lingering = Lingering(self, lambda array: array._host)
        self._shared: list[tuple[int, int, np.ndarray[Any, Any]]] = []  # memory of the host that kernels may reach

    def forked(self) -> None:
        """As on a real GPU, which a forked process has lost."""
        refusing: Any = Forked()
        self.engine = refusing

    # ------------------------------------------------------------ devices

    def device_count(self) -> int:
        return len(self._memory)

    def current_device(self) -> int:
        return getattr(self._local, "device", 0)

    def set_device(self, index: int) -> None:
        count = len(self._memory)
        if not 0 <= index < count:
            raise RuntimeError(f"cuda:{index}: there are {count} (emulated) devices, cuda:0 to cuda:{count - 1}")
        self._local.device = index

    def device_name(self, index: int) -> str:
        return "emulated GPU"

    def capability(self, index: int) -> tuple[int, int]:
        return (9, 0)

    def synchronize(self) -> None:
        self._not_in_capture("synchronize")
        device = self.current_device()
        self.engine.synchronize_device(device)
        for block in list(self._memory[device].blocks.values()):
            damage = damage_around(block.address)
            if damage:
                raise KernelFault("a kernel", f"{damage} of cuda:{device}, found by synchronize")

    # ------------------------------------------------------------ memory

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> EmulatedArray:
        device, stream = self.current_device(), self.current_stream()
        size = elements(shape) * dtype.itemsize
        if self._lingering.waiting and stream.capture is None and self._capture() is None:
            self._lingering.release()
        with self.engine.lock:
            capture, pool, free = stream.capture, self._pools[device], self.free_cached
            if capture is not None or self._capture() is not None:
                if capture is None:
                    self._refuse("memory is allocated in a stream that is not captured; let that stream wait for the captured one first")
                if capture.pool is None:
                    self._refuse("memory is allocated in a capture without an arena; capture with gl.cuda.graph, or allocate before")
                pool = capture.pool
            life = pool.malloc(size, stream.ptr, dtype, None if capture is not None else free)
        return EmulatedArray(life.array(shape, dtype), device)

    def record_stream(self, array: EmulatedArray, stream: Stream) -> None:
        self._lingering.record(array, stream)

    def maker(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[], EmulatedArray]:
        return lambda: self.empty(shape, dtype)

    def pointer(self, array: EmulatedArray) -> int:
        host = array._host
        return host.ctypes.data if host.size else 0  # nothing may be read there

    def device_of(self, array: EmulatedArray) -> int:
        return array._device

    def upload(self, host: np.ndarray[Any, Any]) -> EmulatedArray:
        self._not_in_capture("a copy from the host (gl.tensor(…), .cuda())")
        made = self.empty(host.shape, host.dtype)
        self.write(made, host)
        return made

    def to_dlpack(self, array: EmulatedArray, stream: int | None, **options: Any) -> Any:
        """For what keeps to the protocol in this process. Nobody who reads is in a stream of ours, so its work is waited for."""
        if stream is None:
            raise BufferError(
                "__dlpack__: this tensor is on an emulated GPU, whose memory no GPU can reach; use .cpu(). (What stands in for a library "
                "of CUDA in a test says stream=, as such libraries do.)"
            )
        if stream != -1:  # by which a consumer says that it has seen to that
            self.engine.synchronize_stream(self.current_stream())
        capsule = array._host.__dlpack__(**options)
        found = dlpack.described(capsule)
        found.device_type, found.device_id = dlpack.CUDA, array._device
        return capsule

    def from_dlpack(self, source: Any) -> EmulatedArray:
        """Of memory of this emulated GPU. Another library's is asked, too, and refused by where it lies."""
        carrier = dlpack.Carrier(source, stream=self.current_stream().ptr or 1, on_host=True)
        reason: Exception | None = None
        try:
            made = carrier.taken(np.from_dlpack(carrier))
            known = made.size == 0 or self._find(carrier.address) is not None
        except Exception as error:
            known, reason = False, error
        if not known:
            name = type(source).__name__
            text = f"from_dlpack: a {name} lies on a real GPU, which the emulated one does not reach; copy it to the CPU"
            raise BufferError(text) from reason
        return EmulatedArray(made, dlpack.device_of(source)[1])

    def write(self, target: EmulatedArray, host: np.ndarray[Any, Any]) -> None:
        self._not_in_capture("a copy from the host (gl.tensor(…), .cuda())")
        if host.nbytes:
            staged, to, size = np.ascontiguousarray(host).copy(), self.pointer(target), host.nbytes
            self._submit("a copy from the host", (), (to,), lambda: _move(to, staged.ctypes.data, size))

    def download(self, array: EmulatedArray) -> np.ndarray[Any, Any]:
        self._not_in_capture("a copy to the host (.cpu(), .item(), a row that runs on the host)")
        host = np.empty(array.shape, array.dtype)
        if host.nbytes:
            source = self.pointer(array)
            self._submit("a copy to the host", (source,), (), lambda: _move(host.ctypes.data, source, host.nbytes))
            self.engine.synchronize_stream(self.current_stream())
        return host

    def shared_words(self, number: int) -> tuple[np.ndarray[Any, Any], EmulatedArray]:
        self._not_in_capture("allocating the host's memory")
        host = np.zeros(number, np.uint64)
        self._shared.append((host.ctypes.data, host.nbytes, host))
        return host, EmulatedArray(host, 0)

    def fill_zero(self, array: EmulatedArray) -> None:
        target, size = self.pointer(array), array.nbytes
        if size:
            self._submit("fill_zero", (), (target,), lambda: ctypes.memset(target, 0, size))

    def copy(self, target: EmulatedArray, source: EmulatedArray) -> None:
        to, at, size = self.pointer(target), self.pointer(source), target.nbytes
        if size:
            self._submit("a copy", (at,), (to,), lambda: _move(to, at, size))

    def memory(self, index: int) -> MemoryUse:
        with self.engine.lock:
            return self._memory[index].use()

    def reset_peak(self, index: int) -> None:
        with self.engine.lock:
            self._memory[index].peak = self._memory[index].use().allocated

    def free_cached(self) -> None:
        """Freeing waits for the device, as cudaFree does."""
        self._not_in_capture("empty_cache")
        with self.engine.lock:
            self._lingering.release(wait=True)
            for index, pool in enumerate(self._pools):
                self.engine.synchronize_device(index)
                pool.release()

    def limit_memory(self, index: int, size: int) -> None:
        self._memory[index].limit = size

    # ------------------------------------------------------------ kernels

    def compile(self, source: str, names: Sequence[str], label: str) -> dict[str, EmulatedFunction]:
        self._not_in_capture(f"loading a kernel ({label})")
        return compile_kernels(source, names, label=label)

    def launch(
        self, function: EmulatedFunction, grid: tuple[int, int, int], block: tuple[int, int, int], parameters: int, shared: int
    ) -> None:
        function.max_dynamic_shared_size_bytes = max(function.max_dynamic_shared_size_bytes, shared)  # as the real driver asks for it
        function.check_launch(grid, block, shared)
        check_kinds(function, parameters)
        arguments = Arguments(function.signature, parameters)
        uses = uses_of(function, arguments, self.current_device(), self._find, self._on_host)
        order = self.order
        self.launches += 1

        def run() -> None:
            function.launch(grid, block, arguments.address, shared, order=order)
            for use in uses:
                damage = damage_around(use.address)
                if damage:
                    raise KernelFault(function.name, damage)

        self.engine.submit(self.current_stream(), function.name, uses, run)

    def launcher(
        self, function: EmulatedFunction, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int
    ) -> Callable[[int], None]:
        return lambda parameters: self.launch(function, grid, block, parameters, shared)

    def submit(self, label: str, reads: Sequence[int], writes: Sequence[int], run: Callable[[], None], stream: int) -> None:
        """Work of a library, by the addresses that it reads and writes, in the stream of a handle."""
        found = self.engine.find(self.current_device(), stream)
        if found is None:
            raise KernelFault(label, f"{stream:#x} is no stream of cuda:{self.current_device()}")
        self.launches += 1
        self.engine.submit(found, label, self._uses(reads, writes, label), run)

    def _submit(self, label: str, reads: Sequence[int], writes: Sequence[int], run: Callable[[], Any]) -> None:
        self.engine.submit(self.current_stream(), label, self._uses(reads, writes, label), run)

    def _uses(self, reads: Sequence[int], writes: Sequence[int], label: str) -> list[Use]:
        found = []
        for addresses, writing in ((reads, False), (writes, True)):
            for address in addresses:
                block = self._find(address)
                if block is not None:
                    if not block.alive:
                        raise KernelFault(label, f"memory of cuda:{block.device} ({block.size} bytes) that was freed")
                    found.append(Use(block, address, writing))
        return found

    def _find(self, address: int) -> Block | None:
        place = allocation(address)
        if place is None:
            return None
        for device in self._memory:
            block = device.blocks.get(place[0])
            if block is not None:
                return block
        return None

    def _on_host(self, address: int) -> bool:
        return any(start <= address < start + size for start, size, _ in self._shared)

    # ------------------------------------------------------------ captures

    def begin_capture(self, stream: Stream, arena: Arena | None) -> None:
        with self.engine.lock:
            if stream.ptr == 0:
                raise RuntimeError("a capture cannot begin in the default stream; use gl.cuda.Stream(), as gl.cuda.graph does")
            if stream.capture is not None or self._capture() is not None:
                raise RuntimeError("a capture is going on already; end it first")
            self._local.capture = Capture(stream, arena)

    def end_capture(self, stream: Stream) -> Graph:
        with self.engine.lock:
            capture = stream.capture
            if capture is None or capture.origin is not stream:
                raise RuntimeError(f"end_capture: no capture began in {stream.name}")
            self._local.capture = None
            return Graph(capture.end(), capture.arena)

    def instantiate(self, captured: Graph) -> Graph:
        return captured

    def launch_graph(self, graph: Graph, stream: Stream) -> None:
        if stream.capture is not None:
            self._refuse("a graph is replayed; replay it outside")
        for block, life in graph.lives.items():
            if not block.alive or block.life != life:
                raise KernelFault(
                    "a captured graph",
                    f"it reads or writes memory of cuda:{block.device} ({block.size} bytes) that was freed after the capture: keep the "
                    "tensors that a captured step works with",
                )
        self.replays += 1
        order = self.engine.order(len(graph.nodes))
        self.engine.submit(stream, "a captured graph", graph.uses, lambda: graph.run(order))

    def new_arena(self) -> Arena:
        return Arena(Pool(self._memory[self.current_device()], lasting=True))

    def capture(self) -> Capture | None:
        return self.current_stream().capture

    def capturing(self) -> bool:
        return self.current_stream().capture is not None

    def _capture(self) -> Capture | None:
        return getattr(self._local, "capture", None)

    def _not_in_capture(self, what: str) -> None:
        if self._capture() is not None or self.current_stream().capture is not None:
            self._refuse(f"{what} is not possible: nothing runs before the graph is replayed. Do it before the capture, or after replaying")

    def _refuse(self, what: str) -> NoReturn:
        """Raise; a capture that goes on is spoiled, as on a GPU."""
        capture = self._capture() or self.current_stream().capture
        message = f"inside a CUDA graph's capture: {what}"
        if capture is not None:
            capture.broken = message
        raise RuntimeError(message)

    # ------------------------------------------------------------ streams and events

    def new_stream(self, priority: int) -> Stream:
        return self.engine.new_stream(self.current_device())

    def default_stream(self) -> Stream:
        return self._defaults[self.current_device()]

    def current_stream(self) -> Stream:
        device = self.current_device()
        chosen: dict[int, Stream] = self._local.__dict__.get("streams") or {}
        return chosen.get(device) or self._defaults[device]

    def use_stream(self, stream: Stream) -> None:
        if stream.device_id != self.current_device():
            raise RuntimeError(f"{stream.name} does not belong to the current device, cuda:{self.current_device()}")
        self._local.__dict__.setdefault("streams", {})[stream.device_id] = stream

    def stream_done(self, stream: Stream) -> bool:
        self._not_captured(stream, "query")
        return self.engine.stream_done(stream)

    def synchronize_stream(self, stream: Stream) -> None:
        self._not_captured(stream, "synchronize")
        self.engine.synchronize_stream(stream)

    def _not_captured(self, stream: Stream, what: str) -> None:
        if stream.capture is not None:
            self._refuse(f"{what} of a captured stream is not possible: nothing runs before the graph is replayed")

    def new_event(self, timing: bool) -> Event:
        return Event()

    def record_event(self, event: Event, stream: Stream) -> None:
        self.engine.record(event, stream)

    def event_done(self, event: Event) -> bool:
        return self.engine.event_done(event)

    def synchronize_event(self, event: Event) -> None:
        self.engine.synchronize_event(event)

    def wait_event(self, stream: Stream, event: Event) -> None:
        self.engine.wait(stream, event)

    def elapsed(self, start: Event, end: Event) -> float:
        return (end.time - start.time) * 1e3


def _move(target: int, source: int, size: int) -> None:
    ctypes.memmove(target, source, size)
