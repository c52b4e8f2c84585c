"""Data types: the public objects (`gradlab.float32` …), their NumPy counterparts, and PyTorch's promotion rules.

Inside gradlab arrays and Specs carry `numpy.dtype`; a `DType` is what a user sees and passes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np

from gradlab.quiet import quietly


class DType:
    """A data type. There is one object of each; compare with `==` or `is`."""

    __slots__ = ("dtype", "is_complex", "is_floating_point", "is_signed", "itemsize", "name")

    def __init__(self, name: str, dtype: np.dtype[Any], floating: bool, signed: bool) -> None:
        self.name = name
        self.dtype = dtype  # NumPy reads this attribute, so np.zeros(3, dtype=gl.float32) works
        self.is_floating_point = floating
        self.is_complex = dtype.kind == "c"
        self.is_signed = signed
        self.itemsize = dtype.itemsize

    package = "gradlab"  # whose name stands in front when one is printed: gradlab/pytorch/writing.py makes it torch's

    def __repr__(self) -> str:
        return f"{self.package}.{self.name}"

    def to_real(self) -> DType:
        """The type of a complex type's real parts; a real type itself."""
        return from_numpy(real_of(self.dtype))

    def to_complex(self) -> DType:
        """The complex type whose real parts are of this type. TypeError for half types, of which there is none."""
        if self.dtype in HALF:
            raise TypeError(f"{self!r}.to_complex(): {NO_HALF}")
        return from_numpy(complex_of(self.dtype))

    def __reduce__(self) -> tuple[Any, ...]:
        return named, (self.name,)


def _make(name: str, source: Any, floating: bool, signed: bool = True) -> DType:
    return DType(name, np.dtype(source), floating, signed)


float16 = half = _make("float16", np.float16, True)
bfloat16 = _make("bfloat16", ml_dtypes.bfloat16, True)
float32 = _make("float32", np.float32, True)
float64 = double = _make("float64", np.float64, True)
int8 = _make("int8", np.int8, False)
int16 = short = _make("int16", np.int16, False)
int32 = _make("int32", np.int32, False)
int64 = long = _make("int64", np.int64, False)
uint8 = _make("uint8", np.uint8, False, signed=False)
bool_ = _make("bool", np.bool_, False, signed=False)
complex64 = cfloat = _make("complex64", np.complex64, False)
complex128 = cdouble = _make("complex128", np.complex128, False)

ALL = (float16, bfloat16, float32, float64, int8, int16, int32, int64, uint8, bool_, complex64, complex128)
_BY_NAME = {d.name: d for d in ALL} | {
    "half": half, "float": float32, "double": double, "long": long, "int": int32, "cfloat": cfloat, "cdouble": cdouble,
}  # fmt: skip
_BY_NUMPY = {d.dtype: d for d in ALL}
_PYTHON = {int: int64, bool: bool_, float: float64, complex: complex128}

FLOATING = frozenset(d.dtype for d in ALL if d.is_floating_point)
COMPLEX = frozenset(d.dtype for d in ALL if d.is_complex)
INEXACT = FLOATING | COMPLEX  # what has gradients
HALF = frozenset((float16.dtype, bfloat16.dtype))
EXACT = frozenset(d.dtype for d in ALL) - INEXACT  # integers and truth values
BOOL, UINT8, INT64, FLOAT32, FLOAT64 = bool_.dtype, uint8.dtype, int64.dtype, float32.dtype, float64.dtype
COMPLEX64, COMPLEX128 = complex64.dtype, complex128.dtype
FLOAT32_MOST, FLOAT64_MOST = (float(np.finfo(t).max) for t in (np.float32, np.float64))
NO_HALF = "there are no complex numbers of half precision (complex32, chalf): neither NumPy nor CUDA computes with them; use complex64"


