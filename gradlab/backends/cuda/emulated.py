"""The emulated GPU: NumPy memory behind a real device's rules, kernels compiled as C++ and run thread by thread.

Chosen by `GRADLAB_CUDA=emulated`. Arrays refuse to become NumPy arrays implicitly and to mix with them, as CuPy's do; there are two
devices, so
that mixing them can be tested. It needs a C++ compiler and says so where there is none.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np

from gradlab.backends.cuda.driver import MemoryUse, out_of_memory
from gradlab.backends.cuda.emulator import EmulatedFunction, compile_kernels
from gradlab.spec import count as elements

DEVICES = 2
LIMIT = int(os.environ.get("GRADLAB_EMULATED_MEMORY", str(8 << 30)))  # bytes of memory that each emulated device has


class EmulatedArray:
    """An array on an emulated device."""

    __slots__ = ("__weakref__", "_device", "_host", "base")
    __array_priority__ = 100

    def __init__(self, host: np.ndarray[Any, Any], device: int, base: EmulatedArray | None = None) -> None:
        self._host = host
        self._device = device
        self.base = base

    shape = property(lambda self: self._host.shape)
    dtype = property(lambda self: self._host.dtype)
    strides = property(lambda self: self._host.strides)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    nbytes = property(lambda self: self._host.nbytes)
    flags = property(lambda self: self._host.flags)

    def _like(self, host: np.ndarray[Any, Any]) -> EmulatedArray:
        return EmulatedArray(host, self._device, self if self.base is None else self.base)

    @property
    def T(self) -> EmulatedArray:
        return self._like(self._host.T)

    def reshape(self, *shape: Any) -> EmulatedArray:
        """A view in another shape; the strides must allow it."""
        return self._like(np.reshape(self._host, shape[0] if len(shape) == 1 else shape, copy=False))

    def transpose(self, *dims: Any) -> EmulatedArray:
        return self._like(self._host.transpose(*dims))

    def swapaxes(self, a: int, b: int) -> EmulatedArray:
        return self._like(self._host.swapaxes(a, b))

    def squeeze(self, axis: Any = None) -> EmulatedArray:
        return self._like(self._host.squeeze(axis))

    def view(self, dtype: Any) -> EmulatedArray:
        return self._like(self._host.view(dtype))

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> EmulatedArray:
        found = self._host.diagonal(offset, axis1, axis2)
        found.flags.writeable = self._host.flags.writeable  # as CuPy's
        return self._like(found)

    def __bool__(self) -> NoReturn:
        raise TypeError("the truth value of an array on an (emulated) GPU is not known to the host; call .item() on the tensor")

    def __getitem__(self, index: Any) -> EmulatedArray:
        return self._like(self._host[index])

    def __len__(self) -> int:
        return len(self._host)

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("Implicit conversion to a NumPy array is not allowed: the array is on an (emulated) GPU; call .cpu() first")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function not in _VIEWS:
            raise TypeError(f"numpy.{function.__name__} does not compute with arrays on an (emulated) GPU")
        host = [a._host if isinstance(a, EmulatedArray) else a for a in args]
        return self._like(function(*host, **kwargs))

    def __array_ufunc__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("Unsupported type: NumPy does not compute with arrays on an (emulated) GPU")

    def __repr__(self) -> str:
        return f"EmulatedArray({self._host!r}, device={self._device})"


_VIEWS = {np.broadcast_to, np.expand_dims, np.flip, np.diagonal, np.moveaxis, np.swapaxes, np.transpose}


def _as_strided(array: EmulatedArray, shape: Any, strides: Any) -> EmulatedArray:
    return array._like(np.lib.stride_tricks.as_strided(array._host, shape, strides))


# What views need of the array library: CuPy's names.
LIBRARY = SimpleNamespace(lib=SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=_as_strided)))


class EmulatedDriver:
    """Runs everything at once, in the order of the calls."""

    name = "emulated"
    array_type = EmulatedArray
    library = LIBRARY

    def __init__(self) -> None:
        self._local = threading.local()
        self.used = [0] * DEVICES
        self.peak = [0] * DEVICES
        self.launches = 0
        self.order = os.environ.get("GRADLAB_EMULATED_ORDER", "forward")

    def device_count(self) -> int:
        return DEVICES

    def current_device(self) -> int:
        return getattr(self._local, "device", 0)

    def set_device(self, index: int) -> None:
        if not 0 <= index < DEVICES:
            raise RuntimeError(f"cuda:{index}: there are {DEVICES} (emulated) devices, cuda:0 to cuda:{DEVICES - 1}")
        self._local.device = index

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> EmulatedArray:
        device = self.current_device()
        size = elements(shape) * dtype.itemsize
        if size + self.used[device] > LIMIT:
            raise out_of_memory(device, size, self.used[device], 0, LIMIT - self.used[device], LIMIT)
        memory = Memory(size, self.used, device)
        self.used[device] += size
        self.peak[device] = max(self.peak[device], self.used[device])
        return EmulatedArray(memory.array(shape, dtype), device)

    def pointer(self, array: EmulatedArray) -> int:
        return array._host.ctypes.data

    def device_of(self, array: EmulatedArray) -> int:
        return array._device

    def upload(self, host: np.ndarray[Any, Any]) -> EmulatedArray:
        made = self.empty(host.shape, host.dtype)
        np.copyto(made._host, host)
        return made

    def download(self, array: EmulatedArray) -> np.ndarray[Any, Any]:
        return array._host.copy()

    def shared_words(self, number: int) -> tuple[np.ndarray[Any, Any], EmulatedArray]:
        host = np.zeros(number, np.uint64)
        return host, EmulatedArray(host, 0)

    def fill_zero(self, array: EmulatedArray) -> None:
        array._host.fill(0)

    def copy(self, target: EmulatedArray, source: EmulatedArray) -> None:
        target._host.reshape(-1).view(np.uint8)[...] = source._host.reshape(-1).view(np.uint8)

    def compile(self, source: str, names: Sequence[str], label: str) -> dict[str, EmulatedFunction]:
        return compile_kernels(source, names, label=label)

    def launch(
        self, function: EmulatedFunction, grid: tuple[int, int, int], block: tuple[int, int, int], parameters: int, shared: int
    ) -> None:
        self.launches += 1
        function.launch(grid, block, parameters, shared, order=self.order)

    def synchronize(self) -> None:
        pass

    def device_name(self, index: int) -> str:
        return "emulated GPU"

    def memory(self, index: int) -> MemoryUse:
        return MemoryUse(self.used[index], self.peak[index], self.used[index], LIMIT)

    def reset_peak(self, index: int) -> None:
        self.peak[index] = self.used[index]

    def free_cached(self) -> None:
        pass

    def new_stream(self, priority: int) -> Any:
        return object()

    def default_stream(self) -> Any:
        return None

    def current_stream(self) -> Any:
        return getattr(self._local, "stream", None)

    def use_stream(self, stream: Any) -> None:
        self._local.stream = stream

    def stream_done(self, stream: Any) -> bool:
        return True

    def synchronize_stream(self, stream: Any) -> None:
        pass

    def new_event(self, timing: bool) -> Any:
        return [None]

    def record_event(self, event: Any, stream: Any) -> None:
        event[0] = time.perf_counter()

    def event_done(self, event: Any) -> bool:
        return True

    def synchronize_event(self, event: Any) -> None:
        pass

    def wait_event(self, stream: Any, event: Any) -> None:
        pass

    def elapsed(self, start: Any, end: Any) -> float:
        return (end[0] - start[0]) * 1e3


class Memory:
    """One allocation, poisoned with NaN patterns; gives its bytes back to the device's count when it goes."""

    def __init__(self, size: int, used: list[int], device: int) -> None:
        self._raw = np.full(size + 256, 0xFF, np.uint8)
        start = -self._raw.__array_interface__["data"][0] % 256
        self._bytes = self._raw[start : start + size]
        self.size, self._used, self._device = size, used, device

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """The memory as an array; the array keeps this object alive."""
        return np.asarray(_Holder(self, shape, dtype)).view(dtype)

    def __del__(self) -> None:
        self._used[self._device] -= self.size


class _Holder:
    """What NumPy keeps as the base of an array over a Memory."""

    def __init__(self, memory: Memory, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.memory = memory
        raw = dtype.str if dtype.kind != "V" else f"<u{dtype.itemsize}"
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": raw,
            "data": (memory._bytes.__array_interface__["data"][0] if memory.size else memory._raw.__array_interface__["data"][0], False),
        }
