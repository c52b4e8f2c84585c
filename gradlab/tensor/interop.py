"""Other libraries' protocols: NumPy's functions on tensors, and DLPack."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import wrap
from gradlab.dtype import from_numpy as public_dtype
from gradlab.tensor.reading import check_readable

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

def _array(value: Any) -> Any:
    return value.numpy() if isinstance(value, Differentiable) else value  # type: ignore[attr-defined]


def _tensor(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_tensor, value))
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    array = np.asarray(value)
    return wrap(array.astype(public_dtype(array.dtype).dtype, copy=False))


class InteropMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """NumPy's operators with a tensor are the tensor's own; its other functions compute on the values, and give a tensor.

        RuntimeError where a tensor requires grad: NumPy's functions are not recorded.
        """
        call = _OPERATORS.get(ufunc)
        if call is not None and method == "__call__" and not kwargs:
            left, right = map(_tensor, inputs) if ufunc is np.matmul else inputs
            return call(left, right) if isinstance(left, Differentiable) else getattr(right, _REFLECTED[call])(left)
        out = kwargs.pop("out", ())
        if out:
            kwargs["out"] = tuple(map(_array, out))
        found = getattr(ufunc, method)(*map(_array, inputs), **kwargs)
        return (out[0] if len(out) == 1 else out) if out else _tensor(found)

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

    def __dlpack__(self, **kwargs: Any) -> Any:
        """The memory of this tensor for another library, by the DLPack protocol. BufferError where it requires grad: use detach()."""
        if self._edge is not None:
            raise BufferError("__dlpack__: this tensor requires grad, which other libraries know nothing of; use .detach()")
        check_readable(self)
        return self._memory().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The kind of device (1: CPU, 2: CUDA) and its number, as DLPack counts them."""
        kind, index = self._memory().__dlpack_device__()
        return int(kind), int(index)

    def _memory(self) -> Any:
        if not hasattr(self._array, "__dlpack__"):  # the emulated GPU's, a trace's, a sample's of vmap
            raise BufferError("__dlpack__: this tensor has no memory that another library could use; use .cpu().numpy()")
        return self._array
