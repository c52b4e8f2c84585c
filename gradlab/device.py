"""Devices as plain data: a type ("cpu", "cuda", "meta") and an index."""

from __future__ import annotations

import operator
import os
from contextvars import ContextVar
from typing import Any

TYPES = ("cpu", "cuda", "meta")


class Device:
    """A place where tensors live: `Device("cpu")`, `Device("cuda")`, `Device("cuda:1")`, `Device("cuda", 1)`.

    "meta" has no memory: a tensor there has a shape and a dtype, and no values.
    """

    __slots__ = ("index", "type")
    type: str

    def __init__(self, device: Any = None, index: int | None = None, *, type: str | None = None) -> None:
        if (device is None) is (type is None):
            raise TypeError("device is a string such as 'cpu' or 'cuda:0', or type= and index=")
        device = type if device is None else device
        if not isinstance(device, str):
            if isinstance(device, Device):
                index, device = device.index if index is None else index, device.type
            elif isinstance(device, int) and not isinstance(device, bool) and index is None:  # a GPU's number
                device, index = "cuda", device
            else:
                raise TypeError(f"device: a string such as 'cpu' or 'cuda:0', not {device!r}")
        kind, colon, number = device.partition(":")
        if kind not in TYPES or (colon and not number.isdecimal()) or (colon and index is not None):
            raise RuntimeError(f"no device {device!r}; write 'cpu', 'cuda', 'cuda:N' or 'meta'")
        if index is not None and not isinstance(index, int):
            try:
                index = operator.index(index)
            except TypeError as error:
                raise TypeError(f"device: index is an integer: {error}") from None
        self.type = kind
        self.index: int | None = int(number) if colon else index
        if kind == "cuda" and not _cuda:
            kind = self.type = "cpu"
            self.index = None
        if self.index is not None and (self.index < 0 or (kind != "cuda" and self.index > 0)):
            raise RuntimeError(f"no device {kind}:{self.index}")
        if kind != "cuda":
            self.index = None

    def __enter__(self) -> Device:
        """Within the block new tensors are made on this device unless another is given."""
        _within.set((*_within.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _within.set(_within.get()[:-1])

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"device(type={self.type!r})" if self.index is None else f"device(type={self.type!r}, index={self.index})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            try:
                other = Device(other)
            except RuntimeError:
                return False
        return isinstance(other, Device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> tuple[Any, ...]:
        return Device, (str(self),)


_cuda = True  # whether "cuda" means a GPU; `gradlab run --device cpu` lets it mean the CPU
CPU = Device("cpu")
_within: ContextVar[tuple[Device, ...]] = ContextVar("gradlab_device", default=())


def _of_environment(name: str) -> Device:
    try:
        return Device(name) if name else CPU
    except RuntimeError as error:
        raise RuntimeError(f"GRADLAB_DEVICE={name}: {error}") from None


_default = _of_environment(os.environ.get("GRADLAB_DEVICE", ""))  # "cuda" is asked for when something is made there


def default_device() -> Device:
    """Where new tensors are made unless a device is given: that of the innermost `with gl.device(...)`, else of `set_default_device`,
    else of the environment's GRADLAB_DEVICE ("cuda", "cuda:1"), else the CPU."""
    within = _within.get()
    return within[-1] if within else _default


def set_default_device(device: Any) -> None:
    """Set where new tensors are made unless a device is given; None is the CPU."""
    global _default
    try:
        _default = CPU if device is None else Device(device)
    except RuntimeError as error:
        raise RuntimeError(f"set_default_device: {error}") from None


get_default_device = default_device


def let_cuda_mean_cpu(value: bool = True) -> None:
    """Let every "cuda" that is asked for be the CPU, for programs that say `.cuda()` whatever there is."""
    global _cuda
    _cuda = not value
