"""Reading and writing by masks, and the places of what is not zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind
from gradlab.dtype import BOOL
from gradlab.named_errors import named_functions
from gradlab.spec import broadcast_shapes
from gradlab.tensor.common_arguments import into
from gradlab.tensor.indexing import write_into

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor
from gradlab.tensor.gather import lifted

__all__ = ["argwhere", "masked_scatter", "masked_select", "nonzero"]

_rows = ops.indexing
_index, _nonzero, _masked_scatter = map(bind, (_rows.index, _rows.nonzero, _rows.masked_scatter))


def _mask(name: str, mask: Any) -> Any:
    if not isinstance(mask, Differentiable) or mask._array.dtype != BOOL:
        what = mask._array.dtype if isinstance(mask, Differentiable) else type(mask).__name__
        raise MaskError(f"{name}: the mask is a bool tensor, not {what}")
    return mask


class MaskError(TypeError, RuntimeError):
    """A mask that is not a bool tensor."""


def masked_select(input: Tensor, mask: Tensor, *, out: Any = None) -> Tensor:
    """The elements where the bool tensor `mask` is true, as a vector; both are broadcast. Its size depends on values: not for a trace.

    >>> gl.masked_select(gl.tensor([1, 2, 3]), gl.tensor([True, False, True]))
    tensor([1, 3])
    """
    mask = _mask("masked_select", mask)
    shape = broadcast_shapes(input._array.shape, mask._array.shape)
    at = _nonzero(mask.expand(shape).reshape(-1)).t()
    result = _index(input.expand(shape).reshape(-1), at, dims=(0,), wrap=True)
    return result if out is None else into("masked_select", out, result, (input, mask))


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` in which the true places of `mask` hold the elements of `source`, in order. Needs as many as there are.

    >>> gl.masked_scatter(gl.zeros(3), gl.tensor([True, False, True]), gl.tensor([1.0, 2.0]))
    tensor([1., 0., 2.])
    """
    mask, source = _masked(input, mask, source)
    shape = broadcast_shapes(input._array.shape, mask._array.shape)
    return _masked_scatter(input.expand(shape), mask.expand(shape), source)


def _masked(input: Tensor, mask: Any, source: Any) -> tuple[Any, Any]:
    if not isinstance(source, Differentiable) or source._array.dtype != input._array.dtype:
        raise RuntimeError(f"masked_scatter: the source is a tensor of the input's type {input._array.dtype}")
    return _mask("masked_scatter", mask), source


def nonzero(input: Tensor, *, as_tuple: bool = False, out: Any = None) -> Any:
    """Places of the nonzero elements: an int64 tensor (n, dimensions), or, with as_tuple, one vector for each dimension.

    Its size depends on values: not for a trace (use where).

    >>> gl.nonzero(gl.tensor([0, 5, 6]))
    tensor([[1],
            [2]])
    """
    if out is not None:
        return into("nonzero", out, nonzero(input, as_tuple=as_tuple))
    if not as_tuple:
        return _nonzero(input)
    return _nonzero(lifted(input)).unbind(1)


def argwhere(input: Tensor) -> Tensor:
    """nonzero(input).

    >>> gl.argwhere(gl.tensor([[0, 5], [6, 0]]))
    tensor([[0, 1],
            [1, 0]])
    """
    return _nonzero(input)


named_functions(__name__)


class MaskMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    masked_select, masked_scatter, nonzero, argwhere = masked_select, masked_scatter, nonzero, argwhere

    def masked_scatter_(self: Any, mask: Tensor, source: Tensor) -> Any:
        """masked_scatter, in place.

        >>> gl.zeros(3).masked_scatter_(gl.tensor([True, False, True]), gl.tensor([1.0, 2.0]))
        tensor([1., 0., 2.])
        """
        mask, source = _masked(self, mask, source)
        return write_into("masked_scatter_", self, _rows.masked_scatter, (mask.expand(self.shape), source), {})
