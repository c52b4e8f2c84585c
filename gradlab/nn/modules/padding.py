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

    padding: tuple[int, ...]

    def __init__(self, padding: int | Sequence[int] | None = None) -> None:
        super().__init__()
        if padding is not None:  # a subclass by its user says it later
            self.padding = (whole(padding),) * (2 * self.dims) if hasattr(padding, "__index__") else tuple(padding)
            if len(self.padding) != 2 * self.dims:
                raise ValueError(f"{type(self).__name__}: padding is one number or {2 * self.dims}, not {padding}")

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode, self.value if self.mode == "constant" else None)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_Pad):
    mode = "constant"

    def __init__(self, value: float, padding: int | Sequence[int] | None = None) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ReflectionPadNd(_Pad):
    mode = "reflect"


class _ReplicationPadNd(_Pad):
    mode = "replicate"


class _CircularPadNd(_Pad):
    mode = "circular"


class ConstantPad1d(_ConstantPadNd):
    """Padded with `value`: (*, L)."""

    dims = 1

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(value, padding)


class ConstantPad2d(_ConstantPadNd):
    """Padded with `value`: (*, H, W)."""

    dims = 2

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(value, padding)


class ConstantPad3d(_ConstantPadNd):
    """Padded with `value`: (*, D, H, W)."""

    dims = 3

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(value, padding)


class ZeroPad1d(ConstantPad1d):
    """Padded with zeros: (*, L)."""

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    extra_repr = _Pad.extra_repr


class ZeroPad2d(ConstantPad2d):
    """Padded with zeros: (*, H, W)."""

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    extra_repr = _Pad.extra_repr


class ZeroPad3d(ConstantPad3d):
    """Padded with zeros: (*, D, H, W)."""

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    extra_repr = _Pad.extra_repr


class ReflectionPad1d(_ReflectionPadNd):
    """Padded with a reflection that does not repeat the edge: (*, L)."""

    dims = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Padded with a reflection that does not repeat the edge: (*, H, W)."""

    dims = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Padded with a reflection that does not repeat the edge: (*, D, H, W)."""

    dims = 3


class ReplicationPad1d(_ReplicationPadNd):
    """Padded with copies of the edge: (*, L)."""

    dims = 1


class ReplicationPad2d(_ReplicationPadNd):
    """Padded with copies of the edge: (*, H, W)."""

    dims = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Padded with copies of the edge: (*, D, H, W)."""

    dims = 3


class CircularPad1d(_CircularPadNd):
    """Padded with what comes round from the other end: (*, L)."""

    dims = 1


class CircularPad2d(_CircularPadNd):
    """Padded with what comes round from the other end: (*, H, W)."""

    dims = 2


class CircularPad3d(_CircularPadNd):
    """Padded with what comes round from the other end: (*, D, H, W)."""

    dims = 3
