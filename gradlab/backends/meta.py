"""The device "meta": tensors with a shape, a dtype and strides, and no memory. A row on them is no more than its rule.

Loaded when the device is first asked for. A `MetaArray` holds a NumPy array that lies nowhere: views compute its strides and its place, and
nothing ever looks at an element of it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np

from gradlab import dispatch
from gradlab.backends.cpu import input_specs
from gradlab.device import Device
from gradlab.kernel import Library
from gradlab.op import Op
from gradlab.spec import Spec
from gradlab.strides import in_order, result_orders, row_major

META = Device("meta")


class MetaArray:
    """An array without elements to look at: NumPy's views, and nothing that computes."""

    __slots__ = ("__weakref__", "_ghost", "base")
    __array_priority__ = 100

    def __init__(self, ghost: np.ndarray[Any, Any], base: MetaArray | None = None) -> None:
        self._ghost, self.base = ghost, base

    shape = property(lambda self: self._ghost.shape)
    dtype = property(lambda self: self._ghost.dtype)
    strides = property(lambda self: self._ghost.strides)
    ndim = property(lambda self: self._ghost.ndim)
    size = property(lambda self: self._ghost.size)
    itemsize = property(lambda self: self._ghost.itemsize)
    nbytes = property(lambda self: self._ghost.nbytes)
    flags = property(lambda self: self._ghost.flags)

    def _like(self, ghost: np.ndarray[Any, Any]) -> MetaArray:
        return MetaArray(ghost, self if self.base is None else self.base)

    @property
    def T(self) -> MetaArray:
        return self._like(self._ghost.T)

    def reshape(self, *shape: Any) -> MetaArray:
        """A view in another shape. ValueError where the strides allow none: there is nothing to copy."""
        return self._like(np.reshape(self._ghost, shape[0] if len(shape) == 1 else shape, copy=False))

    def transpose(self, *dims: Any) -> MetaArray:
        return self._like(self._ghost.transpose(*dims))

    def swapaxes(self, a: int, b: int) -> MetaArray:
        return self._like(self._ghost.swapaxes(a, b))

    def squeeze(self, axis: Any = None) -> MetaArray:
        return self._like(self._ghost.squeeze(axis))

    def view(self, dtype: Any) -> MetaArray:
        return self._like(self._ghost.view(dtype))

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> MetaArray:
        return self._like(self._ghost.diagonal(offset, axis1, axis2))

    def __getitem__(self, index: Any) -> MetaArray:
        return self._like(self._ghost[index])

    def __len__(self) -> int:
        return len(self._ghost)

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise no_values()

    def __bool__(self) -> NoReturn:
        raise no_values()

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function not in _VIEWS:
            raise no_values()
        return self._like(function(*[a._ghost if isinstance(a, MetaArray) else a for a in args], **kwargs))

    def __array_ufunc__(self, *_: Any, **__: Any) -> NoReturn:
        raise no_values()

    def __repr__(self) -> str:
        return f"MetaArray(shape={self.shape}, dtype={self.dtype})"


_VIEWS = {np.broadcast_to, np.expand_dims, np.flip, np.diagonal, np.moveaxis, np.swapaxes, np.transpose}


def no_values() -> NotImplementedError:
    """The error for what asks for values. A RuntimeError, as PyTorch's."""
    return NotImplementedError(
        "Cannot copy out of meta tensor; no data! A tensor on device 'meta' has a shape and a dtype alone. Use gl.empty_like(tensor, "
        "device='cpu') for memory of that shape, or, for a module, to_empty(device='cpu') in place of to('cpu'), and load its values"
    )


def made(spec: Spec, order: tuple[int, ...] | None = None) -> MetaArray:
    """An array of that shape and dtype, its dimensions in that order in memory; None is row by row."""
    shape, dtype = spec
    strides = row_major(shape, dtype.itemsize) if order is None else in_order(shape, order, dtype.itemsize)
    return MetaArray(np.lib.stride_tricks.as_strided(np.empty((), dtype), tuple(shape), strides))


def _as_strided(array: MetaArray, shape: Any, strides: Any) -> MetaArray:
    return array._like(np.lib.stride_tricks.as_strided(array._ghost, shape, strides))


# What views need of the array library: CuPy's names.
_LIBRARY = SimpleNamespace(lib=SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=_as_strided)))


class MetaBackend:
    """Runs rows by their rules."""

    staged = False

    def run(self, op: Op, arrays: list[Any], params: dict[str, Any]) -> Any:
        if op.view:
            return op.cuda.function(_LIBRARY, arrays, params) if isinstance(op.cuda, Library) else op.cpu(*arrays, **params)
        if not arrays:
            params = {k: v for k, v in params.items() if k != "device"}
        specs = op.specs(*input_specs(arrays), **params)
        if op.dynamic:
            raise NotImplementedError(
                f"{op.name}: the size of the result depends on values, and a tensor on device 'meta' has none; use {op.instead} instead"
            )
        orders = [None] * len(specs) if op.lies is None else result_orders(op.lies, arrays, specs, params)
        found = tuple([made(spec, order) for spec, order in zip(specs, orders, strict=True)])
        return found[0] if op.result is None else found

    def device_of(self, array: Any) -> Device:
        return META

    def to_numpy(self, array: Any) -> NoReturn:
        raise no_values()

    def from_numpy(self, array: Any, device: Device) -> MetaArray:
        """An array of the shape and dtype of any array; its values are left behind."""
        return made(Spec(array.shape, array.dtype))

    def address(self, array: MetaArray) -> int:
        place: int = array._ghost.__array_interface__["data"][0]
        return place

    def copy(self, array: MetaArray) -> MetaArray:
        return made(Spec(array.shape, array.dtype))

    def assign(self, target: Any, source: Any) -> None:
        """Nothing is written where there is no memory."""

    def random_state(self, seed: int, device: Device) -> MetaArray:
        return made(Spec((2,), np.dtype(np.int64)))


BACKEND = MetaBackend()
dispatch.register(MetaArray, BACKEND)
