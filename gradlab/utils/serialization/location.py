"""Where loaded tensors go."""

from __future__ import annotations

from typing import Any

from gradlab.device import Device
from gradlab.tensor import Tensor
from gradlab.tensor.convert import moved


def located(tensor: Tensor, device: str, map_location: Any) -> Tensor:
    """The tensor on the device that `map_location` says for something saved from `device`."""
    target: Any = device
    if isinstance(map_location, dict):
        target = map_location.get(device, device)
    elif callable(map_location):
        found = map_location(tensor, device)
        if isinstance(found, Tensor):
            return found
    elif map_location is not None:
        target = map_location
    try:
        return moved(tensor, Device(target))
    except RuntimeError as error:
        raise RuntimeError(f"load: a tensor was saved from {device}, and {error}; pass map_location='cpu' to load it on the CPU") from None
