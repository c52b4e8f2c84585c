"""Where a tensor lies in its memory, and the same bits as another dtype."""

from __future__ import annotations

from typing import Any

from gradlab import dispatch, ops
from gradlab.autograd.mode import current
from gradlab.autograd.record import bind, refresh
from gradlab.batched import Batched
from gradlab.dtype import as_numpy
from gradlab.spec import Spec, count

_rows = ops.memory
_bits = bind(_rows.bits)


def offset(tensor: Any) -> int:
    """Elements between the start of the memory that a tensor is a part of and its first element."""
    array = tensor._array
    if type(array) is Batched or not count(array.shape):
        return 0
    tracer = current().tracer
    if tracer is not None:
        place: int = tracer.offset(tensor)
        return place
    return offset_of(array)


def offset_of(array: Any) -> int:
    """`offset` of an array."""
    backend = dispatch.backend_of(array)
    return int((backend.address(array) - backend.address(_rows.root(array))) // array.dtype.itemsize)


def view_as_dtype(input: Any, dtype: Any) -> Any:
    """`view(dtype)`: the same bits as elements of another dtype; the last size counts them. No gradient passes.

    RuntimeError where elements of another size do not fit: the last dimension has gaps, or its size, the steps of the others or the place
    in memory are no multiples.
    """
    new = as_numpy(dtype)
    refresh(input)
    array = input._array
    old = array.dtype
    if old.itemsize != new.itemsize and array.shape and type(array) is not Batched:
        _rows.bits.infer(Spec(array.shape, old), dtype=new)
        steps, ratio = array.strides, new.itemsize // old.itemsize
        name = f"view: {old} as {new}, elements of another size"
        if not count(array.shape):  # nothing has gaps
            return input.new_empty(_rows.bits.infer(Spec(array.shape, old), dtype=new).shape, dtype=dtype)
        if steps[-1] != old.itemsize:
            raise RuntimeError(f"{name}: the last dimension's stride is 1, not {steps[-1] // old.itemsize}; use contiguous() first")
        if ratio > 1 and any(s % new.itemsize for s in steps[:-1]):
            raise RuntimeError(f"{name}: the other strides are multiples of {ratio}, not {input.stride()}; use contiguous() first")
        if ratio > 1 and offset(input) % ratio:
            raise RuntimeError(f"{name}: the storage offset is a multiple of {ratio}, not {offset(input)}; clone() the tensor first")
    source = input if input._edge is None else input.detach()
    return _bits(source, dtype=new)
