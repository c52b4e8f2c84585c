"""What a tensor inside `vmap` holds in place of an array: a value for each sample of a batch, and the level that the batch belongs to.

Pure data: the rules are in `ops/batching`, the levels in `func/vmap_levels.py`. The rooms between know only that there is such an array.
"""

from __future__ import annotations

from typing import Any


class Batched:
    """One level of batching around a tensor.

    value    a Tensor: with the batch as its first dimension, or, where `mapped` is False, the same for every sample
    level    the `func.vmap_levels.Level` of the vmap that made it
    shape    of one sample; `dtype` is the value's
    unit     of a random state: words of the generator between one sample and the next

    It is never changed: writing in place gives a tensor another Batched.
    """

    __slots__ = ("dtype", "level", "mapped", "shape", "unit", "value")

    def __init__(self, value: Any, level: Any, mapped: bool, unit: int = 0) -> None:
        array = value._array
        self.value = value
        self.level = level
        self.mapped = mapped
        self.unit = unit
        self.shape: tuple[int, ...] = array.shape[1:] if mapped else array.shape
        self.dtype = array.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        total = 1
        for size in self.shape:
            total *= size
        return total

    def lifted(self, tensor: Any) -> Batched:
        """A tensor that is the same for every sample, at this level."""
        return Batched(tensor, self.level, False)

    def detached(self) -> Batched:
        """The same values outside every graph, also those around the vmap."""
        return Batched(self.value.detach(), self.level, self.mapped)

    def __repr__(self) -> str:
        return f"Batched(level={self.level.depth}, shape={self.shape}, dtype={self.dtype})"
