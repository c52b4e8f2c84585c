"""A stand-in for what `gradlab.backends.cuda.real` uses of CuPy: memory of the host, streams that note what they are given.

`log` holds the calls that matter, in order. Copies are done at once; events happen when `finish()` is called.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int, text: str = "an error") -> None:
        super().__init__(text)
        self.status = status


class CUDADriverError(RuntimeError):
    def __init__(self, status: int, text: str = "an error") -> None:
        super().__init__(text)
        self.status = status


class CompileException(Exception):
    """As CuPy's, which is no RuntimeError."""

    def __init__(self, msg: str, source: str, name: str, options: tuple[str, ...], backend: str = "nvrtc") -> None:
        self._msg = msg

    def __str__(self) -> str:
        return self._msg


class OutOfMemoryError(MemoryError):
    pass


class MemoryPointer:
    def __init__(self, mem: Any, offset: int) -> None:
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id


class UnownedMemory:
    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        self.ptr, self.size, self._owner, self.device_id = ptr, size, owner, max(device_id, 0)


class Block:
    """Memory of a pool."""

    def __init__(self, pool: Any, size: int, device: int) -> None:
        self._room = np.zeros(size + 16, np.uint8)
        self.ptr, self.size, self.device_id, self._pool = self._room.ctypes.data, size, device, pool
        pool.used[device] = pool.used.get(device, 0) + size

    def __del__(self) -> None:
        self._pool.used[self.device_id] -= self.size


class ndarray:
    def __init__(self, shape: tuple[int, ...], dtype: Any, memptr: MemoryPointer) -> None:
        self.shape, self.dtype, self.data, self.base = shape, np.dtype(dtype), memptr, None
        self.size = int(np.prod(shape))
        self.nbytes = self.size * self.dtype.itemsize


class Graph:
    def __init__(self, cupy: FakeCupy) -> None:
        self._cupy = cupy

    def launch(self, stream: Any = None) -> None:
        self._cupy.note("launch", stream.ptr)

    def __del__(self) -> None:
        self._cupy.note("graphDestroy")


