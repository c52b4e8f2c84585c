"""What the CUDA backend needs of a GPU: memory, copies, compiled functions, launches, streams.

Two drivers offer it: `real.py` (CuPy and the CUDA driver) and `emulated.py` (NumPy memory and kernels compiled as C++). Everything above,
the backend, the launch rules and the parity suite, is the same code for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

FORKED = (
    "CUDA cannot be used in a process that was forked after its parent had used CUDA: the GPU's context does not come along. In a "
    'DataLoader keep the dataset and its collate_fn on the CPU and move batches in the main process, batch.to("cuda"); or start the '
    'processes anew: multiprocessing_context="spawn" (DataLoader), gl.multiprocessing.get_context("spawn")'
)


class Forked:
    """What takes the place of a driver's parts in a process that was forked after CUDA came up, where a GPU answers no more."""

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(FORKED)

    def __call__(self, *_: Any) -> NoReturn:
        raise RuntimeError(FORKED)


class MemoryUse(NamedTuple):
    """Bytes of device memory."""

    allocated: int
    peak: int
    reserved: int  # with what the pool keeps for later
    total: int


def readable(size: int) -> str:
    """A number of bytes for people."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.2f} {unit}"
    return f"{size} bytes"


def out_of_memory(device: int, asked: int, allocated: int, cached: int, free: int, total: int) -> MemoryError:
    """The one error for memory that is not there."""
    return OutOfMemoryError(
        f"CUDA out of memory: cuda:{device} cannot give {readable(asked)}. It has {readable(total)} in all, of which {readable(free)} are "
        f"free; gradlab holds {readable(allocated)} in tensors and {readable(cached)} cached. Use a smaller batch, or free tensors that "
        "are no longer needed"
    )


class CompileError(RuntimeError):
    """The compiler refused a program; the message is the compiler's."""


class OutOfMemoryError(MemoryError, RuntimeError):
    """Device memory that is not there, also after cached blocks were freed. The process can go on."""


class Function(Protocol):
    """A compiled kernel."""

    name: str


