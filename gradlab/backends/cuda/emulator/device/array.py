"""Arrays on an emulated device: NumPy memory that refuses what a GPU's memory would refuse."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np

from gradlab.backends.cuda.emulator.device.pool import see


class EmulatedArray:
    """An array on an emulated device. It does not become a NumPy array by itself and does not mix with them, as CuPy's does not."""

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
    itemsize = property(lambda self: self._host.itemsize)
    nbytes = property(lambda self: self._host.nbytes)
    flags = property(lambda self: self._host.flags)

    def _like(self, host: np.ndarray[Any, Any]) -> EmulatedArray:
        return EmulatedArray(host, self._device, self if self.base is None else self.base)

    @property
    def T(self) -> EmulatedArray:
        return self._like(self._host.T)

    def reshape(self, *shape: Any) -> EmulatedArray:
        """A view in another shape. ValueError where the strides allow none: CuPy would make a copy unasked."""
        return self._like(np.reshape(self._host, shape[0] if len(shape) == 1 else shape, copy=False))

    def transpose(self, *dims: Any) -> EmulatedArray:
        return self._like(self._host.transpose(*dims))

    def swapaxes(self, a: int, b: int) -> EmulatedArray:
        return self._like(self._host.swapaxes(a, b))

    def squeeze(self, axis: Any = None) -> EmulatedArray:
        return self._like(self._host.squeeze(axis))

    def view(self, dtype: Any) -> EmulatedArray:
        host = self._host.view(dtype)
        see(host)  # kernels may take it for either
        return self._like(host)

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
        return f"EmulatedArray(shape={self.shape}, dtype={self.dtype}, device={self._device})"  # the values may not be there yet


_VIEWS = {np.broadcast_to, np.expand_dims, np.flip, np.diagonal, np.moveaxis, np.swapaxes, np.transpose}


def _as_strided(array: EmulatedArray, shape: Any, strides: Any) -> EmulatedArray:
    return array._like(np.lib.stride_tricks.as_strided(array._host, shape, strides))


# What views need of the array library: CuPy's names.
LIBRARY = SimpleNamespace(lib=SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=_as_strided)))
