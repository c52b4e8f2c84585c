"""What a tensor can be made of: numbers, sequences of them, arrays, and other libraries' objects, as one NumPy array."""

from __future__ import annotations

import functools
import math
import numbers
from decimal import Decimal
from typing import Any

import numpy as np

from gradlab import ops
from gradlab.advice import warn as tell
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.autograd.recall import scalar
from gradlab.autograd.record import apply, created, wrap
from gradlab.device import Device, default_device
from gradlab.dlpack import CUDA, CUDA_MANAGED, Carrier, is_capsule
from gradlab.dtype import (
    BOOL,
    COMPLEX,
    FLOAT32,
    FLOAT64,
    INEXACT,
    INT64,
    as_numpy,
    by_float32,
    complex_of,
    finfo,
    from_numpy as public_dtype,
    get_default_dtype,
    promote,
)
from gradlab.quiet import quietly
from gradlab.spec import as_number

_PYTHON = frozenset((bool, int, float, complex))
_COMMON = frozenset((BOOL, INT64, FLOAT32, FLOAT64))


def values_in(name: str, data: Any, dtype: Any = None) -> Any:
    """A new NumPy array of what `data` holds, of `dtype` or else of the dtype that PyTorch gives it.

    data: a number, or an object with `__index__` or `__float__`; an array, or an object that becomes one by `__array__`,
    `__array_interface__`, `__dlpack__` or the buffer protocol; a sequence of such things of one shape, of whose dtypes the result's is
    promoted. Python numbers, buffers' as well, are bool, int64 or the default floating point type. An array of objects is a sequence.

    Raises TypeError for what is not a real number, ValueError for sequences of different lengths, RuntimeError for integers that do not
    fit.
    """
    kind = type(data)
    if dtype is None:  # what there is most of, without a detour
        if kind is float or kind is bool:
            return quietly(np.array, data, _python(kind))
        if kind is np.ndarray and data.dtype in _COMMON:
            return np.array(data)
    array, found = _taken(name, data)
    single = isinstance(data, (np.ndarray, np.generic))
    if dtype is not None:
        wanted = as_numpy(dtype)
        if array.dtype.kind == "c" and wanted not in COMPLEX:
            array = _without_imaginary(name, array, wanted, single)
        array = by_float32(array, wanted)
        return quietly(array.astype, wanted, copy=False) if single or wanted.kind not in "iu" else _fitting(name, array, wanted)
    target = functools.reduce(promote, [public_dtype(d).dtype for d in found]) if found else as_numpy(get_default_dtype())
    if target == INT64 and array.dtype != INT64 and not single:
        _fitting(name, array, INT64)
    return quietly(array.astype, target, copy=False)


def _python(kind: type) -> Any:
    if kind is bool or kind is int:
        return BOOL if kind is bool else INT64
    own = as_numpy(get_default_dtype())
    return complex_of(own) if kind is complex else own


def _taken(name: str, data: Any) -> tuple[Any, set[Any]]:
    """A new array of what `data` holds, and the dtypes of its parts: of Python numbers what they become, of nothing none."""
    kind = type(data)
    if kind in _PYTHON:
        return np.array(data), {_python(kind)}
    if isinstance(data, (list, tuple)):
        return _listed(name, data)
    if isinstance(data, Differentiable):
        array = data.detach().cpu().numpy()  # type: ignore[attr-defined]
        return array.copy(), {array.dtype}
    if isinstance(data, (np.ndarray, np.generic)):
        return _checked(name, data, np.array(data))
    if hasattr(data, "__dlpack__"):
        return _checked(name, data, np.array(shared(name, data)))
    if hasattr(data, "__array__") or hasattr(data, "__array_interface__"):
        return _checked(name, data, np.array(data))
    if isinstance(data, numbers.Integral):
        return np.array(int(data)), {INT64}
    if isinstance(data, (numbers.Real, Decimal)):
        return np.array(float(data)), {_python(float)}
    if not isinstance(data, (str, bytes)) and hasattr(data, "__len__") and hasattr(data, "__getitem__") and not hasattr(data, "keys"):
        try:
            array = np.array(memoryview(data))
        except TypeError:
            return _listed(name, [data[i] for i in range(len(data))])
        number = {"b": bool, "i": int, "u": int, "f": float, "c": complex}.get(array.dtype.kind)
        return _checked(name, data, array if number is None else quietly(array.astype, _python(number)))
    for number, method in ((int, "__index__"), (float, "__float__"), (complex, "__complex__")):
        if hasattr(kind, method):
            return np.array(number(data)), {_python(number)}
    raise _no_numbers(name, data)


