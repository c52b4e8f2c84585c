"""Data types by the array API standard: its kinds, its promotion (in which 0-d arrays count as all others do), limits, conversion."""

from __future__ import annotations

from typing import Any

from gradlab.autograd.base import Differentiable
from gradlab.dtype import ALL, FloatInfo, IntegerInfo, as_dtype, from_numpy, promote, result_type as result_of
from gradlab.tensor.creation import as_tensor, full, tensor

_NAMES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
BY_NAME = {d.name: d for d in ALL if d.name in _NAMES}  # those of the standard's that gradlab has

_KINDS = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float16", "bfloat16", "float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
_KINDS["integral"] = _KINDS["signed integer"] + _KINDS["unsigned integer"]
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"] + _KINDS["complex floating"]


def of_kind(name: str, kind: Any) -> bool:
    """Whether a dtype of that name is of a kind, or of one of several. ValueError for a kind that the standard does not have."""
    if isinstance(kind, tuple):
        return any(of_kind(name, one) for one in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"no kind of dtypes {kind!r}; there are {', '.join(map(repr, _KINDS))}")
        return name in _KINDS[kind]
    return name == as_dtype(kind).name


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating",
    "numeric"), is another dtype, or is one of a tuple of these.

    >>> gl.array_api.isdtype(gl.int32, "integral")
    True
    """
    return of_kind(as_dtype(dtype).name, kind)


def _number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex))


def _dtype_of(value: Any) -> Any:
    return value.dtype if isinstance(value, Differentiable) else as_dtype(value)  # type: ignore[attr-defined]


def result_type(*arrays_and_dtypes: Any) -> Any:
    """The dtype that arrays, dtypes and Python numbers are promoted to. A number counts only where its kind is higher than the others'.

    >>> gl.array_api.result_type(gl.int8, gl.tensor(1, dtype=gl.int32), 2)
    gradlab.int32
    """
    if not arrays_and_dtypes:
        raise ValueError("result_type: at least one array, dtype or number")
    strong = [_dtype_of(x).dtype for x in arrays_and_dtypes if not _number(x)]
    if not strong:
        return from_numpy(result_of((), arrays_and_dtypes))
    found = strong[0]
    for other in strong[1:]:
        found = promote(found, other)
    return from_numpy(result_of([(found, 1)], [x for x in arrays_and_dtypes if _number(x)]))


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether the promotion of the two is `to`: whether no number is lost by kind or size.

    >>> gl.array_api.can_cast(gl.int64, gl.int8)
    False
    """
    source, target = _dtype_of(from_), as_dtype(to)
    kinds = ["bool", "integral", "real floating", "complex floating"]
    rank = [next(i for i, kind in enumerate(kinds) if of_kind(d.name, kind)) for d in (source, target)]
    if rank[0] != rank[1]:
        return rank[0] < rank[1]
    return promote(source.dtype, target.dtype) == target.dtype


def promoted(name: str, *values: Any) -> tuple[Any, ...]:
    """Operands as tensors of their common dtype on one device. TypeError where none of them is a tensor."""
    tensors = [x for x in values if isinstance(x, Differentiable)]
    if not tensors:
        raise TypeError(f"{name}: at least one array, not {', '.join(type(x).__name__ for x in values)}; use asarray")
    dtype, device = result_type(*(x if isinstance(x, Differentiable) or _number(x) else as_tensor(x) for x in values)), tensors[0].device  # type: ignore[attr-defined]
    return tuple(
        x.to(dtype=dtype) if isinstance(x, Differentiable) else full((), x, dtype=dtype, device=device) if _number(x)  # type: ignore[attr-defined]
        else tensor(x, dtype=dtype, device=device)
        for x in values
    )  # fmt: skip


class _Limits:
    """What a limits object of PyTorch's says, with the dtype itself, as the standard demands."""

    def __init__(self, found: Any, dtype: Any) -> None:
        self._found, self.dtype = found, dtype

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)

    def __repr__(self) -> str:
        return repr(self._found)


def finfo(type: Any, /) -> Any:
    """Limits of a floating point dtype, given by itself or by an array: `bits`, `eps`, `max`, `min`, `smallest_normal`, `dtype`.

    >>> gl.array_api.finfo(gl.float32).bits
    32
    """
    dtype = _dtype_of(type)
    real = getattr(dtype, "to_real", lambda: dtype)()
    return _Limits(FloatInfo(real), real)


def iinfo(type: Any, /) -> Any:
    """Limits of an integer dtype, given by itself or by an array: `bits`, `max`, `min`, `dtype`.

    >>> gl.array_api.iinfo(gl.int8).max
    127
    """
    dtype = _dtype_of(type)
    return _Limits(IntegerInfo(dtype), dtype)


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """The array in another dtype, and on another device where one is given; a copy, unless `copy=False` and nothing has to change.

    >>> gl.array_api.astype(gl.tensor([1.5]), gl.int64)
    tensor([1])
    """
    return x.to(dtype=dtype, device=device, copy=copy)
