"""Exchanging memory with other libraries by the DLPack protocol, under PyTorch's older names."""

from __future__ import annotations

from typing import Any

from gradlab.tensor.creation import from_dlpack as from_dlpack

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Any) -> Any:
    """A capsule with the tensor's memory, for libraries that take no tensor; others call `__dlpack__` by themselves. A tensor in a graph is
    given without it."""
    return tensor.detach().__dlpack__(stream=None if tensor.device.type == "cpu" else 1)  # 1: the default stream
