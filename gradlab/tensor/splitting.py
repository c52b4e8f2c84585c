"""Parts of a tensor along one dimension, as views: one, a range, all of them, parts of given sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradlab import ops
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind
from gradlab.named_errors import explain, named_functions
from gradlab.spec import is_number, normalize_dim, whole
from gradlab.tensor.common_arguments import either, few_enough, required

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["chunk", "narrow", "select", "split", "unbind"]

_slice = bind(ops.movement.slice_)


def select(input: Tensor, dim: int | None = None, index: Any = None, *, axis: Any = None) -> Tensor:
    """The part at `index` along `dim`, without that dimension. A view.

    >>> gl.select(gl.tensor([[1, 2], [3, 4]]), 1, 0)
    tensor([1, 3])
    """
    try:
        if axis is not None or dim is None:
            dim = required("select", dim, axis)
        dim = normalize_dim(dim, len(input._array.shape))
        return _slice(input, index=((0, None, 1),) * dim + (whole(index),))
    except Exception as error:
        explain(error, "select", select, (input, dim, index), {"axis": axis})


def narrow(input: Tensor, dim: int | None = None, start: Any = None, length: Any = None, *, axis: Any = None) -> Tensor:
    """`length` elements from `start` along `dim`. A view.

    >>> gl.narrow(gl.arange(5), 0, 1, 3)
    tensor([1, 2, 3])
    """
    try:
        if axis is not None or dim is None:
            dim = required("narrow", dim, axis)
        shape = input._array.shape
        dim = normalize_dim(dim, len(shape))
        if isinstance(start, Differentiable) and (start._array.shape or start._array.dtype.kind not in "iu"):
            raise RuntimeError(f"narrow: start is a number or a 0-d integer tensor, not {start._array.dtype} of shape {start._array.shape}")
        start, length = whole(start), whole(length)
        start = start + shape[dim] if start < 0 else start
        if length < 0 or start < 0 or start + length > shape[dim]:
            raise RuntimeError(f"narrow: {length} elements from {start} do not lie in dimension {dim} of size {shape[dim]} (shape {shape})")
        return _slice(input, index=((0, None, 1),) * dim + ((start, start + length, 1),))
    except Exception as error:
        explain(error, "narrow", narrow, (input, dim, start, length), {"axis": axis})


def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0, *, axis: Any = None) -> tuple[Tensor, ...]:
    """Parts along `dim`: of one size (the last may be smaller), or of the given sizes, which must add up. Views.

    >>> gl.split(gl.arange(5), 2)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    try:
        dim = dim if axis is None else either("split", dim, 0, axis)
        shape = tensor._array.shape
        dim = normalize_dim(dim, len(shape))
        if is_number(split_size_or_sections):
            size = whole(split_size_or_sections)
            if size < 0 or (size == 0 and shape[dim]):
                raise RuntimeError(f"split: the size of a part must be positive, got {size}")
            if type(size) is int:
                _known("split", shape, dim)
            number = -(-shape[dim] // size) if shape[dim] else 1
            parts = [min(size, shape[dim] - i * size) for i in range(number)]
        else:
            parts = [whole(s) for s in split_size_or_sections]
            if sum(parts) != shape[dim] or any(p < 0 for p in parts):
                raise RuntimeError(f"split: sections {parts} do not add up to size {shape[dim]} of dimension {dim} (shape {shape})")
        found, start = [], 0
        for size in parts:
            found.append(narrow(tensor, dim, start, size))
            start += size
        return tuple(found)
    except Exception as error:
        explain(error, "split", split, (tensor, split_size_or_sections, dim), {"axis": axis})


def chunk(input: Tensor, chunks: int, dim: int = 0, *, axis: Any = None) -> tuple[Tensor, ...]:
    """At most `chunks` parts of equal size along `dim` (the last may be smaller). Views.

    >>> gl.chunk(gl.arange(4), 2)
    (tensor([0, 1]), tensor([2, 3]))
    """
    try:
        dim = dim if axis is None else either("chunk", dim, 0, axis)
        chunks = whole(chunks)
        if chunks < 1:
            raise RuntimeError(f"chunk: at least one part, not {chunks}")
        size = input._array.shape[normalize_dim(dim, len(input._array.shape))]
        if size == 0:
            few_enough("chunk", "parts", chunks)
            return split(input, [0] * chunks, dim)
        return split(input, max(-(-size // chunks), 1), dim)
    except Exception as error:
        explain(error, "chunk", chunk, (input, chunks, dim), {"axis": axis})


def unbind(input: Tensor, dim: int = 0, *, axis: Any = None) -> tuple[Tensor, ...]:
    """The parts along `dim`, without that dimension. Views.

    >>> gl.unbind(gl.tensor([[1, 2], [3, 4]]))
    (tensor([1, 2]), tensor([3, 4]))
    """
    try:
        dim = dim if axis is None else either("unbind", dim, 0, axis)
        shape = input._array.shape
        dim = normalize_dim(dim, len(shape))
        _known("unbind", shape, dim)
        return tuple(select(input, dim, i) for i in range(shape[dim]))
    except Exception as error:
        explain(error, "unbind", unbind, (input, dim), {"axis": axis})


def _known(name: str, shape: tuple[int, ...], dim: int) -> None:
    """RuntimeError where the number of parts would depend on a size that is unknown while a graph is made."""
    if type(shape[dim]) is not int and hasattr(shape[dim], "expr"):
        raise RuntimeError(
            f"{name}: the size of dimension {dim} is unknown while the graph is made (shape {shape}), and so is the number of parts; "
            f"use gl.scan over that dimension, or give the size"
        )


named_functions(__name__)


class SplittingMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    select, narrow, chunk, unbind = select, narrow, chunk, unbind

    def split(self: Any, split_size: int | Sequence[int], dim: int = 0, *, axis: Any = None) -> tuple[Tensor, ...]:
        """`gl.split` of this tensor. Views.

        >>> gl.arange(5).split([2, 3])
        (tensor([0, 1]), tensor([2, 3, 4]))
        """
        try:
            return split(self, split_size, dim, axis=axis)
        except Exception as error:
            explain(error, "split", type(self).split, (self, split_size, dim), {"axis": axis})
