"""The device that a wrapper of a model works on, and arguments that are moved there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradlab.device import Device
from gradlab.tensor import Tensor


def device_of(given: Any) -> Device:
    """What a device is named by in `device_ids`: a device, its name, or a GPU's number."""
    return Device("cuda", given) if isinstance(given, int) else Device(given)


def on(device: Device | None, value: Any) -> Any:
    """Arguments with their tensors on that device; as they are where it is None."""
    if device is None:
        return value
    if isinstance(value, Tensor):
        return value.to(device=device)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(on(device, each) for each in value))
    if type(value) in (tuple, list):
        return type(value)(on(device, each) for each in value)
    if isinstance(value, Mapping) and type(value) is dict:
        return {key: on(device, each) for key, each in value.items()}
    return value