class FakeCupy:
    """The module `cupy`. version, built: of the driver and of CuPy's runtime. limit: bytes of each device."""

    ndarray = ndarray

    def __init__(self, version: int = 13000, built: int = 13000, devices: int | Exception = 2, limit: int = 1 << 20) -> None:
        self.log: list[Any] = []
        self.sources: list[str] = []  # that were given to RawModule
        self.limit, self.cached = limit, 0
        self._device, self._allocator = 0, None
        self._status = 0  # of what was submitted: 0 done, 600 not yet, else an error
        self.strict, self.contexts = False, set()  # whether a launch needs a context; threads with devices that have one
        self.refusing = False  # whether the driver takes no cubin
        self._captured: list[Any] | None = None
        self.pool = self._new_pool()
        self.cuda = self._cuda(version, built, devices)
        self._current = {0: self.cuda.Stream.null, 1: self.cuda.Stream.null}

    def finish(self, done: bool = True) -> None:
        """Whether events and streams are done from now on."""
        self._status = 0 if done else 600

    def fail(self, status: int) -> None:
        """From now on queries say so, as after a kernel's fault."""
        self._status = status

    def note(self, *call: Any) -> None:
        self.log.append(call)

    def from_dlpack(self, source: Any) -> Any:
        self.note("from_dlpack", source)
        return source

    def get_default_memory_pool(self) -> Any:
        return self.pool

    def RawModule(self, *, code: str, options: tuple[str, ...], name_expressions: list[str]) -> Any:
        self.note("RawModule", options, tuple(name_expressions))
        self.sources.append(code)
        def function(name: str) -> Any:
            if "nonsense" in code:
                raise CompileException('k.cu(3): error: identifier "nonsense" is undefined', code, "k.cu", options)
            return SimpleNamespace(kernel=SimpleNamespace(ptr=hash(name) & 0xFFFF))

        return SimpleNamespace(get_function=function)

    def _new_pool(self) -> Any:
        outer = self

        class MemoryPool:
            def __init__(self) -> None:
                self.used: dict[int, int] = {}
                self.limit = 0

            def malloc(self, size: int) -> MemoryPointer:
                room = min(outer.limit, self.limit or outer.limit)
                if sum(self.used.values()) + outer.cached + size > room:
                    raise OutOfMemoryError(f"out of memory allocating {size} bytes")
                outer.note("malloc", size, "pool" if self is outer.pool else "arena")
                return MemoryPointer(Block(self, size, outer._device), 0)

            def used_bytes(self) -> int:
                return self.used.get(outer._device, 0)

            def total_bytes(self) -> int:
                return self.used_bytes() + (outer.cached if self is outer.pool else 0)

            def free_all_blocks(self) -> None:
                outer.note("free_all_blocks", outer._device)
                outer.cached = 0

            def set_limit(self, size: int) -> None:
                self.limit = size

            def get_limit(self) -> int:
                return self.limit

        self._pool_type = MemoryPool
        return MemoryPool()

    def _cuda(self, version: int, built: int, devices: int | Exception) -> Any:
        outer = self

        def count() -> int:
            if isinstance(devices, Exception):
                raise devices
            return devices

        def move(target: int, source: int, size: int, kind: int, stream: int) -> None:
            outer.note("memcpyAsync", size, kind, stream)
            ctypes.memmove(target, source, size)

        def fill(target: int, value: int, size: int, stream: int) -> None:
            outer.note("memsetAsync", value, size, stream)
            ctypes.memset(target, value, size)

        def info() -> tuple[int, int]:
            outer.contexts.add((threading.get_ident(), outer._device))
            return outer.limit - sum(outer.pool.used.values()) - outer.cached, outer.limit

        def launch(*arguments: Any) -> None:
            outer.note("launchKernel", *arguments)
            if outer.strict and (threading.get_ident(), outer._device) not in outer.contexts:
                raise CUDADriverError(201, "CUDA_ERROR_INVALID_CONTEXT: invalid device context")

        runtime = SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError, driverGetVersion=lambda: version, runtimeGetVersion=lambda: built, getDeviceCount=count,
            getDevice=lambda: outer._device, setDevice=lambda index: setattr(outer, "_device", index), memcpyAsync=move, memsetAsync=fill,
            memcpyHostToDevice=1, memcpyDeviceToHost=2, memcpyDeviceToDevice=3,
            memGetInfo=info,
            getDeviceProperties=lambda index: {"name": b"a GPU", "major": 9, "minor": 0},
            deviceSynchronize=lambda: outer.note("deviceSynchronize"),
            eventQuery=lambda event: outer._status, streamQuery=lambda stream: outer._status,  # they return the status, whatever it is
        )  # fmt: skip
        driver = SimpleNamespace(
            CUDADriverError=CUDADriverError, launchKernel=launch,
            funcSetAttribute=lambda *arguments: outer.note("funcSetAttribute", *arguments),
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
        )

        class Module:
            def load(self, cubin: bytes) -> None:
                outer.note("moduleLoadData", len(cubin))
                if outer.strict and (threading.get_ident(), outer._device) not in outer.contexts:
                    raise CUDADriverError(201, "CUDA_ERROR_INVALID_CONTEXT: invalid device context")
                if outer.refusing:
                    raise CUDADriverError(200, "CUDA_ERROR_INVALID_IMAGE: device kernel image is invalid")
                self._cubin = cubin

            def get_function(self, name: str) -> Any:
                assert name.encode() in self._cubin
                return SimpleNamespace(ptr=hash(name) & 0xFFFF)

        class Event:
            def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
                self.timing, self.device, self.ptr = not disable_timing, outer._device, id(self)

            def record(self, stream: Any = None) -> None:
                outer.note("record", stream.ptr)

            @property
            def done(self) -> bool:
                return outer._status == 0

            def synchronize(self) -> None:
                outer.note("event.synchronize")

        class Stream:
            null: Any

            def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: Any = None) -> None:
                self.ptr = 0 if null else id(self)
                self.device_id = -1 if null else outer._device
                self.arguments = (non_blocking, priority)

            def __eq__(self, other: object) -> bool:
                return isinstance(other, Stream) and self.ptr == other.ptr

            def __hash__(self) -> int:
                return self.ptr

            def use(self) -> Any:
                if self.device_id not in (-1, outer._device):
                    raise RuntimeError("The device that the stream is created on does not match with the current device")
                outer._current[outer._device] = self
                return self

            @property
            def done(self) -> bool:
                return outer._status == 0

            def synchronize(self) -> None:
                outer.note("synchronize", self.ptr)

            def wait_event(self, event: Any) -> None:
                outer.note("wait_event", self.ptr)

            def begin_capture(self, mode: Any = None) -> None:
                outer._captured = []
                outer.note("begin_capture", mode)

            def is_capturing(self) -> bool:
                if outer._captured is not None and "spoiled" in outer._captured:
                    raise RuntimeError("the stream was capturing, but an error has invalidated the capture sequence")
                return outer._captured is not None

            def end_capture(self) -> Any:
                outer._captured, found = None, outer._captured
                outer.note("end_capture")
                if found is None or "spoiled" in found:
                    raise CUDARuntimeError(901, "cudaErrorStreamCaptureInvalidated")
                return Graph(outer)

        Stream.null = Stream(null=True)

        class Device:
            def __init__(self, index: int) -> None:
                self.index, self.compute_capability = index, "90"

            def __enter__(self) -> Any:
                self._before, outer._device = outer._device, self.index
                return self

            def __exit__(self, *_: object) -> None:
                outer._device = self._before

        @contextmanager
        def using_allocator(allocator: Any = None) -> Any:
            before, outer._allocator = outer._allocator, allocator
            try:
                yield
            finally:
                outer._allocator = before

        def pinned(size: int) -> Any:
            outer.note("alloc_pinned_memory", size)
            made = (ctypes.c_char * size)()
            made.ptr = ctypes.addressof(made)  # type: ignore[attr-defined]
            return made

        return SimpleNamespace(
            runtime=runtime, driver=driver, compiler=SimpleNamespace(CompileException=CompileException),
            function=SimpleNamespace(Module=Module), memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError), MemoryPool=self._pool_type,
            alloc=lambda size: (outer._allocator or outer.pool.malloc)(size), using_allocator=using_allocator, alloc_pinned_memory=pinned,
            MemoryPointer=MemoryPointer, UnownedMemory=UnownedMemory, Event=Event, Stream=Stream, Device=Device,
            get_current_stream=lambda device_id=-1: outer._current[outer._device],
            get_elapsed_time=lambda start, end: 1.5,
        )  # fmt: skip
