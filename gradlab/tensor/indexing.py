"""Indexing: integers, slices, None and Ellipsis give views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

_slice = bind(ops.movement.slice_)


def canonical(index: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A basic index in the form that the slice row takes."""
    parts = index if isinstance(index, tuple) else (index,)
    used = sum(1 for p in parts if p is not None and p is not Ellipsis)
    found: list[Any] = []
    for part in parts:
        if part is Ellipsis:
            found += [(0, None, 1)] * (len(shape) - used)
        elif isinstance(part, slice):
            if part.step is not None and part.step <= 0:
                raise ValueError(f"slice step must be positive, got {part.step}; use flip")
            found.append((part.start, part.stop, part.step))
        elif part is None:
            found.append(None)
        else:
            found.append(part.__index__())
    return tuple(found)


class IndexingMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Tensor:
        return _slice(self, index=canonical(index, self._array.shape))
