"""Repetition: tensors repeated along dimensions, shapes broadcast, and summed back to what they were broadcast from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind, wrap
from gradlab.named_errors import named_functions
from gradlab.spec import ShapeError, broadcast_shapes as shapes_together, count, normalize_dim, whole
from gradlab.tensor.common_arguments import either, one_of
from gradlab.tensor.convert import moved
from gradlab.tensor.shape import copied, expand, reshape, sizes
from gradlab.tensor.size import Size

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["broadcast_shapes", "broadcast_tensors", "broadcast_to", "repeat_interleave", "tile"]

_repeated = bind(ops.layout.repeated)


def broadcast_shapes(*shapes: Any) -> Size:
    """NumPy's broadcasting of shapes, sequences of sizes or one size; raises ShapeError naming all of them.

    >>> gl.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    listed = [tuple([whole(n) for n in (shape if isinstance(shape, (tuple, list)) else (shape,))]) for shape in shapes]
    if negative := [n for shape in listed for n in shape if type(n) is int and n < 0]:
        raise ShapeError(f"broadcast_shapes: a size is not negative, got {negative[0]}")
    return Size(shapes_together(*listed))


def repeat(input: Tensor, *times: Any, repeats: Any = None) -> Tensor:
    """The tensor repeated along each dimension, as often as its number says; further repeats in front make new dimensions.
    A copy.

    >>> gl.tensor([1, 2]).repeat(2, 2)
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """
    times = sizes(times if repeats is None else (repeats,))
    shape = input._array.shape
    if len(times) < len(shape) or any(r < 0 for r in times):
        raise RuntimeError(f"repeat: a count that is not negative for each dimension of shape {shape} at least, got {times}")
    own = (1,) * (len(times) - len(shape)) + tuple(shape)
    apart = tuple(s for size in own for s in (1, size))
    spread = tuple(s for r, size in zip(times, own, strict=True) for s in (r, size))
    return copied(expand(reshape(input, apart), spread), tuple(r * s for r, s in zip(times, own, strict=True)))


def tile(input: Tensor, *times: Any, dims: Any = None) -> Tensor:
    """As `repeat`; missing repeats in front are 1.

    >>> gl.tile(gl.tensor([1, 2]), 2)
    tensor([1, 2, 1, 2])
    """
    times = sizes(one_of("tile", times, dims))
    return repeat(input, (1,) * (len(input._array.shape) - len(times)) + times)


def repeat_interleave(
    input: Any = None, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None, axis: Any = None
) -> Tensor:  # fmt: skip
    """Each element repeated `repeats` times in a row along `dim` (default: of the flattened tensor). A copy.

    repeats: a number, or a vector of integers, one for each element along `dim`. A single tensor argument holds the repeats of 0, 1, 2, ….

    >>> gl.repeat_interleave(gl.tensor([1, 2]), 2)
    tensor([1, 1, 2, 2])
    """
    dim = dim if axis is None else either("repeat_interleave", dim, None, axis)
    if repeats is None or input is None:
        return _repeated(repeats if input is None else input)
    if dim is None:
        input, dim = reshape(input, -1), 0
    shape = input._array.shape
    dim = normalize_dim(dim, len(shape))
    if not shape:
        input, shape = reshape(input, 1), (1,)
    if isinstance(repeats, (tuple, list)):
        repeats = moved(wrap(np.array([whole(r) for r in repeats], np.int64)), input.device)
    if isinstance(repeats, Differentiable):
        if len(repeats._array.shape) > 1 or count(repeats._array.shape) not in (1, shape[dim]):
            raise RuntimeError(
                f"repeat_interleave: repeats of shape {repeats._array.shape} do not fit dimension {dim} of size {shape[dim]}: one number, "
                f"or one for each element"
            )
        if repeats._array.dtype.kind not in "iu":
            raise RuntimeError(f"repeat_interleave: repeats are integers, not {repeats.dtype}")  # type: ignore[attr-defined]
        found = input.index_select(dim, _repeated(reshape(repeats, -1).expand(shape[dim])))  # type: ignore[arg-type]
    else:
        if repeats < 0:
            raise RuntimeError(f"repeat_interleave: repeats are not negative, got {repeats}")
        wide = expand(input.unsqueeze(dim + 1), (*shape[: dim + 1], whole(repeats), *shape[dim + 1 :]))
        found = copied(wide, (*shape[:dim], shape[dim] * whole(repeats), *shape[dim + 1 :]))
    if output_size is not None and found._array.shape[dim] != output_size:
        raise RuntimeError(f"repeat_interleave: output_size {output_size} is not the size {found._array.shape[dim]} that repeats give")
    return found


def broadcast_to(input: Tensor, *shape: Any, size: Any = None) -> Tensor:
    """Sizes of 1 repeated, and new dimensions in front, to the shape `size`. A view, as `expand` makes it.

    >>> gl.broadcast_to(gl.tensor([1, 2]), (2, 2))
    tensor([[1, 2],
            [1, 2]])
    """
    return expand(input, *shape, size=size)


def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """All tensors broadcast to one shape: views, as `expand` makes them, or a tensor itself where it has that shape.

    >>> [x.shape for x in gl.broadcast_tensors(gl.ones(2, 1), gl.ones(3))]
    [(2, 3), (2, 3)]
    """
    found = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    shape = shapes_together(*(x._array.shape for x in found))
    return tuple(x if x._array.shape == shape else expand(x, shape) for x in found)


def sum_to_size(input: Tensor, *shape: Any, size: Any = None) -> Tensor:
    """Summed over what broadcasting from `shape` to this shape repeated.

    >>> gl.ones(2, 3).sum_to_size(1, 3)
    tensor([[2., 2., 2.]])
    """
    target, own = sizes(shape if size is None else (size,)), input._array.shape
    lead = len(own) - len(target)
    if lead < 0 or any(t not in (1, o) for t, o in zip(target, own[lead:], strict=True)):
        raise ShapeError(f"sum_to_size: shape {own} is not what {target} broadcasts to")
    if not target and input._array.dtype.kind in "biu":
        return input.sum()  # of int64, as any sum
    dims = (*range(lead), *[lead + i for i, s in enumerate(target) if s == 1 and own[lead + i] != 1])
    if not dims:
        return input if own else input.clone()
    found = input.sum(dims, keepdim=True)
    return reshape(found, target) if lead else found


named_functions(__name__)


class RepetitionMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    repeat, tile, repeat_interleave, broadcast_to, sum_to_size = repeat, tile, repeat_interleave, broadcast_to, sum_to_size
