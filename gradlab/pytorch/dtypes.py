"""PyTorch's dtypes that no tensor of gradlab's has: they can be named, compared, put into tables; who computes with one is told why not."""

from __future__ import annotations

from typing import Any, NoReturn

import ml_dtypes
import numpy as np

from gradlab.dtype import DType
from gradlab.tensor.missing_names import MODULES


class NameOnly(DType):
    """A dtype that exists as a name. TypeError, with what to use instead, where a tensor is asked to be of it."""

    __slots__ = ("limits",)

    def __init__(self, name: str, itemsize: int) -> None:
        self.name, self.itemsize = name, itemsize
        self.is_floating_point, self.is_complex = name.startswith("float"), name.startswith("complex")
        self.limits: Any = np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else None  # for finfo
        self.is_signed = not name.startswith(("uint", "quint"))

    @property
    def dtype(self) -> NoReturn:  # type: ignore[override]
        raise TypeError(f"torch.{self.name}: {_advice(self.name)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return found, (self.name,)


def _advice(name: str) -> str:
    return MODULES["gradlab"].get(name) or "use one of the dtypes float16, bfloat16, float32, float64, int8 to int64, uint8, bool"


_ALL = {
    name: NameOnly(name, itemsize)
    for itemsize, names in {
        1: "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu qint8 quint8 quint4x2 quint2x4 float4_e2m1fn_x2",
        2: "uint16", 4: "uint32 qint32 complex32", 8: "uint64",
    }.items()
    for name in names.split()
}  # fmt: skip
_ALIASES = {"chalf": "complex32"}


def found(name: str) -> NameOnly:
    """The dtype of that name; what a pickle calls."""
    return _ALL[_ALIASES.get(name, name)]


def __getattr__(name: str) -> NameOnly:
    try:
        return found(name)
    except KeyError:
        raise AttributeError(name) from None
