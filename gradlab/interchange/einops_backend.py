"""einops' functions on tensors: they are recorded, on every device and in traces. Importing this registers it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from einops._backends import AbstractBackend

from gradlab.tensor import Tensor
from gradlab.tensor.creation import arange, from_numpy
from gradlab.tensor.einsum import einsum
from gradlab.tensor.shape import cat, stack


class GradlabBackend(AbstractBackend):  # type: ignore[misc]
    """What einops calls."""

    framework_name = "gradlab"

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: np.ndarray[Any, Any]) -> Any:
        return from_numpy(x)

    def to_numpy(self, x: Any) -> Any:
        return x.detach().cpu().numpy()

    def arange(self, start: int, stop: int) -> Any:
        return arange(start, stop)

    def shape(self, x: Any) -> Any:
        return tuple(x.shape)

    def transpose(self, x: Any, axes: Any) -> Any:
        return x.permute(tuple(axes))

    def reduce(self, x: Any, operation: str, axes: Any) -> Any:
        if operation == "prod":
            for axis in sorted(axes, reverse=True):
                x = x.prod(axis)
            return x
        return getattr(x, f"a{operation}" if operation in ("min", "max") else operation)(tuple(axes))

    def stack_on_zeroth_dimension(self, tensors: list[Any]) -> Any:
        return stack(tensors)

    def add_axes(self, x: Any, n_axes: int, pos2len: dict[int, int]) -> Any:
        for position in sorted(pos2len):
            x = x.unsqueeze(position)
        return x.expand([pos2len.get(position, -1) for position in range(n_axes)])

    def tile(self, x: Any, repeats: Any) -> Any:
        return x.repeat(repeats)

    def concat(self, tensors: Any, axis: int) -> Any:
        return cat(tensors, dim=axis)

    def add_axis(self, x: Any, new_position: int) -> Any:
        return x.unsqueeze(new_position)

    def is_float_type(self, x: Any) -> bool:
        return bool(x.is_floating_point())

    def layers(self) -> Any:
        return import_module("gradlab.interchange.einops_layers")

    def einsum(self, pattern: str, *x: Any) -> Any:
        return einsum(pattern, *x)
