"""`gradlab.cpu`: what scripts ask of a device, for the CPU. Names and meanings follow `torch.cpu`: one device, always there, never busy."""

from __future__ import annotations

from typing import Any

from gradlab.cpu import amp as amp

__all__ = ["amp", "current_device", "device_count", "is_available", "is_initialized", "set_device", "synchronize"]


def is_available() -> bool:
    """True.

    >>> gl.cpu.is_available()
    True
    """
    return True


def is_initialized() -> bool:
    """True.

    >>> gl.cpu.is_initialized()
    True
    """
    return True


def device_count() -> int:
    """1: a CPU is one device, however many cores it has.

    >>> gl.cpu.device_count()
    1
    """
    return 1


def current_device() -> str:
    """"cpu".

    >>> gl.cpu.current_device()
    'cpu'
    """
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing: there is one.

    >>> gl.cpu.set_device("cpu")
    """


def synchronize(device: Any = None) -> None:
    """Nothing: what was called has been done.

    >>> gl.cpu.synchronize()
    """
