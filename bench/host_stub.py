"""A GPU that does nothing at once: what remains is the host's own work. For `bench/launch_cost.py --stub`."""

from __future__ import annotations

import functools
import importlib
import operator
from types import SimpleNamespace
from typing import Any

import numpy as np

from gradlab.backends.cuda import loading
from gradlab.backends.cuda.emulated import EmulatedDriver
from gradlab.spec import count

_ADDRESS = 1 << 32
_CONTIGUOUS = SimpleNamespace(c_contiguous=True)


@functools.cache
def strides_of(shape: tuple[int, ...], step: int) -> tuple[int, ...]:
    """Of an array without gaps, in bytes."""
    steps = []
    for size in reversed(shape):
        steps.append(step)
        step *= size
    return tuple(reversed(steps))


class StubArray:
    """Shape and dtype of an array that is nowhere."""

    __slots__ = ("__weakref__", "address", "dtype", "flags", "shape", "strides")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype, self.address, self.flags = shape, dtype, _ADDRESS, _CONTIGUOUS
        self.strides = strides_of(shape, dtype.itemsize)

    size = property(lambda self: count(self.shape))
    nbytes = property(lambda self: self.size * self.dtype.itemsize)
    ndim = property(lambda self: len(self.shape))

    def reshape(self, *shape: Any) -> StubArray:
        return StubArray(shape[0] if len(shape) == 1 else shape, self.dtype)

    def transpose(self, *dims: Any) -> StubArray:
        order = dims[0] if len(dims) == 1 else dims or tuple(reversed(range(self.ndim)))
        made = StubArray(tuple(self.shape[d] for d in order), self.dtype)
        made.strides = tuple(self.strides[d] for d in order)
        return made


class StubDriver(EmulatedDriver):
    """Every launch, copy and compilation succeeds at once."""

    array_type: Any = StubArray

    def __init__(self) -> None:
        super().__init__(devices=1)
        self.pointer = operator.attrgetter("address")  # type: ignore[method-assign]

    def current_device(self) -> int:
        return 0

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        made = StubArray(shape, dtype)
        global _ADDRESS
        _ADDRESS += 1 << 20
        return made

    def device_of(self, array: Any) -> int:
        return 0

    def upload(self, host: Any) -> Any:
        return self.empty(host.shape, host.dtype)

    def download(self, array: Any) -> Any:
        return np.zeros(array.shape, array.dtype)

    def shared_words(self, number: int) -> Any:
        return np.zeros(number, np.uint64), self.empty((number,), np.dtype(np.uint64))

    def copy(self, target: Any, source: Any) -> None:
        pass

    def fill_zero(self, array: Any) -> None:
        pass

    def compile(self, source: str, names: Any, label: str) -> dict[str, Any]:
        return {name: name for name in names}

    def launch(self, function: Any, grid: Any, block: Any, parameters: int, shared: int) -> None:
        pass

    def maker(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return functools.partial(self.empty, shape, dtype)

    def launcher(self, function: Any, grid: Any, block: Any, shared: int) -> Any:
        return _nothing

    def submit(self, label: str, reads: Any, writes: Any, run: Any, stream: int) -> None:
        pass


def _nothing(*arguments: Any) -> int:
    return 0


def install() -> None:
    """Let `device="cuda"` be this."""
    standin = importlib.import_module("gradlab.backends.cuda.gemm.standin")
    made = standin.StandIn.__init__

    def without_products(self: Any, *arguments: Any) -> None:
        made(self, *arguments)
        self.cublasLtMatmul = _nothing

    standin.StandIn.__init__ = without_products
    loading._driver = StubDriver  # type: ignore[assignment]
