"""The real GPU, through CuPy: its memory pool, its compiler with its cache on disk, its streams; launches go straight to the CUDA driver.

It is loaded when a CUDA device is first asked for, and imports cupy by `cupy_module.py`.
"""

from __future__ import annotations

import logging
import operator
import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab import dlpack
from gradlab.backends.cuda.captures import Captures
from gradlab.backends.cuda.cupy_module import installed
from gradlab.backends.cuda.driver import CompileError, Forked, MemoryUse, out_of_memory
from gradlab.backends.cuda.prebuilt_kernels import CUPY_OPTIONS, DAMAGED, Prebuilt
from gradlab.backends.cuda.record_stream import Lingering
from gradlab.spec import count as elements

OPTIONS = CUPY_OPTIONS[:1]
NOT_READY = 600  # cudaErrorNotReady
_PLAIN = re.compile(r'[^"\\\n]+')
_log = logging.getLogger("gradlab.cuda")
_OF_STREAMS = (  # what asks a stream, an event or a graph itself
    "elapsed", "event_done", "launch_graph", "record_event", "stream_done", "synchronize_event", "synchronize_stream", "use_stream",
    "wait_event",
)  # fmt: skip


class RealFunction:
    """A compiled kernel: the driver's handle, and what keeps its module loaded."""

    __slots__ = ("_keep", "handle", "name", "room")

    def __init__(self, name: str, kernel: Any, keep: Any) -> None:
        self.name, self._keep = name, keep
        self.handle = kernel.ptr
        self.room = 48 << 10  # bytes of dynamic shared memory that a launch may ask for so far


