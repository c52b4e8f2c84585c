"""Other libraries' protocols: how they reach a tensor's memory and its functions. Who takes what: docs/interchange.md."""

from __future__ import annotations

import ctypes
import operator
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from gradlab import dispatch, dlpack
from gradlab.above import above
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import refresh, wrap
from gradlab.dtype import bfloat16, from_numpy as public_dtype
from gradlab.tensor.values import check_readable

# What NumPy calls its operators: `array + tensor` arrives as the ufunc add, and is the tensor's own operator, graph and all.
_OPERATORS: dict[Any, Callable[[Any, Any], Any]] = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul, np.true_divide: operator.truediv,
    np.floor_divide: operator.floordiv, np.remainder: operator.mod, np.power: operator.pow, np.matmul: operator.matmul,
    np.bitwise_and: operator.and_, np.bitwise_or: operator.or_, np.bitwise_xor: operator.xor, np.left_shift: operator.lshift,
    np.right_shift: operator.rshift, np.less: operator.lt, np.less_equal: operator.le, np.greater: operator.gt,
    np.greater_equal: operator.ge, np.equal: operator.eq, np.not_equal: operator.ne,
}  # fmt: skip

# The reflected operator of each, which an array on the left leads to.
_REFLECTED = {
    operator.add: "__radd__", operator.sub: "__rsub__", operator.mul: "__rmul__", operator.truediv: "__rtruediv__",
    operator.floordiv: "__rfloordiv__", operator.mod: "__rmod__", operator.pow: "__rpow__", operator.matmul: "__rmatmul__",
    operator.and_: "__rand__", operator.or_: "__ror__", operator.xor: "__rxor__", operator.lshift: "__rlshift__",
    operator.rshift: "__rrshift__", operator.lt: "__gt__", operator.le: "__ge__", operator.gt: "__lt__", operator.ge: "__le__",
    operator.eq: "__eq__", operator.ne: "__ne__",
}  # fmt: skip


def _tensor(value: Any) -> Any:
    """An array on the left of `@`, as a tensor."""
    return wrap(value.astype(public_dtype(value.dtype).dtype, copy=False)) if isinstance(value, np.ndarray) else value


_runner = cache(above)  # NumPy's functions are often small: the hook is looked up once


class InteropMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """NumPy's ufuncs on tensors are the tensors' own operations, which are recorded, and give tensors.

        RuntimeError where one has no such operation and a tensor requires grad; use `detach()`.
        """
        call = _OPERATORS.get(ufunc)
        if call is not None and method == "__call__" and not kwargs and list not in map(type, inputs):
            left, right = map(_tensor, inputs) if ufunc is np.matmul else inputs
            found = call(left, right) if isinstance(left, Differentiable) else getattr(right, _REFLECTED[call])(left)
            if found is not NotImplemented:
                return found
        return _runner("NumPy's ufuncs")(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """NumPy's functions on tensors, as its ufuncs."""
        return _runner("NumPy's functions")(func, args, kwargs)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The memory of a CPU tensor by NumPy's protocol, for Pillow (`Image.fromarray(x)`) and others, who share it and keep it.

        AttributeError where there is none to share (on a GPU, of bfloat16, where it requires grad); `__array__` then says why.
        """
        array = self._array
        if self._edge is not None or not isinstance(array, np.ndarray) or array.dtype.kind == "V":
            raise AttributeError("__array_interface__: this tensor has no memory that NumPy could share; see numpy()")
        check_readable(self)
        found = {"version": 3, "shape": array.shape, "typestr": array.dtype.str, "strides": array.strides, "data": array}
        if array.flags.c_contiguous:
            return found
        low, high = byte_bounds(array)
        memory = (ctypes.c_ubyte * (high - low)).from_address(low)
        memory.owner = array  # type: ignore[attr-defined]  # it lives as long as what was made of it, whatever becomes of the tensor
        start = array.__array_interface__["data"][0]
        return {**found, "offset": start - low, "data": memory if array.flags.writeable else memoryview(memory).toreadonly()}

    def tobytes(self) -> bytes:
        """The numbers' bytes, row by row, as NumPy's `tobytes`.

        >>> gl.tensor([1, 2], dtype=gl.uint8).tobytes()
        b'\\x01\\x02'
        """
        return self.numpy().tobytes()  # type: ignore[attr-defined]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The memory of a CUDA tensor by the protocol of Numba and CuPy (version 3), who share it and keep it.

        AttributeError where there is none to share: on the CPU, of bfloat16, which it has no name for, where the tensor requires grad.
        """
        array = self._array
        backend = dispatch.backend_of(array)
        driver = getattr(backend, "driver", None)
        if driver is None or self._edge is not None or array.dtype == bfloat16.dtype:
            raise AttributeError("__cuda_array_interface__: this tensor has no memory of a GPU to share in this way; see __dlpack__")
        check_readable(self)
        stream = driver.current_stream().ptr
        found = {"version": 3, "shape": tuple(array.shape), "typestr": array.dtype.str, "data": (driver.pointer(array), False)}
        # 1: the legacy default stream, whose own handle is 0 and would be ambiguous.
        return {**found, "strides": None if array.flags.c_contiguous else tuple(array.strides), "stream": stream or 1}

    def __jax_array__(self) -> Any:
        """A JAX array of these numbers: `jnp.asarray(x)`, and functions of jax.numpy on tensors. RuntimeError where it requires grad."""
        jax = sys.modules["jax"]
        return jax.numpy.asarray(self.numpy()) if self.device.type == "cpu" else jax.dlpack.from_dlpack(self)  # type: ignore[attr-defined]

    def to_numpy(self) -> Any:
        """As `numpy()`, by the name that pandas and others give it, and by which Matplotlib asks: `plt.plot(x)`.

        >>> gl.ones(2).to_numpy()
        array([1., 1.], dtype=float32)
        """
        return self.numpy()  # type: ignore[attr-defined]

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The functions of the Python array API standard: `gradlab.array_api`. ValueError for a version it does not have."""
        module = above("array API")
        if api_version not in (None, *module.VERSIONS):
            raise ValueError(f"__array_namespace__: version {api_version!r} of the array API; there are {', '.join(module.VERSIONS)}")
        return module

    def to_device(self, device: Any, /, *, stream: Any = None) -> Any:
        """As `to(device)`, by the array API's name. stream: None, the current one.

        >>> gl.ones(2).to_device("cpu")
        tensor([1., 1.])
        """
        if stream is not None:
            raise ValueError("to_device: the copy is made in the current stream; choose one by gl.cuda.stream(...)")
        return self.to(device=device)  # type: ignore[attr-defined]

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None) -> Any:
        """The memory of this tensor for another library, by the DLPack protocol: a capsule, for one consumer.

        stream: a handle of the consumer's stream on a GPU, which is made to wait for what has been queued here; None: the default one, -1:
            nothing is to wait.
        max_version: the newest version of capsules that the consumer knows; of 1.0 on they say whether the memory may be written.
        dl_device: where the consumer wants it, as DLPack counts; elsewhere than here it is a copy.
        copy: True: always a copy, False: never, None: where it must be.

        BufferError where the tensor requires grad (use `detach()`), where `copy=False` cannot be, and where there is no memory that others
        could use.
        """
        if self._meta is not None:
            refresh(self)
        if self._edge is not None:
            raise BufferError("__dlpack__: this tensor requires grad, which other libraries know nothing of; use .detach()")
        own = self.__dlpack_device__()
        check_readable(self)
        if dl_device is not None and tuple(map(int, dl_device)) != own:
            place = dlpack.place_of(dl_device)
            if copy is False:
                raise BufferError(f"__dlpack__: to {place} the numbers go only as a copy, and copy=False; use .to({place!r})")
            return self.to(device=place).__dlpack__(stream=stream, max_version=max_version)  # type: ignore[attr-defined]
        array, options = self._array, {"max_version": max_version, "copy": copy}
        half = array.dtype == bfloat16.dtype
        if half:
            array = array.view(np.uint16)
        if own[0] == dlpack.CPU:
            if stream is not None:
                raise BufferError(f"__dlpack__: the CPU has no streams, so stream= is None, not {stream!r}")
            if not (array.flags.writeable or copy or (max_version is not None and max_version[0] >= 1)):
                raise BufferError("__dlpack__: this memory is read-only, which capsules older than DLPack 1.0 cannot say; use .clone()")
            capsule = array.__dlpack__(**options)
        else:
            capsule = dispatch.backend_of(self._array).driver.to_dlpack(array, stream, **options)  # type: ignore[attr-defined]
        return dlpack.as_bfloat16(capsule) if half else capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        """The kind of device (1: CPU, 2: CUDA) and its number, as DLPack counts them. BufferError for a tensor without memory."""
        kind = type(self._array)
        if kind is np.ndarray or isinstance(self._array, np.ndarray):
            return dlpack.CPU, 0
        driver = getattr(dispatch.backend_of(self._array), "driver", None)
        if driver is None:  # a trace's, a sample's of vmap, meta's, a sparse tensor's
            way = "; .to_dense() has" if getattr(self, "is_sparse", False) else ""
            raise BufferError(f"__dlpack__: this tensor has no memory that another library could use{way}")
        return dlpack.CUDA, int(driver.device_of(self._array))
