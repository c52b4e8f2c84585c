"""A tensor's memory: where it begins, in which steps and which format its elements lie; the same memory seen in other steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import dispatch, ops
from gradlab.autograd import inplace
from gradlab.autograd.base import LEAF, Differentiable
from gradlab.autograd.mode import current
from gradlab.autograd.record import bind, refresh
from gradlab.batched import Batched
from gradlab.kernel import Library
from gradlab.named_errors import explain, named_functions
from gradlab.op import Op
from gradlab.spec import ShapeError, Spec, count, whole
from gradlab.strides import MemoryFormat, contiguous_format, dense_order, has_format, row_major
from gradlab.tensor.bits import offset
from gradlab.tensor.common_arguments import either, into, only_tensors
from gradlab.tensor.shape import permute, reshape, sizes

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["as_strided", "as_strided_copy", "as_strided_scatter"]

_rows = ops.memory
_strided = bind(_rows.as_strided)


def _share(g: Any, x_spec: Spec, steps: tuple[int, ...], first: int) -> Any:
    """Each element's part of the memory's gradient; elements that are one place share what arrives there, as in PyTorch."""
    there = _rows.places(x_spec.shape, steps, first)
    seen = np.bincount(there, minlength=1)[there]
    part = _strided(g, shape=x_spec.shape, steps=steps, first=first)
    return part if (seen == 1).all() else part / g.new_tensor(seen.reshape(x_spec.shape))


# All the memory that a tensor is a part of, as one line; `first` and `steps` say where in it the tensor lies. No row of a family: what a
# program's arrays are parts of is the program's choice, so it is never traced.
_storage = bind(Op("storage", lambda x, *, length, steps, first: Spec((length,), x.dtype), params=("length", "steps", "first"), view=True,
                   cpu=lambda x, *, length, steps, first: _rows.line_of(x),
                   cuda=Library(lambda cupy, inputs, params: _rows.line_of(inputs[0])),
                   inverse=lambda base, value, length, steps, first: _strided(value, shape=base.shape, steps=steps, first=first),
                   grad={"x": _share}))  # fmt: skip


def _geometry(name: str, size: Any, stride: Any, first: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape, steps = sizes((size,)), sizes((stride,))
    if len(shape) != len(steps):
        raise RuntimeError(f"{name}: one stride for each size, got size {shape} and stride {steps}")
    if any(s < 0 for s in shape):
        raise RuntimeError(f"{name}: a size cannot be negative: {shape}")
    if any(s < 0 for s in steps):
        raise RuntimeError(f"{name}: strides are not negative, got {steps}; use flip, which copies")
    if first is not None and whole(first) < 0:
        raise RuntimeError(f"{name}: the storage offset is not negative, got {first}")
    return shape, steps


def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: Any = None) -> Tensor:
    """The memory that `input` is a part of, seen in another size and other steps: a view, of which several elements may be one place.

    size, stride: a number of elements, and a step in elements, for each dimension. storage_offset: where in the memory the first element
    is; that of `input` unless given. A gradient adds up over all places where an element is seen. RuntimeError for what reaches beyond the
    memory, and, in a trace or under vmap, beyond the elements of `input`.

    >>> gl.as_strided(gl.arange(6), (3, 2), (2, 1))
    tensor([[0, 1],
            [2, 3],
            [4, 5]])
    """
    try:
        only_tensors("as_strided", input)
        refresh(input)
        shape, steps = _geometry("as_strided", size, stride, storage_offset)
        array, last = input._array, _rows.reach(shape, steps)
        if type(array) is Batched:
            return _strided(reshape(input, -1), shape=shape, steps=steps, first=storage_offset or 0)
        if not last:
            return _strided(input, shape=shape, steps=steps, first=0)
        _depends()
        first = None if storage_offset is None else storage_offset - offset(input)
        found = _within(input, shape, steps, 0 if first is None else first, last)
        if found is not None:
            return found
        meta = input._meta
        base = None if meta is None or input._edge is LEAF else inplace.base_of(meta)
        if storage_offset is None:
            storage_offset = offset(input)
        if base is not None:
            found = _within(base, shape, steps, storage_offset - offset(base), last)
            if found is not None:
                return found
        if current().tracer is not None:
            raise ShapeError(
                f"as_strided: in a trace only the elements of a tensor and of what it is a view of are reached, not what lies beside them: "
                f"size {shape}, stride {steps} and storage offset {storage_offset} of shape {array.shape}; pass the whole of the memory"
            )
        return _beside(input, shape, steps, storage_offset, last)
    except Exception as error:
        explain(error, "as_strided", as_strided, (input, size, stride, storage_offset))


def _depends() -> None:
    """What a trace computes from here on depends on how its arguments lie."""
    tracer = current().tracer
    if tracer is not None:
        tracer.values_by_layout = True


def _within(tensor: Any, shape: tuple[int, ...], steps: tuple[int, ...], first: int, last: int) -> Any:
    """`as_strided` that stays inside of the tensor's own elements, from its first one on; None where it does not."""
    array = tensor._array
    order = dense_order(array.shape, array.strides, array.dtype.itemsize)
    if order is None or first < 0 or first + last > count(array.shape):
        return None
    return _strided(tensor if array.flags.c_contiguous else permute(tensor, order), shape=shape, steps=steps, first=first)