class RealDriver(Captures):
    """CuPy's arrays and pool, the CUDA driver's launches."""

    name = "real"

    def __init__(self) -> None:
        super().__init__()
        cupy = installed()
        self.library = cupy
        self.array_type = cupy.ndarray
        self._cuda, self._runtime, self._driver = cupy.cuda, cupy.cuda.runtime, cupy.cuda.driver
        self._ndarray = cupy.ndarray
        self._launch = cupy.cuda.driver.launchKernel
        self._stream_of_thread = cupy.cuda.get_current_stream
        self._get_device = cupy.cuda.runtime.getDevice
        self._set_device = cupy.cuda.runtime.setDevice
        self._count = cupy.cuda.runtime.getDeviceCount()
        self._pool = cupy.get_default_memory_pool()
        self._capabilities: dict[int, tuple[int, int]] = {}
        self._malloc = cupy.cuda.alloc
        self.pointer: Callable[[Any], int] = operator.attrgetter("data.ptr")  # a third of a Python function's time
        self.device_of: Callable[[Any], int] = operator.attrgetter("data.device_id")
        self._error = cupy.cuda.runtime.CUDARuntimeError
        self._refused = (self._error, cupy.cuda.driver.CUDADriverError)
        self._staged: deque[tuple[Any, Any]] = deque()  # pinned memory by the event of the copy from it
        self._archives: dict[int, Prebuilt] = {}  # by device
        self._modules: dict[Any, Any] = {}
        self._lock = threading.Lock()
        self._peaks = [0] * self._count
        self._lingering = Lingering(self, operator.attrgetter("data"))
        self._contexts = threading.local()  # devices whose context was made current in the thread
        self._tracking = False  # peaks cost each allocation a question to the pool: only once somebody has asked for one

    def forked(self) -> None:
        """In a process that was forked from this one."""
        refusing: Any = Forked()
        self._cuda = self._runtime = self._driver = self._pool = self._malloc = self._launch = refusing
        self._stream_of_thread = self._get_device = self._set_device = refusing
        for name in _OF_STREAMS:
            setattr(self, name, refusing)
        self._captures.clear()
        self._graphs.clear()

    # ------------------------------------------------------------ devices

    def device_count(self) -> int:
        return self._count

    def current_device(self) -> int:
        return self._get_device()

    def set_device(self, index: int) -> None:
        if not 0 <= index < self._count:
            raise RuntimeError(f"cuda:{index}: the CUDA devices are numbered from 0 to {self._count - 1}")
        self._set_device(index)

    def device_name(self, index: int) -> str:
        return self._runtime.getDeviceProperties(index)["name"].decode()

    def capability(self, index: int) -> tuple[int, int]:
        found = self._capabilities.get(index)
        if found is None:
            text = self._cuda.Device(index).compute_capability
            found = self._capabilities[index] = (int(text[:-1]), int(text[-1]))
        return found

    # ------------------------------------------------------------ memory

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        size = elements(shape) * dtype.itemsize
        if self._lingering.waiting and not self._captures:
            self._lingering.release()
        try:
            memory = self._malloc(size)
        except self._cuda.memory.OutOfMemoryError:
            memory = self._malloc_again(size)
        if self._tracking:
            device = self.current_device()
            self._peaks[device] = max(self._peaks[device], self._held()[0])
        return self._ndarray(shape, dtype, memory)

    def maker(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[], Any]:
        lingering = self._lingering.waiting
        failed = self._error
        malloc, array, full, size = self._malloc, self._ndarray, self._cuda.memory.OutOfMemoryError, elements(shape) * dtype.itemsize

        def make() -> Any:
            if self._tracking or lingering:
                return self.empty(shape, dtype)
            try:
                return array(shape, dtype, malloc(size))
            except full:
                return array(shape, dtype, self._malloc_again(size))
            except failed:
                self._get_device()  # says so in a process that was forked
                raise

        return make

    def record_stream(self, array: Any, stream: Any) -> None:
        self._lingering.record(array, stream)

    def _malloc_again(self, size: int) -> Any:
        """After CuPy has given up: it frees the cached blocks only if the device is full, not if the pool's limit is reached."""
        device = self.current_device()
        if not self._captures:  # freeing waits for the device, which would break a capture
            self._lingering.release(wait=True)
            self._pool.free_all_blocks()
            try:
                return self._malloc(size)
            except self._cuda.memory.OutOfMemoryError:
                pass
        free, total = self._runtime.memGetInfo()
        used, reserved = self._held()
        limit = self._pool.get_limit()
        if limit:
            free, total = min(free, max(limit - reserved, 0)), min(total, limit)
        raise out_of_memory(device, size, used, reserved - used, free, total) from None

    def _held(self) -> tuple[int, int]:
        """Bytes of the current device in arrays, and in pools."""
        pools = [self._pool, *(arena.pool for arena in self._arenas)]
        return sum(pool.used_bytes() for pool in pools), sum(pool.total_bytes() for pool in pools)

    def upload(self, host: np.ndarray[Any, Any]) -> Any:
        """Through pinned memory, so that the copy does not wait for the device's earlier work."""
        self._not_in_capture("a copy from the host (gl.tensor(…), .cuda())")
        made = self.empty(host.shape, host.dtype)
        self.write(made, host)
        return made

    def to_dlpack(self, array: Any, stream: int | None, **options: Any) -> Any:
        return array.__dlpack__(stream=stream, **options)  # the consumer's stream waits for the current one

    def from_dlpack(self, source: Any) -> Any:
        """The current stream waits for the other library's work. Of bfloat16, which CuPy's protocol has not, the bits are taken."""
        try:
            return self.library.from_dlpack(source)
        except (BufferError, RuntimeError, TypeError, ValueError):
            carrier = dlpack.Carrier(source)
            array = self.library.from_dlpack(carrier)
            return carrier.taken(array)

    def write(self, target: Any, host: np.ndarray[Any, Any]) -> None:
        self._not_in_capture("a copy from the host (gl.tensor(…), .cuda())")
        size = host.nbytes
        if size:
            stream = self._stream_of_thread()
            pinned = self._cuda.alloc_pinned_memory(size)
            np.copyto(np.frombuffer(pinned, host.dtype, host.size).reshape(host.shape), host)
            self._runtime.memcpyAsync(target.data.ptr, pinned.ptr, size, self._runtime.memcpyHostToDevice, stream.ptr)
            self._keep_until_done(stream, pinned)

    def _keep_until_done(self, stream: Any, pinned: Any) -> None:
        """CuPy's pinned pool gives memory out again as soon as nobody holds it: hold it until the copy is done."""
        event = self._cuda.Event(disable_timing=True)
        event.record(stream)
        with self._lock:
            staged = self._staged
            staged.append((event, pinned))
            while staged and staged[0][0].done:
                staged.popleft()

    def download(self, array: Any) -> np.ndarray[Any, Any]:
        self._not_in_capture("a copy to the host (.cpu(), .item(), a row that runs on the host)")
        host = np.empty(array.shape, array.dtype)
        if host.nbytes:
            stream = self._stream_of_thread()
            self._runtime.memcpyAsync(host.ctypes.data, array.data.ptr, host.nbytes, self._runtime.memcpyDeviceToHost, stream.ptr)
            stream.synchronize()
        return host

    def shared_words(self, number: int) -> tuple[np.ndarray[Any, Any], Any]:
        self._not_in_capture("allocating the host's memory")
        memory = self._cuda.alloc_pinned_memory(number * 8)
        host = np.frombuffer(memory, np.uint64, number)
        host[...] = 0
        device = self._cuda.MemoryPointer(self._cuda.UnownedMemory(memory.ptr, number * 8, memory), 0)
        return host, self._ndarray((number,), np.dtype(np.uint64), device)

    def fill_zero(self, array: Any) -> None:
        if array.nbytes:
            self._runtime.memsetAsync(array.data.ptr, 0, array.nbytes, self._stream_of_thread().ptr)

    def copy(self, target: Any, source: Any) -> None:
        if target.nbytes:
            self._runtime.memcpyAsync(
                target.data.ptr, source.data.ptr, target.nbytes, self._runtime.memcpyDeviceToDevice, self._stream_of_thread().ptr
            )

    def memory(self, index: int) -> MemoryUse:
        with self._cuda.Device(index):
            used, reserved = self._held()
            _, total = self._runtime.memGetInfo()
        peak = max(self._peaks[index], used) if self._tracking else reserved  # before: what the pool ever took, an upper bound
        return MemoryUse(used, peak, reserved, total)

    def reset_peak(self, index: int) -> None:
        self._tracking = True
        with self._cuda.Device(index):
            self._peaks[index] = self._held()[0]

    def free_cached(self) -> None:
        self._not_in_capture("empty_cache")
        for index in range(self._count):  # CuPy frees those of the current device
            with self._cuda.Device(index):
                self._pool.free_all_blocks()

    def limit_memory(self, index: int, size: int) -> None:
        with self._cuda.Device(index):
            self._pool.set_limit(size=max(size, 1))  # 0 is no limit

    # ------------------------------------------------------------ kernels

    def compile(self, source: str, names: Sequence[str], label: str) -> dict[str, RealFunction]:
        """From archives of what was compiled before; else by NVRTC with CuPy's cache on disk. The source holds our headers, so that a
        changed one is noticed by both."""
        self._not_in_capture(f"loading a kernel ({label})")
        ready = self._prebuilt(source, names)
        if ready is not None:
            return ready
        refused = self._cuda.compiler.CompileException
        named = f'#line 1 "{label}"\n{source}' if _PLAIN.fullmatch(label) else source  # messages name that, not a file of CuPy's
        module = self.library.RawModule(code=named, options=OPTIONS, name_expressions=list(names))
        try:
            kernels = {name: module.get_function(name) for name in names}
        except refused as error:
            raise CompileError(f"{label} does not compile:\n{error}") from None
        return {name: RealFunction(name, kernel.kernel, kernel) for name, kernel in kernels.items()}

    def _prebuilt(self, source: str, names: Sequence[str]) -> dict[str, RealFunction] | None:
        """Kernels that need no compiler. None where there are none, or where the driver does not take what another compiler has made."""
        device = self.current_device()
        if device not in self._archives:
            self._archives[device] = Prebuilt(self.capability(device))
        found = self._archives[device].find(source, names)
        if found is None:
            return None
        self._first_in_thread()  # the driver loads modules into a context that is there
        made = {}
        for name, cubin in found.items():
            key = device, cubin.archive.path, cubin.member
            try:
                module = self._modules.get(key)
                if module is None:
                    module = self._cuda.function.Module()
                    module.load(cubin.archive.read(cubin.member))
                    self._modules[key] = module
                made[name] = RealFunction(name, module.get_function(cubin.lowered), module)
            except (*self._refused, *DAMAGED) as error:
                _log.info("%s cannot be used on cuda:%d, kernels are compiled: %s", cubin.archive.path, device, error)
                self._archives[device].archives.remove(cubin.archive)
                return self._prebuilt(source, names)
        return made

    def launch(self, function: RealFunction, grid: tuple[int, int, int], block: tuple[int, int, int], parameters: int, shared: int) -> None:
        try:
            if shared > function.room:
                self._driver.funcSetAttribute(function.handle, self._driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
                function.room = shared
            self._launch(function.handle, *grid, *block, shared, self._stream_of_thread().ptr, parameters, 0)
        except self._refused:
            if not self._first_in_thread():
                raise
            self.launch(function, grid, block, parameters, shared)

    def _first_in_thread(self) -> bool:
        """After the driver has refused a launch: whether this thread had no context yet, which it has now.

        CuPy asks before each launch; so do the runtime's calls, not the driver's. To be refused once costs later launches nothing.
        """
        device, known = self._get_device(), self._contexts.__dict__
        if device in known.setdefault("devices", set()):
            return False
        self._runtime.memGetInfo()  # the runtime makes the device's context current in this thread
        known["devices"].add(device)
        return True

    def launcher(
        self, function: RealFunction, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int
    ) -> Callable[[int], None]:
        if shared > 48 << 10:
            return lambda parameters: self.launch(function, grid, block, parameters, shared)
        launch, handle, stream, (gx, gy, gz), (bx, by, bz) = self._launch, function.handle, self._stream_of_thread, grid, block
        refused = self._refused

        def run(parameters: int) -> None:
            try:
                launch(handle, gx, gy, gz, bx, by, bz, shared, stream().ptr, parameters, 0)
            except refused:
                if not self._first_in_thread():
                    raise
                launch(handle, gx, gy, gz, bx, by, bz, shared, stream().ptr, parameters, 0)

        return run

    def synchronize(self) -> None:
        self._not_in_capture("synchronize")
        self._runtime.deviceSynchronize()

    # ------------------------------------------------------------ streams and events

    def new_stream(self, priority: int) -> Any:
        return self._cuda.Stream(non_blocking=True, priority=priority)

    def default_stream(self) -> Any:
        return self._cuda.Stream.null

    def current_stream(self) -> Any:
        return self._stream_of_thread()

    def use_stream(self, stream: Any) -> None:
        stream.use()

    def stream_done(self, stream: Any) -> bool:
        self._not_in_capture("query")
        return self._happened(self._runtime.streamQuery(stream.ptr))

    def synchronize_stream(self, stream: Any) -> None:
        self._not_in_capture("synchronize")
        stream.synchronize()

    def new_event(self, timing: bool) -> Any:
        return self._cuda.Event(disable_timing=not timing)

    def record_event(self, event: Any, stream: Any) -> None:
        event.record(stream)

    def event_done(self, event: Any) -> bool:
        self._not_in_capture("query")
        return self._happened(self._runtime.eventQuery(event.ptr))

    def _happened(self, status: int) -> bool:
        """What a query's status says. CuPy's `done` takes an error for "not yet": whoever asks until it is would ask for ever."""
        if status in (0, NOT_READY):
            return status == 0
        raise self._error(status)

    def synchronize_event(self, event: Any) -> None:
        self._not_in_capture("synchronize")
        event.synchronize()

    def wait_event(self, stream: Any, event: Any) -> None:
        stream.wait_event(event)

    def elapsed(self, start: Any, end: Any) -> float:
        return self._cuda.get_elapsed_time(start, end)