class Number(dict[np.dtype[Any], np.ndarray[Any, Any]]):
    """A number as a 0-d array of each dtype: NumPy computes with one in half the time that it takes with a Python number.

    Of bool it is an integer, as the Python number is: what is not defined for bool stays so.
    """

    def __init__(self, value: int) -> None:
        self.value = value

    def __missing__(self, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        found = self[dtype] = np.array(self.value, INT64 if dtype == BOOL else dtype)
        found.flags.writeable = False
        return found


ZERO, ONE = Number(0), Number(1)


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which values of `dtype` are computed: float32 for half types, else their own."""
    return FLOAT32 if dtype in HALF else dtype


def real_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of the real parts of `dtype`; a real one itself."""
    return FLOAT32 if dtype == COMPLEX64 else FLOAT64 if dtype == COMPLEX128 else dtype


def complex_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The complex dtype that numbers of `dtype` become: complex128 for float64, complex64 for other floating point types (half types as
    well), the default one for integers."""
    if dtype in COMPLEX:
        return dtype
    return COMPLEX128 if (dtype if dtype in FLOATING else _default.dtype) == FLOAT64 else COMPLEX64


def needs_floating(name: str, dtype: Any, what: str = "needs floating point, got", way: str = "convert with .float()") -> str:
    """The error for numbers of a wrong dtype. Of complex ones .float() would drop the imaginary part, so that it is no way out."""
    if isinstance(dtype, DType) and dtype.is_complex:
        way = "complex numbers have none of this: apply it to x.real and x.imag, to x.abs(), or to gl.view_as_real(x)"
    return f"{name}: {what} {dtype}; {way}"


def widest(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which numbers are compared: float64, complex128 for complex ones."""
    return COMPLEX128 if dtype in COMPLEX else FLOAT64


_default = float32


def get_default_dtype() -> DType:
    """The dtype of floating point tensors made from Python numbers (float32 unless set)."""
    return _default


def set_default_dtype(d: DType) -> None:
    """Set the dtype of floating point tensors made from Python numbers. Raises TypeError for a type that is not floating point."""
    global _default
    dtype = as_dtype(d)
    if not dtype.is_floating_point:
        raise TypeError(f"set_default_dtype: {dtype} is not a floating point type")
    _default = dtype


def named(name: str) -> DType:
    """The dtype of that name ("float32"). Raises TypeError naming the known ones."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise TypeError(f"no dtype named {name!r}; there are {', '.join(d.name for d in ALL)}") from None


def from_numpy(dtype: np.dtype[Any]) -> DType:
    """The public dtype of a NumPy dtype. Raises TypeError where gradlab has none (unsigned but uint8, strings, longer floats)."""
    try:
        return _BY_NUMPY[dtype]
    except KeyError:
        native = dtype.newbyteorder("=")
        if native in _BY_NUMPY:
            return _BY_NUMPY[native]
        raise TypeError(
            f"NumPy dtype {dtype} has no gradlab counterpart; convert first, for example array.astype('float32'). "
            f"There are {', '.join(d.name for d in ALL)}"
        ) from None


def as_dtype(dtype: Any) -> DType:
    """A DType from a DType, a Python type (float64 of `float`, complex128 of `complex`, as in NumPy), a NumPy dtype or a name."""
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, type) and dtype in _PYTHON:
        return _PYTHON[dtype]
    if isinstance(dtype, str):
        return named(dtype)
    try:
        if not isinstance(dtype, (type, np.dtype)):  # NumPy would take what has a dtype: a tensor, a number
            raise TypeError("give one of gradlab's, NumPy's, a Python type or a name")
        return from_numpy(np.dtype(dtype))
    except (TypeError, ValueError, SyntaxError) as error:
        raise TypeError(f"dtype: {dtype!r} is not a dtype: {error}") from None


def as_numpy(dtype: Any) -> np.dtype[Any]:
    """The NumPy dtype of whatever `as_dtype` takes."""
    if type(dtype) is DType:
        return dtype.dtype
    return dtype if isinstance(dtype, np.dtype) and dtype in _BY_NUMPY and dtype.isnative else as_dtype(dtype).dtype


class OutOfRange(OverflowError, RuntimeError):
    """A number too large for what it is used for. Both an OverflowError (Python's) and a RuntimeError (PyTorch's)."""


def held(name: str, value: float, dtype: np.dtype[Any]) -> float:
    """A coefficient with which a function of that name computes on tensors of `dtype`. OutOfRange for one that is finite and would be
    infinite there; half types are computed in float32."""
    if not -FLOAT32_MOST <= value <= FLOAT32_MOST and math.isfinite(value) and dtype not in (FLOAT64, COMPLEX128):
        raise OutOfRange(f"{name}: {value} is beyond float32, in which tensors of {dtype.name} are computed")
    return float(value)


def immediate(value: Any, dtype: np.dtype[Any]) -> Any:
    """A Python number as a NumPy scalar of `dtype`; integers wrap, floats round or overflow to infinity, as in PyTorch. OutOfRange for
    integers beyond 64 bits."""
    kind = dtype.kind
    if kind == "b":
        return np.bool_(value)
    if kind == "c":
        return dtype.type(value)
    if kind in "iu" and not isinstance(value, float):
        bits = dtype.itemsize * 8
        if not -1 << 63 <= value < 1 << 64:
            raise OutOfRange(f"{dtype.name}: {value} is too large for 64 bits")
        value &= (1 << bits) - 1
        if kind == "i" and value >> (bits - 1):
            value -= 1 << bits
        return dtype.type(value)
    return quietly(by_float32(np.asarray(value, np.float64), dtype).astype, dtype)[()]


def by_float32(x: Any, dtype: np.dtype[Any]) -> Any:
    """A number or an array on its way to `dtype`. What becomes bfloat16, or was it, is float32 in between, as in kernels and in PyTorch: of
    other conversions ml_dtypes makes something else since 0.7."""
    own = getattr(x, "dtype", FLOAT64)
    return np.asarray(x).astype(FLOAT32) if "V" in (own.kind, dtype.kind) and FLOAT32 not in (own, dtype) else x


# ---------------------------------------------------------------- promotion, as in PyTorch's documentation (torch.promote_types)

_INTEGER_RANK = {int8.dtype: 1, int16.dtype: 2, int32.dtype: 3, INT64: 4}
_FLOAT_RANK = {float16.dtype: 1, bfloat16.dtype: 1, FLOAT32: 2, FLOAT64: 3}


def promote(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    """The smallest type of the higher category (bool, integer, floating, complex) that both convert to."""
    if a is b or a == b:
        return a
    if a in COMPLEX or b in COMPLEX:  # what is not floating point adds no digits
        wide = FLOAT64 in (real_of(a), real_of(b))
        return COMPLEX128 if wide else COMPLEX64
    if a in _FLOAT_RANK or b in _FLOAT_RANK:
        x, y = _FLOAT_RANK.get(a, 0), _FLOAT_RANK.get(b, 0)
        return FLOAT32 if x == y else a if x > y else b
    if a == BOOL or b == BOOL:
        return b if a == BOOL else a
    if a == uint8.dtype or b == uint8.dtype:  # uint8 fits every signed type but int8
        other = b if a == uint8.dtype else a
        return int16.dtype if other == int8.dtype else other
    return a if _INTEGER_RANK[a] > _INTEGER_RANK[b] else b


def rank(dtype: np.dtype[Any]) -> int:
    """What a dtype holds of a number: 0 whole ones, 1 a fraction, 2 an imaginary part. A result is not stored in one of lower rank."""
    return 2 if dtype in COMPLEX else int(dtype in FLOATING)


def _category(dtype: np.dtype[Any]) -> int:
    return 2 if dtype in _FLOAT_RANK else 0 if dtype == BOOL else 3 if dtype in COMPLEX else 1


def number_dtype(value: complex) -> np.dtype[Any]:
    """The dtype that a Python number has by itself; NumPy's count as Python's."""
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return INT64
    if isinstance(value, float):
        return _default.dtype
    if isinstance(value, complex):
        return complex_of(_default.dtype)
    if isinstance(value, np.generic):
        return number_dtype(value.item())
    raise TypeError(f"{value!r} is not a number")


def result_type(tensors: Iterable[tuple[np.dtype[Any], int]], numbers: Iterable[complex] = ()) -> np.dtype[Any]:
    """PyTorch's result type of tensors, given as (dtype, number of dimensions), and Python numbers.

    Tensors with dimensions decide; 0-d tensors and then numbers count only where their category is higher.
    """
    groups: list[np.dtype[Any] | None] = [None, None, None]

    def put(level: int, dtype: np.dtype[Any]) -> None:
        known = groups[level]
        groups[level] = dtype if known is None else promote(known, dtype)

    for dtype, rank in tensors:
        put(0 if rank else 1, dtype)
    for value in numbers:
        put(2, number_dtype(value))
    result: np.dtype[Any] | None = None
    for lower in reversed(groups):
        if lower is None:
            continue
        higher = lower
        if result is None:
            result = higher
        elif _category(higher) >= _category(result):
            result = higher
        elif _category(result) == 3 and higher in _FLOAT_RANK:  # as precise as the tensors with dimensions
            result = complex_of(higher)
        elif higher == BOOL or _category(result) >= 2:
            result = promote(higher, result)
    if result is None:
        raise TypeError("result_type needs at least one tensor or number")
    return result


def _asked(name: str, dtype: Any) -> DType:
    """The dtype whose limits are asked for; an error names who asked."""
    try:
        return as_dtype(dtype)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None


class FloatInfo:
    """Limits of a floating point dtype, or of a complex one's real parts, as `torch.finfo`."""

    def __init__(self, dtype: Any = None) -> None:
        chosen = _default if dtype is None else _asked("finfo", dtype)
        chosen = chosen.to_real() if chosen.is_complex else chosen
        if not chosen.is_floating_point:
            raise TypeError(f"finfo: {chosen} is not floating point; use iinfo")
        info: Any = ml_dtypes.finfo(getattr(chosen, "limits", None) or chosen.dtype)  # type: ignore[no-untyped-call]
        self.dtype = chosen.name
        self.bits = chosen.itemsize * 8
        self.eps, self.max, self.min = float(info.eps), float(info.max), float(info.min)
        self.tiny = self.smallest_normal = float(info.smallest_normal)
        self.resolution = float(info.resolution)

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name}={getattr(self, name):g}" for name in ("resolution", "min", "max", "eps", "smallest_normal", "tiny"))
        return f"finfo({numbers}, dtype={self.dtype})"


class IntegerInfo:
    """Limits of an integer dtype, as `torch.iinfo`."""

    def __init__(self, dtype: Any) -> None:
        chosen = _asked("iinfo", dtype)
        if chosen.dtype in INEXACT or chosen is bool_:
            raise TypeError(f"iinfo: {chosen} is not an integer type")
        info = np.iinfo(chosen.dtype)
        self.dtype, self.bits, self.min, self.max = chosen.name, info.bits, int(info.min), int(info.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


finfo, iinfo = FloatInfo, IntegerInfo
