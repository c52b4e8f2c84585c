"""A GPU that does nothing at once: what remains is the host's own work. For `bench/launch_cost.py --stub`."""

from __future__ import annotations

import functools
import importlib
import itertools
import operator
from types import SimpleNamespace
from typing import Any

import numpy as np

from gradlab.backends.cuda import loading
from gradlab.backends.cuda.emulated import EmulatedDriver

_NOWHERE = np.empty(1 << 32, np.uint8)  # never touched, so it takes no memory
_START = _NOWHERE.ctypes.data
_VIEWS = {np.broadcast_to, np.expand_dims, np.flip, np.moveaxis, np.swapaxes, np.transpose}
_address = itertools.count(1 << 34, 1 << 34).__next__


@functools.cache
def _layout(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """An array without gaps; only its shape and strides matter."""
    return np.ndarray(shape, dtype, _NOWHERE)


class StubArray:
    """Shape, strides and dtype of an array that is nowhere. Views are NumPy's; they take about as long as CuPy's."""

    __slots__ = ("__weakref__", "address", "base", "dtype", "flags", "layout", "shape", "strides")

    def __init__(self, layout: Any, address: int, base: Any = None) -> None:
        self.layout, self.address, self.base = layout, address, base
        self.shape, self.dtype, self.strides, self.flags = layout.shape, layout.dtype, layout.strides, layout.flags

    size = property(lambda self: self.layout.size)
    nbytes = property(lambda self: self.layout.nbytes)
    ndim = property(lambda self: len(self.shape))
    itemsize = property(lambda self: self.dtype.itemsize)
    T = property(lambda self: self._like(self.layout.T))

    def _like(self, layout: Any) -> StubArray:
        owner = self if self.base is None else self.base
        return StubArray(layout, owner.address + layout.__array_interface__["data"][0] - _START, owner)

    def reshape(self, *shape: Any) -> StubArray:
        return self._like(self.layout.reshape(shape[0] if len(shape) == 1 else shape, copy=False))

    def transpose(self, *dims: Any) -> StubArray:
        return self._like(self.layout.transpose(*dims))

    def swapaxes(self, a: int, b: int) -> StubArray:
        return self._like(self.layout.swapaxes(a, b))

    def squeeze(self, axis: Any = None) -> StubArray:
        return self._like(self.layout.squeeze(axis))

    def view(self, dtype: Any) -> StubArray:
        return self._like(self.layout.view(dtype))

    def __getitem__(self, index: Any) -> StubArray:
        return self._like(self.layout[index])

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> StubArray:
        assert function in _VIEWS, function
        return self._like(function(*[a.layout if type(a) is StubArray else a for a in args], **kwargs))


def _as_strided(array: StubArray, shape: Any, strides: Any) -> StubArray:
    return array._like(np.lib.stride_tricks.as_strided(array.layout, shape, strides))


class StubDriver(EmulatedDriver):
    """Every launch, copy and compilation succeeds at once."""

    array_type: Any = StubArray
    library = SimpleNamespace(lib=SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=_as_strided)))

    def __init__(self) -> None:
        super().__init__(devices=1)
        self.pointer = operator.attrgetter("address")  # type: ignore[method-assign]
        self.current_stream = functools.partial(operator.attrgetter("_stream"), self)  # type: ignore[method-assign]
        self._stream = self.default_stream()

    def current_device(self) -> int:
        return 0

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return StubArray(_layout(shape, dtype), _address())

    def maker(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        layout = _layout(shape, dtype)
        return lambda: StubArray(layout, _address())

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
