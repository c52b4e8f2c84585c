"""Padding: more elements at the ends of the last one, two or three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from gradlab.nn import functional as F
from gradlab.nn.module import Module
from gradlab.spec import whole
from gradlab.tensor import Tensor


class _Pad(Module):
    """padding: one number for all ends, or the ends' numbers from the last dimension on: (left, right, top, bottom, front, back)."""

    dims: ClassVar[int]
    mode: ClassVar[str]
    value: float = 0.0

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        self.padding = (whole(padding),) * (2 * self.dims) if hasattr(padding, "__index__") else tuple(padding)
        if len(self.padding) != 2 * self.dims:
            raise ValueError(f"{type(self).__name__}: padding is one number or {2 * self.dims}, not {padding}")

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode, self.value if self.mode == "constant" else None)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    mode = "constant"

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_ConstantPad):
    """Padded with `value`: (*, L)."""

    dims = 1


class ConstantPad2d(_ConstantPad):
    """Padded with `value`: (*, H, W)."""

    dims = 2


class ConstantPad3d(_ConstantPad):
    """Padded with `value`: (*, D, H, W)."""

    dims = 3


class ZeroPad1d(_ZeroPad):
    """Padded with zeros: (*, L)."""

    dims = 1


class ZeroPad2d(_ZeroPad):
    """Padded with zeros: (*, H, W)."""

    dims = 2


class ZeroPad3d(_ZeroPad):
    """Padded with zeros: (*, D, H, W)."""

    dims = 3


class ReflectionPad1d(_Pad):
    """Padded with a reflection that does not repeat the edge: (*, L)."""

    dims, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Padded with a reflection that does not repeat the edge: (*, H, W)."""

    dims, mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """Padded with a reflection that does not repeat the edge: (*, D, H, W)."""

    dims, mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """Padded with copies of the edge: (*, L)."""

    dims, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """Padded with copies of the edge: (*, H, W)."""

    dims, mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """Padded with copies of the edge: (*, D, H, W)."""

    dims, mode = 3, "replicate"


class CircularPad1d(_Pad):
    """Padded with what comes round from the other end: (*, L)."""

    dims, mode = 1, "circular"


class CircularPad2d(_Pad):
    """Padded with what comes round from the other end: (*, H, W)."""

    dims, mode = 2, "circular"


class CircularPad3d(_Pad):
    """Padded with what comes round from the other end: (*, D, H, W)."""

    dims, mode = 3, "circular"