def shared(name: str, data: Any) -> Any:
    """A NumPy array of another library's memory, by DLPack; of what DLPack does not carry by what else the object offers."""
    carrier = Carrier(data)
    if carrier.__dlpack_device__()[0] in (CUDA, CUDA_MANAGED):
        raise TypeError(f"{name}: {type(data).__name__} is on a GPU; use gl.from_dlpack or gl.as_tensor by itself, or copy it to the host")
    try:
        return carrier.taken(np.from_dlpack(carrier))
    except (BufferError, RuntimeError, ValueError, TypeError):
        if not hasattr(data, "__array__"):
            raise
        return np.asarray(data)


def _no_numbers(name: str, data: Any) -> TypeError:
    hint = ": it is on a GPU; copy it to the host first" if hasattr(data, "__cuda_array_interface__") else ""
    return TypeError(f"{name}: {type(data).__name__} holds values that are not numbers{hint}")


def _checked(name: str, data: Any, array: Any) -> tuple[Any, set[Any]]:
    kind = array.dtype.kind
    if kind == "O":
        return _listed(name, array.tolist()) if array.ndim else _taken(name, array.item())
    if kind in "Mm":
        raise TypeError(f"{name}: {type(data).__name__} holds dates or times ({array.dtype}); say which numbers you mean: .astype('int64')")
    if kind in "US" or array.dtype.names:
        raise _no_numbers(name, data)
    return array, {array.dtype}


def _listed(name: str, data: Any) -> tuple[Any, set[Any]]:
    found: set[Any] = set()
    plain = _leaves(name, data, found)
    try:
        return np.array(plain), found
    except ValueError as error:
        raise ValueError(f"{name}: the nested sequences have different lengths ({error})") from None


def _leaves(name: str, data: Any, found: set[Any]) -> Any:
    """Nested lists as NumPy takes them; the dtypes of what is in them go to `found`."""
    kinds = set(map(type, data))
    if kinds <= _PYTHON:
        found.update(map(_python, kinds))
        return data
    return [_leaf(name, x, found) for x in data]


def _leaf(name: str, x: Any, found: set[Any]) -> Any:
    if isinstance(x, (list, tuple)):
        return _leaves(name, x, found)
    if isinstance(x, Differentiable):
        if x.numel() != 1:  # type: ignore[attr-defined]
            raise ValueError(f"{name}: a tensor in a sequence is one number, not of shape {x._array.shape}; use gl.stack or gl.cat")
        x = x.reshape(())  # type: ignore[attr-defined]
    array, dtypes = _taken(name, x)
    found |= dtypes
    return x if type(x) in _PYTHON else array.astype(np.float32) if array.dtype.kind == "V" else array


def _without_imaginary(name: str, array: Any, dtype: np.dtype[Any], single: bool) -> Any:
    """The real parts of numbers that shall become real. TypeError for Python's numbers, as in PyTorch; a warning for arrays."""
    if dtype == BOOL:
        return array != 0
    if not single:
        raise TypeError(f"{name}: complex numbers are no {dtype.name}; take their real parts, or a complex dtype")
    imaginary_lost()
    return array.real


def imaginary_lost() -> None:
    """Warn, as PyTorch does, that a cast drops imaginary parts."""
    tell(UserWarning, "Casting complex values to real discards the imaginary part: say x.real, or x.abs(), whichever is meant")


SURE = 65504.0  # which every floating point dtype holds


@functools.cache
def largest(dtype: np.dtype[Any]) -> float:
    """The largest number of a floating point dtype; the infinity for others, whose numbers are looked at as integers."""
    return float(finfo(public_dtype(dtype)).max) if dtype in INEXACT else math.inf