def _beside(input: Any, shape: tuple[int, ...], steps: tuple[int, ...], first: int, last: int) -> Any:
    """`as_strided` of memory around `input`, too."""
    array = input._array
    line = _rows.line_of(array)
    length = -1 if line is None else line.shape[0]
    if first + last > length:
        room = f"the memory has {length}" if line is not None else "what the memory around it is like is not known; clone() it first"
        raise RuntimeError(f"as_strided: size {shape}, stride {steps} and storage offset {first} reach element {first + last - 1}; {room}")
    own = tuple(s // array.dtype.itemsize for s in array.strides)
    found = _strided(_storage(input, length=length, steps=own, first=offset(input)), shape=shape, steps=steps, first=first)
    # Which tensors have the memory around `input` is not known: they see what is written there, and their gradients would not.
    marked = found._meta
    marked.base, marked.chain, marked.quiet, marked.shut = None, (), True, input._edge is not None
    return found


def as_strided_copy(input: Tensor, size: Any, stride: Any, storage_offset: Any = None, *, out: Any = None) -> Tensor:
    """as_strided, in memory of its own.

    >>> gl.as_strided_copy(gl.arange(6), (2, 2), (1, 1))
    tensor([[0, 1],
            [1, 2]])
    """
    found = as_strided(input, size, stride, storage_offset).contiguous().clone()
    return found if out is None else into("as_strided_copy", out, found)


def as_strided_scatter(input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: Any = None) -> Tensor:
    """A copy of `input` with what as_strided(size, stride, storage_offset) sees of it replaced by `src`.

    storage_offset counts from the start of the memory that `input` is a part of, as as_strided's; that of `input` unless given. The copy
    lies as `input` does. RuntimeError for a `src` of another shape, and for what reaches beyond the last element of `input`.

    >>> gl.as_strided_scatter(gl.zeros(2, 2), gl.ones(2), (2,), (3,))
    tensor([[1., 0.],
            [0., 1.]])
    """
    try:
        only_tensors("as_strided_scatter", input, src)
        shape, steps = _geometry("as_strided_scatter", size, stride, storage_offset)
        if src._array.shape != shape:
            raise ShapeError(f"as_strided_scatter: src has shape {src._array.shape}, what it replaces has {shape}")
        _depends()
        array, write = input._array, _rows.as_strided.inverse
        assert write is not None
        refresh(input)
        src, start = src.to(array.dtype), 0 if type(array) is Batched else offset(input)
        first = start if storage_offset is None else whole(storage_offset)
        order = dense_order(array.shape, array.strides, array.dtype.itemsize)
        if order is not None and first >= start:
            copy = input if array.flags.c_contiguous else permute(input, order)
            _rows.as_strided.infer(Spec(copy._array.shape, array.dtype), shape=shape, steps=steps, first=first - start)
            found = write(copy, src, shape=shape, steps=steps, first=first - start)
            return found if copy is input else permute(found, ops.movement.inverted(order))
        own = tuple(step // array.dtype.itemsize for step in array.strides)
        length = start + _rows.reach(array.shape, own)
        _rows.as_strided.infer(Spec((length,), array.dtype), shape=shape, steps=steps, first=first)
        line = write(input.new_zeros((length,)), input, shape=array.shape, steps=own, first=start)
        return _strided(write(line, src, shape=shape, steps=steps, first=first), shape=array.shape, steps=own, first=start)
    except Exception as error:
        explain(error, "as_strided_scatter", as_strided_scatter, (input, src, size, stride, storage_offset))


named_functions(__name__)


class MemoryMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    as_strided, as_strided_scatter = as_strided, as_strided_scatter

    def as_strided_(self, size: Any, stride: Any, storage_offset: Any = None) -> Any:
        """as_strided, in place: this tensor sees its memory in another size and other steps. RuntimeError beyond its own elements.

        >>> gl.arange(4).as_strided_((2,), (2,))
        tensor([0, 2])
        """
        refresh(self)
        shape, steps = _geometry("as_strided_", size, stride, storage_offset)
        array = self._array
        order = dense_order(array.shape, array.strides, array.dtype.itemsize)
        first = 0 if storage_offset is None else storage_offset - offset(self)
        last = _rows.reach(shape, steps)
        if last and (order is None or first < 0 or first + last > count(array.shape)):
            raise RuntimeError(
                f"as_strided_: size {shape}, stride {steps} and storage offset {storage_offset} reach beyond the elements of the tensor of "
                f"shape {array.shape} (stride {self.stride()}); use as_strided, which sees the memory around it, too"
            )
        if order is not None and not array.flags.c_contiguous:
            inplace.turn("as_strided_", self, ops.movement.permute, {"dims": order})
        return inplace.turn("as_strided_", self, _rows.as_strided, {"shape": shape, "steps": steps, "first": first if last else 0})

    def stride(self, dim: int | None = None, *, axis: Any = None) -> Any:
        """Elements (not bytes) to step in memory from one index to the next, of each dimension or of one.

        >>> gl.ones(2, 3).stride()
        (3, 1)
        """
        dim = dim if axis is None else either("stride", dim, None, axis)
        array = self._array
        steps = row_major(array.shape, 1) if 0 in array.shape else tuple(s // array.dtype.itemsize for s in array.strides)
        return steps if dim is None else steps[dim]

    def storage_offset(self) -> int:
        """Elements between the start of the underlying memory and the first element of this tensor.

        >>> gl.arange(4)[2:].storage_offset()
        2
        """
        if self._meta is not None:
            refresh(self)
        return offset(self)

    def is_contiguous(self, memory_format: MemoryFormat = contiguous_format) -> bool:
        """Whether the elements lie in memory without gaps, in row-major order or that of another `memory_format`.

        >>> gl.ones(2, 3).t().is_contiguous()
        False
        """
        array = self._array
        if memory_format is contiguous_format:
            return bool(array.flags.c_contiguous)
        return has_format(array.shape, array.strides, _format("is_contiguous", memory_format), array.dtype.itemsize)

    def data_ptr(self) -> int:
        """Address of the first element; 0 for a tensor without elements. RuntimeError in a trace, where there is no memory yet.

        >>> x = gl.ones(2)
        >>> x.data_ptr() == x.view(2, 1).data_ptr()
        True
        """
        if self._meta is not None:
            refresh(self)
        return int(dispatch.backend_of(self._array).address(self._array)) if count(self._array.shape) else 0

    def is_set_to(self, tensor: Any) -> bool:
        """Whether the other tensor is the same memory, in the same shape and strides.

        >>> x = gl.ones(2)
        >>> x.is_set_to(x.view(2)), x.is_set_to(x.clone())
        (True, False)
        """
        only_tensors("is_set_to", tensor)
        same = self._array.shape == tensor._array.shape and self._array.strides == tensor._array.strides
        return same and self._array.dtype == tensor._array.dtype and self.data_ptr() == tensor.data_ptr()

    def dim_order(self, *, ambiguity_check: Any = False) -> tuple[int, ...]:
        """The dimensions from that of the longest steps in memory to that of the shortest; `ambiguity_check` changes nothing.

        >>> gl.ones(2, 3).t().dim_order()
        (1, 0)
        """
        return tuple(sorted(range(len(self._array.shape)), key=lambda d: -self._array.strides[d]))


def _format(name: str, chosen: Any) -> MemoryFormat:
    if not isinstance(chosen, MemoryFormat):
        raise TypeError(f"{name}(): argument 'memory_format' must be a memory format such as gl.channels_last, not {type(chosen).__name__}")
    return chosen