class Driver(Protocol):
    """One kind of GPU. Arrays are of `array_type`: they have shape, dtype, strides (bytes), size, nbytes, and NumPy's view methods."""

    name: str
    array_type: type
    library: Any  # CuPy, or what views need of it: `lib.stride_tricks.as_strided`

    def device_count(self) -> int:
        """How many devices there are."""

    def current_device(self) -> int:
        """The device that new arrays go to."""

    def set_device(self, index: int) -> None:
        """Make a device current in this thread."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A C-contiguous array on the current device, from the memory pool; MemoryError in words a user understands."""

    def maker(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[], Any]:
        """`empty` for one shape and dtype, with all worked out that is the same each time."""

    def record_stream(self, array: Any, stream: Any) -> None:
        """Do not give the array's memory out again, once it is freed, before the stream's work of that moment is done."""

    def pointer(self, array: Any) -> int:
        """Device address of an array's first element."""

    def device_of(self, array: Any) -> int:
        """Index of the device that holds an array."""

    def upload(self, host: np.ndarray[Any, Any]) -> Any:
        """A copy on the current device."""

    def to_dlpack(self, array: Any, stream: int | None, **options: Any) -> Any:
        """A capsule of an array for work in the consumer's stream, of NumPy's dtypes. `options`: `max_version` and `copy`."""

    def from_dlpack(self, source: Any) -> Any:
        """An array over another library's memory of a GPU. BufferError where it cannot be shared."""

    def write(self, target: Any, host: np.ndarray[Any, Any]) -> None:
        """Copy a C-contiguous host array into a C-contiguous array of the same size, on the current stream; the host array may change
        as soon as this returns."""

    def download(self, array: Any) -> np.ndarray[Any, Any]:
        """A copy in host memory, after the work before it on the current stream."""

    def shared_words(self, number: int) -> tuple[np.ndarray[Any, Any], Any]:
        """Zeroed 64-bit words in host memory that every device can read and write: as a NumPy array, and as an array for kernels."""

    def fill_zero(self, array: Any) -> None:
        """Write zero bytes, on the current stream."""

    def copy(self, target: Any, source: Any) -> None:
        """Copy the bytes of one C-contiguous array into another of the same size, on the current stream."""

    def compile(self, source: str, names: Sequence[str], label: str) -> dict[str, Function]:
        """The kernels of those names (`name` of an extern "C" function, or a name expression such as `gradlab::softmax<float>`)."""

    def launch(self, function: Function, grid: tuple[int, int, int], block: tuple[int, int, int], parameters: int, shared: int) -> None:
        """Launch on the current stream. `parameters` is the address of a table of addresses, one for each parameter (cuLaunchKernel)."""

    def launcher(self, function: Any, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int) -> Callable[[int], None]:
        """`launch` but for the parameters, with all worked out that is the same each time."""

    def synchronize(self) -> None:
        """Wait for all work of the current device."""

    def forked(self) -> None:
        """In a process that was forked from the one that made this: from now on all work raises RuntimeError (`FORKED`)."""

    def device_name(self, index: int) -> str:
        """What the device is called."""

    def capability(self, index: int) -> tuple[int, int]:
        """The device's compute capability: (9, 0) for an H100."""

    def memory(self, index: int) -> MemoryUse:
        """How much memory is in use."""

    def reset_peak(self, index: int) -> None:
        """Start the peak anew from what is in use."""

    def free_cached(self) -> None:
        """Give memory that no array holds back to the devices."""

    def limit_memory(self, index: int, size: int) -> None:
        """Take at most that many bytes of a device."""

    # Streams and events are the driver's own objects; a stream's `ptr` is its handle.

    def new_stream(self, priority: int) -> Any:
        """A stream that does not wait for the default stream."""

    def default_stream(self) -> Any:
        """The stream that the current device's work goes to unless told otherwise."""

    def current_stream(self) -> Any:
        """The stream that the current device's work goes to in this thread."""

    def use_stream(self, stream: Any) -> None:
        """Let the current device's work go to one of its streams, in this thread."""

    def stream_done(self, stream: Any) -> bool:
        """Whether all its work is done."""

    def synchronize_stream(self, stream: Any) -> None:
        """Wait for its work."""

    def new_event(self, timing: bool) -> Any:
        """An event."""

    def record_event(self, event: Any, stream: Any) -> None:
        """Let the event happen when the stream's work so far is done."""

    def event_done(self, event: Any) -> bool:
        """Whether it has happened."""

    def synchronize_event(self, event: Any) -> None:
        """Wait until it has happened."""

    def wait_event(self, stream: Any, event: Any) -> None:
        """Let the stream's later work wait for the event."""

    def elapsed(self, start: Any, end: Any) -> float:
        """Milliseconds between two events that have happened."""

    # Captures. What is submitted between begin and end becomes a graph; nothing runs. Whoever captures has run the same work before
    # (kernels are loaded, products prepared, `gemm.library.warm` called), and keeps all arrays that the work reads and
    # writes. In a capture `upload`, `download`, `shared_words`, `compile`, `free_cached` and every kind of waiting raise RuntimeError.

    def new_arena(self) -> Any:
        """A memory pool on the current device for one or more captures; it lasts as long as this object or a graph captured with it."""

    def begin_capture(self, stream: Any, arena: Any) -> None:
        """Capture a stream other than the default one, the current stream of this thread. This thread's allocations come from the arena
        (None: there may be none). Other streams join by waiting for an event of a captured one."""

    def end_capture(self, stream: Any) -> Any:
        """End the capture that began in a stream; what was captured. RuntimeError if something in it was not possible, or if a stream that
        joined was not waited for. The capture is over in any case."""

    def instantiate(self, captured: Any) -> Any:
        """The graph, ready to be launched."""

    def launch_graph(self, graph: Any, stream: Any) -> None:
        """Run all of a graph's work in a stream."""

    def capture(self) -> Any:
        """What stands for the capture of the current stream while that goes on; None where it is not captured."""

    def capturing(self) -> bool:
        """Whether the current stream is captured."""