def beyond(value: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a finite number would become an infinity in a tensor of `dtype`."""
    return bool(not -(most := largest(dtype)) <= value.real <= most and value - value == 0)


def held(value: Any, dtype: np.dtype[Any]) -> Any:
    """The number itself. RuntimeError for a finite one that would become an infinity in a tensor of `dtype`, as in PyTorch."""
    if beyond(value, dtype):
        raise RuntimeError(f"{value} does not fit into {dtype.name}, which holds numbers up to {largest(dtype)}")
    return value


def number_of(value: Any, dtype: np.dtype[Any]) -> Any:
    """A number that shall fill a tensor of `dtype`. TypeError for None, RuntimeError for a complex one in a real tensor."""
    if value is None:
        raise TypeError("None is not a number")
    if dtype in COMPLEX or not np.iscomplexobj(value):
        return value
    if value.imag:
        raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow: {value} is not a real number")
    return value.real


def _fitting(name: str, array: Any, dtype: np.dtype[Any]) -> Any:
    """The array in that dtype. As in PyTorch, Python's integers must fit (into an unsigned dtype a negative number wraps around)."""
    if array.dtype.kind in "iuO" and array.size:
        limits = np.iinfo(dtype)
        low = -int(limits.max) if dtype.kind == "u" else int(limits.min)
        wrong = next((int(x) for x in (array.min(), array.max()) if not low <= int(x) <= limits.max), None)
        if wrong is not None:
            raise RuntimeError(f"{name}: {wrong} does not fit into {dtype.name}, which holds {limits.min} to {limits.max}")
    return quietly(array.astype, dtype, copy=False)


MOST = 1 << 53  # whole numbers that floating point has
_OWN = (np.ndarray, np.generic, bool, int, float, list, tuple)  # what has no memory on a GPU, and need not be asked


def on_gpu(data: Any) -> bool:
    """Whether this is another library's array on a GPU."""
    if isinstance(data, _OWN) or not hasattr(data, "__dlpack_device__"):
        return False
    return int(data.__dlpack_device__()[0]) in (CUDA, CUDA_MANAGED)


def operand(like: Any, value: Any, dtype: Any = None) -> Any:
    """A number as a 0-d tensor of the dtype of `like` (or another one) beside it, for a row's input: its memory may be shared. One that the
    dtype does not hold is an infinity, as a result would be."""
    array = like._array
    chosen = array.dtype if dtype is None else dtype
    plain = type(array) is np.ndarray and (chosen is FLOAT32 or chosen is FLOAT64) and (type(value) is float or type(value) is int)
    if plain and -MOST <= value <= MOST and not current().special:
        return wrap(scalar(value, chosen))
    if isinstance(value, (int, float)) and beyond(value, chosen):
        value = math.copysign(math.inf, value)
    return like.new_full((), value) if dtype is None else like.new_full((), value, dtype=dtype)


def plain_like(like: Any, value: Any) -> Any:
    """A tensor of one number in the shape and dtype of `like`, or None where that is not the plainest case."""
    array = like._array
    if type(array) is not np.ndarray or not array.flags.c_contiguous or (array.dtype is not FLOAT32 and array.dtype is not FLOAT64):
        return None
    if (type(value) is not int and type(value) is not float) or not -MOST <= value <= MOST or current().special:
        return None
    made = np.empty(array.shape, array.dtype)
    made.fill(value)
    return wrap(made)


def plain_range(start: Any, end: Any, step: Any) -> Any:
    """A range of whole numbers on the CPU, or None where that is not the plainest case."""
    first: Any
    last: Any
    first, last = (0, start) if end is None else (start, end)
    if type(first) is not int or type(last) is not int or type(step) is not int or step <= 0 or not -MOST <= first <= last <= MOST:
        return None
    return None if current().special or default_device().type != "cpu" else wrap(np.arange(first, last, step, dtype=np.int64))


def filled(shape: tuple[int, ...], value: float, dtype: np.dtype[Any], device: Device) -> Any:
    """A new tensor of one value, staged in a trace."""
    value = value if type(value) in (float, int) else as_number(value)
    if isinstance(value, (complex, np.ndarray)) or value is None:
        value = number_of(value, dtype)
    if type(value) is not float or not -SURE <= value <= SURE:
        held(value, dtype)
    mode = current()
    if mode.tracer is not None or device.type != "cpu":
        params = {"shape": shape, "value": value, "dtype": dtype, "device": device}
        return apply(ops.creation.full, (), params)
    try:
        made = np.empty(shape, dtype)
        quietly(made.fill, by_float32(value, dtype))
    except OverflowError:
        raise RuntimeError(f"{value} does not fit into {dtype.name}") from None
    return created(made) if mode.inference else wrap(made)


def taken(source: Any, carrier: Carrier, copy: bool | None) -> Any:
    """By NumPy itself; what it does not know, bfloat16, capsules and older producers, by the carrier, which takes five times as long."""
    if not is_capsule(source):
        try:
            return np.from_dlpack(source, copy=copy)
        except (BufferError, RuntimeError, TypeError):
            pass
    return carrier.taken(np.from_dlpack(carrier, copy=copy))
