"""`cupy.cuda.runtime`: what CuPy's module of the CUDA runtime offers, by the names that CuPy gives it, on the emulated GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradlab.backends.cuda.emulator.device.streams import Moment
from gradlab.testing.emulated_cuda.machine import PER_THREAD, BlockingStream, HandledEvent, Machine
from gradlab.testing.emulated_cuda.statuses import (
    CAPTURE_ISOLATION,
    CAPTURED_EVENT,
    INVALID_DEVICE,
    INVALID_HANDLE,
    INVALID_VALUE,
    NOT_READY,
    AsItIs,
    Refused,
    refusal,
)

DRIVER = 13020  # CUDA's version, as the driver says it
NON_BLOCKING, DISABLE_TIMING = 1, 2
DEVICE_MEMORY, HOST_MEMORY, UNREGISTERED = 2, 1, 0

# cudaDeviceAttr: what is asked for of a device of compute capability 9.0.
ATTRIBUTES = {
    1: 1024, 2: 1024, 3: 1024, 4: 64, 5: 2**31 - 1, 6: 65535, 7: 65535, 8: 48 << 10, 9: 64 << 10, 10: 32, 11: 2**31 - 1, 12: 65536,
    13: 1_980_000, 15: 1, 16: 2, 19: 1, 31: 1, 36: 2_619_000, 37: 5120, 38: 50 << 20, 39: 2048, 41: 1, 75: 9, 76: 0, 78: 1, 81: 228 << 10,
    82: 65536, 97: 227 << 10, 106: 32,
}  # fmt: skip
WITHOUT_CONTEXT = {  # what makes no context current
    "getDevice", "getDeviceCount", "driverGetVersion", "getDeviceProperties", "deviceGetAttribute", "deviceCanAccessPeer", "check_status",
    "deviceGetPCIBusId", "deviceGetByPCIBusId", "streamIsCapturing", "profilerStart", "profilerStop",
}  # fmt: skip


class Runtime:
    """Its methods without an underscore are the module's functions. `module` is CuPy's own, for its classes."""

    def __init__(self, machine: Machine, module: Any) -> None:
        self._machine, self._module = machine, module

    # ------------------------------------------------------------ devices

    def driverGetVersion(self) -> int:
        return DRIVER

    def getDeviceCount(self) -> int:
        return self._machine.device_count()

    def getDevice(self) -> int:
        return self._machine.current_device()

    def setDevice(self, device: int) -> None:
        self._known(device)
        self._machine.set_device(device)
        self._machine.context = device

    def _known(self, device: int) -> None:
        if not 0 <= device < self._machine.device_count():
            raise Refused(INVALID_DEVICE, f"there are {self._machine.device_count()} devices, no cuda:{device}")

    def _ensure_context(self) -> None:
        self._machine.enter()

    def deviceSynchronize(self) -> None:
        machine, device = self._machine, self._machine.current_device()
        for stream in list(machine._capturing):
            if stream.device_id == device:
                machine.spoil(stream, "deviceSynchronize while a stream of the device is captured")
        machine.synchronize_device()

    def deviceGetAttribute(self, attrib: int, device: int) -> int:
        self._known(device)
        return ATTRIBUTES.get(attrib, 0)

    def getDeviceProperties(self, device: int) -> dict[str, Any]:
        self._known(device)
        found = ATTRIBUTES
        return {
            "name": self._machine.device_name(device).encode(), "totalGlobalMem": self._machine.memory(device).total,
            "major": found[75], "minor": found[76], "warpSize": found[10], "maxThreadsPerBlock": found[1],
            "maxThreadsDim": (found[2], found[3], found[4]), "maxGridSize": (found[5], found[6], found[7]),
            "sharedMemPerBlock": found[8], "sharedMemPerBlockOptin": found[97], "sharedMemPerMultiprocessor": found[81],
            "regsPerBlock": found[12], "regsPerMultiprocessor": found[82], "totalConstMem": found[9], "multiProcessorCount": found[16],
            "maxThreadsPerMultiProcessor": found[39], "maxBlocksPerMultiProcessor": found[106], "l2CacheSize": found[38],
            "memoryBusWidth": found[37], "clockRate": found[13], "memoryClockRate": found[36], "concurrentKernels": 1,
            "canMapHostMemory": 1, "unifiedAddressing": 1, "managedMemory": 0, "integrated": 0, "pciBusID": device + 1,
            "pciDeviceID": 0, "pciDomainID": 0, "uuid": bytes([device] * 16),
        }  # fmt: skip

    def deviceGetPCIBusId(self, device: int) -> str:
        self._known(device)
        return f"0000:{device + 1:02X}:00.0"

    def deviceCanAccessPeer(self, device: int, peerDevice: int) -> int:
        return 0

    def profilerStart(self) -> None:
        pass

    def profilerStop(self) -> None:
        pass

    # ------------------------------------------------------------ memory

    def malloc(self, size: int) -> int:
        return self._machine.allocate(size)

    def free(self, ptr: int) -> None:
        self._machine.free(ptr)

    def hostAlloc(self, size: int, flags: int) -> int:
        return self._machine.pin(size)

    def freeHost(self, ptr: int) -> None:
        self._machine.unpin(ptr)

    def memGetInfo(self) -> tuple[int, int]:
        used = self._machine.memory(self._machine.current_device())
        return used.total - used.allocated, used.total

    def memcpy(self, dst: int, src: int, size: int, kind: int) -> None:
        self._machine.move(dst, src, size, kind, 0)
        self.streamSynchronize(0)

    def memcpyAsync(self, dst: int, src: int, size: int, kind: int, stream: int) -> None:
        self._machine.move(dst, src, size, kind, stream)

    def memcpyPeer(self, dst: int, dstDevice: int, src: int, srcDevice: int, size: int) -> None:
        self._machine.move(dst, src, size, 3, 0)
        self.streamSynchronize(0)

    def memcpyPeerAsync(self, dst: int, dstDevice: int, src: int, srcDevice: int, size: int, stream: int) -> None:
        self._machine.move(dst, src, size, 3, stream)

    def memset(self, ptr: int, value: int, size: int) -> None:
        self._machine.fill(ptr, value, size, 0)

    def memsetAsync(self, ptr: int, value: int, size: int, stream: int) -> None:
        self._machine.fill(ptr, value, size, stream)

    def pointerGetAttributes(self, ptr: int) -> Any:
        block = self._machine.block(ptr)
        kind = UNREGISTERED if block is None else DEVICE_MEMORY
        if block is None and self._machine.pinned(ptr):
            kind = HOST_MEMORY
        device = block.device if block is not None else self._machine.current_device() if kind == HOST_MEMORY else -2
        return self._module.PointerAttributes(device, ptr if kind else 0, ptr if kind != DEVICE_MEMORY else 0, kind)

    def pointerGetMemoryType(self, ptr: int) -> int:
        found: int = self.pointerGetAttributes(ptr).type
        return found

    # ------------------------------------------------------------ streams

    def streamCreate(self) -> int:
        return self._machine.create_stream(non_blocking=False)

    def streamCreateWithFlags(self, flags: int) -> int:
        return self._machine.create_stream(bool(flags & NON_BLOCKING))

    def streamCreateWithPriority(self, flags: int, priority: int) -> int:
        return self._machine.create_stream(bool(flags & NON_BLOCKING))

    def streamGetFlags(self, stream: int) -> int:
        return 0 if stream <= PER_THREAD or isinstance(self._machine.stream(stream), BlockingStream) else NON_BLOCKING

    def streamGetPriority(self, stream: int) -> int:
        return 0

    def streamDestroy(self, stream: int) -> None:
        self._machine.streams.take(stream)

    def streamSynchronize(self, stream: int) -> None:
        found = self._machine.at(stream)
        self._machine.wait_for_no_capture(found, "streamSynchronize")
        self._machine.engine.synchronize_stream(found)

    def streamQuery(self, stream: int) -> int:
        return self._status(lambda: self._stream_done(stream))

    def _stream_done(self, stream: int) -> bool:
        found = self._machine.at(stream)
        self._machine.wait_for_no_capture(found, "streamQuery")
        return self._machine.engine.stream_done(found)

    def _status(self, done: Callable[[], bool]) -> int:
        """As CuPy's functions that ask: the status is returned, whatever it is."""
        try:
            return 0 if done() else NOT_READY
        except (Refused, RuntimeError) as error:
            return refusal(error).status

    def streamWaitEvent(self, stream: int, event: int, flags: int = 0) -> None:
        found, what = self._machine.at(stream), self._machine.events.find(event)
        try:
            self._machine.engine.wait(found, what)
        except RuntimeError as error:
            if found.capture is not None:
                found.capture.broken = str(error)
            raise Refused(CAPTURE_ISOLATION, str(error)) from None

    def launchHostFunc(self, stream: int, callback: Callable[[Any], Any], arg: Any) -> None:
        def run() -> None:
            callback(arg)

        self._machine.call(stream, run)

    def _launchHostFuncUnmanaged(self, stream: int, function: tuple[Callable[[Any], Any], Any]) -> None:
        callback, arg = function
        self.launchHostFunc(stream, callback, arg)

    def streamAddCallback(self, stream: int, callback: Callable[[int, int, Any], Any], arg: Any, flags: int = 0) -> None:
        def run() -> None:
            callback(stream, 0, arg)

        self._machine.call(stream, run)

    def streamBeginCapture(self, stream: int, mode: int = 2) -> None:
        self._machine.begin(self._machine.stream(stream), mode)

    def streamEndCapture(self, stream: int) -> int:
        return self._machine.end(self._machine.stream(stream))

    def streamIsCapturing(self, stream: int) -> int:
        found = self._machine.stream(stream).capture
        if found is not None and found.broken is not None:
            raise AsItIs("the stream was capturing, but an error has invalidated the capture sequence")
        return int(found is not None)

    # ------------------------------------------------------------ events

    def eventCreate(self) -> int:
        return self.eventCreateWithFlags(0)

    def eventCreateWithFlags(self, flags: int) -> int:
        return self._machine.events.give(HandledEvent(self._machine.current_device(), not flags & DISABLE_TIMING))

    def eventDestroy(self, event: int) -> None:
        self._machine.events.take(event)

    def eventRecord(self, event: int, stream: int) -> None:
        found, what = self._machine.at(stream), self._machine.events.find(event)
        if found.device_id != what.device:
            raise Refused(INVALID_HANDLE, f"an event of cuda:{what.device} is recorded in {found.name}")
        self._machine.engine.record(what, found)

    def eventQuery(self, event: int) -> int:
        return self._status(lambda: self._machine.engine.event_done(self._recorded(event)))

    def eventSynchronize(self, event: int) -> None:
        self._machine.engine.synchronize_event(self._recorded(event))

    def _recorded(self, event: int) -> HandledEvent:
        found: HandledEvent = self._machine.events.find(event)
        if found.when is not None and not isinstance(found.when, Moment):
            raise Refused(CAPTURED_EVENT, "the event was recorded in a capture, where nothing runs")
        return found

    def eventElapsedTime(self, start: int, end: int) -> float:
        first, last = self._recorded(start), self._recorded(end)
        if not (first.timing and last.timing) or first.when is None or last.when is None:
            raise Refused(INVALID_HANDLE, "an event without timing, or one that was never recorded")
        for event in (first, last):
            if not self._machine.engine.event_done(event):
                raise Refused(NOT_READY, "an event has not happened")
        return (last.time - first.time) * 1e3

    # ------------------------------------------------------------ graphs

    def graphInstantiate(self, graph: int) -> int:
        return self._machine.executables.give(self._machine.graphs.find(graph))

    def graphDestroy(self, graph: int) -> None:
        self._machine.graphs.take(graph)

    def graphExecDestroy(self, graphExec: int) -> None:
        self._machine.executables.take(graphExec)

    def graphLaunch(self, graphExec: int, stream: int) -> None:
        self._machine.replay(self._machine.executables.find(graphExec), stream)

    def graphUpload(self, graphExec: int, stream: int) -> None:
        self._machine.executables.find(graphExec)

    def graphDebugDotPrint(self, graph: int, path: str, flags: int) -> None:
        found = self._machine.graphs.find(graph)
        lines = [f'n{number} [label="{node.label}"];' for number, node in enumerate(found.nodes)]
        lines += [f"n{earlier} -> n{number};" for number, node in enumerate(found.nodes) for earlier in sorted(node.after)]
        try:
            Path(path).write_text("digraph captured {\n" + "\n".join(lines) + "\n}\n", encoding="utf-8")
        except OSError as error:
            raise Refused(INVALID_VALUE, str(error)) from None
