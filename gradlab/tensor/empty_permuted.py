"""Tensors without values whose dimensions lie in memory in an order that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.named_errors import named_functions
from gradlab.tensor.creation import empty_strided
from gradlab.tensor.shape import sizes

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["empty_permuted"]


def empty_permuted(
    size: Any, physical_layout: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of that size whose dimensions lie in memory in the order `physical_layout`, the first one outermost. Its values do not
    matter (here zeros).

    >>> gl.empty_permuted((2, 3), (1, 0)).stride()
    (1, 2)
    """
    shape, order = sizes((size,)), sizes((physical_layout,))
    if sorted(order) != list(range(len(shape))):
        raise RuntimeError(f"empty_permuted: physical_layout has each of {len(shape)} dimensions once, got {order}")
    steps, step = [0] * len(shape), 1
    for d in reversed(order):
        steps[d], step = step, step * max(shape[d], 1)
    return empty_strided(shape, steps, dtype=dtype, device=device, requires_grad=requires_grad, layout=layout)


named_functions(__name__)
