"""In which order in memory copies lie, and tensors made like others: memory formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab import dispatch, ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.autograd.record import bind, finish, refresh
from gradlab.batched import Batched
from gradlab.named_errors import explain
from gradlab.strides import (
    MemoryFormat,
    channels_order,
    contiguous_format,
    dense_order,
    formatted,
    has_format,
    inverse_order,
    is_row_major,
    preserve_format,
    preserved,
    suggested,
)

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

_clone, _permute = map(bind, (ops.elementwise.clone, ops.movement.permute))
Order = tuple[int, ...] | None  # of dimensions in memory; None is row by row


def checked(name: str, chosen: Any) -> MemoryFormat:
    """A memory format. TypeError for what is none."""
    if isinstance(chosen, MemoryFormat):
        return chosen
    raise TypeError(f"{name}(): argument 'memory_format' must be a memory format such as gl.channels_last, not {type(chosen).__name__}")


def laid_as(name: str, tensor: Any, chosen: Any = None) -> Order:
    """The order of dimensions in which what is made like a tensor lies: that of a memory format, or of the tensor itself."""
    array = tensor._array
    shape, size = array.shape, array.dtype.itemsize
    if chosen is None or checked(name, chosen) is preserve_format:
        flags = getattr(array, "flags", None)  # under vmap and of sparse tensors there are none
        if flags is None or flags.c_contiguous:
            return None
        strides = preserved(tuple(shape), array.strides, size)
    elif chosen is contiguous_format:
        return None
    else:
        formatted(shape, chosen, size)
        return channels_order(len(shape))
    return None if is_row_major(shape, strides, size) else dense_order(shape, strides, size)


def copied(tensor: Any, order: Order) -> Any:
    """A copy whose dimensions lie in that order."""
    if order is None or type(tensor._array) is Batched:
        return _clone(tensor)
    mode = current()
    if mode.tracer is not None:
        found = _clone(tensor)
        found._array = mode.tracer.lying(found._array, order)
        return found
    if tensor._meta is not None:
        refresh(tensor)
    array = tensor._array
    made = dispatch.backend_of(array).copy(array.transpose(order)).transpose(inverse_order(order))
    return finish(ops.elementwise.clone, [tensor], {}, made, mode)


def laid(made: Any, order: Order) -> Any:
    """A new tensor, whose dimensions come in that order, with its dimensions in their own order, in the same memory."""
    if order is None:
        return made
    if current().tracer is None:
        made._array = made._array.transpose(inverse_order(order))
        return made
    found = _permute(made, dims=inverse_order(order))
    found._meta = None
    return found


def followed(result: Any, image: Any) -> Any:
    """A result on images whose channels come last where those of the image it was made of do."""
    array = image._array
    flags = getattr(array, "flags", None)
    if flags is None or flags.c_contiguous or len(result._array.shape) != len(array.shape):
        return result
    chosen = suggested(array.shape, array.strides)
    return result if chosen is contiguous_format else result.contiguous(memory_format=chosen)


class MemoryFormatMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()

    def clone(self, *, memory_format: Any = None) -> Tensor:
        """A copy in memory of its own; gradients pass through. Its elements lie as this tensor's do, without gaps, or in a `memory_format`.

        >>> gl.ones(2).clone()
        tensor([1., 1.])
        """
        try:
            if memory_format is contiguous_format:
                return _clone(self)
            if memory_format is None:
                flags = getattr(self._array, "flags", None)
                if flags is None or flags.c_contiguous:
                    return _clone(self)
            return copied(self, laid_as("clone", self, memory_format))
        except Exception as error:
            explain(error, "clone", type(self).clone, (self,), {"memory_format": memory_format})

    def contiguous(self, memory_format: Any = contiguous_format) -> Tensor:
        """This tensor if its elements lie in row-major order (or in that of another `memory_format`), else a copy that does.

        >>> gl.ones(2, 3).t().contiguous().stride()
        (2, 1)
        """
        try:
            array = self._array
            if memory_format is contiguous_format:
                flags = getattr(array, "flags", None)  # under vmap there are none
                return self if flags is None or flags.c_contiguous else _clone(self)  # type: ignore[return-value]
            if checked("contiguous", memory_format) is preserve_format:
                raise RuntimeError("contiguous: preserve_format is no order of elements; use clone()")
            order = laid_as("contiguous", self, memory_format)
            known = type(array) is Batched or has_format(array.shape, array.strides, memory_format, array.dtype.itemsize)
            return self if known else copied(self, order)  # type: ignore[return-value]
        except Exception as error:
            explain(error, "contiguous", type(self).contiguous, (self, memory_format))
