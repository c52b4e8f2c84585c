"""The GPU of this machine, whatever its kind: the names of `torch.accelerator`, which scripts ask where to run. Here it is CUDA's.

>>> import gradlab as gl
>>> device = gl.accelerator.current_accelerator() if gl.accelerator.is_available() else gl.device("cpu")
"""

from __future__ import annotations

from typing import Any

from gradlab.cuda import devices
from gradlab.device import Device

__all__ = [
    "current_accelerator", "current_device_index", "device_count", "device_index", "is_available", "set_device_index", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """Whether there is a GPU that can be used. Never raises."""
    return devices.is_available()


def device_count() -> int:
    """How many there are; 0 where none can be used."""
    return devices.device_count()


def current_accelerator(check_available: bool = False) -> Device | None:
    """The kind of accelerator as a device without a number: `device("cuda")`; None where there is none."""
    return Device("cuda") if devices.is_available() else None


def current_device_index() -> int:
    """The number of the current one. RuntimeError says what is missing."""
    return devices.current_device()


def set_device_index(device: Any) -> None:
    """Make the one of that number current in this thread."""
    devices.set_device(device)


def synchronize(device: Any = None) -> None:
    """Wait for all work on it."""
    devices.synchronize(device)


class device_index(devices.device):
    """Within the block, the one of that number is current: `with gl.accelerator.device_index(1):`."""
